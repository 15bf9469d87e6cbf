#include "mesh/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char *put(char **at, const char *text, size_t n)
{
	char *p = memcpy(*at, text, n + 1);

	*at += n + 1;
	return p;
}

int gw_member_record_new(const struct gw_member_record *from, struct gw_member_record **out)
{
	size_t name = strnlen(from->name, GW_MEMBER_TEXT_MAX + 1),
	       region = strnlen(from->region, GW_MEMBER_TEXT_MAX + 1);
	size_t island = strnlen(from->island, GW_MEMBER_TEXT_MAX + 1), raw = from->raw.n;
	struct gw_member_record *r;
	char *at;

	if (name > GW_MEMBER_TEXT_MAX || region > GW_MEMBER_TEXT_MAX || island > GW_MEMBER_TEXT_MAX ||
	    raw > GW_MEMBER_RAW_MAX)
		return GW_ELIMIT;
	if (!region)
		return GW_EINVAL;
	r = malloc(sizeof *r + name + region + island + 3 + raw);
	if (!r)
		return GW_ENOMEM;
	*r = *from;
	r->refs = 1;
	at = (char *)(r + 1);
	r->name = put(&at, from->name, name);
	r->region = put(&at, from->region, region);
	r->island = put(&at, from->island, island);
	r->raw.p = (uint8_t *)at;
	if (raw)
		memcpy(at, from->raw.p, raw);
	*out = r;
	return 0;
}

struct gw_member_record *gw_member_record_ref(struct gw_member_record *r)
{
	assert(r->refs);
	r->refs++;
	return r;
}

void gw_member_record_unref(struct gw_member_record *r)
{
	if (!r)
		return;
	assert(r->refs);
	if (!--r->refs)
		free(r);
}
