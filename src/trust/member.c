#include "trust/member.h"

#include <stdio.h>
#include <string.h>

#include "trust/signed.h"

/* --- roles --- */

static const struct {
	uint32_t bit;
	const char *name;
} role_names[] = {{GW_ROLE_ISLAND, "island"}, {GW_ROLE_SEED, "seed"}, {GW_ROLE_RELAY, "relay"}, {GW_ROLE_JOIN, "join"}};

enum { ROLE_NAMES = sizeof role_names / sizeof role_names[0] };

uint32_t gw_roles_parse(const char *text)
{
	uint32_t roles = 0;

	for (;; text++) {
		size_t n = strcspn(text, ","), i = 0;

		while (i < ROLE_NAMES && (strlen(role_names[i].name) != n || strncmp(role_names[i].name, text, n)))
			i++;
		if (i == ROLE_NAMES)
			return 0;
		roles |= role_names[i].bit;
		text += n;
		if (!*text)
			return roles;
	}
}

char *gw_roles_format(char *buf, uint32_t roles)
{
	char *at = buf;

	*at = 0;
	for (size_t i = 0; i < ROLE_NAMES; i++)
		if (roles & role_names[i].bit)
			at += sprintf(at, "%s%s", at == buf ? "" : ",", role_names[i].name);
	return buf;
}

static int roles_ok(uint32_t roles)
{
	return roles && !(roles & ~(uint32_t)GW_ROLES_ALL);
}

static int text_ok(const char *name, int empty_ok)
{
	size_t n = strnlen(name, GW_NAME_MAX + 1);

	return (!n && empty_ok) || gw_name_ok(name, n, GW_NAME_MAX);
}

/* --- delegation --- */

static const char *delegation_odd(const struct gw_delegation *d)
{
	if (!text_ok(d->region, 1))
		return "its region has no good name";
	if (!roles_ok(d->roles))
		return "it grants no role, or one that is not known";
	if (d->created_ns >= d->join_until_ns || d->join_until_ns > d->expires_ns)
		return "its times are out of order";
	return NULL;
}

int gw_delegation_sign(struct gw_delegation *d, const uint8_t admission_sk[64], struct gw_wr *w, struct gw_diag *why)
{
	const char *what = delegation_odd(d);
	size_t start = w->n;

	if (what)
		return gw_diag_set(why, GW_EINVAL, "a delegation cannot be made: %s", what);
	memcpy(d->signer, admission_sk + 32, sizeof d->signer);
	gw_wr_bytes(w, GW_MAGIC_DELEGATION, GW_MAGIC_BYTES);
	gw_wr_bytes(w, d->pk, sizeof d->pk);
	gw_name_write(w, d->region);
	gw_wr_u32(w, d->roles);
	gw_wr_u64(w, d->created_ns);
	gw_wr_u64(w, d->join_until_ns);
	gw_wr_u64(w, d->expires_ns);
	return gw_signed_seal(w, start, admission_sk);
}

int gw_delegation_read(const void *p, size_t n, struct gw_delegation *d, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err = gw_signed_open(p, n, GW_DELEGATION_MAX, GW_MAGIC_DELEGATION, "delegation", NULL, &r, why);

	memset(d, 0, sizeof *d);
	if (err)
		return err;
	gw_rd_copy(&r, d->pk, sizeof d->pk);
	gw_name_read(&r, d->region, GW_NAME_MAX, 1);
	d->roles = gw_rd_u32(&r);
	d->created_ns = gw_rd_u64(&r);
	d->join_until_ns = gw_rd_u64(&r);
	d->expires_ns = gw_rd_u64(&r);
	memcpy(d->signer, gw_signed_signer(p, n), sizeof d->signer);
	err = gw_rd_end(&r);
	what = err ? gw_err_text(err) : delegation_odd(d);
	if (!what)
		return 0;
	memset(d, 0, sizeof *d);
	return gw_diag_set(why, err ? err : GW_EMALFORMED, "delegation refused: %s", what);
}

/* The key first: the bytes are not looked into before they are known to be an admission key's. */
int gw_delegation_open(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_delegation *d,
		       struct gw_diag *why)
{
	const uint8_t *signer = gw_signed_signer(p, n);
	int err = GW_EUNTRUSTED;

	memset(d, 0, sizeof *d);
	if (!signer)
		return gw_diag_set(why, GW_ETRUNC, "delegation refused: only %zu bytes", n);
	for (uint32_t i = 0; err && i < r->admission_count; i++)
		if (!memcmp(r->admissions[i].pk, signer, GW_SIGNER_BYTES))
			err = 0;
	if (err)
		return gw_diag_set(why, err, "delegation refused: signed by a key that the root does not name for admission");
	err = gw_delegation_read(p, n, d, why);
	if (!err)
		err = gw_root_allows_admission(r, signer, d->created_ns, why);
	if (!err && now_ns >= d->expires_ns)
		err = gw_diag_set(why, GW_EEXPIRED, "delegation refused: it has expired; a new token is needed");
	if (err)
		memset(d, 0, sizeof *d);
	return err;
}

