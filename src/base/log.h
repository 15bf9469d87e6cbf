/*
 * Logging: one line an event, to standard error, with journald's level prefix ("<6>") or as JSON.
 *
 *     GW_LOG(GW_LOG_INFO, "piece verified", "run", run_hex, "piece", "17", NULL);
 *
 * The event text is constant, what varies goes into key/value pairs of strings (keys are stable:
 * scripts read them). gw_logf is for the few lines that are prose. Thread-safe: one write a line.
 */
#ifndef GW_BASE_LOG_H
#define GW_BASE_LOG_H

#include <stdarg.h>

enum gw_log_level { GW_LOG_ERR = 3, GW_LOG_WARN = 4, GW_LOG_NOTICE = 5, GW_LOG_INFO = 6, GW_LOG_DEBUG = 7 };
enum gw_log_form { GW_LOG_TEXT, GW_LOG_JSON };

/* Both default to INFO and TEXT; set them before threads start. `who` names the process in each line
 * ("godwitd"), may be NULL, and is not copied. */
void gw_log_setup(enum gw_log_level max, enum gw_log_form form, const char *who);
int gw_log_enabled(enum gw_log_level level);

/* Pairs of `const char *` end with NULL. A NULL value is written as "-". */
void gw_log(enum gw_log_level level, const char *event, ...) __attribute__((sentinel));
void gw_logf(enum gw_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define GW_LOG(level, ...) \
	do { \
		if (gw_log_enabled(level)) \
			gw_log((level), __VA_ARGS__); \
	} while (0)

#endif
