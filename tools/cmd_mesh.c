/* The verbs of the mesh's operator: they make records with keys that lie in a folder; no daemon is asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/publish.h"
#include "io/os/clock.h"
#include "tools/records.h"
#include "trust/name.h"
#include "trust/token.h"

#define DAY_NS (24ull * 3600 * 1000000000)

/* --- mesh init --- */

static const struct opt init_opts[] = {
	{"policy", "NAME,…", "the policies whose manifests and heads the release key will sign"},
	{"keys", "N", "how many root keys (default: 3)"},
	{"threshold", "K", "how many of them must sign a root record (default: 2, or N where that is 1)"},
	{"root-ttl", "TIME", "until the root record must be renewed (default: 365d)"},
	{"release-ttl", "TIME", "until the release key must be renewed (default: 90d)"},
	{"admission-ttl", "TIME", "until the admission key must be renewed (default: 365d)"},
	{"json", NULL, "print a JSON document"},
	{NULL, NULL, NULL},
};

struct init {
	char policy[GW_POLICY_NAME_MAX + 1]; /* the first one: it names the key file */
	uint64_t keys, threshold, root_ttl, release_ttl, admission_ttl;
	struct gw_key root[GW_ROOT_KEYS_MAX], release, admission;
	struct gw_root record;
};

/* NAME,NAME…: each becomes a release entry of the record, whose key is filled in later. */
static int init_policies(struct args *a, struct init *in)
{
	const char *text = arg_value(a, "policy");
	struct gw_root *r = &in->record;

	do {
		size_t n = text ? strcspn(text, ",") : 0;

		if (!gw_name_ok(text, n, GW_POLICY_NAME_MAX))
			return gw_diag_set(&a->why, GW_EINVAL, "--policy NAME is needed, or several with commas between them: each 1 to "
					   "%d letters, digits, '.', '_', '-', the first a letter or digit", GW_POLICY_NAME_MAX);
		if (r->release_count == GW_ROOT_RELEASES_MAX)
			return gw_diag_set(&a->why, GW_EINVAL, "--policy: at most %d", GW_ROOT_RELEASES_MAX);
		(void)snprintf(r->releases[r->release_count++].policy, sizeof r->releases[0].policy, "%.*s", (int)n, text);
		text += n;
	} while (*text++ == ',');
	(void)snprintf(in->policy, sizeof in->policy, "%s", r->releases[0].policy);
	return 0;
}

static int init_args(struct args *a, struct init *in)
{
	int err = init_policies(a, in);

	in->keys = 3;
	in->root_ttl = in->admission_ttl = 365 * DAY_NS;
	in->release_ttl = 90 * DAY_NS;
	if (!err)
		err = arg_u64(a, "keys", 1, GW_ROOT_KEYS_MAX, &in->keys);
	in->threshold = in->keys > 1 ? 2 : 1;
	if (!err)
		err = arg_u64(a, "threshold", 1, in->keys, &in->threshold);
	if (!err)
		err = arg_duration(a, "root-ttl", &in->root_ttl);
	if (!err)
		err = arg_duration(a, "release-ttl", &in->release_ttl);
	return err ? err : arg_duration(a, "admission-ttl", &in->admission_ttl);
}

static int init_keys(struct args *a, struct init *in)
{
	int err = 0;

	for (uint64_t i = 0; !err && i < in->keys; i++)
		err = gw_key_make(&in->root[i], GW_KEY_ROOT, "", &a->why);
	if (!err)
		err = gw_key_make(&in->release, GW_KEY_RELEASE, in->policy, &a->why);
	return err ? err : gw_key_make(&in->admission, GW_KEY_ADMISSION, "", &a->why);
}

static void init_record(struct init *in)
{
	struct gw_root *r = &in->record;
	uint64_t now = gw_clock_wall_ns();

	r->version = r->epoch = 1;
	r->created_ns = now;
	r->expires_ns = now + in->root_ttl;
	r->threshold = (uint32_t)in->threshold;
	r->key_count = (uint32_t)in->keys;
	for (uint64_t i = 0; i < in->keys; i++)
		memcpy(r->keys[i], in->root[i].pk, 32);
	r->admission_count = 1;
	memcpy(r->admissions[0].pk, in->admission.pk, 32);
	/* Clocks of other hosts may be a little behind this one's. */
	r->admissions[0].from_ns = now - 300 * 1000000000ull;
	r->admissions[0].until_ns = now + in->admission_ttl;
	for (uint32_t i = 0; i < r->release_count; i++) {
		memcpy(r->releases[i].pk, in->release.pk, 32);
		r->releases[i].from_ns = r->admissions[0].from_ns;
		r->releases[i].until_ns = now + in->release_ttl;
	}
}

/* Signed by the first k keys: all lie here at this moment. */
static int init_write_record(struct args *a, struct init *in, const char *path)
{
	struct gw_wr w, next;
	int err;

	gw_wr_init(&w, GW_ROOT_MAX);
	err = gw_root_write(&in->record, &w, &a->why);
	for (uint64_t i = 0; !err && i < in->threshold; i++) {
		gw_wr_init(&next, GW_ROOT_MAX);
		err = gw_root_sign(w.p, w.n, in->root[i].sk, &next, &a->why);
		gw_wr_free(&w);
		w = next;
	}
	if (!err)
		err = gw_publish_bytes(a->fs, path, 0, w.p, w.n, &a->why);
	gw_wr_free(&w);
	return err;
}

