/*
 * What a commit does to the memory of one rank: check the places of a list, write the new bits, write the old
 * ones. The same for a worker of the daemon (import) and for the engine side (in-process, and when the daemon
 * is gone).
 */
#ifndef GW_ENGINE_OP_H
#define GW_ENGINE_OP_H

#include <stdint.h>

#include "patch/apply.h"
#include "patch/list.h"

/* As in eng_apply. */
enum gw_engine_op { GW_OP_NONE = 0, GW_OP_CHECK = 1, GW_OP_WRITE = 2, GW_OP_UNDO = 3 };

/* WRITE and UNDO move the list's state to WRITING or UNDOING, store all places, read them back into *found, and
 * move the state to WRITTEN or UNDONE where all hold what they should. Repeatable after any interruption. An error
 * says that the memory could not be reached or the list's state forbids it; places that hold the wrong bits
 * are told by *found alone. */
int gw_op_run(enum gw_engine_op op, struct gw_list_header *list, const struct gw_device *dev,
	      const struct gw_dev_mem *mem, uint32_t segments, struct gw_list_found *found);
/* Whether the places hold what they should after the op (for CHECK: before a write). */
int gw_op_ok(enum gw_engine_op op, const struct gw_list_found *found);

#endif
