/*
 * The slots that the node's machines persist. A value that the disk refuses is kept and tried again every second,
 * the newest of each slot; until it is durable, whoever relies on it asks gw_slots_late and waits. On the loop's thread.
 */
#ifndef GW_DAEMON_SLOTS_H
#define GW_DAEMON_SLOTS_H

#include "io/os/loop.h"
#include "io/os/store.h"
#include "wire/step.h"

enum { GW_SLOTS_MAX = 4 };

struct gw_slots {
	struct gw_store *store;
	struct gw_loop *loop;
	struct gw_timer timer;
	struct gw_slot {
		const char *name; /* constant text */
		uint8_t *p;       /* what is not durable yet, or NULL */
		size_t n;
	} v[GW_SLOTS_MAX];
};

void gw_slots_init(struct gw_slots *s, struct gw_store *store, struct gw_loop *loop);
/* A zeroed one is fine. */
void gw_slots_end(struct gw_slots *s);
/* 0: durable. GW_ENOMEM: nor could it be kept. Other errors: it will be tried again. */
int gw_slots_put(struct gw_slots *s, const char *name, struct gw_bytes data);
int gw_slots_late(const struct gw_slots *s, const char *name);

#endif
