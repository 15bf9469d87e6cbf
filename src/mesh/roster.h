/*
 * The table of all members: identity → handle, record, state. One per node; mesh alone changes it, others read.
 *
 * Handles (gw_host) are given in order of first mention and never reused while the process lives; 0 is this
 * host. Region handles likewise; 0 is this host's region. Limits: GW_MEMBERS_MAX members at a time,
 * GW_HANDLES_MAX handles and GW_REGIONS_MAX regions in a process's life.
 *
 * For anti-entropy the table keeps digests: each member adds a keyed hash of (identity, incarnation, whether it
 * is in, the record's stamp) to the sum of one of 64 buckets, so that a change costs one hash and equal tables
 * have equal sums. A suspect counts as alive: suspicion passes by itself.
 *
 * News order: members changed lately form a list in order of their last change (`news_seq`), from which each
 * link is told what it has not heard. So the backlog of a link is one number, bounded by the table.
 */
#ifndef GW_MESH_ROSTER_H
#define GW_MESH_ROSTER_H

#include "base/map.h"
#include "mesh/record.h"
#include "wire/step.h"

enum {
	GW_MEMBERS_MAX = 16384,
	GW_HANDLES_MAX = 1 << 20,
	GW_REGIONS_MAX = 1024,
	GW_ROSTER_BUCKETS = 64,
	GW_WITNESSES = 3, /* so many make a suspicion certain; further ones add nothing */
};

/* Order matters: at one incarnation the later state wins. */
enum gw_member_state { GW_MEMBER_ALIVE, GW_MEMBER_SUSPECT, GW_MEMBER_DEAD, GW_MEMBER_LEFT, GW_MEMBER_STATES };

struct gw_suspicion {
	uint64_t since_ns;
	unsigned count;
	uint8_t by[GW_WITNESSES][16];
};

struct gw_roster_entry {
	gw_host host;
	uint32_t region;
	enum gw_member_state state;
	uint64_t incarnation;
	struct gw_member_record *record;
	uint64_t changed_ns; /* when the state last changed here */

	/* Mesh's own. */
	struct gw_suspicion *suspicion; /* while suspect */
	uint64_t news_seq, record_seq;	/* last change of the member; of its record */
	struct gw_roster_entry *older, *newer;
	gw_host news_from; /* who told us: not told again */
	int link;	   /* index into mesh's links, -1 none */
	uint64_t score;	   /* rendezvous weight of this member for this host */
	uint64_t retry_ns; /* not to be dialled before */
	uint8_t fails;	   /* dials in a row that failed */
	uint8_t linked;	   /* a link is up, whoever asked for it */
	uint8_t refusals;  /* records that it passed on and that did not verify */
	uint64_t heard_ns; /* the last word of its own */
	uint64_t told_ns;  /* when it was last told what is said of it */
	uint64_t deaf_ns;  /* records from it are not looked at before */
	uint32_t mark;	   /* of the last comparison that listed it */
};

struct gw_roster {
	struct gw_map by_identity, by_curve;
	struct gw_roster_entry **at; /* by handle; NULL where forgotten */
	uint32_t n, cap;	     /* handles given */
	char **regions;
	uint32_t region_count;
	uint64_t buckets[GW_ROSTER_BUCKETS], digest;
	uint64_t news_seq;
	struct gw_roster_entry *oldest, *newest;
};

/* Handle 0 and region 0 come from `self`, of which a reference is taken. */
int gw_roster_init(struct gw_roster *r, uint64_t seed, struct gw_member_record *self);
void gw_roster_free(struct gw_roster *r);

/* NULL where unknown. */
struct gw_roster_entry *gw_roster_find(const struct gw_roster *r, const uint8_t identity[GW_IDENTITY_BYTES]);
struct gw_roster_entry *gw_roster_at(const struct gw_roster *r, gw_host host);
/* Whose links use that key: for admitting connections, of those whose record has not expired. */
struct gw_roster_entry *gw_roster_find_curve(const struct gw_roster *r, const uint8_t curve[32]);
size_t gw_roster_count(const struct gw_roster *r);
const char *gw_roster_region_name(const struct gw_roster *r, uint32_t region);
/* Whether this host may dial that one by the addresses in its certificate. */
int gw_roster_dialable(const struct gw_roster_entry *e);
/* Alive or suspect: counts as a member in all that is decided from membership. */
int gw_roster_is_in(const struct gw_roster_entry *e);

/* Takes a reference of the record. GW_EEXIST; GW_EDUPLICATE where another member has its CURVE key; GW_ELIMIT,
 * GW_ENOMEM. */
int gw_roster_add(struct gw_roster *r, struct gw_member_record *record, enum gw_member_state state,
		  uint64_t incarnation, struct gw_roster_entry **out);
void gw_roster_set(struct gw_roster *r, struct gw_roster_entry *e, enum gw_member_state state, uint64_t incarnation);
/* Its region may change with it, but this host's own may not (GW_EINVAL). GW_EDUPLICATE as above; GW_ELIMIT, GW_ENOMEM.
 * On error nothing changed. */
int gw_roster_set_record(struct gw_roster *r, struct gw_roster_entry *e, struct gw_member_record *record);
/* Frees the entry; its handle stays unused. Not for this host. */
void gw_roster_forget(struct gw_roster *r, struct gw_roster_entry *e);
/* Makes the member the newest news. */
void gw_roster_news(struct gw_roster *r, struct gw_roster_entry *e, gw_host from);
unsigned gw_roster_bucket(const uint8_t identity[GW_IDENTITY_BYTES]);

#endif
