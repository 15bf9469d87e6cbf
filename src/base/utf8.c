#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t gw_utf8_len(const void *p, size_t n)
{
	const uint8_t *b = p;
	uint8_t low, high;
	size_t len;

	if (b[0] < 0x80)
		return 1;
	len = b[0] >= 0xc2 && b[0] <= 0xdf ? 2 : (b[0] & 0xf0) == 0xe0 ? 3 : b[0] >= 0xf0 && b[0] <= 0xf4 ? 4 : 0;
	if (!len || n < len)
		return 0;
	/* Only the second byte's range depends on the first. */
	low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
	high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
	if (b[1] < low || b[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((b[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

static int check(const void *p, size_t n, int printable)
{
	const uint8_t *b = p;

	for (size_t at = 0, len; at < n; at += len) {
		if (printable && (b[at] < 0x20 || b[at] == 0x7f))
			return 0;
		len = gw_utf8_len(b + at, n - at);
		if (!len)
			return 0;
	}
	return 1;
}

int gw_utf8_ok(const void *p, size_t n)
{
	return check(p, n, 0);
}

int gw_utf8_printable(const void *p, size_t n)
{
	return check(p, n, 1);
}

size_t gw_utf8_clean(char *out, size_t cap, const char *text)
{
	size_t left = strlen(text), at = 0;

	while (left) {
		size_t len = gw_utf8_len(text, left), step = len ? len : 1;

		if (at + step >= cap)
			break;
		if (!len || (uint8_t)*text < 0x20 || *text == 0x7f)
			out[at] = '?';
		else
			memcpy(out + at, text, len);
		at += step;
		text += step;
		left -= step;
	}
	out[at] = '\0';
	return at;
}
