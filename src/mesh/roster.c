#include "mesh/roster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"

unsigned gw_roster_bucket(const uint8_t identity[GW_IDENTITY_BYTES])
{
	return identity[0] % GW_ROSTER_BUCKETS;
}

int gw_roster_is_in(const struct gw_roster_entry *e)
{
	return e->state == GW_MEMBER_ALIVE || e->state == GW_MEMBER_SUSPECT;
}

int gw_roster_dialable(const struct gw_roster_entry *e)
{
	return e->record->dial & (e->region == 0 ? GW_DIAL_REGION | GW_DIAL_ANY : GW_DIAL_ANY);
}

static uint64_t line_hash(const struct gw_roster_entry *e)
{
	uint8_t line[GW_IDENTITY_BYTES + 8 + 8 + 1];
	enum gw_member_state state = gw_roster_is_in(e) ? GW_MEMBER_ALIVE : e->state;

	memcpy(line, e->record->identity, GW_IDENTITY_BYTES);
	gw_put_le64(line + GW_IDENTITY_BYTES, e->incarnation);
	gw_put_le64(line + GW_IDENTITY_BYTES + 8, e->record->stamp_ns);
	line[sizeof line - 1] = (uint8_t)state;
	/* A fixed key: both ends must agree. Who can forge a line can as well say it. */
	return gw_siphash13(0x6d656d6265727321u, 0x676f647769742031u, line, sizeof line);
}

/* Adds or takes out the entry's share of the digests. */
static void count_in(struct gw_roster *r, const struct gw_roster_entry *e)
{
	uint64_t h = line_hash(e);

	r->buckets[gw_roster_bucket(e->record->identity)] += h;
	r->digest += h;
}

static void count_out(struct gw_roster *r, const struct gw_roster_entry *e)
{
	uint64_t h = line_hash(e);

	r->buckets[gw_roster_bucket(e->record->identity)] -= h;
	r->digest -= h;
}

/* The handle of a region, made where it is new. */
static int region_of(struct gw_roster *r, const char *name, uint32_t *out)
{
	char **regions, *copy;

	for (uint32_t i = 0; i < r->region_count; i++)
		if (!strcmp(r->regions[i], name)) {
			*out = i;
			return 0;
		}
	if (r->region_count == GW_REGIONS_MAX)
		return GW_ELIMIT;
	copy = strdup(name);
	regions = reallocarray(r->regions, r->region_count + 1, sizeof *regions);
	if (regions)
		r->regions = regions;
	if (!copy || !regions) {
		free(copy);
		return GW_ENOMEM;
	}
	*out = r->region_count;
	r->regions[r->region_count++] = copy;
	return 0;
}

int gw_roster_init(struct gw_roster *r, uint64_t seed, struct gw_member_record *self)
{
	struct gw_roster_entry *e;
	int err;

	memset(r, 0, sizeof *r);
	gw_map_init(&r->by_identity, seed);
	gw_map_init(&r->by_curve, ~seed);
	err = gw_roster_add(r, self, GW_MEMBER_ALIVE, 0, &e);
	if (err)
		gw_roster_free(r);
	return err;
}

static void entry_free(struct gw_roster_entry *e)
{
	if (!e)
		return;
	gw_member_record_unref(e->record);
	free(e->suspicion);
	free(e);
}

void gw_roster_free(struct gw_roster *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		entry_free(r->at[i]);
	for (uint32_t i = 0; i < r->region_count; i++)
		free(r->regions[i]);
	free(r->regions);
	free(r->at);
	gw_map_free(&r->by_identity, NULL);
	gw_map_free(&r->by_curve, NULL);
	memset(r, 0, sizeof *r);
}

struct gw_roster_entry *gw_roster_find(const struct gw_roster *r, const uint8_t identity[GW_IDENTITY_BYTES])
{
	return gw_map_get(&r->by_identity, identity, GW_IDENTITY_BYTES);
}

struct gw_roster_entry *gw_roster_at(const struct gw_roster *r, gw_host host)
{
	return host < r->n ? r->at[host] : NULL;
}

struct gw_roster_entry *gw_roster_find_curve(const struct gw_roster *r, const uint8_t curve[32])
{
	return gw_map_get(&r->by_curve, curve, 32);
}

size_t gw_roster_count(const struct gw_roster *r)
{
	return gw_map_count(&r->by_identity);
}

