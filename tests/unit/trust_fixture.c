#include "trust_fixture.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

static struct blob take(struct gw_wr *w)
{
	struct blob b;
	int err = gw_wr_take(w, &b.p, &b.n);

	assert(!err);
	return b;
}

void fixture_key(struct gw_key *k, enum gw_key_kind kind, uint8_t byte)
{
	uint8_t seed[32];

	memset(seed, byte, sizeof seed);
	gw_key_from_seed(k, kind, seed);
	if (kind == GW_KEY_HOST) {
		int err;

		memset(k->curve_sk, byte + 1, sizeof k->curve_sk);
		err = crypto_scalarmult_base(k->curve_pk, k->curve_sk);
		assert(!err);
	}
}

struct blob fixture_root(struct gw_root *r, const struct gw_key *const *keys, size_t n)
{
	struct gw_wr w, next;
	int err;

	gw_wr_init(&w, GW_ROOT_MAX);
	err = gw_root_write(r, &w, NULL);
	assert(!err);
	for (size_t i = 0; i < n; i++) {
		gw_wr_init(&next, GW_ROOT_MAX);
		err = gw_root_sign(w.p, w.n, keys[i]->sk, &next, NULL);
		assert(!err);
		gw_wr_free(&w);
		w = next;
	}
	return take(&w);
}

static void make_roots(struct fixture *f)
{
	const struct gw_key *first[] = {&f->root_keys[0], &f->root_keys[1]};
	const struct gw_key *second[] = {&f->root_keys[0], &f->root_keys[1], &f->new_root_key};
	struct gw_root *r = &f->root;

	r->version = r->epoch = 1;
	r->created_ns = NOW_NS - DAY_NS;
	r->expires_ns = NOW_NS + 365 * DAY_NS;
	r->threshold = 2;
	r->key_count = 3;
	for (size_t i = 0; i < 3; i++)
		memcpy(r->keys[i], f->root_keys[i].pk, 32);
	r->release_count = 1;
	strcpy(r->releases[0].policy, "demo");
	memcpy(r->releases[0].pk, f->release.pk, 32);
	r->releases[0].from_ns = NOW_NS - DAY_NS;
	r->releases[0].until_ns = NOW_NS + 30 * DAY_NS;
	r->admission_count = 1;
	memcpy(r->admissions[0].pk, f->admission.pk, 32);
	r->admissions[0].from_ns = NOW_NS - DAY_NS;
	r->admissions[0].until_ns = NOW_NS + 90 * DAY_NS;
	f->root_bytes = fixture_root(r, first, 2);

	f->root2 = *r;
	f->root2.version = f->root2.epoch = 2;
	f->root2.created_ns = NOW_NS;
	memcpy(f->root2.keys[2], f->new_root_key.pk, 32);
	memcpy(f->root2.releases[0].pk, f->stranger.pk, 32);
	f->root2_bytes = fixture_root(&f->root2, second, 3);
}

static void make_table(struct fixture *f)
{
	static const struct gw_tensor_row rows[] = {
		{"model.embed.weight", 18, 12, 2, 0, {32000, 64}, {1, 2}},
		{"model.norm.weight", 17, 12, 1, 0, {64}, {0x1122334455667788, 3}},
		{"model.scale", 11, 12, 0, 0, {0}, {4, 5}},
	};
	struct gw_wr w;
	int err = 0;

	gw_wr_init(&w, 4096);
	gw_tensor_table_begin(&w, 3);
	for (size_t i = 0; i < 3; i++)
		err |= gw_tensor_table_add(&w, &rows[i]);
	assert(!err);
	f->table_bytes = take(&w);
}

static void make_manifests(struct fixture *f)
{
	struct gw_manifest *m = &f->transition;
	int err;

	for (size_t i = 0; i < sizeof f->digests; i++)
		f->digests[i] = (uint8_t)(i / 32 + i);
	m->kind = GW_KIND_TRANSITION;
	m->encoding = GW_ENCODING_PLAIN;
	strcpy(m->policy, "demo");
	memset(m->run, 0x5a, sizeof m->run);
	m->from = 7;
	m->to = 8;
	m->created_ns = NOW_NS - 10 * SECOND_NS;
	m->expires_ns = NOW_NS + 30 * DAY_NS;
	m->before = (struct gw_model_print){{10, 11}};
	m->after = (struct gw_model_print){{12, 13}};
	memset(m->previous.b, 0x77, 32);
	m->object_bytes = 100000;
	m->tensor_table_bytes = f->table_bytes.n;
	m->changed = 1234;
	m->elements = 2048065;
	m->piece_bytes = gw_piece_bytes_for(m->object_bytes);
	m->object_pieces = m->digest_count = 2;
	gw_digest_of(f->table_bytes.p, f->table_bytes.n, &m->tensor_table);
	m->digests = f->digests;

	f->anchor = *m;
	m = &f->anchor;
	m->kind = GW_KIND_ANCHOR;
	m->from = m->to = 0;
	m->before = (struct gw_model_print){{0, 0}};
	memset(m->previous.b, 0, 32);
	m->object_bytes = 513 * 65536 - 7;
	m->object_pieces = 513;
	m->table_pieces = m->digest_count = 1;

	err = gw_manifest_sign(&f->anchor, f->release.sk, &f->anchor_bytes.p, &f->anchor_bytes.n);
	assert(!err);
	err = gw_manifest_sign(&f->transition, f->release.sk, &f->transition_bytes.p, &f->transition_bytes.n);
	assert(!err);
}

