/*
 * What goes into a state machine and what comes out.
 *
 *     int gw_X_step(struct gw_X *x, const struct gw_event *ev, struct gw_actions *out);
 *
 * A machine holds no socket, file, clock, thread or source of randomness but the generator seeded at
 * its init. The event carries `now_ns` (monotonic); memory behind an event is the caller's and dead on
 * return. Actions are executed in order, after the step; what they point to lies in `out->arena`, or in
 * the event where the action says so. Timers are actions; PERSIST comes before the SEND that relies on it.
 *
 * src/node feeds one event to the machines that want it and collects their actions; io (the daemon) or
 * the simulator executes them. Hosts are named by handles: the node's roster gives each identity it
 * learns a number, in order, never reused while the process lives; 0 is this host.
 *
 * Objects are named by the BLAKE2b-256 digest of their manifest. An object's bytes are cut into pieces
 * (trust/manifest.h); a piece crosses the wire as blocks of at most GW_BLOCK_MAX.
 *
 * Keys of timers and of VERIFY actions carry their machine in the top byte (enum gw_machine), so that an event
 * with a key goes to that machine alone. A link that one machine asked for by CONNECT is given up only by
 * its own DISCONNECT: the node keeps a mark a machine.
 */
#ifndef GW_WIRE_STEP_H
#define GW_WIRE_STEP_H

#include <stdint.h>

#include "base/arena.h"
#include "wire/msg.h"

typedef uint32_t gw_host;

enum { GW_HOST_SELF = 0, GW_BLOCK_MAX = 128 * 1024 };
#define GW_HOST_NONE UINT32_MAX

enum gw_machine { GW_KEY_MESH = 1, GW_KEY_BOARD = 2, GW_KEY_SWARM = 3, GW_KEY_ENGINE = 4, GW_KEY_NODE = 5 };
#define GW_KEY(machine, low) (((uint64_t)(machine) << 56) | (low))
#define GW_KEY_MACHINE(key) ((key) >> 56)

struct gw_digest {
	uint8_t b[32];
};

enum gw_event_kind {
	GW_EV_START,        /* once, first */
	GW_EV_TIMER,        /* key: as set by the action */
	GW_EV_MSG,          /* host, msg: a message from an admitted host */
	GW_EV_LINK_UP,      /* host: a connection asked for by CONNECT, or opened by the host, works */
	GW_EV_LINK_DOWN,    /* host: it is gone, or could not be opened */
	/* Between two hosts there is one link, usable by both, while either has asked to keep it. LINK_DOWN ends
	 * what both asked: who still wants it asks again. */
	GW_EV_LEAVE,        /* this host is about to stop: say good-bye */
	GW_EV_HEALTH,       /* key: somebody asks how the whole mesh is; answered by the action HEALTH */
	GW_EV_MEMBER_RECORD,/* record, host, key: a verified member record; answers VERIFY_MEMBER, or host is
	                     * GW_HOST_NONE and it comes from the join socket or is this host's own, renewed */
	/* from mesh to the others, through the node */
	GW_EV_MEMBER_UP,    /* host, region, region_name, identity: a member that is alive; also when its region or
	                     * roles changed, and when it is suspected no longer */
	GW_EV_MEMBER_DOWN,  /* host: dead or left (not when merely suspected) */
	GW_EV_MEMBER_SUSPECT, /* host: suspected; owners of its stripes get ready */
	/* from the store and its workers */
	GW_EV_OBJECT_OPEN,  /* object, piece_count, have: it is in the store, with these pieces verified */
	GW_EV_PIECE_OK,     /* object, piece: verified and durable enough to serve */
	GW_EV_PIECE_BAD,    /* object, piece, host: digest wrong; host is who sent it */
	GW_EV_OBJECT_FAILED,/* object, err: the disk refused; may be retried */
	GW_EV_BLOCK_SENT,   /* host, object, piece, bytes: an earlier BLOCK_SEND left this host, or was given up (err) */
	/* from trust and the publisher */
	GW_EV_HEAD,         /* head: verified by a worker; counters not yet checked */
	GW_EV_MANIFEST,     /* manifest: verified by a worker; host GW_HOST_SELF: its object is in this host's store
	                     * (published here, or found at start), in whole or in part */
	GW_EV_REFUSED,      /* host, err, key: what this host sent did not verify */
	/* from the engine room */
	GW_EV_SERVED,       /* run, version: the engines of this host now serve it; UINT64_MAX: nothing of that run */
	GW_EV_STAGE_FAILED, /* object, err */
	/* between board and swarm, by the action TELL */
	GW_EV_WANT,         /* object, manifest, raw, key: fetch it, the larger key first; key 0: serve what is here */
	GW_EV_UNWANT,       /* object: stop fetching, go on serving */
	GW_EV_FORGET,       /* object: it is leaving the store */
	GW_EV_OBJECT_WHOLE, /* object: all its pieces are here */
};

