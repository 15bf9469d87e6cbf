#include "daemon/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/publish.h"
#include "io/os/clock.h"
#include "io/zmq/join.h"
#include "trust/join.h"

enum { MEMBERS_FILE_MAX = 64 << 20, REPLY_ARENA = 1 << 20, JOIN_TIMEOUT_MS = 10000 };

/* The configured path, or its place in STATE; malloced. */
static char *place(const struct gw_config *c, const char *configured, const char *name)
{
	return configured[0] ? strdup(configured) : gw_path_join(c->host_state, name);
}

int gw_identity_read_file(struct gw_fs *fs, const char *path, size_t max, uint8_t **p, size_t *n, struct gw_diag *why)
{
	struct gw_file *f;
	struct gw_stat st;
	int err = gw_fs_open(fs, path, GW_OPEN_READ, &f);

	*p = NULL;
	*n = 0;
	if (err)
		return gw_diag_set(why, err, "cannot read %s: %s", path, gw_err_text(err));
	err = gw_fs_fstat(fs, f, &st);
	if (!err && st.size > max)
		err = gw_diag_set(why, GW_ELIMIT, "%s: %llu bytes, at most %zu make sense", path,
				  (unsigned long long)st.size, max);
	if (!err && !(*p = malloc(st.size + 1)))
		err = GW_ENOMEM;
	if (!err)
		err = gw_fs_pread(fs, f, *p, st.size, 0);
	gw_fs_close(fs, f);
	if (err) {
		free(*p);
		*p = NULL;
		return gw_diag_set(why, err, "cannot read %s: %s", path, gw_err_text(err));
	}
	*n = st.size;
	return 0;
}

/* --- keys --- */

/* The public half first: a host with its secret key has both. */
static int make_key(struct gw_key *k, struct gw_fs *fs, const char *path, const char *name, struct gw_diag *why)
{
	char text[GW_KEY_FILE_MAX], public_path[GW_CONFIG_TEXT_MAX + 32];
	int err = gw_key_make(k, GW_KEY_HOST, name[0] ? name : NULL, why);

	(void)snprintf(public_path, sizeof public_path, "%s.pub", path);
	if (!err)
		err = gw_key_format(k, 0, text);
	if (!err)
		err = gw_publish_bytes(fs, public_path, GW_PUBLISH_REPLACE, text, strlen(text), why);
	if (!err)
		err = gw_key_format(k, 1, text);
	if (!err)
		err = gw_publish_bytes(fs, path, GW_PUBLISH_PRIVATE, text, strlen(text), why);
	gw_wipe(text, sizeof text);
	return err;
}

int gw_identity_read_key(struct gw_key *k, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	struct gw_file *f;
	struct gw_stat st;
	uint8_t *text;
	size_t n;
	int err = gw_fs_open(fs, path, GW_OPEN_READ, &f);

	if (err)
		return gw_diag_set(why, err, "cannot read %s: %s", path, gw_err_text(err));
	err = gw_fs_fstat(fs, f, &st); /* of the file itself, where path is a link */
	gw_fs_close(fs, f);
	if (!err && st.mode & 077)
		err = gw_diag_set(why, GW_EACCESS, "%s can be read by others; chmod 600 it", path);
	if (!err)
		err = gw_identity_read_file(fs, path, GW_KEY_FILE_MAX, &text, &n, why);
	if (err)
		return err;
	err = gw_key_parse(k, (char *)text, n, why);
	gw_wipe(text, n);
	free(text);
	if (!err && !k->secret)
		err = gw_diag_set(why, GW_ECONFIG, "%s holds no secret key", path);
	return err ? gw_diag_wrap(why, err, "%s", path) : 0;
}

int gw_identity_release_key(struct gw_key *k, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why)
{
	const char *path = c->publish_release_key;
	int err = gw_identity_read_key(k, fs, path, why);

	if (!err && k->kind != GW_KEY_RELEASE)
		err = gw_diag_set(why, GW_ECONFIG, "%s does not hold a release key", path);
	return err;
}

static int load_key(struct gw_key *k, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why)
{
	char *path = place(c, c->host_identity, "host.key");
	struct gw_stat st;
	int err = path ? gw_fs_stat(fs, path, &st) : GW_ENOMEM;

	if (err == GW_ENOENT) {
		err = make_key(k, fs, path, c->host_name, why);
	} else if (!err) {
		err = gw_identity_read_key(k, fs, path, why);
		if (!err && k->kind != GW_KEY_HOST)
			err = gw_diag_set(why, GW_ECONFIG, "%s does not hold a host's key", path);
	}
	free(path);
	return err;
}

