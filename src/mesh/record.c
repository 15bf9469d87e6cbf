#include "mesh/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int gw_member_record_new(const struct gw_member_record *from, struct gw_member_record **out)
{
	size_t name = strnlen(from->name, GW_MEMBER_TEXT_MAX + 1), region = strnlen(from->region, GW_MEMBER_TEXT_MAX + 1);
	size_t cert = from->certificate.n;
	struct gw_member_record *r;
	char *at;

	if (name > GW_MEMBER_TEXT_MAX || region > GW_MEMBER_TEXT_MAX || cert > GW_CERTIFICATE_MAX)
		return GW_ELIMIT;
	if (!region)
		return GW_EINVAL;
	r = malloc(sizeof *r + name + 1 + region + 1 + cert);
	if (!r)
		return GW_ENOMEM;
	*r = *from;
	r->refs = 1;
	at = (char *)(r + 1);
	r->name = memcpy(at, from->name, name + 1);
	at += name + 1;
	r->region = memcpy(at, from->region, region + 1);
	at += region + 1;
	r->certificate.p = (uint8_t *)at;
	if (cert)
		memcpy(at, from->certificate.p, cert);
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
