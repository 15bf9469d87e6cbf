#include "engine/commit.h"

#include <assert.h>
#include <string.h>

static const uint8_t magic[8] = "GWCOMM1";

static_assert(sizeof(struct gw_commit_page) <= GW_COMMIT_PAGE_BYTES, "the page holds it");

int gw_commit_init(void *p, const uint8_t run[16], uint64_t from, uint64_t to, uint32_t ranks)
{
	struct gw_commit_page *page = p;

	if (ranks == 0 || ranks > GW_COMMIT_RANKS_MAX)
		return GW_ELIMIT;
	memset(p, 0, GW_COMMIT_PAGE_BYTES);
	memcpy(page->magic, magic, sizeof magic);
	memcpy(page->run, run, sizeof page->run);
	page->from = from;
	page->to = to;
	page->ranks = ranks;
	return 0;
}

int gw_commit_check(const void *p, size_t n, const uint8_t run[16], uint64_t from, uint64_t to, uint32_t ranks)
{
	const struct gw_commit_page *page = p;

	if (n < GW_COMMIT_PAGE_BYTES)
		return GW_ETRUNC;
	if (memcmp(page->magic, magic, sizeof magic) != 0)
		return GW_EMALFORMED;
	if (memcmp(page->run, run, sizeof page->run) != 0 || page->from != from || page->to != to ||
	    page->ranks != ranks || ranks == 0 || ranks > GW_COMMIT_RANKS_MAX)
		return GW_ESTATE;
	return 0;
}

enum gw_decision gw_commit_decide(struct gw_commit_page *p, enum gw_decision d)
{
	uint32_t expected = GW_DECISION_OPEN;

	assert(d == GW_DECISION_NEW || d == GW_DECISION_OLD);
	if (__atomic_compare_exchange_n(&p->decision, &expected, (uint32_t)d, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return d;
	return (enum gw_decision)expected;
}

enum gw_decision gw_commit_decision(const struct gw_commit_page *p)
{
	return (enum gw_decision)__atomic_load_n(&p->decision, __ATOMIC_ACQUIRE);
}

void gw_commit_settle(struct gw_commit_page *p, uint32_t rank)
{
	assert(rank < GW_COMMIT_RANKS_MAX);
	__atomic_store_n(&p->settled[rank], 1, __ATOMIC_RELEASE);
}

int gw_commit_all_settled(const struct gw_commit_page *p)
{
	for (uint32_t i = 0; i < p->ranks && i < GW_COMMIT_RANKS_MAX; i++)
		if (!__atomic_load_n(&p->settled[i], __ATOMIC_ACQUIRE))
			return 0;
	return 1;
}
