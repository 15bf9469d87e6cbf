#include "engine/op.h"

#include <string.h>

int gw_op_ok(enum gw_engine_op op, const struct gw_list_found *found)
{
	return found->neither_n == 0 && (op == GW_OP_WRITE ? found->old_n : found->new_n) == 0;
}

static int store(int to_new, struct gw_list_header *list, const struct gw_device *dev, const struct gw_dev_mem *mem,
		 uint32_t segments)
{
	enum gw_list_state begun = to_new ? GW_LIST_WRITING : GW_LIST_UNDOING;
	int err = 0;

	if (gw_list_state(list) != begun)
		err = gw_list_set_state(list, begun);
	if (!err)
		err = dev->ops->write(dev->dev, list, mem, segments, to_new);
	return err ? err : dev->ops->sync(dev->dev);
}

int gw_op_run(enum gw_engine_op op, struct gw_list_header *list, const struct gw_device *dev,
	      const struct gw_dev_mem *mem, uint32_t segments, struct gw_list_found *found)
{
	enum gw_list_state done = op == GW_OP_WRITE ? GW_LIST_WRITTEN : GW_LIST_UNDONE;
	int err = 0, writes = op != GW_OP_CHECK;

	memset(found, 0, sizeof *found);
	/* Cut short after the last store and the check: only to be read. */
	if (writes && gw_list_state(list) == done)
		writes = 0;
	if (writes)
		err = store(op == GW_OP_WRITE, list, dev, mem, segments);
	if (!err)
		err = dev->ops->check(dev->dev, list, mem, segments, found);
	if (!err && writes && gw_op_ok(op, found))
		err = gw_list_set_state(list, done);
	return err;
}
