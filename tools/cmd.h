/*
 * The `godwit` command: a table (commands.def) of verbs, one file per verb or family. A verb declares its
 * options; parsing, --help, and exit codes (surface.md) are done here. Nothing here writes to stdout but a
 * verb's own result; progress and errors go to stderr.
 */
#ifndef GW_TOOLS_CMD_H
#define GW_TOOLS_CMD_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/progress.h"

enum { CMD_OPTIONS_MAX = 24 };

/* name: "json" is --json, a single letter is -o. arg: what help shows for its value, NULL for a flag. */
struct opt {
	const char *name, *arg, *help;
};

struct args;

struct cmd {
	const char *verb, *args, *does; /* "diff", "OLD NEW", one line for help */
	unsigned min, max;              /* how many positional arguments; max 0 with min above 0 means no limit */
	const struct opt *opts;         /* ends with a NULL name */
	/* 0 or a negative GW_E…; what the user is to read goes into a->why. An exit code that no error has
	 * (8, partly done) goes into a->exit_code. */
	int (*run)(struct args *a);
};

struct args {
	const struct cmd *cmd;
	const char *value[CMD_OPTIONS_MAX]; /* by position in cmd->opts; "" for a flag that was given */
	char **pos;
	unsigned count;
	struct gw_fs *fs;
	struct gw_diag why;
	int exit_code;
};

/* The option's value, "" for a flag, or NULL where it was not given. The name must be declared. */
const char *arg_value(const struct args *a, const char *name);
int arg_flag(const struct args *a, const char *name);
/* A whole number with optional suffix K M G T (1024) within [min, max]; GW_EINVAL with a message. Leaves
 * *out alone where the option was not given. */
int arg_u64(struct args *a, const char *name, uint64_t min, uint64_t max, uint64_t *out);
/* A duration: "90", "90s", "15m", "12h", "7d", "250ms"; in ns. */
int arg_duration(struct args *a, const char *name, uint64_t *ns);

/* Prints one JSON document with a newline and drops the reference. GW_EIO where stdout is gone. */
int print_json(json_t *doc, struct gw_diag *why);
/* An unsigned 64-bit value: jansson's integers are signed, so above 2^63-1 it becomes a string. */
json_t *json_u64(uint64_t v);
/* "1.4 MB", "312 B": at least 32 bytes of buffer. Decimal units. */
const char *human_bytes(char *buf, uint64_t bytes);

/* The process's pool, with that many threads (0: one a core); NULL with a message. Lives until exit. */
struct gw_pool *cmd_pool(struct args *a, unsigned threads);

/* A bar on stderr with rate and time left, drawn by who goes on with it; NULL, that is nothing, where stderr is no
 * terminal. `what` stays. */
struct gw_progress *progress_bar(const char *what);
/* Ends its line, before anything else is printed. */
void progress_end(void);

#endif
