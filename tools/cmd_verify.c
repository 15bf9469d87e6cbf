/* Checks signed records, and checkpoints against them, offline: from a root record alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "io/os/clock.h"
#include "tools/manifest_report.h"
#include "tools/verify.h"
#include "trust/freshness.h"
#include "trust/member.h"

static const struct opt opts[] = {
	{"root", "FILE", "the root record to believe (needed)"},
	{"pin", "HEX", "the digest that this root record must have"},
	{"manifest", "FILE", "what a checkpoint folder, or a tensor table, must agree with"},
	{"table", "FILE", "tensor table of that manifest, or the whole object: names the tensor at fault"},
	{"json", NULL, "print a JSON document"},
	{NULL, NULL, NULL},
};

enum { TABLE_FILE_MAX = GW_TENSOR_TABLE_MAX };

static int is_magic(const uint8_t *p, size_t n, const char *magic)
{
	return n >= GW_MAGIC_BYTES && !memcmp(p, magic, GW_MAGIC_BYTES - 1);
}

void verify_tell(struct verify *v, const char *path, const char *kind, json_t *row, const char *text)
{
	if (v->results) {
		(void)json_object_set_new(row, "file", json_string(path));
		(void)json_object_set_new(row, "kind", json_string(kind));
		(void)json_array_append_new(v->results, row);
		return;
	}
	json_decref(row);
	(void)printf("%s: %s\n", path, text);
}

static const char *hex32(char out[65], const uint8_t *b)
{
	return gw_hex(out, b, 32);
}

/* The root record in force, or the next version, which then is. */
static int verify_root(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	char text[256], id[65];
	struct gw_root *r = &v->next;
	int err;

	if (gw_root_open(p, n, &v->root.id, r, NULL)) {
		err = gw_root_next(&v->root, p, n, r, &v->a->why);
		if (err)
			return err;
	}
	v->root = *r;
	(void)snprintf(text, sizeof text, "root record %llu, epoch %llu, %u of %u keys; good", (unsigned long long)r->version,
		       (unsigned long long)r->epoch, r->threshold, r->key_count);
	verify_tell(v, path, "root",
	     json_pack("{s:o, s:o, s:o, s:s}", "version", json_u64(r->version), "epoch", json_u64(r->epoch), "expires_ns",
		       json_u64(r->expires_ns), "id", hex32(id, r->id.b)),
	     text);
	return 0;
}

static int verify_manifest(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	char text[256], run[2 * GW_RUN_BYTES + 1];
	struct gw_manifest m;
	int err = gw_root_open_manifest(&v->root, p, n, &m, &v->a->why);

	if (err)
		return err;
	(void)gw_hex(run, m.run, sizeof m.run);
	(void)snprintf(text, sizeof text, "manifest of policy %s, run %s: %s %llu to %llu, %llu bytes in %u pieces; good", m.policy,
		       run, manifest_kind_name(m.kind), (unsigned long long)m.from, (unsigned long long)m.to,
		       (unsigned long long)m.object_bytes, gw_manifest_pieces(&m));
	verify_tell(v, path, "manifest", manifest_json(&m), text);
	return 0;
}

static int verify_head(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	char text[256], id[65];
	struct gw_head h;
	int fresh, err = gw_root_open_head(&v->root, v->now_ns, p, n, &h, &v->a->why);

	if (err)
		return err;
	fresh = gw_head_is_fresh(&h, v->now_ns);
	(void)snprintf(text, sizeof text, "head of policy %s: version %llu, root epoch %llu, sequence %llu; good, %s", h.policy,
		       (unsigned long long)h.newest, (unsigned long long)h.root_epoch, (unsigned long long)h.sequence,
		       fresh ? "fresh" : "but not fresh: expired, or the clock is wrong");
	verify_tell(v, path, "head",
	     json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:s}", "policy", h.policy, "version", json_u64(h.newest), "root_epoch",
		       json_u64(h.root_epoch), "sequence", json_u64(h.sequence), "fresh", fresh, "expires_ns",
		       json_u64(h.expires_ns), "manifest", hex32(id, h.manifest.b)),
	     text);
	return 0;
}

static int verify_member(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	char text[512], id[65], roles[32];
	struct gw_member m;
	int err = gw_member_open(&v->root, v->now_ns, p, n, &m, &v->a->why);

	if (err)
		return err;
	(void)gw_roles_format(roles, m.roles);
	(void)snprintf(text, sizeof text, "member %s of region %s, island \"%s\", roles %s; good", m.name, m.region, m.island,
		       roles);
	verify_tell(v, path, "member",
	     json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "name", m.name, "region", m.region, "island", m.island, "roles", roles,
		       "expires_ns", json_u64(m.expires_ns), "identity", hex32(id, m.identity)),
	     text);
	return 0;
}

int verify_need_manifest(struct verify *v, const char *what)
{
	if (v->have_manifest)
		return 0;
	return gw_diag_set(&v->a->why, GW_EINVAL, "a %s carries no signature: give the --manifest that it belongs to", what);
}

