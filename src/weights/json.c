#include "weights/json.h"

#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

void gw_json_init(struct gw_json *j, const void *p, size_t n)
{
	memset(j, 0, sizeof *j);
	j->p = p;
	j->n = n;
}

int gw_json_fail(struct gw_json *j, int err, const char *what)
{
	if (!j->err) {
		j->err = err;
		j->what = what;
	}
	return j->err;
}

/* The byte at the reader, or -1 (and the error) at the end. */
static int byte_here(struct gw_json *j)
{
	if (j->err)
		return -1;
	if (j->at >= j->n) {
		(void)gw_json_fail(j, GW_ETRUNC, "the text ends too soon");
		return -1;
	}
	return j->p[j->at];
}

int gw_json_peek(struct gw_json *j)
{
	if (j->err)
		return -1;
	while (j->at < j->n) {
		uint8_t c = j->p[j->at];

		if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
			return c;
		j->at++;
	}
	return -1;
}

static int take(struct gw_json *j, char c, const char *what)
{
	int here = gw_json_peek(j);

	if (here == c) {
		j->at++;
		return 1;
	}
	(void)gw_json_fail(j, here < 0 ? GW_ETRUNC : GW_EMALFORMED, here < 0 ? "the text ends too soon" : what);
	return 0;
}

void gw_json_open(struct gw_json *j, char bracket)
{
	(void)take(j, bracket, bracket == '{' ? "an object is expected" : "an array is expected");
	j->fresh = 1;
}

int gw_json_more(struct gw_json *j, char bracket)
{
	int fresh = j->fresh;

	j->fresh = 0;
	if (gw_json_peek(j) == bracket) {
		j->at++;
		return 0;
	}
	if (!fresh && !take(j, ',', "a comma or the closing bracket is expected"))
		return 0;
	if (!fresh && gw_json_peek(j) == bracket)
		(void)gw_json_fail(j, GW_EMALFORMED, "a comma stands before the closing bracket");
	else if (gw_json_peek(j) < 0)
		(void)gw_json_fail(j, GW_ETRUNC, "the text ends too soon");
	return !j->err;
}

/* Where the decoded bytes of a string go: counted in full, written up to cap. */
struct sink {
	char *out;
	size_t cap, n;
};

static void put(struct sink *s, const uint8_t *p, size_t n)
{
	if (s->n < s->cap) {
		size_t room = s->cap - s->n;

		memcpy(s->out + s->n, p, n < room ? n : room);
	}
	s->n += n;
}

static void put_utf8(struct sink *s, uint32_t c)
{
	uint8_t b[4];

	if (c < 0x80) {
		b[0] = (uint8_t)c;
		put(s, b, 1);
	} else if (c < 0x800) {
		b[0] = (uint8_t)(0xc0 | c >> 6);
		b[1] = (uint8_t)(0x80 | (c & 0x3f));
		put(s, b, 2);
	} else if (c < 0x10000) {
		b[0] = (uint8_t)(0xe0 | c >> 12);
		b[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		b[2] = (uint8_t)(0x80 | (c & 0x3f));
		put(s, b, 3);
	} else {
		b[0] = (uint8_t)(0xf0 | c >> 18);
		b[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
		b[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		b[3] = (uint8_t)(0x80 | (c & 0x3f));
		put(s, b, 4);
	}
}

static uint32_t hex4(struct gw_json *j)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		int c = byte_here(j);
		int digit = c >= '0' && c <= '9'		     ? c - '0'
			    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
								     : -1;

		if (c < 0)
			return 0;
		if (digit < 0) {
			(void)gw_json_fail(j, GW_EMALFORMED, "four hexadecimal digits are expected");
			return 0;
		}
		v = v << 4 | (uint32_t)digit;
		j->at++;
	}
	return v;
}

/* Behind "\u": one character, perhaps of two surrogates. */
static void unicode_escape(struct gw_json *j, struct sink *s)
{
	uint32_t c = hex4(j), low;

	if (c >= 0xdc00 && c <= 0xdfff) {
		(void)gw_json_fail(j, GW_EMALFORMED, "a low surrogate stands alone");
	} else if (c >= 0xd800 && c <= 0xdbff) {
		if (j->n - j->at < 2 || j->p[j->at] != '\\' || j->p[j->at + 1] != 'u') {
			(void)gw_json_fail(j, GW_EMALFORMED, "a high surrogate stands alone");
			return;
		}
		j->at += 2;
		low = hex4(j);
		if (low < 0xdc00 || low > 0xdfff)
			(void)gw_json_fail(j, GW_EMALFORMED, "a high surrogate stands alone");
		c = 0x10000 + ((c - 0xd800) << 10) + ((low - 0xdc00) & 0x3ff);
	}
	if (j->err)
		return;
	j->control |= c < 0x20 || (c >= 0x7f && c < 0xa0);
	put_utf8(s, c);
}

/* Behind the backslash. */
static void escape(struct gw_json *j, struct sink *s)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int c = byte_here(j);
	const char *at;

	if (c < 0)
		return;
	j->at++;
	if (c == 'u') {
		unicode_escape(j, s);
		return;
	}
	at = c ? strchr(from, c) : NULL;
	if (!at) {
		j->at--;
		(void)gw_json_fail(j, GW_EMALFORMED, "no such escape");
		return;
	}
	j->control |= c != '"' && c != '\\' && c != '/';
	put(s, (const uint8_t *)&to[at - from], 1);
}

