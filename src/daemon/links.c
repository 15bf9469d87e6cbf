#include "daemon/links.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "daemon/core.h"
#include "io/os/clock.h"
#include "io/zmq/join.h"
#include "io/zmq/peers.h"
#include "trust/join.h"
#include "wire/codec.h"

enum { FRAME_ARENA = 1 << 20, REPLY_MEMBERS = 32, MALFORMED_MAX = 3 };
#define MUTE_NS 60000000000ull

/* What is needed to dial a member, and to know it when it speaks. */
struct peer {
	uint8_t identity[32], curve[32];
	char region[GW_NAME_MAX + 1];
	uint64_t stamp_ns, expires_ns;
	char control[GW_ADDRESS_MAX + 1], bulk[GW_ADDRESS_MAX + 1]; /* empty: cannot be dialled from here */
	unsigned malformed;	/* messages, since it was last muted */
	uint64_t muted_until_ns;
};

struct gw_links {
	struct gw_core *core;
	struct gw_net *net;
	struct gw_peers *peers;
	struct gw_join *join;
	struct gw_map by_curve, by_identity;
	struct gw_arena arena;
};

static struct peer *peer_of(const struct gw_links *l, gw_host host)
{
	const struct gw_roster_entry *e = gw_roster_at(gw_mesh_roster(gw_node_mesh(l->core->node)), host);

	return e && e->record ? gw_map_get(&l->by_identity, e->record->identity, 32) : NULL;
}

static const struct gw_roster_entry *entry_of(const struct gw_links *l, const struct peer *p)
{
	return p ? gw_roster_find(gw_mesh_roster(gw_node_mesh(l->core->node)), p->identity) : NULL;
}

static gw_host host_of(const struct gw_links *l, const uint8_t curve[32])
{
	const struct gw_roster_entry *e = entry_of(l, gw_map_get(&l->by_curve, curve, 32));

	return e ? e->host : GW_HOST_NONE;
}

/* --- in --- */

/* About whoever is at the other end; `event` is constant text. */
static void warn(struct gw_links *l, const uint8_t key[GW_NET_KEY], const char *event, const char *reason)
{
	const struct peer *p = gw_map_get(&l->by_curve, key, 32);
	const struct gw_roster_entry *e = gw_roster_at(gw_mesh_roster(gw_node_mesh(l->core->node)), host_of(l, key));
	char id[GW_KEY_ID_CHARS];

	if (gw_quiet_may_say(&l->core->quiet, event, gw_clock_mono_ns()))
		GW_LOG(GW_LOG_WARN, event, "host", e && e->record ? e->record->name : p ? gw_key_id(id, p->identity) : "unknown",
		       "reason", reason, NULL);
}

/* No release of ours sends such a thing: three of them, and it is not listened to for a minute. */
static void malformed(struct gw_links *l, const uint8_t key[GW_NET_KEY], struct peer *p, int err)
{
	if (++p->malformed < MALFORMED_MAX) {
		warn(l, key, "a message does not decode", gw_err_text(err));
		return;
	}
	p->malformed = 0;
	p->muted_until_ns = gw_loop_now_ns(l->core->loop) + MUTE_NS;
	warn(l, key, "sends what does not decode: not listened to for a minute", gw_err_text(err));
}

static void on_frame(void *ctx, const uint8_t key[GW_NET_KEY], enum gw_channel channel, const uint8_t *p, size_t n)
{
	struct gw_links *l = ctx;
	struct peer *peer = gw_map_get(&l->by_curve, key, 32);
	struct gw_msg m;
	struct gw_event ev = {.kind = GW_EV_MSG, .host = host_of(l, key), .msg = &m};
	int err;

	(void)channel;
	/* Admitted, but the mesh has not heard of it yet: it will say it again. */
	if (ev.host == GW_HOST_NONE || peer->muted_until_ns > gw_loop_now_ns(l->core->loop))
		return;
	err = gw_msg_decode(p, n, &l->arena, &m);
	if (!err)
		gw_core_put(l->core, &ev);
	else if (err != GW_EUNKNOWN) /* a newer host may send what we do not know */
		malformed(l, key, peer, err);
	gw_arena_reset(&l->arena);
}

