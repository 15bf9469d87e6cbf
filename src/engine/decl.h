/* What a declaration holds: for decl.c, which fills it, and plan.c, which makes a plan of several. */
#ifndef GW_ENGINE_DECL_H
#define GW_ENGINE_DECL_H

#include "base/map.h"
#include "engine/map.h"
#include "engine/plan.h"

struct gw_decl_tensor {
	char *name;
	enum gw_dtype dtype;
	unsigned width, dims;
	uint64_t shape[GW_TABLE_DIMS_MAX];
	uint64_t elements;
};

struct gw_decl_map {
	uint32_t tensor;
	struct gw_dev_window w;
};

struct gw_decl_opaque {
	char *name;
	enum gw_opaque_reason reason;
};

struct gw_decl {
	struct gw_decl_info info;
	int hello;
	uint64_t *segments; /* bytes */
	struct gw_decl_tensor *tensors;
	struct gw_decl_map *maps;
	struct gw_decl_opaque *opaques;
	size_t tensor_n, tensor_cap, map_n, map_cap, opaque_n, opaque_cap, segment_cap;
	struct gw_map names; /* of tensors and opaques, which are disjoint */
};

/* Room for one more of `size` bytes in *v; limit: the most there may be. */
int gw_decl_room(void **v, size_t n, size_t *cap, size_t size, size_t limit);

#endif