int verify_open_table(struct verify *v, const uint8_t *p, size_t n, struct gw_tensor_table *t)
{
	const struct gw_manifest *m = &v->manifest;
	struct gw_digest d;

	if (n < m->tensor_table_bytes)
		return gw_diag_set(&v->a->why, GW_ETRUNC, "tensor table refused: %zu bytes, the manifest says %llu", n,
				   (unsigned long long)m->tensor_table_bytes);
	gw_digest_of(p, (size_t)m->tensor_table_bytes, &d);
	if (!gw_digest_equal(&d, &m->tensor_table))
		return gw_diag_set(&v->a->why, GW_EDIGEST, "tensor table refused: its digest is not the one in the manifest");
	return gw_tensor_table_open(t, p, (size_t)m->tensor_table_bytes, &v->a->why);
}

static int verify_table(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	struct gw_tensor_table t;
	char text[128];
	int err = verify_need_manifest(v, "tensor table");

	if (!err)
		err = verify_open_table(v, p, n, &t);
	if (err)
		return err;
	(void)snprintf(text, sizeof text, "tensor table of version %llu, %u tensors; good", (unsigned long long)v->manifest.to,
		       t.rows);
	verify_tell(v, path, "tensors", json_pack("{s:o, s:o}", "version", json_u64(v->manifest.to), "tensors", json_u64(t.rows)), text);
	return 0;
}

static int verify_bytes(struct verify *v, const char *path, const uint8_t *p, size_t n)
{
	if (is_magic(p, n, GW_MAGIC_ROOT))
		return verify_root(v, path, p, n);
	if (is_magic(p, n, GW_MAGIC_MANIFEST))
		return verify_manifest(v, path, p, n);
	if (is_magic(p, n, GW_MAGIC_HEAD))
		return verify_head(v, path, p, n);
	if (is_magic(p, n, GW_MAGIC_TENSORS))
		return verify_table(v, path, p, n);
	if (n > 2 && is_magic(p + 2, n - 2, GW_MAGIC_DELEGATION))
		return verify_member(v, path, p, n);
	return gw_diag_set(&v->a->why, GW_EMALFORMED, "not a record of Godwit's: it begins as none");
}

/* --- the verb --- */

static int is_checkpoint(struct verify *v, const char *path)
{
	size_t n = strlen(path);
	struct gw_stat st;

	if (n > 12 && !strcmp(path + n - 12, ".safetensors"))
		return 1;
	/* stat does not follow links; a link to a folder is opened as one. */
	return !gw_fs_stat(v->a->fs, path, &st) && (st.type == GW_FILE_DIR || st.type == GW_FILE_LINK);
}

static int verify_one(struct verify *v, const char *path)
{
	uint8_t *p = NULL;
	size_t n = 0;
	int err;

	if (is_checkpoint(v, path)) {
		err = verify_checkpoint(v, path);
		return err ? gw_diag_wrap(&v->a->why, err, "%s", path) : 0;
	}
	err = record_read(v->a, path, TABLE_FILE_MAX, &p, &n);
	if (err)
		return err;
	err = verify_bytes(v, path, p, n);
	free(p);
	return err ? gw_diag_wrap(&v->a->why, err, "%s", path) : 0;
}

static int load_root(struct verify *v)
{
	const char *hex = arg_value(v->a, "pin");
	struct gw_digest pin;

	if (hex && (strlen(hex) != 64 || gw_unhex(pin.b, sizeof pin.b, hex)))
		return gw_diag_set(&v->a->why, GW_EINVAL, "--pin %s: needs 64 hexadecimal digits", hex);
	return record_root(v->a, hex ? &pin : NULL, &v->root);
}

static int load_manifest(struct verify *v)
{
	const char *path = arg_value(v->a, "manifest");
	size_t n;
	int err;

	if (!path)
		return 0;
	err = record_read(v->a, path, GW_MANIFEST_MAX, &v->manifest_bytes, &n);
	if (err)
		return err;
	err = gw_root_open_manifest(&v->root, v->manifest_bytes, n, &v->manifest, &v->a->why);
	v->have_manifest = !err;
	return err ? gw_diag_wrap(&v->a->why, err, "%s", path) : 0;
}

static int run(struct args *a)
{
	struct verify *v = calloc(1, sizeof *v);
	int err = v ? gw_trust_init() : GW_ENOMEM;

	if (err)
		return err;
	v->a = a;
	v->now_ns = gw_clock_wall_ns();
	v->results = arg_flag(a, "json") ? json_array() : NULL;
	err = load_root(v);
	if (!err)
		err = load_manifest(v);
	for (unsigned i = 0; !err && i < a->count; i++)
		err = verify_one(v, a->pos[i]);
	if (v->results) {
		int printed = print_json(json_pack("{s:b, s:o, s:s*}", "ok", !err, "records", v->results, "error",
						   err ? a->why.text : NULL),
					 err ? NULL : &a->why);

		err = err ? err : printed;
	}
	free(v->manifest_bytes);
	free(v);
	return err;
}

const struct cmd cmd_verify = {
	"verify", "FILE…|DIR…", "checks signed records, or checkpoints against a signed manifest, offline", 1, 0, opts, run,
};