static void on_link(struct gw_links *l, const uint8_t key[GW_NET_KEY], enum gw_event_kind kind)
{
	struct gw_event ev = {.kind = kind, .host = host_of(l, key)};

	if (ev.host != GW_HOST_NONE)
		gw_core_put(l->core, &ev);
}

static void on_up(void *ctx, const uint8_t key[GW_NET_KEY])
{
	on_link(ctx, key, GW_EV_LINK_UP);
}

static void on_down(void *ctx, const uint8_t key[GW_NET_KEY])
{
	on_link(ctx, key, GW_EV_LINK_DOWN);
}

static void on_writable(void *ctx, const uint8_t key[GW_NET_KEY], enum gw_channel channel)
{
	(void)ctx; /* blocks are offered again by their own timer; control messages are not kept */
	(void)key;
	(void)channel;
}

static void on_bad(void *ctx, const uint8_t key[GW_NET_KEY], const char *reason)
{
	warn(ctx, key, "a connection was dropped", reason);
}

/* --- out --- */

static void shut_out(struct gw_links *l, struct peer *p)
{
	gw_net_expel(l->net, p->curve);
	gw_peers_disconnect(l->peers, p->curve);
	(void)gw_map_del(&l->by_curve, p->curve, 32);
	(void)gw_map_del(&l->by_identity, p->identity, 32);
	free(p);
}

/* The first that has expired, or, `unknown`, that the mesh knows nothing of. */
static struct peer *one_to_go(struct gw_links *l, int unknown)
{
	const struct gw_roster *r = gw_mesh_roster(gw_node_mesh(l->core->node));
	uint64_t now = gw_clock_wall_ns();
	const struct gw_map_entry *e;
	size_t at = 0;

	while ((e = gw_map_next(&l->by_identity, &at)) != NULL) {
		struct peer *p = e->value;

		if (p->expires_ns <= now || (unknown && !gw_roster_find(r, p->identity)))
			return p;
	}
	return NULL;
}

void gw_links_expire(struct gw_links *l)
{
	struct peer *p;

	while ((p = one_to_go(l, 0)) != NULL)
		shut_out(l, p);
}

/* Whoever holds a token can make any number of members: there are no more of them here than in the roster. */
static int make_room(struct gw_links *l)
{
	struct peer *p = gw_map_count(&l->by_identity) < GW_MEMBERS_MAX || !l->core->node ? NULL : one_to_go(l, 1);

	if (p)
		shut_out(l, p);
	return gw_map_count(&l->by_identity) < GW_MEMBERS_MAX;
}

static int remember(struct gw_links *l, struct peer *p)
{
	int err = gw_map_put(&l->by_identity, p->identity, 32, p, NULL);

	if (!err && (err = gw_map_put(&l->by_curve, p->curve, 32, p, NULL)))
		(void)gw_map_del(&l->by_identity, p->identity, 32);
	if (err) {
		gw_logf(GW_LOG_ERR, "out of memory: a member is not reachable until it is heard of again");
		gw_net_expel(l->net, p->curve);
		free(p);
	}
	return err;
}

void gw_links_admit(struct gw_links *l, const struct gw_member *m)
{
	const struct gw_address *a = gw_member_address(m, l->core->identity.member.region);
	struct peer *p = gw_map_get(&l->by_identity, m->identity, 32), *other = gw_map_get(&l->by_curve, m->curve, 32);
	int fresh = !p;

	if (other && memcmp(other->identity, m->identity, 32)) {
		GW_LOG(GW_LOG_WARN, "two hosts claim one transport key; the first keeps it", "host", m->name, NULL);
		return;
	}
	if (p && p->stamp_ns > m->stamp_ns)
		return;
	if (fresh)
		p = make_room(l) ? calloc(1, sizeof *p) : NULL;
	if (!p || gw_net_admit(l->net, m->curve)) {
		GW_LOG(GW_LOG_WARN, "a member cannot be admitted", "host", m->name, NULL);
		if (fresh)
			free(p);
		return;
	}
	if (!fresh && memcmp(p->curve, m->curve, 32)) {
		gw_net_expel(l->net, p->curve);
		(void)gw_map_del(&l->by_curve, p->curve, 32);
	}
	memcpy(p->identity, m->identity, 32);
	memcpy(p->curve, m->curve, 32);
	(void)snprintf(p->region, sizeof p->region, "%s", m->region);
	p->stamp_ns = m->stamp_ns;
	p->expires_ns = m->expires_ns;
	(void)snprintf(p->control, sizeof p->control, "%s", a ? a->control : "");
	(void)snprintf(p->bulk, sizeof p->bulk, "%s", a ? a->bulk : "");
	(void)remember(l, p);
}

