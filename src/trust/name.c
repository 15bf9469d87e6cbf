#include "trust/name.h"

#include <string.h>

#include "base/err.h"

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Not <ctype.h>: that asks the locale. */
static int is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int gw_name_ok(const char *name, size_t n, size_t max)
{
	if (!n || n > max || !is_alnum(name[0]))
		return 0;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-')
			return 0;
	return 1;
}

static int port_ok(const char *p, size_t n)
{
	unsigned v = 0;

	if (!n || n > 5 || p[0] == '0')
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (!is_digit(p[i]))
			return 0;
		v = v * 10 + (unsigned)(p[i] - '0');
	}
	return v <= 65535;
}

/* Inside the brackets: hexadecimal groups, colons, an embedded IPv4 address. */
static int v6_ok(const char *p, size_t n)
{
	if (n < 2)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (!is_digit(p[i]) && !(p[i] >= 'a' && p[i] <= 'f') && !(p[i] >= 'A' && p[i] <= 'F') && p[i] != ':' &&
		    p[i] != '.')
			return 0;
	return memchr(p, ':', n) != NULL;
}

int gw_address_ok(const char *text, size_t n)
{
	const char *colon = n ? memrchr(text, ':', n) : NULL;
	size_t host;

	if (!colon || n > GW_ADDRESS_MAX || !port_ok(colon + 1, n - (size_t)(colon - text) - 1))
		return 0;
	host = (size_t)(colon - text);
	if (host > 2 && text[0] == '[' && text[host - 1] == ']')
		return v6_ok(text + 1, host - 2);
	return gw_name_ok(text, host, GW_ADDRESS_MAX);
}

void gw_address_read(struct gw_rd *r, char *out)
{
	size_t n = gw_rd_u8(r);
	const char *p = (const char *)gw_rd_bytes(r, n);

	memset(out, 0, GW_ADDRESS_MAX + 1);
	if (p && gw_address_ok(p, n))
		memcpy(out, p, n);
	else
		gw_rd_fail(r, GW_EMALFORMED);
}

void gw_name_read(struct gw_rd *r, char *out, size_t max, int empty_ok)
{
	size_t n = gw_rd_u8(r);
	const char *p = (const char *)gw_rd_bytes(r, n);

	memset(out, 0, max + 1);
	if (!p || (!n && empty_ok))
		return;
	if (!gw_name_ok(p, n, max)) {
		gw_rd_fail(r, GW_EMALFORMED);
		return;
	}
	memcpy(out, p, n);
}

void gw_name_write(struct gw_wr *w, const char *name)
{
	size_t n = strlen(name);

	gw_wr_u8(w, (uint8_t)n);
	gw_wr_bytes(w, name, n);
}