static void make_head(struct fixture *f)
{
	struct gw_head *h = &f->head;
	struct gw_counters c = {0};
	struct gw_wr w;
	int err;

	strcpy(h->policy, "demo");
	memset(h->run, 0x5a, sizeof h->run);
	h->root_epoch = 1;
	h->sequence = 40;
	h->newest = 8;
	h->manifest = f->transition.id;
	h->created_ns = NOW_NS - 5 * SECOND_NS;
	h->expires_ns = NOW_NS + 175 * SECOND_NS;
	h->anchor_count = h->skip_count = 1;
	h->anchors[0] = (struct gw_head_entry){f->anchor.id, 0, 0};
	memset(h->skips[0].manifest.b, 0x31, 32);
	h->skips[0].from = 0;
	h->skips[0].to = 8;
	err = gw_head_sign(h, f->release.sk, &f->head_bytes.p, &f->head_bytes.n);
	assert(!err);
	gw_counters_advance(&c, h);
	gw_wr_init(&w, 256);
	gw_counters_write(&c, &w);
	f->counters_bytes = take(&w);
}

static void make_member(struct fixture *f)
{
	struct gw_delegation *d = &f->delegation;
	struct gw_member *m = &f->member;
	struct gw_token *t = &f->token;
	struct gw_wr w;
	int err;

	memcpy(d->pk, f->delegated.pk, 32);
	strcpy(d->region, "eu-west");
	d->roles = GW_ROLE_ISLAND | GW_ROLE_RELAY;
	d->created_ns = NOW_NS - 60 * SECOND_NS;
	d->join_until_ns = NOW_NS + 3600 * SECOND_NS;
	d->expires_ns = NOW_NS + 90 * DAY_NS;
	gw_wr_init(&w, GW_DELEGATION_MAX);
	err = gw_delegation_sign(d, f->admission.sk, &w, NULL);
	assert(!err);
	f->delegation_bytes = take(&w);

	gw_digest_of(f->root_bytes.p, f->root_bytes.n - 1 - 2 * 96, &t->root);
	assert(gw_digest_equal(&t->root, &f->root.id));
	t->root_version = 1;
	t->bootstrap_count = 1;
	strcpy(t->bootstraps[0].address, "10.1.2.3:7401");
	memcpy(t->bootstraps[0].curve, f->host.curve_pk, 32);
	memset(t->seed, 0x40, 32);
	memcpy(t->delegation, f->delegation_bytes.p, f->delegation_bytes.n);
	t->delegation_bytes = f->delegation_bytes.n;
	err = gw_token_format(t, f->token_text, NULL);
	assert(!err);
	err = gw_token_parse(t, f->token_text, strlen(f->token_text), NULL);
	assert(!err);

	strcpy(m->name, "rollout-3");
	strcpy(m->island, "a");
	m->roles = GW_ROLE_ISLAND;
	m->address_count = 2;
	m->addresses[0] = (struct gw_address){GW_SCOPE_ANY, "203.0.113.9:7402", "203.0.113.9:7403"};
	m->addresses[1] = (struct gw_address){GW_SCOPE_REGION, "10.9.0.3:7402", "[fd00::3]:7403"};
	gw_wr_init(&w, GW_MEMBER_MAX);
	err = gw_token_join(t, &f->root, &f->host, NOW_NS, m, &w, NULL);
	assert(!err);
	f->member_bytes = take(&w);
}

void fixture_make(struct fixture *f)
{
	memset(f, 0, sizeof *f);
	for (int i = 0; i < 3; i++)
		fixture_key(&f->root_keys[i], GW_KEY_ROOT, (uint8_t)(0x10 + i));
	fixture_key(&f->new_root_key, GW_KEY_ROOT, 0x13);
	fixture_key(&f->release, GW_KEY_RELEASE, 0x20);
	fixture_key(&f->admission, GW_KEY_ADMISSION, 0x30);
	fixture_key(&f->delegated, GW_KEY_ADMISSION, 0x40);
	fixture_key(&f->host, GW_KEY_HOST, 0x50);
	fixture_key(&f->stranger, GW_KEY_RELEASE, 0x60);
	make_roots(f);
	make_table(f);
	make_manifests(f);
	make_head(f);
	make_member(f);
}

void fixture_free(struct fixture *f)
{
	struct blob *all[] = {&f->root_bytes,	    &f->root2_bytes,	  &f->transition_bytes,
			      &f->anchor_bytes,	    &f->head_bytes,	  &f->table_bytes,
			      &f->delegation_bytes, &f->member_bytes,	  &f->counters_bytes};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]->p);
}

static void line(struct gw_wr *w, const char *name, struct blob b)
{
	char two[3];

	gw_wr_bytes(w, name, strlen(name));
	gw_wr_u8(w, ' ');
	for (size_t i = 0; i < b.n; i++)
		gw_wr_bytes(w, gw_hex(two, b.p + i, 1), 2);
	gw_wr_u8(w, '\n');
}

void fixture_print(const struct fixture *f, struct gw_wr *w)
{
	line(w, "root1", f->root_bytes);
	line(w, "root2", f->root2_bytes);
	line(w, "tensors", f->table_bytes);
	line(w, "transition", f->transition_bytes);
	line(w, "anchor", f->anchor_bytes);
	line(w, "head", f->head_bytes);
	line(w, "counters", f->counters_bytes);
	line(w, "member", f->member_bytes);
	line(w, "token", (struct blob){(uint8_t *)(uintptr_t)f->token_text, strlen(f->token_text)});
}