void gw_links_connect(struct gw_links *l, gw_host host)
{
	const struct peer *p = peer_of(l, host);
	struct gw_event down = {.kind = GW_EV_LINK_DOWN, .host = host};
	struct gw_diag why = {""};

	if (p && p->control[0] && !gw_peers_connect(l->peers, p->curve, p->control, p->bulk, &why))
		return;
	/* A host that cannot be dialled is linked by what it opened itself, and it is the one to keep that. */
	if (p && !p->control[0] && gw_peers_linked(l->peers, p->curve, GW_CHANNEL_CONTROL))
		return;
	if (why.text[0])
		GW_LOG(GW_LOG_WARN, "a link cannot be opened", "error", why.text, NULL);
	gw_core_put(l->core, &down);
}

void gw_links_disconnect(struct gw_links *l, gw_host host)
{
	const struct peer *p = peer_of(l, host);

	if (p)
		gw_peers_disconnect(l->peers, p->curve);
}

static int send_msg(struct gw_links *l, gw_host host, const struct gw_msg *msg, enum gw_channel channel)
{
	const struct peer *p = peer_of(l, host);
	struct gw_wr w;
	int err;

	if (!p)
		return GW_EUNREACH;
	gw_wr_init(&w, 512 * 1024);
	err = gw_msg_encode(msg, &w);
	assert(err != GW_EUNKNOWN && err != GW_EINVAL);
	if (!err)
		err = gw_peers_send(l->peers, p->curve, channel, w.p, w.n);
	gw_wr_free(&w);
	return err;
}

void gw_links_send(struct gw_links *l, gw_host host, const struct gw_msg *msg, int bulk)
{
	(void)send_msg(l, host, msg, bulk ? GW_CHANNEL_BULK : GW_CHANNEL_CONTROL);
}

int gw_links_send_block(struct gw_links *l, gw_host host, const struct gw_digest *object, uint32_t piece, uint64_t offset,
			const void *p, size_t bytes)
{
	struct gw_msg m = {.type = GW_MSG_block};

	memcpy(m.u.block.object, object->b, 32);
	m.u.block.piece = piece;
	m.u.block.offset = (uint32_t)offset;
	m.u.block.data = (struct gw_bytes){p, bytes};
	return send_msg(l, host, &m, GW_CHANNEL_BULK);
}

/* --- newcomers --- */

static void tell_mesh(struct gw_links *l, const struct gw_member *m, struct gw_bytes record)
{
	struct gw_event ev = {.kind = GW_EV_MEMBER_RECORD, .host = GW_HOST_NONE, .raw = record};

	if (gw_verify_record(m, record, &ev.record))
		return;
	gw_links_admit(l, m);
	gw_core_put(l->core, &ev);
	gw_member_record_unref(ev.record);
}

/* This host, then members that are in, those of the newcomer's region first. */
static void list_members(struct gw_links *l, const char *region, struct gw_arena *arena, struct gw_m_join_reply *reply)
{
	const struct gw_roster *r = gw_mesh_roster(gw_node_mesh(l->core->node));
	const struct gw_identity *id = &l->core->identity;

	reply->members.v = gw_arena_array(arena, REPLY_MEMBERS, sizeof reply->members.v[0]);
	if (!reply->members.v)
		return;
	reply->members.v[reply->members.n++].signed_bytes = (struct gw_bytes){id->member_bytes, id->member_n};
	for (int far = 0; far <= 1; far++)
		for (gw_host h = 1; h < r->n && reply->members.n < REPLY_MEMBERS; h++) {
			const struct gw_roster_entry *e = gw_roster_at(r, h);

			if (e && gw_roster_is_in(e) && e->record && (strcmp(e->record->region, region) != 0) == far)
				reply->members.v[reply->members.n++].signed_bytes = e->record->raw;
		}
}