/* --- certificate --- */

static const char *certificate_odd(const struct gw_member *m)
{
	const struct gw_delegation *d = &m->delegation;

	if (!text_ok(m->name, 0) || !text_ok(m->region, 0) || !text_ok(m->island, 1))
		return "host, region or island has no good name";
	if (d->region[0] && strcmp(d->region, m->region))
		return "its region is not the one that was granted";
	if (!roles_ok(m->roles) || (m->roles & ~d->roles))
		return "it claims a role that was not granted";
	if (m->issued_ns < d->created_ns || m->expires_ns > d->expires_ns || m->issued_ns >= m->expires_ns)
		return "its times are not within those of its delegation";
	return NULL;
}

static void certificate_write(const struct gw_member *m, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_CERTIFICATE, GW_MAGIC_BYTES);
	gw_wr_bytes(w, m->identity, sizeof m->identity);
	gw_wr_bytes(w, m->curve, sizeof m->curve);
	gw_name_write(w, m->name);
	gw_name_write(w, m->region);
	gw_name_write(w, m->island);
	gw_wr_u32(w, m->roles);
	gw_wr_u64(w, m->issued_ns);
	gw_wr_u64(w, m->expires_ns);
}

static int certificate_read(const void *p, size_t n, struct gw_member *m, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err = gw_signed_open(p, n, GW_MEMBER_MAX, GW_MAGIC_CERTIFICATE, "certificate", m->delegation.pk, &r, why);

	if (err)
		return err;
	gw_rd_copy(&r, m->identity, sizeof m->identity);
	gw_rd_copy(&r, m->curve, sizeof m->curve);
	gw_name_read(&r, m->name, GW_NAME_MAX, 0);
	gw_name_read(&r, m->region, GW_NAME_MAX, 0);
	gw_name_read(&r, m->island, GW_NAME_MAX, 1);
	m->roles = gw_rd_u32(&r);
	m->issued_ns = gw_rd_u64(&r);
	m->expires_ns = gw_rd_u64(&r);
	err = gw_rd_end(&r);
	what = err ? gw_err_text(err) : certificate_odd(m);
	if (!what)
		return 0;
	return gw_diag_set(why, err ? err : GW_EMALFORMED, "certificate of host %s refused: %s", m->name, what);
}

/* --- presence --- */

static const char *presence_odd(const struct gw_member *m)
{
	if (m->address_count > GW_MEMBER_ADDRESSES_MAX)
		return "it has too many addresses";
	for (uint32_t i = 0; i < m->address_count; i++) {
		const struct gw_address *a = &m->addresses[i];

		if (a->scope != GW_SCOPE_REGION && a->scope != GW_SCOPE_ANY)
			return "an address has no known scope";
		if (!gw_address_ok(a->control, strnlen(a->control, sizeof a->control)) ||
		    !gw_address_ok(a->bulk, strnlen(a->bulk, sizeof a->bulk)))
			return "an address is not host:port";
	}
	return NULL;
}

static void presence_write(const struct gw_member *m, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_PRESENCE, GW_MAGIC_BYTES);
	gw_wr_u64(w, m->stamp_ns);
	gw_wr_u8(w, (uint8_t)m->address_count);
	for (uint32_t i = 0; i < m->address_count; i++) {
		gw_wr_u8(w, m->addresses[i].scope);
		gw_name_write(w, m->addresses[i].control);
		gw_name_write(w, m->addresses[i].bulk);
	}
}

static int presence_read(const void *p, size_t n, struct gw_member *m, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err = gw_signed_open(p, n, GW_MEMBER_MAX, GW_MAGIC_PRESENCE, "presence", m->identity, &r, why);

	if (err)
		return err;
	m->stamp_ns = gw_rd_u64(&r);
	m->address_count = gw_rd_u8(&r);
	if (m->address_count > GW_MEMBER_ADDRESSES_MAX)
		gw_rd_fail(&r, GW_ELIMIT);
	for (uint32_t i = 0; !r.err && i < m->address_count; i++) {
		m->addresses[i].scope = gw_rd_u8(&r);
		gw_address_read(&r, m->addresses[i].control);
		gw_address_read(&r, m->addresses[i].bulk);
	}
	err = gw_rd_end(&r);
	what = err ? gw_err_text(err) : presence_odd(m);
	if (!what)
		return 0;
	return gw_diag_set(why, err ? err : GW_EMALFORMED, "presence of host %s refused: %s", m->name, what);
}

/* --- the record: three lengths and three signed forms --- */

