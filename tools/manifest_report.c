#include "tools/manifest_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/hex.h"
#include "patch/fingerprint.h"

const char *manifest_kind_name(uint16_t kind)
{
	return kind == GW_KIND_TRANSITION ? "transition" : kind == GW_KIND_ANCHOR ? "anchor"
		: kind == GW_KIND_ADAPTER ? "adapter" : "unknown";
}

static const char *encoding_name(uint16_t encoding)
{
	return encoding == GW_ENCODING_PLAIN ? "plain" : encoding == GW_ENCODING_SEALED ? "sealed" : "unknown";
}

static uint64_t payload_bytes(const struct gw_manifest *m)
{
	return m->object_bytes - m->tensor_table_bytes;
}

static double bits_per_change(const struct gw_manifest *m)
{
	return m->changed ? 8.0 * (double)payload_bytes(m) / (double)m->changed : 0.0;
}

static json_t *digest_json(const struct gw_digest *d)
{
	char text[2 * sizeof d->b + 1];

	return json_string(gw_hex(text, d->b, sizeof d->b));
}

static json_t *print_of(const struct gw_model_print *p)
{
	char text[GW_PRINT_TEXT];

	gw_print_text(text, p->lane);
	return json_string(text);
}

json_t *manifest_json(const struct gw_manifest *m)
{
	char run[2 * GW_RUN_BYTES + 1];
	int anchor = m->kind == GW_KIND_ANCHOR;

	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "policy", m->policy, "run", gw_hex(run, m->run, sizeof m->run), "what",
			 manifest_kind_name(m->kind), "encoding", encoding_name(m->encoding), "from", json_u64(m->from),
			 "to", json_u64(m->to), "created_ns", json_u64(m->created_ns), "expires_ns",
			 json_u64(m->expires_ns), "before", anchor ? json_null() : print_of(&m->before), "after",
			 print_of(&m->after), "elements", json_u64(m->elements), "changed", json_u64(m->changed),
			 "patch_bytes", json_u64(payload_bytes(m)), "bits_per_change",
			 m->changed && !anchor ? json_real(bits_per_change(m)) : json_null(), "object_bytes",
			 json_u64(m->object_bytes), "tensor_table_bytes", json_u64(m->tensor_table_bytes), "piece_bytes",
			 json_u64(m->piece_bytes), "pieces", json_u64(gw_manifest_pieces(m)), "previous",
			 gw_digest_is_zero(&m->previous) ? json_null() : digest_json(&m->previous), "id", digest_json(&m->id));
}

static void show_instant(const char *what, uint64_t ns)
{
	time_t s = (time_t)(ns / 1000000000u);
	char text[64] = "?";
	struct tm tm;

	if (gmtime_r(&s, &tm))
		(void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm);
	(void)printf("%s %s\n", what, text);
}

static void show_digest(const char *what, const struct gw_digest *d)
{
	char text[2 * sizeof d->b + 1];

	(void)printf("%s %s\n", what, gw_digest_is_zero(d) ? "none" : gw_hex(text, d->b, sizeof d->b));
}

static void show_print(const char *what, const struct gw_model_print *p)
{
	char text[GW_PRINT_TEXT];

	gw_print_text(text, p->lane);
	(void)printf("%s %s\n", what, text);
}

void manifest_show(const struct gw_manifest *m)
{
	char run[2 * GW_RUN_BYTES + 1], payload[32], piece[32];

	(void)printf("manifest of policy %s, run %s: %s ", m->policy, gw_hex(run, m->run, sizeof m->run),
		     manifest_kind_name(m->kind));
	if (m->kind == GW_KIND_ANCHOR)
		(void)printf("%" PRIu64 "\n", m->to);
	else
		(void)printf("%" PRIu64 " to %" PRIu64 "\n", m->from, m->to);
	show_digest("id      ", &m->id);
	show_digest("previous", &m->previous);
	show_instant("created ", m->created_ns);
	show_instant("expires ", m->expires_ns);
	if (m->kind != GW_KIND_ANCHOR)
		show_print("before  ", &m->before);
	show_print("after   ", &m->after);
	if (m->kind == GW_KIND_ANCHOR)
		(void)printf("a whole version of %" PRIu64 " elements\n", m->elements);
	else
		(void)printf("%" PRIu64 " of %" PRIu64 " elements of its tensors changed, %.2f bits a change\n", m->changed,
			     m->elements, bits_per_change(m));
	(void)printf("%s patch of %s, with its tensor table %" PRIu64 " bytes in %u pieces of %s\n",
		     encoding_name(m->encoding), human_bytes(payload, payload_bytes(m)), m->object_bytes,
		     gw_manifest_pieces(m), human_bytes(piece, m->piece_bytes));
}