const char *gw_roster_region_name(const struct gw_roster *r, uint32_t region)
{
	return region < r->region_count ? r->regions[region] : "";
}

static int grow(struct gw_roster *r)
{
	uint32_t cap = r->cap ? r->cap * 2 : 16;
	struct gw_roster_entry **at;

	if (r->n < r->cap)
		return 0;
	if (r->n >= GW_HANDLES_MAX)
		return GW_ELIMIT;
	at = reallocarray(r->at, cap, sizeof *at);
	if (!at)
		return GW_ENOMEM;
	r->at = at;
	r->cap = cap;
	return 0;
}

int gw_roster_add(struct gw_roster *r, struct gw_member_record *record, enum gw_member_state state,
		  uint64_t incarnation, struct gw_roster_entry **out)
{
	struct gw_roster_entry *e;
	uint32_t region;
	int err;

	if (gw_roster_find(r, record->identity))
		return GW_EEXIST;
	if (gw_roster_find_curve(r, record->curve))
		return GW_EDUPLICATE;
	if (gw_roster_count(r) >= GW_MEMBERS_MAX)
		return GW_ELIMIT;
	err = grow(r);
	if (!err)
		err = region_of(r, record->region, &region);
	if (err)
		return err;
	e = calloc(1, sizeof *e);
	if (!e)
		return GW_ENOMEM;
	err = gw_map_put(&r->by_identity, record->identity, GW_IDENTITY_BYTES, e, NULL);
	if (!err)
		err = gw_map_put(&r->by_curve, record->curve, sizeof record->curve, e, NULL);
	if (err) {
		gw_map_del(&r->by_identity, record->identity, GW_IDENTITY_BYTES);
		free(e);
		return err;
	}
	e->host = r->n;
	e->region = region;
	e->state = state;
	e->incarnation = incarnation;
	e->record = gw_member_record_ref(record);
	e->link = -1;
	e->news_from = GW_HOST_NONE;
	r->at[r->n++] = e;
	count_in(r, e);
	*out = e;
	return 0;
}

void gw_roster_set(struct gw_roster *r, struct gw_roster_entry *e, enum gw_member_state state, uint64_t incarnation)
{
	count_out(r, e);
	e->state = state;
	e->incarnation = incarnation;
	count_in(r, e);
	if (state != GW_MEMBER_SUSPECT) {
		free(e->suspicion);
		e->suspicion = NULL;
	}
}

int gw_roster_set_record(struct gw_roster *r, struct gw_roster_entry *e, struct gw_member_record *record)
{
	const struct gw_roster_entry *other = gw_roster_find_curve(r, record->curve);
	uint32_t region;
	int err;

	assert(!memcmp(e->record->identity, record->identity, GW_IDENTITY_BYTES));
	if (other && other != e)
		return GW_EDUPLICATE;
	err = region_of(r, record->region, &region);
	if (!err && e->host == GW_HOST_SELF && region != 0)
		err = GW_EINVAL;
	if (!err && !other)
		err = gw_map_put(&r->by_curve, record->curve, sizeof record->curve, e, NULL);
	if (err)
		return err;
	if (!other)
		gw_map_del(&r->by_curve, e->record->curve, sizeof e->record->curve);
	count_out(r, e);
	gw_member_record_ref(record);
	gw_member_record_unref(e->record);
	e->record = record;
	e->region = region;
	count_in(r, e);
	return 0;
}

static void unlink_news(struct gw_roster *r, struct gw_roster_entry *e)
{
	if (!e->news_seq)
		return;
	*(e->older ? &e->older->newer : &r->oldest) = e->newer;
	*(e->newer ? &e->newer->older : &r->newest) = e->older;
	e->older = e->newer = NULL;
}

void gw_roster_news(struct gw_roster *r, struct gw_roster_entry *e, gw_host from)
{
	unlink_news(r, e);
	e->news_seq = ++r->news_seq;
	e->news_from = from;
	e->older = r->newest;
	*(r->newest ? &r->newest->newer : &r->oldest) = e;
	r->newest = e;
}

void gw_roster_forget(struct gw_roster *r, struct gw_roster_entry *e)
{
	assert(e->host != GW_HOST_SELF);
	count_out(r, e);
	unlink_news(r, e);
	gw_map_del(&r->by_identity, e->record->identity, GW_IDENTITY_BYTES);
	gw_map_del(&r->by_curve, e->record->curve, sizeof e->record->curve);
	r->at[e->host] = NULL;
	entry_free(e);
}
