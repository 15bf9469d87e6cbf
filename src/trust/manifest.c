#include "trust/manifest.h"

#include <string.h>

#include "base/num.h"
#include "trust/name.h"

enum { DIGEST_BYTES = 32, LEAF_DIGESTS = GW_TABLE_LEAF_BYTES / DIGEST_BYTES };

uint32_t gw_piece_bytes_for(uint64_t object_bytes)
{
	uint32_t size = GW_PIECE_MIN;

	while (size < GW_PIECE_MAX && size * 2ull <= object_bytes / 1024)
		size *= 2;
	return size;
}

int gw_manifest_applies(const struct gw_manifest *m)
{
	return (m->kind == GW_KIND_TRANSITION || m->kind == GW_KIND_ANCHOR) && m->encoding == GW_ENCODING_PLAIN;
}

uint32_t gw_manifest_pieces(const struct gw_manifest *m)
{
	return m->table_pieces + m->object_pieces;
}

uint64_t gw_manifest_piece_size(const struct gw_manifest *m, uint32_t i)
{
	uint64_t at;

	if (i < m->table_pieces) {
		at = (uint64_t)i * GW_TABLE_LEAF_BYTES;
		return gw_min_u64(GW_TABLE_LEAF_BYTES, (uint64_t)m->object_pieces * DIGEST_BYTES - at);
	}
	if (i >= gw_manifest_pieces(m))
		return 0;
	at = (uint64_t)(i - m->table_pieces) * m->piece_bytes;
	return gw_min_u64(m->piece_bytes, m->object_bytes - at);
}

int gw_manifest_piece_digest(const struct gw_manifest *m, uint32_t i, const uint8_t *table, struct gw_digest *out)
{
	const uint8_t *from;

	if (i >= gw_manifest_pieces(m))
		return GW_EINVAL;
	if (i < m->table_pieces || !m->table_pieces)
		from = m->digests + (size_t)i * DIGEST_BYTES;
	else if (table)
		from = table + (size_t)(i - m->table_pieces) * DIGEST_BYTES;
	else
		return GW_EAGAIN;
	memcpy(out->b, from, sizeof out->b);
	return 0;
}

/* What a record of a known kind must say; others are carried, so only their frame is checked. */
static const char *kind_odd(const struct gw_manifest *m)
{
	switch (m->kind) {
	case GW_KIND_TRANSITION:
		return m->from < m->to ? NULL : "a transition must go to a later version";
	case GW_KIND_ANCHOR:
		if (m->from != m->to)
			return "an anchor is of one version";
		return m->before.lane[0] || m->before.lane[1] ? "an anchor has no fingerprint before it" : NULL;
	case GW_KIND_ADAPTER:
		return m->from <= m->to ? NULL : "an adapter's range of versions is reversed";
	default:
		return NULL;
	}
}

static const char *sizes_odd(const struct gw_manifest *m)
{
	uint64_t leaves;

	if (m->piece_bytes < GW_PIECE_MIN || m->piece_bytes > GW_PIECE_MAX || (m->piece_bytes & (m->piece_bytes - 1)))
		return "its piece size is not a power of two from 64 KiB to 4 MiB";
	if (!m->tensor_table_bytes || m->tensor_table_bytes >= m->object_bytes)
		return "the tensor table must be smaller than the object, and neither empty";
	if (gw_div_up(m->object_bytes, m->piece_bytes) != m->object_pieces)
		return "its count of pieces does not fit its size";
	leaves = m->object_pieces <= GW_INLINE_DIGESTS ? 0 : gw_div_up(m->object_pieces, LEAF_DIGESTS);
	if (m->table_pieces != leaves)
		return "its count of piece table leaves does not fit";
	if (m->digest_count != (leaves ? leaves : m->object_pieces))
		return "its count of digests does not fit";
	if (m->digest_count > GW_INLINE_DIGESTS)
		return "it has too many pieces";
	return m->changed > m->elements ? "it changes more elements than there are" : NULL;
}

static const char *odd(const struct gw_manifest *m)
{
	const char *what;

	if (!gw_name_ok(m->policy, strnlen(m->policy, sizeof m->policy), GW_POLICY_NAME_MAX))
		return "its policy has no good name";
	if (!m->kind || !m->encoding)
		return "kind or encoding is 0";
	if (m->expires_ns <= m->created_ns)
		return "it expires before it was made";
	what = kind_odd(m);
	return what ? what : sizes_odd(m);
}