struct gw_head;
struct gw_manifest;
struct gw_member_record; /* mesh/record.h */

struct gw_event {
	enum gw_event_kind kind;
	uint64_t now_ns;  /* monotonic */
	uint64_t wall_ns; /* since the epoch, for expiries; may jump */
	gw_host host;
	uint32_t region;  /* handle: order of first mention in this process, 0 is this host's */
	int err;
	uint64_t key;     /* of a timer or a VERIFY action: as the action gave it */
	const struct gw_msg *msg;
	struct gw_digest object;
	uint32_t piece, piece_count;
	uint64_t bytes;
	const uint8_t *have;   /* bitmap, piece_count bits, LSB first */
	uint64_t version;
	const struct gw_head *head;
	const struct gw_manifest *manifest;
	struct gw_member_record *record;
	const uint8_t *identity; /* 32 bytes */
	const uint8_t *run;      /* 16 bytes */
	struct gw_text region_name;
	struct gw_bytes raw;   /* the signed bytes of head or manifest, for passing on */
};

enum gw_action_kind {
	GW_ACT_TIMER,       /* at_ns, key: fires once; a machine may have any number and ignores stale ones */
	GW_ACT_SEND,        /* host, msg, bulk: dropped quietly when there is no link */
	GW_ACT_CONNECT,     /* host: open and keep a link */
	GW_ACT_DISCONNECT,  /* host */
	GW_ACT_MEMBER,      /* event: mesh tells the others (MEMBER_UP, MEMBER_DOWN, MEMBER_SUSPECT) */
	GW_ACT_TELL,        /* event: board and swarm tell each other; fed to the other machines like MEMBER */
	GW_ACT_PERSIST,     /* slot, data: durable before any later action of this step */
	GW_ACT_VERIFY_HEAD, /* host, data, key: signature and roles; answers HEAD or REFUSED */
	GW_ACT_VERIFY_MANIFEST, /* host, data, key: answers MANIFEST or REFUSED */
	GW_ACT_VERIFY_MEMBER, /* host, data, key: answers MEMBER_RECORD or REFUSED */
	GW_ACT_OBJECT_OPEN, /* object, data (its signed manifest): make or open it in the store; answers OBJECT_OPEN or OBJECT_FAILED */
	GW_ACT_OBJECT_DROP, /* object: no longer wanted */
	GW_ACT_BLOCK_SEND,  /* host, object, piece, offset, bytes: read from the store and send on bulk */
	GW_ACT_BLOCK_STORE, /* host, object, piece, offset, data (in the event): write into the store; before any
	                     * later PIECE_CHECK of that piece */
	GW_ACT_PIECE_CHECK, /* host, object, piece: all blocks stored, verify; answers PIECE_OK or PIECE_BAD */
	GW_ACT_PATH,        /* object, version: the next transition to stage is whole in the store */
	GW_ACT_HEALTH,      /* key, msg: a status_reply with every host's records; answers the event HEALTH */
	GW_ACT_LOG,         /* level, text, host */
};

struct gw_action {
	enum gw_action_kind kind;
	gw_host host;
	uint64_t at_ns, key;
	struct gw_msg *msg; /* in the arena */
	uint8_t bulk;
	struct gw_digest object;
	uint32_t piece;
	uint64_t offset, bytes, version;
	struct gw_bytes data;
	const char *slot;   /* constant text */
	struct gw_event event;
	int level;
	const char *text;   /* constant text */
};

struct gw_actions {
	struct gw_arena arena;
	struct gw_action *v;
	size_t n, cap;
	int err; /* sticky GW_ENOMEM */
};

void gw_actions_init(struct gw_actions *a);
void gw_actions_free(struct gw_actions *a);
/* Empties the list and the arena, for the next step. */
void gw_actions_reset(struct gw_actions *a);
/* Appends a zeroed action of that kind; on lack of memory returns a scratch one and sets err. */
struct gw_action *gw_actions_add(struct gw_actions *a, enum gw_action_kind kind);
/* The shorthand that most sends use: an action SEND with a zeroed message of that type in the arena. */
struct gw_msg *gw_actions_send(struct gw_actions *a, gw_host to, enum gw_msg_type type);

#endif
