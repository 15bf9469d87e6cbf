/*
 * Boards in one process, with virtual time. "Signed" records are entries of a register: what is in it verifies, what is
 * not does not. So the boards' own rules are tested, not the signatures.
 */
#ifndef GW_TESTS_BOARD_NET_H
#define GW_TESTS_BOARD_NET_H

#include "base/heap.h"
#include "board/board.h"

enum { BN_HOSTS = 16, BN_RECORDS = 160, BN_TELLS = 256, BN_SLOT = 64 * 1024 };

#define BN_MS 1000000ull
#define BN_S 1000000000ull
#define BN_WALL (1800000000ull * BN_S)

struct bn_record {
	int is_head;
	struct gw_head head;
	struct gw_manifest manifest;
	uint8_t *raw;
	size_t n;
};

struct bn_tell {
	enum gw_event_kind kind;
	struct gw_digest object;
	uint64_t key;
};

struct bn_host {
	struct gw_board *board;
	int alive, deaf; /* deaf: messages to it are lost */
	uint8_t linked[BN_HOSTS];
	uint64_t verified_heads, verified_manifests;
	uint64_t sent[256];
	struct bn_tell tells[BN_TELLS];
	size_t tell_count;
	struct gw_digest path, dropped;
	uint64_t path_version, paths, drops;
	uint8_t slot[BN_SLOT];
	size_t slot_bytes;
	uint64_t persists;
	int errors, warnings; /* logged */
};

struct board_net {
	struct bn_host hosts[BN_HOSTS];
	int n;
	struct bn_record records[BN_RECORDS];
	int record_count;
	struct gw_heap events;
	struct gw_actions out;
	uint64_t now, wall_offset;
	uint64_t heads_over_links;
	struct gw_board_config cfg;
};

void bn_init(struct board_net *n);
void bn_free(struct board_net *n);
int bn_add(struct board_net *n);
void bn_link(struct board_net *n, int a, int b);
void bn_unlink(struct board_net *n, int a, int b);
void bn_event(struct board_net *n, int host, struct gw_event *ev);
void bn_run(struct board_net *n, uint64_t ns);
/* From the slot that it persisted. */
void bn_restart(struct board_net *n, int host);
gw_host bn_handle(int host);

/* Records; the index is returned. from = to: an anchor. previous: index or -1. pad: bytes of the signed form. */
int bn_manifest(struct board_net *n, uint8_t run, uint64_t from, uint64_t to, uint64_t bytes, int previous, size_t pad);
int bn_head(struct board_net *n, uint8_t run, uint64_t sequence, int manifest);
/* The record was changed by hand: new bytes, new id. */
void bn_seal(struct board_net *n, int record);
struct gw_digest bn_id(const struct board_net *n, int record);

/* This host's publisher or store hands it in. */
void bn_publish(struct board_net *n, int host, int record);
/* As if the bytes came over a link. */
void bn_receive(struct board_net *n, int host, int from, int record);
void bn_whole(struct board_net *n, int host, int manifest);
void bn_served(struct board_net *n, int host, uint8_t run, uint64_t version);
/* The last thing that the swarm was told about it; NULL for nothing. */
const struct bn_tell *bn_told(const struct board_net *n, int host, int manifest);
int bn_wanted(const struct board_net *n, int host, int manifest);
struct gw_board_policy bn_policy(const struct board_net *n, int host);
struct gw_board_counts bn_counts(const struct board_net *n, int host);

#endif
