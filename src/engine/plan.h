/*
 * What all ranks of one engine declared, checked against the tensors of a version.
 *
 * A declaration (struct gw_decl) collects one rank's messages. When all ranks have ended theirs, they make
 * a plan: per tensor the windows, as declared, and the same cut into parts such that every element has
 * exactly one counted owner part; every further copy (replicated heads, tied or data-parallel copies) is a
 * part that names the owner part whose region it repeats. Parts are printed apart: owners add up to the
 * tensor's fingerprint, a copy must equal its owner.
 *
 * A tensor with windows must be covered whole. A tensor of a version that no rank mentions, or that one
 * calls opaque, cannot be patched in place; one that is called unused (and mapped by none) may change without
 * harm. The plan knows names, dtypes and shapes as declared; whether a version has them so is for the proof.
 */
#ifndef GW_ENGINE_PLAN_H
#define GW_ENGINE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/table.h"
#include "patch/apply.h"
#include "wire/msg.h"
#include "wire/step.h"

enum {
	GW_PLAN_SEGMENTS_MAX = 4096,      /* a rank */
	GW_PLAN_TENSORS_MAX = 1 << 20,    /* a rank */
	GW_PLAN_MAPS_MAX = 1 << 22,       /* a rank */
	GW_PLAN_WINDOWS_MAX = 1 << 12,    /* a tensor, over all ranks */
	GW_PLAN_PARTS_MAX = 1 << 14,      /* a tensor */
	GW_PLAN_RANKS_MAX = 1024,
};

enum gw_opaque_reason {
	GW_OPAQUE_NONE = 0,
	GW_OPAQUE_VALUES = 1,    /* values change on load, such as requantisation */
	GW_OPAQUE_OPERATION = 2, /* the loader does something unknown */
	GW_OPAQUE_MOVES = 3,     /* moves at run time */
	GW_OPAQUE_UNUSED = 4,    /* the engine does not use it */
	GW_OPAQUE_UNMAPPED = 5,  /* no rank mentioned it */
};

/* What is told to who attaches, when it is refused. */
struct gw_refusal {
	int err;
	char tensor[GW_TABLE_NAME_MAX + 1];
	uint64_t element;         /* the first that does not match; GW_VERSION_NONE where not known */
	uint64_t expected, found; /* its bits */
	struct gw_diag why;
};

/* --- one rank's declaration --- */
struct gw_decl;

int gw_decl_new(struct gw_decl **out);
void gw_decl_free(struct gw_decl *d);
/* The messages, in the order of proto/ATTACH.md; every limit and count is checked here. */
int gw_decl_hello(struct gw_decl *d, const struct gw_m_eng_hello *m, struct gw_diag *why);
int gw_decl_segment(struct gw_decl *d, const struct gw_m_eng_segment *m, struct gw_diag *why);
int gw_decl_tensors(struct gw_decl *d, const struct gw_m_eng_tensors *m, struct gw_diag *why);
int gw_decl_maps(struct gw_decl *d, const struct gw_m_eng_maps *m, struct gw_diag *why);
int gw_decl_opaques(struct gw_decl *d, const struct gw_m_eng_opaques *m, struct gw_diag *why);
int gw_decl_end(struct gw_decl *d, const struct gw_m_eng_attach *m, struct gw_diag *why);

struct gw_decl_info {
	char engine[64], engine_version[64], quantisation[64], device[64];
	uint32_t pid, rank, ranks;
	uint64_t start_ticks;
	uint8_t instance[16], run[16];
	int in_process;      /* the engine side writes */
	uint64_t version;    /* claimed, or GW_VERSION_NONE */
	uint32_t segments;
	int ended;
};
const struct gw_decl_info *gw_decl_info(const struct gw_decl *d);
uint64_t gw_decl_segment_bytes(const struct gw_decl *d, uint32_t id);

/* --- the plan --- */
struct gw_plan;

struct gw_plan_window {
	uint32_t rank;
	struct gw_dev_window w;
};

struct gw_plan_part {
	uint32_t rank;
	int64_t owner;          /* -1: counted; else the index of the part whose region this one repeats */
	struct gw_dev_window w;
};

struct gw_plan_tensor {
	char *name;
	enum gw_dtype dtype;
	unsigned width, dims;
	uint64_t shape[GW_TABLE_DIMS_MAX];
	uint64_t elements;
	enum gw_opaque_reason opaque;      /* GW_OPAQUE_NONE: mapped, and covered whole */
	struct gw_plan_window *windows;    /* as declared */
	size_t window_n, window_cap;
	struct gw_plan_part *parts;        /* owners and copies */
	size_t part_n, part_cap;
};

/* decls[i] is rank i's, all ended; they may be freed after. On refusal *no says which tensor and why. */
int gw_plan_new(struct gw_plan **out, const struct gw_decl *const *decls, uint32_t ranks, struct gw_refusal *no);
void gw_plan_free(struct gw_plan *p);
uint32_t gw_plan_ranks(const struct gw_plan *p);
/* Tensors that were mentioned, in the order of their first mention. */
uint32_t gw_plan_tensors(const struct gw_plan *p);
const struct gw_plan_tensor *gw_plan_tensor(const struct gw_plan *p, uint32_t i);
/* NULL: no rank mentioned it. */
const struct gw_plan_tensor *gw_plan_find(const struct gw_plan *p, const char *name);
/* BLAKE2b-256 over segments, tensors, maps and opaques of all ranks; not over processes and descriptors. */
const struct gw_digest *gw_plan_digest(const struct gw_plan *p);
const char *gw_opaque_text(enum gw_opaque_reason r);

/* Fills a refusal; the message may name the tensor too. Returns err. */
int gw_refuse(struct gw_refusal *no, int err, const char *tensor, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
