/* Steps of packed integers, which change a nibble at a time: proto/PATCH.md, "Steps". */
#include "patch/coder_inside.h"

enum { NIBBLE_STEPS = 15 };

struct gw_step gw_nibble_step(const struct gw_shape *s, uint64_t old, uint64_t new_bits)
{
	uint64_t x = old ^ new_bits;
	unsigned nibble, step;

	if (!x)
		return (struct gw_step){0, 0, 0};
	nibble = (unsigned)__builtin_ctzll(x) / 4;
	if (x >> 4 * nibble > 15)
		return (struct gw_step){GW_STEP_XOR, s->bits, x};
	step = (unsigned)((new_bits >> 4 * nibble) - (old >> 4 * nibble)) & 15;
	return (struct gw_step){NIBBLE_STEPS * nibble + step, 0, 0};
}

uint64_t gw_nibble_apply(uint64_t old, unsigned symbol, uint64_t extra)
{
	unsigned shift;
	uint64_t nibble;

	if (!symbol)
		return old;
	if (symbol == GW_STEP_XOR)
		/* One nibble alone has a symbol of its own. */
		return extra && extra >> (__builtin_ctzll(extra) & ~3) > 15 ? old ^ extra : old;
	shift = 4 * ((symbol - 1) / NIBBLE_STEPS);
	nibble = ((old >> shift) + (symbol - 1) % NIBBLE_STEPS + 1) & 15;
	return (old & ~(15ull << shift)) | nibble << shift;
}

int gw_step_extra_bits(const struct gw_shape *s, enum gw_step_kind kind, unsigned symbol)
{
	if (kind == GW_STEPS_VALUE) {
		if (symbol < GW_STEP_FAR)
			return 0;
		return symbol < GW_STEP_FAR + 2 * (s->bits - 4) ? (int)((symbol - GW_STEP_FAR) / 2 + 3) : -1;
	}
	if (symbol == GW_STEP_XOR)
		return (int)s->bits;
	return symbol <= NIBBLE_STEPS * s->bits / 4 ? 0 : -1;
}
