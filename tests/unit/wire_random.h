/* Random messages and their rendering as text, for every row of proto/messages.def. Everything lies in the arena. */
#ifndef GW_TESTS_WIRE_RANDOM_H
#define GW_TESTS_WIRE_RANDOM_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/rng.h"
#include "wire/codec.h"

/* Edge values and full fields often, but small enough for a frame. */
void wire_random(struct gw_rng *r, struct gw_arena *a, const struct gw_shape *s, struct gw_msg *m);

/* "name{field=value,…}": integers decimal, bytes and text in hexadecimal, lists as [{…},…]. The Python reader
 * (tests/py/messages_ref.py) renders the same. */
void wire_render(const struct gw_msg *m, struct gw_wr *w);

#endif
