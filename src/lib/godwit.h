/*
 * libgodwit: the engine's side of Godwit. An inference engine puts its weights into memory that this library
 * shares with the daemon (godwitd), says which checkpoint tensors lie where, and attaches. From then on new versions
 * are written into that memory while the engine is paused for some milliseconds, proven bit for bit.
 *
 *     struct godwit_engine *e;
 *     godwit_engine_new(&e, "/run/godwit/godwitd.sock", &info);
 *     godwit_engine_add_segment(e, bytes, &memory, &segment);
 *     … load the checkpoint into `memory` …
 *     godwit_engine_add_tensor(e, "model.norm.weight", "BF16", 1, shape, &tensor);
 *     godwit_engine_add_whole(e, tensor, segment, offset);
 *     godwit_engine_attach(e, 60000);
 *     serve; whenever godwit_engine_fd(e) is readable, and between two steps at the latest:
 *     while (godwit_engine_next(e, &event, 0) > 0)
 *         switch (event.kind) {
 *         case GODWIT_PAUSE:  stop computing; godwit_engine_paused(e); break;
 *         case GODWIT_RESUME: the weights are event.version; godwit_engine_resumed(e); go on; break;
 *         case GODWIT_POISONED: stop computing and serve nothing until GODWIT_RESUME; break;
 *         …
 *         }
 *
 * When the daemon goes away the engine goes on serving; inside a pause this library first puts the weights into
 * the old version, or the new one where that was decided, checks them, and then lets the engine resume. It attaches
 * again by itself as soon as a daemon is there.
 *
 * Functions return 0 or a negative error (godwit_strerror); godwit_engine_error has the whole message. An object
 * must be used by one thread at a time; different objects are independent. After fork only the parent may use it.
 * Names and shapes are copied. The interface is stable: fields are added at the end of structures, which begin
 * with their own size.
 */
#ifndef GODWIT_H
#define GODWIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GODWIT_VERSION_UNKNOWN UINT64_MAX

struct godwit_engine;

struct godwit_engine_info {
	size_t size;                /* sizeof (struct godwit_engine_info) */
	const char *engine;         /* "vllm"; at most 63 bytes, as the other texts; NULL is empty */
	const char *engine_version;
	const char *quantisation;
	const char *device;         /* NULL: "cpu" */
	uint32_t rank, ranks;       /* among all workers of the engine; ranks 0 means 1 */
	int in_process;             /* 1: this library writes, 0: the daemon does */
	uint8_t instance[16];       /* random, the same for all ranks; zero: made here, for ranks = 1 only */
	uint8_t run[16];            /* of the weights; zero: unknown */
	uint64_t version;           /* what the weights are; GODWIT_VERSION_UNKNOWN: the daemon finds out */
};

int godwit_engine_new(struct godwit_engine **out, const char *socket_path, const struct godwit_engine_info *info);
/* Says goodbye to the daemon and unmaps the segments. NULL does nothing. */
void godwit_engine_free(struct godwit_engine *e);

/* Memory that the daemon can write: a new one, zeroed; or a memfd of the engine's own, from its start (a copy of the
 * descriptor is kept, and its size is sealed). *memory is valid until godwit_engine_free. */
int godwit_engine_add_segment(struct godwit_engine *e, uint64_t bytes, void **memory, uint32_t *segment);
int godwit_engine_take_segment(struct godwit_engine *e, int fd, uint64_t bytes, void **memory, uint32_t *segment);

/* A checkpoint tensor, dtype and shape as safetensors has them ("BF16"; dims 0 is a scalar). */
int godwit_engine_add_tensor(struct godwit_engine *e, const char *name, const char *dtype, unsigned dims,
			     const uint64_t *shape, uint32_t *tensor);

/* Where a rectangle of it lies. The tensor is seen as rows of tensor_cols elements (a product of its last dimensions);
 * element (r, c) of the rectangle is at byte base + r * row_pitch + c * col_pitch of the segment. A slice of axis a:
 * rows = product of the dimensions before a, tensor_cols = product of the others. Packed 4-bit: elements are bytes. */
struct godwit_window {
	uint32_t segment;
	uint64_t base, row_pitch, col_pitch; /* bytes */
	uint64_t rows, cols, row0, col0, tensor_cols;
};
int godwit_engine_add_window(struct godwit_engine *e, uint32_t tensor, const struct godwit_window *w);
/* The whole tensor in C order, without gaps. */
int godwit_engine_add_whole(struct godwit_engine *e, uint32_t tensor, uint32_t segment, uint64_t base);

/* A checkpoint tensor that cannot be patched in place, or (GODWIT_UNUSED) is not read. */
enum godwit_opaque { GODWIT_VALUES_CHANGE = 1, GODWIT_UNKNOWN_OPERATION = 2, GODWIT_MOVES = 3, GODWIT_UNUSED = 4 };
int godwit_engine_add_opaque(struct godwit_engine *e, const char *name, enum godwit_opaque why);

/* Declares all that was added and waits until the daemon has proven it, at most timeout_ms (-1: for ever). A daemon that is
 * not there yet is waited for; and where the version is said to be unknown and the weights are of none that the daemon
 * knows, an anchor is, which makes them one. A wrong claim is refused. Nothing can be added after; after an error it
 * may be called again. */
int godwit_engine_attach(struct godwit_engine *e, int timeout_ms);

enum godwit_event_kind {
	GODWIT_NONE = 0,
	GODWIT_PAUSE = 1,    /* stop computing with the weights, then godwit_engine_paused */
	GODWIT_RESUME = 2,   /* the weights are `version`: godwit_engine_resumed, then go on; may come before the pause
			      * that was asked for was reported: then it is taken back */
	GODWIT_LOST = 3,     /* the daemon is gone; nothing to do */
	GODWIT_ATTACHED = 4, /* a daemon is there again, and proved `version` */
	GODWIT_REFUSED = 5,  /* one is there and did not: err, text; it is tried again */
	GODWIT_POISONED = 6, /* text: what the weights are cannot be proven: compute nothing until GODWIT_RESUME */
};

struct godwit_event {
	enum godwit_event_kind kind;
	int err;
	uint64_t version;
	uint8_t run[16];
	char text[512];
};

/* 1 and an event, 0 when none came in timeout_ms (-1: wait), or an error. */
int godwit_engine_next(struct godwit_engine *e, struct godwit_event *event, int timeout_ms);
/* Readable when godwit_engine_next has something to do. The same one for the object's life. */
int godwit_engine_fd(const struct godwit_engine *e);
int godwit_engine_paused(struct godwit_engine *e);
int godwit_engine_resumed(struct godwit_engine *e);

/* What the weights are: GODWIT_VERSION_UNKNOWN before the first attach, inside a pause and while poisoned. */
uint64_t godwit_engine_version(const struct godwit_engine *e);
/* Of the last failed call; never NULL. */
const char *godwit_engine_error(const struct godwit_engine *e);

const char *godwit_strerror(int err);
/* "0.1.0" */
const char *godwit_library_version(void);

#ifdef __cplusplus
}
#endif

#endif
