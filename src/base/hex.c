#include "base/hex.h"

#include "base/err.h"

char *gw_hex(char *out, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = "0123456789abcdef"[b[i] >> 4];
		out[2 * i + 1] = "0123456789abcdef"[b[i] & 15];
	}
	out[2 * n] = 0;
	return out;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int gw_unhex(uint8_t *out, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++) {
		int hi = digit(text[2 * i]), lo = hi < 0 ? -1 : digit(text[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return GW_EMALFORMED;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return text[2 * n] ? GW_EMALFORMED : 0;
}
