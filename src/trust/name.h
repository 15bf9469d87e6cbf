/* Names of policies, regions, islands and hosts, and addresses of hosts: what they may look like. */
#ifndef GW_TRUST_NAME_H
#define GW_TRUST_NAME_H

#include <stddef.h>

#include "base/buf.h"

enum {
	GW_NAME_MAX = 63,     /* bytes of a region, island or host name */
	GW_ADDRESS_MAX = 127, /* bytes of "host:port" */
};

/* 1 to max of letters, digits, '.', '_', '-', the first a letter or a digit: safe in a file name, a log, JSON. */
int gw_name_ok(const char *name, size_t n, size_t max);
/* "host:port", "1.2.3.4:port" or "[v6]:port", port 1 to 65535. */
int gw_address_ok(const char *text, size_t n);

/* A name on the wire: one length byte, then its bytes. out has max + 1 bytes and gets a NUL. Anything but a good
 * name (or, with `empty_ok`, none) is GW_EMALFORMED in r. */
void gw_name_read(struct gw_rd *r, char *out, size_t max, int empty_ok);
void gw_name_write(struct gw_wr *w, const char *name);
/* The same for an address; out has GW_ADDRESS_MAX + 1 bytes. gw_name_write writes it. */
void gw_address_read(struct gw_rd *r, char *out);

#endif