void gw_manifest_write(const struct gw_manifest *m, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_MANIFEST, GW_MAGIC_BYTES);
	gw_wr_u16(w, m->kind);
	gw_wr_u16(w, m->encoding);
	gw_wr_u32(w, m->piece_bytes);
	gw_wr_bytes(w, m->run, sizeof m->run);
	gw_wr_u64(w, m->from);
	gw_wr_u64(w, m->to);
	gw_wr_u64(w, m->created_ns);
	gw_wr_u64(w, m->expires_ns);
	gw_wr_u64(w, m->before.lane[0]);
	gw_wr_u64(w, m->before.lane[1]);
	gw_wr_u64(w, m->after.lane[0]);
	gw_wr_u64(w, m->after.lane[1]);
	gw_wr_bytes(w, m->previous.b, sizeof m->previous.b);
	gw_wr_u64(w, m->object_bytes);
	gw_wr_u64(w, m->tensor_table_bytes);
	gw_wr_u64(w, m->changed);
	gw_wr_u64(w, m->elements);
	gw_wr_u32(w, m->object_pieces);
	gw_wr_u32(w, m->table_pieces);
	gw_wr_bytes(w, m->tensor_table.b, sizeof m->tensor_table.b);
	gw_wr_u32(w, m->digest_count);
	gw_name_write(w, m->policy);
	gw_wr_bytes(w, m->digests, (size_t)m->digest_count * DIGEST_BYTES);
}

static int parse(struct gw_rd *r, struct gw_manifest *m)
{
	m->kind = gw_rd_u16(r);
	m->encoding = gw_rd_u16(r);
	m->piece_bytes = gw_rd_u32(r);
	gw_rd_copy(r, m->run, sizeof m->run);
	m->from = gw_rd_u64(r);
	m->to = gw_rd_u64(r);
	m->created_ns = gw_rd_u64(r);
	m->expires_ns = gw_rd_u64(r);
	m->before.lane[0] = gw_rd_u64(r);
	m->before.lane[1] = gw_rd_u64(r);
	m->after.lane[0] = gw_rd_u64(r);
	m->after.lane[1] = gw_rd_u64(r);
	gw_rd_copy(r, m->previous.b, sizeof m->previous.b);
	m->object_bytes = gw_rd_u64(r);
	m->tensor_table_bytes = gw_rd_u64(r);
	m->changed = gw_rd_u64(r);
	m->elements = gw_rd_u64(r);
	m->object_pieces = gw_rd_u32(r);
	m->table_pieces = gw_rd_u32(r);
	gw_rd_copy(r, m->tensor_table.b, sizeof m->tensor_table.b);
	m->digest_count = gw_rd_u32(r);
	gw_name_read(r, m->policy, GW_POLICY_NAME_MAX, 0);
	if (m->digest_count > GW_INLINE_DIGESTS)
		gw_rd_fail(r, GW_ELIMIT);
	m->digests = gw_rd_bytes(r, (size_t)m->digest_count * DIGEST_BYTES);
	return gw_rd_end(r);
}

int gw_manifest_sign(struct gw_manifest *m, const uint8_t sk[64], uint8_t **signed_bytes, size_t *n)
{
	struct gw_wr w;
	int err;

	*signed_bytes = NULL;
	*n = 0;
	if (odd(m))
		return GW_EINVAL;
	gw_wr_init(&w, GW_MANIFEST_MAX);
	gw_manifest_write(m, &w);
	(void)gw_signed_seal(&w, 0, sk);
	err = gw_wr_take(&w, signed_bytes, n);
	if (!err)
		gw_digest_of(*signed_bytes, *n, &m->id);
	return err;
}

int gw_manifest_open(const void *p, size_t n, const uint8_t pk[32], struct gw_manifest *m, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err = gw_signed_open(p, n, GW_MANIFEST_MAX, GW_MAGIC_MANIFEST, "manifest", pk, &r, why);

	memset(m, 0, sizeof *m);
	if (err)
		return err;
	err = parse(&r, m);
	if (err)
		return gw_diag_set(why, err, "manifest refused, though its signature is good: %s", gw_err_text(err));
	what = odd(m);
	if (what)
		return gw_diag_set(why, GW_EMALFORMED, "manifest of %s %llu to %llu refused: %s", m->policy,
				   (unsigned long long)m->from, (unsigned long long)m->to, what);
	gw_digest_of(p, n, &m->id);
	return 0;
}
