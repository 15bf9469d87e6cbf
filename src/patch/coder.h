/*
 * The coder of a tile's changes. Format: proto/PATCH.md, "Coded tiles".
 *
 * Both ends hold the old bits, and how likely an element changes depends on its old exponent. A model (one for each
 * dtype of a patch) says how: elements of the exponents below `edge`, which change often, are all listed, each with a
 * step that may be 0; the others are found in a time that runs faster over elements that change more often, so that
 * one distribution of gaps serves all exponents. Everything goes into one stack of bits by range coding (rANS:
 * J. Duda, "Asymmetric numeral systems", 2013). A change has as many codes as its element's time is long; which is
 * taken carries bits of the rest of the stream, so nothing is lost by the choice (B. Frey, "Bayesian networks for
 * pattern classification, data compression, and channel coding", 1997: bits back).
 *
 * A model is learned from a sample of tiles, seen twice:
 *
 *     gw_model_see(s, old, n, c)    for each tile of the sample      how often each exponent changes
 *     gw_model_plan(s)                                               edge, weights, kind of steps
 *     gw_model_learn(s, old, n, c)  for each tile again              symbols under that plan
 *     gw_model_make(m, s)                                            tables
 *
 * Sums of samples may be taken in parts (gw_sample_add), in any order, for the same result. A model codes any tile,
 * also one unlike the sample; it only costs more. All is integer arithmetic: the same on every machine.
 *
 * A tile's old bits lie row by row without holes; `old` is read up to n elements and nothing beyond. `hot` may name
 * elements that are likely to change for a reason that both ends see and old bits do not tell (patch/companion.h): a bit
 * an element, in words of 64, and they are listed too. NULL: none; of floats always.
 */
#ifndef GW_PATCH_CODER_H
#define GW_PATCH_CODER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "patch/patch.h"

/* What is counted in a sample; one a worker and dtype. About 80 KiB. */
struct gw_sample;
int gw_sample_new(struct gw_sample **out, enum gw_dtype dtype);
void gw_sample_free(struct gw_sample *s);
/* Adds what `from` has counted since the last plan. */
void gw_sample_add(struct gw_sample *to, const struct gw_sample *from);
/* Takes over the plan of `from`: what workers need between the two rounds. */
void gw_sample_take_plan(struct gw_sample *to, const struct gw_sample *from);

/* Scratch of one thread that codes and decodes. About 9 MiB, of which sparse tiles touch little. */
struct gw_coder;
int gw_coder_new(struct gw_coder **out);
void gw_coder_free(struct gw_coder *k);

/* First round. Places rise; tiles without change teach nothing, nor do those that change so much that they will not be
 * coded. hot: see above. */
void gw_model_see(struct gw_sample *s, const void *old, uint32_t n, const uint64_t *hot,
		  const struct gw_tile_changes *c);
void gw_model_plan(struct gw_sample *s);
/* Second round. */
void gw_model_learn(struct gw_coder *k, struct gw_sample *s, const void *old, uint32_t n, const uint64_t *hot,
		    const struct gw_tile_changes *c);

/* A model, ready for both directions; constant once made, for any number of threads. */
struct gw_model;
/* *out is NULL where the sample taught nothing: then no tile of that dtype needs a model. */
int gw_model_make(struct gw_model **out, const struct gw_sample *s);
void gw_model_free(struct gw_model *m);
/* A row of the patch's table of models, dtype first. */
void gw_model_write(const struct gw_model *m, struct gw_wr *w);
/* Reads what follows the dtype. GW_EMALFORMED for what the page forbids. */
int gw_model_read(struct gw_model **out, enum gw_dtype dtype, struct gw_rd *r);

/* Codes c->n >= 1 changes of a tile. Returns the payload's bytes; 0 where it would be longer than cap, and then
 * out may have been written. */
size_t gw_tile_code(struct gw_coder *k, const struct gw_model *m, const void *old, uint32_t n, const uint64_t *hot,
		    const struct gw_tile_changes *c, uint8_t *out, size_t cap);

/* Decodes a payload for the tile at old. at, old_bits and new_bits have room for n elements; places rise, new bits
 * differ from old ones. GW_EMALFORMED where these bytes are no payload for these old bits. */
int gw_tile_uncode(struct gw_coder *k, const struct gw_model *m, const uint8_t *p, size_t bytes, const void *old,
		   uint32_t n, const uint64_t *hot, uint32_t *at, uint8_t *old_bits, uint8_t *new_bits, size_t *changes);

#endif
