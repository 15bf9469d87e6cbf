/* Messages: a frame is refused, or encodes to a frame that decodes to the same message. */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/codec.h"

const char fuzz_name[] = "message";

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct gw_arena arena;
	struct gw_msg m, again;
	struct gw_wr first, second;

	gw_arena_init(&arena, 16 << 20);
	gw_wr_init(&first, GW_FRAME_MAX);
	gw_wr_init(&second, GW_FRAME_MAX);
	if (!gw_msg_decode(p, n, &arena, &m)) {
		int err = gw_msg_encode(&m, &first);

		/* Fields that the input left out are written, so only an input near the limit may not fit again. */
		assert(!err || n > GW_FRAME_MAX / 16);
		if (!err) {
			err = gw_msg_decode(first.p, first.n, &arena, &again);
			assert(!err && again.type == m.type);
			err = gw_msg_encode(&again, &second);
			assert(!err && first.n == second.n && !memcmp(first.p, second.p, first.n));
		}
	}
	gw_wr_free(&first);
	gw_wr_free(&second);
	gw_arena_reset(&arena);
	return 0;
}
