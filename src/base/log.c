#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum gw_log_level limit = GW_LOG_INFO;
static enum gw_log_form form = GW_LOG_TEXT;
static const char *process;

/* A line that is cut at the end rather than allocated for: logging must work when memory is gone. */
struct line {
	char text[2048];
	size_t n;
};

static void put(struct line *l, const char *s)
{
	size_t n = strlen(s), room = sizeof l->text - 2 - l->n;

	n = n < room ? n : room;
	memcpy(l->text + l->n, s, n);
	l->n += n;
}

/* Control characters, quotes and backslashes as JSON escapes; used by both forms, so that a hostile
 * value can neither forge a line nor move a terminal's cursor. */
static void put_quoted(struct line *l, const char *s)
{
	char esc[8];

	put(l, "\"");
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			(void)snprintf(esc, sizeof esc, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			(void)snprintf(esc, sizeof esc, "\\u%04x", c);
		else
			(void)snprintf(esc, sizeof esc, "%c", c);
		put(l, esc);
	}
	put(l, "\"");
}

static int plain(const char *s)
{
	if (!*s)
		return 0;
	for (; *s; s++)
		if ((unsigned char)*s <= 0x20 || *s == '"' || *s == '\\' || *s == 0x7f)
			return 0;
	return 1;
}

static void finish(struct line *l)
{
	ssize_t r;

	l->text[l->n++] = '\n';
	r = write(STDERR_FILENO, l->text, l->n);
	(void)r; /* there is nowhere left to say that the log cannot be written */
}

static void start(struct line *l, enum gw_log_level level, const char *event)
{
	char head[16];

	l->n = 0;
	if (form == GW_LOG_JSON) {
		(void)snprintf(head, sizeof head, "{\"level\":%d", (int)level);
		put(l, head);
		if (process) {
			put(l, ",\"process\":");
			put_quoted(l, process);
		}
		put(l, ",\"event\":");
		put_quoted(l, event);
		return;
	}
	(void)snprintf(head, sizeof head, "<%d>", (int)level);
	put(l, head);
	if (process) {
		put(l, process);
		put(l, ": ");
	}
	put(l, event);
}

void gw_log_setup(enum gw_log_level max, enum gw_log_form f, const char *who)
{
	limit = max;
	form = f;
	process = who;
}

int gw_log_enabled(enum gw_log_level level)
{
	return level <= limit;
}

void gw_log(enum gw_log_level level, const char *event, ...)
{
	struct line l;
	va_list ap;

	if (!gw_log_enabled(level))
		return;
	start(&l, level, event);
	va_start(ap, event);
	for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
		const char *value = va_arg(ap, const char *);

		value = value ? value : "-";
		if (form == GW_LOG_JSON) {
			put(&l, ",");
			put_quoted(&l, key);
			put(&l, ":");
			put_quoted(&l, value);
			continue;
		}
		put(&l, " ");
		put(&l, key);
		put(&l, "=");
		if (plain(value))
			put(&l, value);
		else
			put_quoted(&l, value);
	}
	va_end(ap);
	if (form == GW_LOG_JSON)
		put(&l, "}");
	finish(&l);
}

void gw_logf(enum gw_log_level level, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (!gw_log_enabled(level))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	gw_log(level, text, NULL);
}
