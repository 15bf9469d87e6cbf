#include "trust/freshness.h"

#include <string.h>

int gw_counters_known(const struct gw_counters *c)
{
	return c->root_epoch != 0;
}

static int same_run(const struct gw_counters *c, const struct gw_head *h)
{
	return !memcmp(c->run, h->run, sizeof c->run);
}

int gw_head_is_fresh(const struct gw_head *h, uint64_t wall_ns)
{
	int made = wall_ns >= h->created_ns || h->created_ns - wall_ns <= GW_CLOCK_SKEW_NS;

	return made && wall_ns < h->expires_ns;
}

/* <0, 0, >0 by (root epoch, sequence). */
static int order(const struct gw_head *h, const struct gw_counters *c)
{
	if (h->root_epoch != c->root_epoch)
		return h->root_epoch < c->root_epoch ? -1 : 1;
	return h->sequence < c->sequence ? -1 : h->sequence > c->sequence;
}

static int rollback(const struct gw_counters *c, const struct gw_head *h, struct gw_diag *why)
{
	return gw_diag_set(why, GW_EROLLBACK,
			   "head of %s refused: root epoch %llu, sequence %llu, version %llu is older than what was already "
			   "seen (%llu, %llu, %llu)",
			   h->policy, (unsigned long long)h->root_epoch, (unsigned long long)h->sequence,
			   (unsigned long long)h->newest, (unsigned long long)c->root_epoch,
			   (unsigned long long)c->sequence, (unsigned long long)c->newest);
}

int gw_head_judge(const struct gw_counters *seen, const struct gw_head *h, uint64_t wall_ns, uint64_t floor_ns,
		  enum gw_freshness *out, struct gw_diag *why)
{
	int known = gw_counters_known(seen), where = order(h, seen);

	if (known && where < 0)
		return rollback(seen, h, why);
	if (known && where == 0) {
		if (!gw_digest_equal(&seen->head, &h->id))
			return gw_diag_set(why, GW_EEQUIVOCATE,
					   "head of %s refused: two different heads were signed for root epoch %llu, sequence "
					   "%llu; its release key is in two places, or stolen",
					   h->policy, (unsigned long long)h->root_epoch, (unsigned long long)h->sequence);
		*out = GW_HEAD_KNOWN;
		return 0;
	}
	if (known && same_run(seen, h) && h->root_epoch == seen->root_epoch && h->newest < seen->newest)
		return rollback(seen, h, why);
	if (!known && wall_ns >= h->expires_ns && wall_ns - h->expires_ns > floor_ns)
		return gw_diag_set(why, GW_EEXPIRED,
				   "head of %s refused: it expired %llu s ago and this host has seen no other to compare; is "
				   "the trainer host up, and the clock right? (freshness_floor is %llu s)",
				   h->policy, (unsigned long long)((wall_ns - h->expires_ns) / 1000000000),
				   (unsigned long long)(floor_ns / 1000000000));
	*out = gw_head_is_fresh(h, wall_ns) ? GW_HEAD_FRESH : GW_HEAD_STALE;
	return 0;
}

void gw_counters_advance(struct gw_counters *c, const struct gw_head *h)
{
	c->root_epoch = h->root_epoch;
	c->sequence = h->sequence;
	c->newest = h->newest;
	memcpy(c->run, h->run, sizeof c->run);
	c->head = h->id;
}

int gw_head_names(const struct gw_head *h, const struct gw_manifest *m, struct gw_diag *why)
{
	if (strcmp(h->policy, m->policy))
		return gw_diag_set(why, GW_EWRONGRUN, "the head is of policy %s, the manifest of %s", h->policy, m->policy);
	if (memcmp(h->run, m->run, sizeof h->run))
		return gw_diag_set(why, GW_EWRONGRUN, "head and manifest of %s are of different runs", h->policy);
	if (!gw_digest_equal(&h->manifest, &m->id))
		return gw_diag_set(why, GW_EDIGEST, "the head of %s names another manifest as its newest", h->policy);
	if (h->newest != m->to)
		return gw_diag_set(why, GW_EMALFORMED, "the head of %s says version %llu, its manifest ends in %llu", h->policy,
				   (unsigned long long)h->newest, (unsigned long long)m->to);
	return 0;
}

void gw_counters_write(const struct gw_counters *c, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_COUNTERS, GW_MAGIC_BYTES);
	gw_wr_bytes(w, c->run, sizeof c->run);
	gw_wr_u64(w, c->root_epoch);
	gw_wr_u64(w, c->sequence);
	gw_wr_u64(w, c->newest);
	gw_wr_bytes(w, c->head.b, sizeof c->head.b);
}

int gw_counters_read(struct gw_counters *c, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_rd r;
	int err = gw_magic_check(p, n, GW_MAGIC_COUNTERS, "stored counters", why);

	memset(c, 0, sizeof *c);
	if (err)
		return err;
	gw_rd_init(&r, p, n);
	(void)gw_rd_bytes(&r, GW_MAGIC_BYTES);
	gw_rd_copy(&r, c->run, sizeof c->run);
	c->root_epoch = gw_rd_u64(&r);
	c->sequence = gw_rd_u64(&r);
	c->newest = gw_rd_u64(&r);
	gw_rd_copy(&r, c->head.b, sizeof c->head.b);
	err = gw_rd_end(&r);
	if (!err && (!c->root_epoch || !c->sequence))
		err = GW_EMALFORMED;
	if (err)
		memset(c, 0, sizeof *c);
	return err ? gw_diag_set(why, err, "stored counters refused: %s", gw_err_text(err)) : 0;
}
