/* Identities and signatures, modelled: something is signed if it is in the registry, or is a member record whose
 * check word fits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "sim.h"

enum { RECORD_BYTES = 700 }; /* what a real one has */

void sim_identity(int index, uint8_t out[32])
{
	uint64_t x = 0x1d00 + (uint64_t)index;

	for (int i = 0; i < 4; i++)
		gw_put_le64(out + 8 * i, gw_splitmix64(&x));
	gw_put_le32(out + 28, (uint32_t)index);
}

int sim_identity_index(const uint8_t identity[32])
{
	return (int)gw_le32(identity + 28);
}

static uint64_t check_word(const uint8_t *raw)
{
	return gw_siphash13(1, 2, raw, 16);
}

static struct gw_member_record *record_of(const struct sim *s, const uint8_t *raw)
{
	int index = (int)gw_le32(raw);
	char name[32], region[32];
	struct gw_member_record r = {.stamp_ns = gw_le64(raw + 8),
				     .expires_ns = UINT64_MAX,
				     .name = name,
				     .region = region,
				     .island = "",
				     .raw = {raw, RECORD_BYTES}};
	struct gw_member_record *out;

	sim_identity(index, r.identity);
	memcpy(r.curve, r.identity, 32);
	r.curve[0] ^= 0x55;
	r.roles = 1;
	r.dial = raw[4] ? GW_DIAL_REGION | GW_DIAL_ANY : 0;
	snprintf(name, sizeof name, "host-%d", index);
	snprintf(region, sizeof region, "region-%d", index % s->config.regions);
	if (gw_member_record_new(&r, &out))
		abort();
	return out;
}

struct gw_member_record *sim_record_new(const struct sim *s, int index, uint64_t stamp_ns)
{
	uint8_t raw[RECORD_BYTES] = {0};

	gw_put_le32(raw, (uint32_t)index);
	raw[4] = index < s->config.hosts - s->config.undialable;
	gw_put_le64(raw + 8, stamp_ns);
	gw_put_le64(raw + 16, check_word(raw));
	return record_of(s, raw);
}

static struct gw_member_record *verify_member(struct sim *s, struct gw_bytes raw)
{
	struct sim_host *subject;

	if (raw.n != RECORD_BYTES || gw_le64(raw.p + 16) != check_word(raw.p) || (int)gw_le32(raw.p) >= s->config.hosts)
		return NULL;
	subject = &s->hosts[gw_le32(raw.p)];
	if (subject->record->stamp_ns == gw_le64(raw.p + 8)) /* one copy for all */
		return gw_member_record_ref(subject->record);
	return record_of(s, raw.p);
}

void sim_verify(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct gw_event ev = {.kind = GW_EV_REFUSED, .host = a->host, .key = a->key, .err = GW_ESIGNATURE};
	const struct gw_event *known;

	if (a->kind == GW_ACT_VERIFY_MEMBER) {
		ev.record = verify_member(s, a->data);
		if (ev.record)
			ev.kind = GW_EV_MEMBER_RECORD;
	} else {
		known = gw_map_get(&s->signed_records, a->data.p, a->data.n);
		if (known && known->kind == (a->kind == GW_ACT_VERIFY_HEAD ? GW_EV_HEAD : GW_EV_MANIFEST)) {
			ev = *known;
			ev.host = a->host;
			ev.key = a->key;
		}
	}
	sim_feed_later(s, h->index, MS / 10 + gw_rng_below(&s->rng, MS), &ev);
}