/* --- addresses --- */

static int is_one_address(const char *listen)
{
	return strncmp(listen, "0.0.0.0:", 8) && strncmp(listen, "*:", 2) && strncmp(listen, "[::]:", 5);
}

static void add_address(struct gw_member *m, enum gw_scope scope, const char *control, const char *bulk)
{
	struct gw_address *a = &m->addresses[m->address_count];

	if (!control[0] || !bulk[0])
		return;
	memset(a, 0, sizeof *a);
	a->scope = (uint8_t)scope;
	(void)snprintf(a->control, sizeof a->control, "%.*s", GW_ADDRESS_MAX, control);
	(void)snprintf(a->bulk, sizeof a->bulk, "%.*s", GW_ADDRESS_MAX, bulk);
	m->address_count++;
}

static void addresses(const struct gw_config *c, struct gw_member *m)
{
	const char *control = c->network_control_region, *bulk = c->network_bulk_region;

	m->address_count = 0;
	if (!control[0] && is_one_address(c->network_control))
		control = c->network_control;
	if (!bulk[0] && is_one_address(c->network_bulk))
		bulk = c->network_bulk;
	add_address(m, GW_SCOPE_REGION, control, bulk);
	add_address(m, GW_SCOPE_ANY, c->network_control_any[0] ? c->network_control_any : control,
		    c->network_bulk_any[0] ? c->network_bulk_any : bulk);
}

static int same_addresses(const struct gw_member *a, const struct gw_member *b)
{
	if (a->address_count != b->address_count)
		return 0;
	for (uint32_t i = 0; i < a->address_count; i++)
		if (a->addresses[i].scope != b->addresses[i].scope ||
		    strcmp(a->addresses[i].control, b->addresses[i].control) ||
		    strcmp(a->addresses[i].bulk, b->addresses[i].bulk))
			return 0;
	return 1;
}

/* --- loading --- */

static int store_member(struct gw_fs *fs, const struct gw_config *c, const void *p, size_t n, struct gw_diag *why)
{
	char *path = place(c, c->trust_certificate, "member");
	int err = path ? gw_publish_bytes(fs, path, GW_PUBLISH_REPLACE, p, n, why) : GW_ENOMEM;

	free(path);
	return err;
}

/* Signs the presence again where the configuration moved the host. */
static int refresh_member(struct gw_identity *id, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why)
{
	struct gw_member want = id->member;
	uint64_t now = gw_clock_wall_ns();
	struct gw_wr w;
	int err;

	addresses(c, &want);
	if (same_addresses(&want, &id->member))
		return 0;
	/* Later than the last, whatever the clock says. */
	want.stamp_ns = now > id->member.stamp_ns ? now : id->member.stamp_ns + 1;
	gw_wr_init(&w, GW_MEMBER_MAX);
	err = gw_member_renew(&want, id->member_bytes, id->member_n, id->key.sk, &w, why);
	if (!err)
		err = w.err;
	if (!err)
		err = store_member(fs, c, w.p, w.n, why);
	if (err) {
		gw_wr_free(&w);
		return err;
	}
	free(id->member_bytes);
	id->member = want;
	return gw_wr_take(&w, &id->member_bytes, &id->member_n); /* no error is left in w */
}

/* What the certificate binds cannot change without a new one. An empty key leaves it to the certificate. */
static int check_names(const struct gw_identity *id, const struct gw_config *c, struct gw_diag *why)
{
	const struct gw_member *m = &id->member;
	const struct {
		const char *key, *configured, *certified;
	} names[] = {{"host.region", c->host_region, m->region}, {"host.island", c->host_island, m->island}};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].configured[0] && strcmp(names[i].configured, names[i].certified))
			return gw_diag_set(why, GW_ECONFIG, "%s is %s, but this host's member certificate says %s: change it back, "
					   "or join again (--join) with a new token", names[i].key, names[i].configured,
					   names[i].certified[0] ? names[i].certified : "none");
	return 0;
}

