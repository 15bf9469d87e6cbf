/* One link a host, several machines that want it. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "node/inner.h"

static int room(struct gw_wishes *w, gw_host host)
{
	size_t cap = w->cap ? w->cap : 64;
	uint8_t *of;

	if (host < w->cap)
		return 0;
	if (host >= GW_HANDLES_MAX)
		return GW_ELIMIT;
	while (cap <= host)
		cap *= 2;
	of = realloc(w->of, cap);
	if (!of)
		return GW_ENOMEM;
	memset(of + w->cap, 0, cap - w->cap);
	w->of = of;
	w->cap = cap;
	return 0;
}

int gw_wish(struct gw_wishes *w, gw_host host, unsigned machine, int connect, int *err)
{
	uint8_t before, bit = (uint8_t)(1 << machine);

	*err = room(w, host);
	if (*err)
		return 0;
	before = w->of[host];
	if (connect) {
		w->of[host] |= bit;
		return !before;
	}
	w->of[host] &= (uint8_t)~bit;
	return before && !w->of[host];
}

void gw_wishes_end(struct gw_wishes *w, gw_host host)
{
	if (host < w->cap)
		w->of[host] = 0;
}
