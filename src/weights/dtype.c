#include "weights/dtype.h"

#include <string.h>

/* The classes of dtype.def. */
enum { F = 1, I = 0 };

static const struct row {
	const char *name;
	unsigned char number, bits, is_float;
} rows[] = {
#define GW_DTYPE(name, number, bits, class) {#name, (number), (bits), (class)},
#include "weights/dtype.def"
#undef GW_DTYPE
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* Rows stand in the order of their numbers, without gaps: the unit test walks the table. */
static const struct row *row_of(enum gw_dtype t)
{
	return t > GW_DT_NONE && (unsigned)t <= ROWS ? &rows[t - 1] : NULL;
}

const char *gw_dtype_name(enum gw_dtype t)
{
	const struct row *r = row_of(t);

	return r ? r->name : NULL;
}

enum gw_dtype gw_dtype_parse(const char *name, size_t n)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n))
			return (enum gw_dtype)rows[i].number;
	return GW_DT_NONE;
}

unsigned gw_dtype_bits(enum gw_dtype t)
{
	const struct row *r = row_of(t);

	return r ? r->bits : 0;
}

unsigned gw_dtype_width(enum gw_dtype t)
{
	return (gw_dtype_bits(t) + 7) / 8;
}

int gw_dtype_is_float(enum gw_dtype t)
{
	const struct row *r = row_of(t);

	return r ? r->is_float : 0;
}
