/*
 * A member's record: what its verified member record says (trust/member.h), immutable and shared by reference,
 * so that ten thousand of them cost a few MB and several tables in one process hold one copy.
 *
 * Whoever verified it makes the record; each holder takes a reference. The count is plain: all
 * holders live on one thread, or hand the record over whole.
 */
#ifndef GW_MESH_RECORD_H
#define GW_MESH_RECORD_H

#include <stdint.h>

#include "wire/msg.h"

enum {
	GW_IDENTITY_BYTES = 32,
	GW_MEMBER_RAW_MAX = 2048,
	GW_MEMBER_TEXT_MAX = 64, /* name, region, island */
};

/* From where a host can be dialled. One without addresses takes part over the links it opens. */
enum { GW_DIAL_REGION = 1, GW_DIAL_ANY = 2 };

struct gw_member_record {
	uint32_t refs;
	uint8_t identity[GW_IDENTITY_BYTES]; /* Ed25519 public key */
	uint8_t curve[32];		     /* X25519: the key its links use */
	uint64_t stamp_ns, expires_ns;	     /* since the epoch; of two records of one host the later stamp holds */
	uint32_t roles;
	uint8_t dial;
	const char *name, *region, *island; /* NUL-terminated; island may be empty */
	struct gw_bytes raw;		    /* the signed bytes, for passing on */
};

/* Copies all that `from` points to; its refs is not looked at. The new record has one reference.
 * GW_ELIMIT where a text or the signed record is too long, GW_EINVAL where the region is empty. */
int gw_member_record_new(const struct gw_member_record *from, struct gw_member_record **out);
struct gw_member_record *gw_member_record_ref(struct gw_member_record *r);
/* Frees with the last reference; NULL does nothing. */
void gw_member_record_unref(struct gw_member_record *r);

#endif