static int init_write(struct args *a, struct init *in, const char *dir)
{
	struct gw_publish out = {0};
	char path[4096];
	int err = gw_publish_begin_dir(&out, a->fs, dir, &a->why);

	if (err)
		return gw_diag_set(&a->why, err, "%s: %s", dir, gw_err_text(err));
	for (uint64_t i = 0; !err && i < in->keys; i++) {
		(void)snprintf(path, sizeof path, "%s/root-%llu.key", out.temp, (unsigned long long)(i + 1));
		err = record_write_key(a, path, &in->root[i]);
	}
	if (!err) {
		(void)snprintf(path, sizeof path, "%s/release-%s.key", out.temp, in->policy);
		err = record_write_key(a, path, &in->release);
	}
	if (!err) {
		(void)snprintf(path, sizeof path, "%s/admission.key", out.temp);
		err = record_write_key(a, path, &in->admission);
	}
	if (!err) {
		(void)snprintf(path, sizeof path, "%s/root.v1", out.temp);
		err = init_write_record(a, in, path);
	}
	if (err)
		gw_publish_abort(&out);
	return err ? err : gw_publish_commit(&out, &a->why);
}

static int init_print(struct args *a, const struct init *in, const char *dir)
{
	char id[65], release[GW_POLICY_NAME_MAX + 16];

	(void)gw_hex(id, in->record.id.b, 32);
	(void)snprintf(release, sizeof release, "release-%s.key", in->policy);
	if (arg_flag(a, "json"))
		return print_json(json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "dir", dir, "policy", arg_value(a, "policy"), "root", id,
					    "keys", json_u64(in->keys), "threshold", json_u64(in->threshold), "expires_ns",
					    json_u64(in->record.expires_ns)),
				  &a->why);
	(void)printf("%s holds a new mesh for policy %s; root %s\n"
		     "  root.v1            signed root record: goes to every host (trust.root)\n"
		     "  root-*.key         %llu root keys, %llu must sign the next record: take them offline, apart from each other\n"
		     "  %-18s goes to the trainer host (publish.release_key)\n"
		     "  admission.key      stays where hosts are invited: godwit mesh invite --dir %s\n",
		     dir, arg_value(a, "policy"), id, (unsigned long long)in->keys, (unsigned long long)in->threshold, release, dir);
	return 0;
}

static int run_init(struct args *a)
{
	struct init *in = calloc(1, sizeof *in);
	int err = in ? gw_trust_init() : GW_ENOMEM;

	if (!err)
		err = init_args(a, in);
	if (!err)
		err = init_keys(a, in);
	if (!err) {
		init_record(in);
		err = init_write(a, in, a->pos[0]);
	}
	if (!err)
		err = init_print(a, in, a->pos[0]);
	if (in)
		gw_wipe(in, sizeof *in);
	free(in);
	return err;
}

const struct cmd cmd_mesh_init = {"mesh init", "DIR", "makes the keys and the root record of a new mesh", 1, 1, init_opts,
				  run_init};

/* --- mesh invite --- */

static const struct opt invite_opts[] = {
	{"dir", "DIR", "the folder that mesh init made: its admission key and root records are used"},
	{"bootstrap", "LIST", "HOST:PORT=KEY,… join sockets and their CURVE keys; leave out for the first host"},
	{"region", "NAME", "the region that the newcomer will be in (default: any)"},
	{"roles", "LIST", "of island, seed, relay, join (default: island)"},
	{"ttl", "TIME", "how long the token lets hosts in (default: 1h)"},
	{"member-ttl", "TIME", "how long those hosts stay members without a new token (default: 90d)"},
	{"o", "FILE", "where the token goes (0600); - for standard output"},
	{NULL, NULL, NULL},
};

/* One HOST:PORT=KEY. The key's own characters include '=' and ':'; an address has neither '=' nor ','. */
static int parse_bootstrap(struct args *a, const char *text, size_t n, struct gw_bootstrap *b)
{
	const char *eq = memchr(text, '=', n);
	size_t address = eq ? (size_t)(eq - text) : n;
	char key[GW_Z85_CHARS];

	if (!eq || address > GW_ADDRESS_MAX || !gw_address_ok(text, address) || n - address - 1 != sizeof key - 1)
		return gw_diag_set(&a->why, GW_EINVAL, "--bootstrap %.*s: needs HOST:PORT=KEY with a key of 40 characters (curve, as "
				   "godwit keygen prints it)", (int)n, text);
	memcpy(key, eq + 1, sizeof key - 1);
	key[sizeof key - 1] = 0;
	memcpy(b->address, text, address);
	if (gw_z85_decode(b->curve, key))
		return gw_diag_set(&a->why, GW_EINVAL, "--bootstrap %.*s: not a CURVE key", (int)n, text);
	return 0;
}