struct chain {
	struct gw_bytes part[3]; /* delegation, certificate, presence */
};

static int split(const void *p, size_t n, struct chain *c, struct gw_diag *why)
{
	struct gw_rd r;

	if (n > GW_MEMBER_MAX)
		return gw_diag_set(why, GW_ELIMIT, "member record refused: %zu bytes, at most %d are allowed", n, GW_MEMBER_MAX);
	gw_rd_init(&r, p, n);
	for (size_t i = 0; i < 3; i++) {
		c->part[i].n = gw_rd_u16(&r);
		c->part[i].p = gw_rd_bytes(&r, c->part[i].n);
	}
	if (gw_rd_end(&r))
		return gw_diag_set(why, gw_rd_end(&r), "member record refused: %s", gw_err_text(gw_rd_end(&r)));
	return 0;
}

static void put_part(struct gw_wr *w, const void *p, size_t n)
{
	gw_wr_u16(w, (uint16_t)n);
	gw_wr_bytes(w, p, n);
}

/* Signs what `write` writes, behind its length. */
static void seal_part(struct gw_wr *w, const struct gw_member *m, void (*write)(const struct gw_member *, struct gw_wr *),
		      const uint8_t sk[64])
{
	size_t start = w->n;

	gw_wr_u16(w, 0);
	write(m, w);
	(void)gw_signed_seal(w, start + 2, sk);
	if (!w->err) {
		size_t n = w->n - start - 2;

		w->p[start] = (uint8_t)n;
		w->p[start + 1] = (uint8_t)(n >> 8);
	}
}

int gw_member_make(const struct gw_member *m, const void *delegation, size_t n, const uint8_t delegated_sk[64],
		   const uint8_t identity_sk[64], struct gw_wr *w, struct gw_diag *why)
{
	const char *what = certificate_odd(m);
	size_t start = w->n;

	if (!what)
		what = presence_odd(m);
	if (!what && memcmp(delegated_sk + 32, m->delegation.pk, 32))
		what = "the key is not the one that was delegated";
	if (!what && memcmp(identity_sk + 32, m->identity, 32))
		what = "the key is not the host's";
	if (!what && n > GW_DELEGATION_MAX)
		what = "the delegation is too long";
	if (what)
		return gw_diag_set(why, GW_EINVAL, "a member record cannot be made: %s", what);
	put_part(w, delegation, n);
	seal_part(w, m, certificate_write, delegated_sk);
	seal_part(w, m, presence_write, identity_sk);
	return !w->err && w->n - start > GW_MEMBER_MAX ? GW_ELIMIT : w->err;
}

int gw_member_renew(const struct gw_member *m, const void *record, size_t n, const uint8_t identity_sk[64],
		    struct gw_wr *w, struct gw_diag *why)
{
	const char *what = presence_odd(m);
	struct chain c;
	int err = split(record, n, &c, why);

	if (err)
		return err;
	if (!what && memcmp(identity_sk + 32, m->identity, 32))
		what = "the key is not the host's";
	if (what)
		return gw_diag_set(why, GW_EINVAL, "a presence cannot be made: %s", what);
	put_part(w, c.part[0].p, c.part[0].n);
	put_part(w, c.part[1].p, c.part[1].n);
	seal_part(w, m, presence_write, identity_sk);
	return w->err;
}

int gw_member_open(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_member *m,
		   struct gw_diag *why)
{
	struct chain c;
	int err = split(p, n, &c, why);

	memset(m, 0, sizeof *m);
	if (!err)
		err = gw_delegation_open(r, now_ns, c.part[0].p, c.part[0].n, &m->delegation, why);
	if (!err)
		err = certificate_read(c.part[1].p, c.part[1].n, m, why);
	if (!err && now_ns >= m->expires_ns)
		err = gw_diag_set(why, GW_EEXPIRED, "certificate of host %s refused: it has expired; a new token is needed",
				  m->name);
	if (!err)
		err = presence_read(c.part[2].p, c.part[2].n, m, why);
	if (err)
		memset(m, 0, sizeof *m);
	return err;
}

int gw_member_may_join(const struct gw_member *m, uint64_t now_ns, struct gw_diag *why)
{
	if (now_ns < m->delegation.join_until_ns)
		return 0;
	return gw_diag_set(why, GW_EEXPIRED, "host %s may not join: its token has ended; ask for a new one", m->name);
}

const struct gw_address *gw_member_address(const struct gw_member *m, const char *from_region)
{
	const struct gw_address *any = NULL;

	for (uint32_t i = 0; i < m->address_count; i++) {
		if (m->addresses[i].scope == GW_SCOPE_REGION && !strcmp(from_region, m->region))
			return &m->addresses[i];
		if (m->addresses[i].scope == GW_SCOPE_ANY && !any)
			any = &m->addresses[i];
	}
	return any;
}
