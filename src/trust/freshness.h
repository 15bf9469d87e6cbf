/*
 * Which heads are believed: the counters of a policy and the rules. Pure: the caller makes the
 * counters durable before it acts on a head, by what gw_counters_write gives.
 *
 * Order is (root epoch, sequence). Within one run and root epoch the newest version never falls either. Wall
 * clocks jump: a head that was made after what the clock says (by more than GW_CLOCK_SKEW_NS) proves the clock
 * behind, so it is not taken as fresh, and a clock set back does not make an expired head fresh.
 */
#ifndef GW_TRUST_FRESHNESS_H
#define GW_TRUST_FRESHNESS_H

#include "base/buf.h"
#include "trust/manifest.h"

enum { GW_COUNTERS_BYTES = 16 + 16 + 3 * 8 + 32 }; /* as written */
#define GW_FRESHNESS_FLOOR_NS (24ull * 3600 * 1000000000) /* the default of freshness_floor */
#define GW_CLOCK_SKEW_NS (5ull * 60 * 1000000000)

/* Highest seen, for one policy. All zero: nothing yet. */
struct gw_counters {
	uint64_t root_epoch, sequence, newest;
	uint8_t run[GW_RUN_BYTES];
	struct gw_digest head;  /* id of the head that set them */
};

enum gw_freshness {
	GW_HEAD_FRESH, /* newest known, and current */
	GW_HEAD_STALE, /* newest known, but expired (or the clock is wrong): may be fetched to and served; the host is stale */
	GW_HEAD_KNOWN, /* the very head that the counters stand at */
};

int gw_counters_known(const struct gw_counters *c);

/* What a verified head is against the counters. On 0 *out says which; the caller then calls gw_counters_advance
 * (unless KNOWN) and makes the counters durable before it acts.
 *   GW_EROLLBACK    lower (root epoch, sequence), or a lower version of the same run and epoch
 *   GW_EEQUIVOCATE  same counters, other bytes: two heads signed for one place
 *   GW_EEXPIRED     no counters stored, and expired for longer than the floor
 * `why` names policy and counters. */
int gw_head_judge(const struct gw_counters *seen, const struct gw_head *h, uint64_t wall_ns, uint64_t floor_ns,
		  enum gw_freshness *out, struct gw_diag *why);
void gw_counters_advance(struct gw_counters *c, const struct gw_head *h);

/* Is a head that was accepted current at that time? */
int gw_head_is_fresh(const struct gw_head *h, uint64_t wall_ns);

/* Does the head name this manifest as its newest, and do they agree on policy, run and version? (mix-and-match)
 * GW_EWRONGRUN, GW_EDIGEST or GW_EMALFORMED. */
int gw_head_names(const struct gw_head *h, const struct gw_manifest *m, struct gw_diag *why);

void gw_counters_write(const struct gw_counters *c, struct gw_wr *w);
int gw_counters_read(struct gw_counters *c, const void *p, size_t n, struct gw_diag *why);

#endif
