/*
 * Rivals that are programs: they run as their users run them, on files, and what they give back is compared with the
 * new file. Times are those of their processes and hold reading and writing of files that lie in the page cache.
 */
#ifndef GW_BENCH_TOOLS_H
#define GW_BENCH_TOOLS_H

#include <stdint.h>

#include "clock.h"

struct tool {
	const char *name, *text;
	const char *package;		     /* Debian's, to install it */
	int small;			     /* too slow, or too hungry, for more than a few megabytes */
	int once;			     /* so slow that it runs once */
	const char *encode[12], *decode[12]; /* OLD, NEW, PATCH, BACK and WINDOW stand for what they say */
};

/* Ends with a row without a name. */
extern const struct tool bench_tools[];

struct tool_result {
	int installed, verified;
	uint64_t bytes;
	struct bench_time encode, decode;
};

/* work: a folder for the patch and what it gives back; both are removed. */
int tool_run(const struct tool *t, const char *old, const char *new_, const char *work, int runs,
	     struct tool_result *out);

#endif