/* One character of two to four bytes. */
static void multibyte(struct gw_json *j, struct sink *s)
{
	size_t left = j->n - j->at, n;
	uint8_t b[4] = {0};

	/* A copy, which nobody changes while it is looked at. */
	memcpy(b, j->p + j->at, left < sizeof b ? left : sizeof b);
	n = gw_utf8_len(b, left < sizeof b ? left : sizeof b);
	if (!n) {
		(void)gw_json_fail(j, GW_EMALFORMED, "not UTF-8");
		return;
	}
	j->control |= b[0] == 0xc2 && b[1] < 0xa0;
	put(s, b, n);
	j->at += n;
}

/* Takes the run of plain ASCII at the reader; its length. */
static size_t plain_run(const struct gw_json *j, struct sink *s)
{
	size_t at = j->at, n = 0;

	while (at + n < j->n) {
		uint8_t c = j->p[at + n];

		if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
			break;
		n++;
	}
	put(s, j->p + at, n);
	return n;
}

size_t gw_json_string(struct gw_json *j, char *out, size_t cap)
{
	struct sink s = {out, cap, 0};

	j->control = 0;
	if (!take(j, '"', "a string is expected"))
		return 0;
	while (!j->err) {
		int c;

		j->at += plain_run(j, &s);
		c = byte_here(j);
		if (c == '"') {
			j->at++;
			return s.n;
		}
		if (c == '\\') {
			j->at++;
			escape(j, &s);
		} else if (c >= 0x80) {
			multibyte(j, &s);
		} else if (c == 0x7f) {
			j->control = 1;
			put(&s, (const uint8_t *)"\x7f", 1);
			j->at++;
		} else if (c >= 0) {
			(void)gw_json_fail(j, GW_EMALFORMED, "a control character stands in a string");
		}
	}
	return 0;
}

size_t gw_json_key(struct gw_json *j, char *out, size_t cap)
{
	size_t n = gw_json_string(j, out, cap);

	return take(j, ':', "a colon is expected") ? n : 0;
}

static int is_digit(int c)
{
	return c >= '0' && c <= '9';
}

uint64_t gw_json_u64(struct gw_json *j)
{
	size_t digits = 0;
	uint64_t v = 0;
	int c = gw_json_peek(j), first = c;

	while (is_digit(c)) {
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(c - '0'), &v)) {
			(void)gw_json_fail(j, GW_EOVERFLOW, "the number is too large");
			return 0;
		}
		j->at++;
		digits++;
		c = j->at < j->n ? j->p[j->at] : -1;
	}
	if (!digits)
		(void)gw_json_fail(j, first < 0 ? GW_ETRUNC : GW_EMALFORMED,
				   "a whole number, not negative, is expected");
	else if (first == '0' && digits > 1)
		(void)gw_json_fail(j, GW_EMALFORMED, "a number begins with a zero");
	else if (c == '.' || c == 'e' || c == 'E')
		(void)gw_json_fail(j, GW_EMALFORMED, "a number has a fraction or an exponent");
	return j->err ? 0 : v;
}

static void skip_digits(struct gw_json *j)
{
	size_t before = j->at;

	while (j->at < j->n && is_digit(j->p[j->at]))
		j->at++;
	if (j->at == before)
		(void)gw_json_fail(j, GW_EMALFORMED, "a digit is expected");
}

static void skip_number(struct gw_json *j)
{
	if (j->p[j->at] == '-')
		j->at++;
	if (j->at < j->n && j->p[j->at] == '0')
		j->at++;
	else
		skip_digits(j);
	if (!j->err && j->at < j->n && j->p[j->at] == '.') {
		j->at++;
		skip_digits(j);
	}
	if (!j->err && j->at < j->n && (j->p[j->at] | 0x20) == 'e') {
		j->at++;
		if (j->at < j->n && (j->p[j->at] == '+' || j->p[j->at] == '-'))
			j->at++;
		skip_digits(j);
	}
}

static void skip_word(struct gw_json *j, const char *word)
{
	size_t n = strlen(word);

	if (j->n - j->at < n || memcmp(j->p + j->at, word, n) != 0)
		(void)gw_json_fail(j, GW_EMALFORMED, "a value is expected");
	else
		j->at += n;
}

static void skip_scalar(struct gw_json *j, int c)
{
	if (c == '"')
		(void)gw_json_string(j, NULL, 0);
	else if (c == '-' || is_digit(c))
		skip_number(j);
	else if (c == 't')
		skip_word(j, "true");
	else if (c == 'f')
		skip_word(j, "false");
	else if (c == 'n')
		skip_word(j, "null");
	else
		(void)gw_json_fail(j, c < 0 ? GW_ETRUNC : GW_EMALFORMED, "a value is expected");
}

static void skip_value(struct gw_json *j, int depth)
{
	int c = gw_json_peek(j);
	char close = c == '{' ? '}' : ']';

	if (c != '{' && c != '[') {
		skip_scalar(j, c);
		return;
	}
	if (depth >= GW_JSON_DEPTH_MAX) {
		(void)gw_json_fail(j, GW_ELIMIT, "values are nested too deeply");
		return;
	}
	gw_json_open(j, (char)c);
	while (gw_json_more(j, close)) {
		if (c == '{')
			(void)gw_json_key(j, NULL, 0);
		skip_value(j, depth + 1);
	}
}

void gw_json_skip(struct gw_json *j)
{
	skip_value(j, 0);
}
