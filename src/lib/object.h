/* The object behind godwit.h, for engine.c and link.c. */
#ifndef GW_LIB_OBJECT_H
#define GW_LIB_OBJECT_H

#include "base/arena.h"
#include "engine/client.h"
#include "io/os/memfd.h"
#include "lib/godwit.h"
#include "wire/msg.h"

enum { GW_LIB_MAGIC = 0x676f6477, GW_LIB_EVENTS = 32, GW_LIB_PAIRS = 4 };

struct gw_lib_segment {
	int fd;
	struct gw_shm shm;
};

struct gw_lib_tensor {
	char *name;
	uint16_t dtype;
	unsigned dims, width;
	uint64_t elements;
	uint64_t shape[GW_TABLE_DIMS_MAX];
	uint8_t shape_bytes[8 * GW_TABLE_DIMS_MAX];
};

struct gw_lib_opaque {
	char *name;
	uint8_t reason;
};

/* A list and a commit page as mapped from eng_stage. */
struct gw_lib_pair {
	struct gw_shm list, page;
};

struct godwit_engine {
	unsigned magic;
	char *path;
	char engine[64], engine_version[64], quantisation[64], device[64];
	uint32_t rank, ranks;
	int in_process;
	uint8_t instance[16], run[16];
	uint64_t version; /* claimed at the first attach */

	struct gw_lib_segment *segments;
	struct gw_dev_mem *mem;
	struct gw_lib_tensor *tensors;
	struct gw_r_eng_map *maps;
	struct gw_lib_opaque *opaques;
	size_t segment_n, segment_cap, mem_cap, tensor_n, tensor_cap, map_n, map_cap, opaque_n, opaque_cap;

	struct gw_client *client; /* from the first attach on */
	struct gw_lib_pair pairs[GW_LIB_PAIRS];
	int sock, epoll, timer;   /* sock: -1 while there is no daemon */
	int attached;             /* once in the object's life */
	uint64_t timer_ns;        /* what the timer is set to */
	uint64_t retry_ns;        /* how long until the next try to attach */
	int eventfd;              /* readable while events wait */
	struct gw_arena arena;
	struct godwit_event events[GW_LIB_EVENTS];
	unsigned event_at, event_n;
	struct gw_diag why;
};

int gw_lib_link_init(struct godwit_engine *e);
void gw_lib_link_fini(struct godwit_engine *e);
/* Connects and declares. */
int gw_lib_link_open(struct godwit_engine *e);
/* Receives and ticks whatever is due, without waiting. */
int gw_lib_link_work(struct godwit_engine *e);
/* Feeds the client machine and does what it says. */
int gw_lib_link_step(struct godwit_engine *e, struct gw_client_event *ev);

#endif
