#include <string.h>

#include "trust/manifest.h"
#include "trust/name.h"

static const char *list_odd(const struct gw_head_entry *v, uint32_t n, uint64_t newest, int anchors)
{
	if (n > GW_HEAD_LIST_MAX)
		return "it lists too many anchors or skips";
	for (uint32_t i = 0; i < n; i++) {
		if (gw_digest_is_zero(&v[i].manifest))
			return "an anchor or skip has no manifest";
		if (v[i].to > newest)
			return "an anchor or skip is beyond the newest version";
		if (anchors ? v[i].from != v[i].to : v[i].from >= v[i].to)
			return "an anchor or skip has versions that do not fit";
	}
	return NULL;
}

static const char *odd(const struct gw_head *h)
{
	const char *what;

	if (!gw_name_ok(h->policy, strnlen(h->policy, sizeof h->policy), GW_POLICY_NAME_MAX))
		return "its policy has no good name";
	if (!h->root_epoch || !h->sequence)
		return "root epoch and sequence begin with 1";
	if (h->expires_ns <= h->created_ns || h->expires_ns - h->created_ns > GW_HEAD_LIFE_MAX_NS)
		return "it must expire after it was made, and within an hour";
	if (gw_digest_is_zero(&h->manifest))
		return "it names no manifest";
	what = list_odd(h->anchors, h->anchor_count, h->newest, 1);
	return what ? what : list_odd(h->skips, h->skip_count, h->newest, 0);
}

static void write_list(struct gw_wr *w, const struct gw_head_entry *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		gw_wr_bytes(w, v[i].manifest.b, sizeof v[i].manifest.b);
		gw_wr_u64(w, v[i].from);
		gw_wr_u64(w, v[i].to);
	}
}

static void read_list(struct gw_rd *r, struct gw_head_entry *v, uint32_t n)
{
	if (n > GW_HEAD_LIST_MAX) {
		gw_rd_fail(r, GW_ELIMIT);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		gw_rd_copy(r, v[i].manifest.b, sizeof v[i].manifest.b);
		v[i].from = gw_rd_u64(r);
		v[i].to = gw_rd_u64(r);
	}
}

void gw_head_write(const struct gw_head *h, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_HEAD, GW_MAGIC_BYTES);
	gw_wr_bytes(w, h->run, sizeof h->run);
	gw_wr_u64(w, h->root_epoch);
	gw_wr_u64(w, h->sequence);
	gw_wr_u64(w, h->newest);
	gw_wr_bytes(w, h->manifest.b, sizeof h->manifest.b);
	gw_wr_u64(w, h->created_ns);
	gw_wr_u64(w, h->expires_ns);
	gw_wr_u32(w, h->anchor_count);
	gw_wr_u32(w, h->skip_count);
	gw_name_write(w, h->policy);
	write_list(w, h->anchors, h->anchor_count);
	write_list(w, h->skips, h->skip_count);
}

static int parse(struct gw_rd *r, struct gw_head *h)
{
	gw_rd_copy(r, h->run, sizeof h->run);
	h->root_epoch = gw_rd_u64(r);
	h->sequence = gw_rd_u64(r);
	h->newest = gw_rd_u64(r);
	gw_rd_copy(r, h->manifest.b, sizeof h->manifest.b);
	h->created_ns = gw_rd_u64(r);
	h->expires_ns = gw_rd_u64(r);
	h->anchor_count = gw_rd_u32(r);
	h->skip_count = gw_rd_u32(r);
	gw_name_read(r, h->policy, GW_POLICY_NAME_MAX, 0);
	read_list(r, h->anchors, h->anchor_count);
	read_list(r, h->skips, h->skip_count);
	return gw_rd_end(r);
}

int gw_head_sign(struct gw_head *h, const uint8_t sk[64], uint8_t **signed_bytes, size_t *n)
{
	struct gw_wr w;
	int err;

	*signed_bytes = NULL;
	*n = 0;
	if (odd(h))
		return GW_EINVAL;
	gw_wr_init(&w, GW_HEAD_MAX);
	gw_head_write(h, &w);
	(void)gw_signed_seal(&w, 0, sk);
	err = gw_wr_take(&w, signed_bytes, n);
	if (!err)
		gw_digest_of(*signed_bytes, *n, &h->id);
	return err;
}

int gw_head_open(const void *p, size_t n, const uint8_t pk[32], struct gw_head *h, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err = gw_signed_open(p, n, GW_HEAD_MAX, GW_MAGIC_HEAD, "head", pk, &r, why);

	memset(h, 0, sizeof *h);
	if (err)
		return err;
	err = parse(&r, h);
	if (err)
		return gw_diag_set(why, err, "head refused, though its signature is good: %s", gw_err_text(err));
	what = odd(h);
	if (what)
		return gw_diag_set(why, GW_EMALFORMED, "head %llu of %s refused: %s", (unsigned long long)h->sequence,
				   h->policy, what);
	gw_digest_of(p, n, &h->id);
	return 0;
}