static int on_join(void *ctx, const uint8_t curve[GW_NET_KEY], const struct gw_m_join_request *req, struct gw_arena *arena,
		   struct gw_m_join_reply *reply, struct gw_diag *why)
{
	struct gw_links *l = ctx;
	const struct gw_identity *id = &l->core->identity;
	struct gw_member m;
	int err = gw_join_check(&id->root, gw_clock_wall_ns(), req, &m, why);

	if (!err && memcmp(m.curve, curve, sizeof m.curve))
		err = gw_diag_set(why, GW_EUNTRUSTED, "the member record names another transport key than this connection's");
	if (err)
		return err;
	reply->roots.v = gw_arena_array(arena, 1, sizeof reply->roots.v[0]);
	if (!reply->roots.v)
		return GW_ENOMEM;
	reply->roots.n = 1;
	reply->roots.v[0].signed_bytes = (struct gw_bytes){id->root_bytes, id->root_n};
	/* First: what is listed points into records, and a host that joins again has its own replaced here. */
	tell_mesh(l, &m, req->member);
	/* Before it hears that it is in: should this host start again, it must know the newcomer. Where there are more members
	 * than the reply lists, others know it by then, and it soon knows others. */
	if (gw_roster_count(gw_mesh_roster(gw_node_mesh(l->core->node))) <= REPLY_MEMBERS)
		err = gw_members_keep(l->core, why);
	if (err)
		return gw_diag_wrap(why, err, "the newcomer cannot be written down");
	list_members(l, m.region, arena, reply);
	GW_LOG(GW_LOG_NOTICE, "a host joined", "host", m.name, "region", m.region, NULL);
	return 0;
}

/* --- life --- */

static int bind_all(struct gw_links *l, struct gw_diag *why)
{
	const struct gw_config *c = l->core->cfg;
	struct gw_peers_config peers = {
		.net = l->net,
		.loop = l->core->loop,
		.bind = {c->network_control, c->network_bulk},
		.source = c->network_source,
		.seed = gw_clock_mono_ns(),
		.ctx = l,
		.frame = on_frame,
		.up = on_up,
		.down = on_down,
		.writable = on_writable,
		.bad = on_bad,
	};
	struct gw_join_config join = {.net = l->net, .loop = l->core->loop, .bind = c->network_join, .seed = gw_clock_mono_ns(),
				      .ctx = l, .answer = on_join};
	int err = gw_peers_new(&l->peers, &peers, why);

	if (!err && c->network_join[0])
		err = gw_join_new(&l->join, &join, why);
	return err;
}

int gw_links_new(struct gw_links **out, struct gw_core *core, struct gw_diag *why)
{
	struct gw_links *l = calloc(1, sizeof *l);
	struct gw_net_config net = {0};
	int err;

	if (!l)
		return GW_ENOMEM;
	l->core = core;
	gw_map_init(&l->by_curve, gw_clock_mono_ns());
	gw_map_init(&l->by_identity, gw_clock_mono_ns());
	gw_arena_init(&l->arena, FRAME_ARENA);
	memcpy(net.curve_pk, core->identity.key.curve_pk, sizeof net.curve_pk);
	memcpy(net.curve_sk, core->identity.key.curve_sk, sizeof net.curve_sk);
	err = gw_net_new(&l->net, &net, why);
	gw_wipe(&net, sizeof net);
	if (!err)
		err = bind_all(l, why);
	if (err) {
		gw_links_free(l);
		return err;
	}
	*out = l;
	return 0;
}

void gw_links_free(struct gw_links *l)
{
	if (!l)
		return;
	gw_join_free(l->join);
	gw_peers_free(l->peers);
	gw_net_free(l->net);
	gw_map_free(&l->by_curve, NULL);
	gw_map_free(&l->by_identity, free);
	gw_arena_reset(&l->arena);
	free(l);
}