static int load_records(struct gw_identity *id, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why)
{
	char *root = place(c, c->trust_root, "root"), *member = place(c, c->trust_certificate, "member");
	int err = root && member ? 0 : GW_ENOMEM;

	if (!err)
		err = gw_identity_read_file(fs, root, GW_ROOT_MAX, &id->root_bytes, &id->root_n, NULL);
	if (!err)
		err = gw_identity_read_file(fs, member, GW_MEMBER_MAX, &id->member_bytes, &id->member_n, NULL);
	if (err == GW_ENOENT)
		(void)gw_diag_set(why, err, "this host has not joined a mesh (no %s): start godwitd with --join FILE, a token "
				  "from `godwit mesh invite`", id->root_bytes ? member : root);
	if (!err)
		err = gw_root_open(id->root_bytes, id->root_n, NULL, &id->root, why);
	if (!err)
		err = gw_member_open(&id->root, gw_clock_wall_ns(), id->member_bytes, id->member_n, &id->member, why);
	if (!err && memcmp(id->member.identity, id->key.pk, 32))
		err = gw_diag_set(why, GW_EUNTRUSTED, "%s is the member record of another host's key; join again", member);
	free(root);
	free(member);
	return err;
}

int gw_identity_load(struct gw_identity *id, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why)
{
	int err;

	memset(id, 0, sizeof *id);
	err = load_key(&id->key, fs, c, why);
	if (!err)
		err = load_records(id, fs, c, why);
	if (!err)
		err = check_names(id, c, why);
	if (!err)
		err = refresh_member(id, fs, c, why);
	if (err)
		gw_identity_free(id);
	return err;
}

void gw_identity_free(struct gw_identity *id)
{
	gw_key_wipe(&id->key);
	free(id->root_bytes);
	free(id->member_bytes);
	memset(id, 0, sizeof *id);
}

/* --- joining --- */

struct join {
	struct gw_fs *fs;
	const struct gw_config *c;
	struct gw_token token;
	struct gw_key key;
	struct gw_member member;
	struct gw_wr record;     /* this host's member record */
	struct gw_root root;
	struct gw_wr root_bytes;
};

/* The first host has the root on its disk already, where `mesh init` put it. */
static int first_host(struct join *j, struct gw_diag *why)
{
	char *path = place(j->c, j->c->trust_root, "root");
	uint8_t *p = NULL;
	size_t n;
	int err = path ? gw_identity_read_file(j->fs, path, GW_ROOT_MAX, &p, &n, why) : GW_ENOMEM;

	if (!err)
		err = gw_root_open(p, n, &j->token.root, &j->root, why);
	if (err)
		(void)gw_diag_wrap(why, err, "the token names no host to ask, so trust.root must be the root record that it pins");
	else
		gw_wr_bytes(&j->root_bytes, p, n);
	free(p);
	free(path);
	return err;
}

/* From the pinned record, version by version, to the newest, which is the one that is kept. */
static int take_roots(struct join *j, const struct gw_m_join_reply *r, struct gw_diag *why)
{
	int err = gw_join_roots(r, &j->token.root, NULL, &j->root, why);

	if (err)
		return gw_diag_wrap(why, err, "the root records of the host that was asked");
	gw_wr_bytes(&j->root_bytes, r->roots.v[r->roots.n - 1].signed_bytes.p, r->roots.v[r->roots.n - 1].signed_bytes.n);
	return j->root_bytes.err;
}

static int save_members(struct join *j, const struct gw_m_join_reply *r, struct gw_diag *why)
{
	struct gw_bytes records[32];
	size_t n = 0;

	for (size_t i = 0; i < r->members.n && n < 32; i++)
		records[n++] = r->members.v[i].signed_bytes;
	return gw_identity_save_members(j->fs, j->c, records, n, why);
}

static int ask(struct join *j, struct gw_diag *why)
{
	struct gw_m_join_request req = {.member = {j->record.p, j->record.n}};
	struct gw_m_join_reply reply;
	struct gw_net_config own = {0};
	struct gw_arena arena;
	uint8_t *frame = NULL;
	int err;

	memcpy(req.root, j->token.root.b, sizeof req.root);
	memcpy(own.curve_pk, j->key.curve_pk, sizeof own.curve_pk);
	memcpy(own.curve_sk, j->key.curve_sk, sizeof own.curve_sk);
	gw_arena_init(&arena, REPLY_ARENA);
	err = gw_join_request(&j->token, (unsigned)gw_clock_mono_ns() % j->token.bootstrap_count, j->c->network_source, &own,
			      &req, JOIN_TIMEOUT_MS, &arena, &frame, &reply, why);
	gw_wipe(&own, sizeof own);
	if (!err)
		err = take_roots(j, &reply, why);
	if (!err)
		err = save_members(j, &reply, why);
	gw_arena_reset(&arena);
	free(frame);
	return err;
}

static int store_root(struct join *j, struct gw_diag *why)
{
	char *path = place(j->c, j->c->trust_root, "root");
	int err = path ? gw_publish_bytes(j->fs, path, GW_PUBLISH_REPLACE, j->root_bytes.p, j->root_bytes.n, why) : GW_ENOMEM;

	free(path);
	return err;
}