static int parse_bootstraps(struct args *a, struct gw_token *t)
{
	const char *text = arg_value(a, "bootstrap");
	int err = 0;

	while (!err && text && *text) {
		size_t n = strcspn(text, ",");

		if (t->bootstrap_count == GW_TOKEN_BOOTSTRAPS_MAX)
			return gw_diag_set(&a->why, GW_EINVAL, "at most %d bootstrap addresses", GW_TOKEN_BOOTSTRAPS_MAX);
		err = parse_bootstrap(a, text, n, &t->bootstraps[t->bootstrap_count++]);
		text += n + (text[n] == ',');
	}
	return err;
}

static int fill_delegation(struct args *a, struct gw_delegation *d)
{
	const char *region = arg_value(a, "region"), *roles = arg_value(a, "roles");
	uint64_t ttl = 3600ull * 1000000000, member_ttl = 90 * DAY_NS;
	int err = arg_duration(a, "ttl", &ttl);

	if (!err)
		err = arg_duration(a, "member-ttl", &member_ttl);
	if (err)
		return err;
	if (region && !gw_name_ok(region, strlen(region), GW_NAME_MAX))
		return gw_diag_set(&a->why, GW_EINVAL, "--region %s: letters, digits, '.', '_', '-', at most %d", region, GW_NAME_MAX);
	(void)snprintf(d->region, sizeof d->region, "%s", region ? region : "");
	d->roles = roles ? gw_roles_parse(roles) : (uint32_t)GW_ROLE_ISLAND;
	if (!d->roles)
		return gw_diag_set(&a->why, GW_EINVAL, "--roles %s: a list of island, seed, relay, join", roles);
	if (!ttl || member_ttl < ttl)
		return gw_diag_set(&a->why, GW_EINVAL, "--member-ttl must not be shorter than --ttl, and neither 0");
	d->created_ns = gw_clock_wall_ns();
	d->join_until_ns = d->created_ns + ttl;
	d->expires_ns = d->created_ns + member_ttl;
	return 0;
}

/* Makes the short-lived key and signs it over to the token. */
static int delegate(struct args *a, const struct gw_key *admission, struct gw_token *t)
{
	struct gw_delegation d = {0};
	struct gw_key k;
	struct gw_wr w;
	int err = fill_delegation(a, &d);

	if (!err)
		err = gw_key_make(&k, GW_KEY_ADMISSION, NULL, &a->why);
	if (err)
		return err;
	memcpy(d.pk, k.pk, sizeof d.pk);
	memcpy(t->seed, k.sk, sizeof t->seed);
	gw_key_wipe(&k);
	gw_wr_init(&w, GW_DELEGATION_MAX);
	err = gw_delegation_sign(&d, admission->sk, &w, &a->why);
	if (!err) {
		memcpy(t->delegation, w.p, w.n);
		t->delegation_bytes = w.n;
	}
	gw_wr_free(&w);
	return err;
}

static int write_token(struct args *a, const struct gw_token *t, const char *path)
{
	char text[GW_TOKEN_TEXT_MAX + 1];
	int err = gw_token_format(t, text, &a->why);

	if (!err) {
		size_t n = strlen(text);

		text[n++] = '\n';
		if (!strcmp(path, "-"))
			err = fwrite(text, 1, n, stdout) == n ? 0 : GW_EIO;
		else
			err = gw_publish_bytes(a->fs, path, GW_PUBLISH_PRIVATE, text, n, &a->why);
	}
	gw_wipe(text, sizeof text);
	return err ? gw_diag_set(&a->why, err, "%s: %s", path, gw_err_text(err)) : 0;
}

static int run_invite(struct args *a)
{
	const char *dir = arg_value(a, "dir"), *path = arg_value(a, "o");
	struct gw_token t = {0};
	struct gw_key admission;
	struct gw_root root;
	char key_path[4096];
	int err = gw_trust_init();

	if (!dir || !path)
		return gw_diag_set(&a->why, GW_EINVAL, "give --dir DIR (made by mesh init) and -o FILE for the token");
	if (snprintf(key_path, sizeof key_path, "%s/admission.key", dir) >= (int)sizeof key_path)
		return gw_diag_set(&a->why, GW_EINVAL, "the path is too long");
	if (!err)
		err = parse_bootstraps(a, &t);
	if (!err)
		err = record_newest_root(a, dir, &root);
	if (!err)
		err = record_secret_key(a, key_path, GW_KEY_ADMISSION, &admission);
	if (err)
		return err;
	err = gw_root_allows_admission(&root, admission.pk, gw_clock_wall_ns(), &a->why);
	t.root = root.id;
	t.root_version = root.version;
	if (!err)
		err = delegate(a, &admission, &t);
	if (!err)
		err = write_token(a, &t, path);
	gw_key_wipe(&admission);
	gw_token_wipe(&t);
	if (!err && strcmp(path, "-") != 0)
		(void)fprintf(stderr, "%s is a secret: who has it can join. On the new host: godwitd --join %s\n", path, path);
	return err;
}

const struct cmd cmd_mesh_invite = {"mesh invite", "", "makes a join token for new hosts", 0, 0, invite_opts, run_invite};