/* Said here in the words of the configuration, before anything is signed. */
static int check_region(const struct join *j, struct gw_diag *why)
{
	const char *mine = j->c->host_region, *granted = j->token.grant.region;

	if (mine[0] && granted[0] && strcmp(mine, granted))
		return gw_diag_set(why, GW_ECONFIG, "host.region is %s, but the token admits hosts of region %s", mine, granted);
	if (!mine[0] && !granted[0])
		return gw_diag_set(why, GW_ECONFIG, "host.region is not set, and the token is for any region");
	return 0;
}

static int join(struct join *j, const char *token, size_t n, struct gw_diag *why)
{
	int err = gw_token_parse(&j->token, token, n, why);
	int first;

	if (!err)
		err = check_region(j, why);
	if (!err)
		err = load_key(&j->key, j->fs, j->c, why);
	if (err)
		return err;
	(void)snprintf(j->member.name, sizeof j->member.name, "%.*s", GW_NAME_MAX, j->c->host_name);
	(void)snprintf(j->member.region, sizeof j->member.region, "%.*s", GW_NAME_MAX, j->c->host_region);
	(void)snprintf(j->member.island, sizeof j->member.island, "%.*s", GW_NAME_MAX, j->c->host_island);
	addresses(j->c, &j->member);
	first = j->token.bootstrap_count == 0;
	if (first)
		err = first_host(j, why);
	if (!err)
		err = gw_token_join(&j->token, first ? &j->root : NULL, &j->key, gw_clock_wall_ns(), &j->member, &j->record, why);
	if (!err && !first)
		err = ask(j, why);
	/* What was signed before the root was known is checked now. */
	if (!err)
		err = gw_member_open(&j->root, gw_clock_wall_ns(), j->record.p, j->record.n, &j->member, why);
	if (!err)
		err = store_root(j, why);
	return err ? err : store_member(j->fs, j->c, j->record.p, j->record.n, why);
}

int gw_identity_join(struct gw_fs *fs, const struct gw_config *c, const char *token, size_t n, struct gw_diag *why)
{
	struct join *j = calloc(1, sizeof *j);
	int err;

	if (!j)
		return GW_ENOMEM;
	j->fs = fs;
	j->c = c;
	gw_wr_init(&j->record, GW_MEMBER_MAX);
	gw_wr_init(&j->root_bytes, GW_ROOT_MAX);
	err = join(j, token, n, why);
	gw_wr_free(&j->record);
	gw_wr_free(&j->root_bytes);
	gw_token_wipe(&j->token);
	gw_key_wipe(&j->key);
	free(j);
	return err;
}

/* --- known members --- */

int gw_identity_members(struct gw_fs *fs, const struct gw_config *c,
			int (*each)(void *ctx, const void *record, size_t n), void *ctx, struct gw_diag *why)
{
	char *path = gw_path_join(c->host_state, "members");
	uint8_t *p = NULL;
	struct gw_rd r;
	size_t n = 0;
	int err = path ? gw_identity_read_file(fs, path, MEMBERS_FILE_MAX, &p, &n, NULL) : GW_ENOMEM;

	if (err == GW_ENOENT)
		err = 0;
	gw_rd_init(&r, p, n);
	while (!err && gw_rd_left(&r)) {
		uint16_t len = gw_rd_u16(&r);
		const uint8_t *record = gw_rd_bytes(&r, len);

		if (r.err) { /* it only says whom to dial first: a damaged tail costs nothing but time */
			GW_LOG(GW_LOG_WARN, "the list of known members is damaged", "file", path, NULL);
			break;
		}
		err = each(ctx, record, len);
	}
	if (err)
		(void)gw_diag_set(why, err, "cannot read the known members: %s", gw_err_text(err));
	free(p);
	free(path);
	return err;
}

int gw_identity_save_members(struct gw_fs *fs, const struct gw_config *c, const struct gw_bytes *records, size_t count,
			     struct gw_diag *why)
{
	char *path = gw_path_join(c->host_state, "members");
	struct gw_wr w;
	int err;

	gw_wr_init(&w, MEMBERS_FILE_MAX);
	for (size_t i = 0; i < count; i++) {
		gw_wr_u16(&w, (uint16_t)records[i].n);
		gw_wr_bytes(&w, records[i].p, records[i].n);
	}
	err = path ? w.err : GW_ENOMEM;
	if (!err)
		err = gw_publish_bytes(fs, path, GW_PUBLISH_REPLACE, w.p, w.n, why);
	gw_wr_free(&w);
	free(path);
	return err;
}
