/*
 * Carries out the VERIFY actions on workers: signatures, roles and strict parsing of heads, manifests and member
 * records. The answers are the events HEAD, MANIFEST, MEMBER_RECORD and REFUSED. All on the loop's thread.
 */
#ifndef GW_DAEMON_VERIFY_H
#define GW_DAEMON_VERIFY_H

#include "daemon/quiet.h"
#include "daemon/sink.h"
#include "io/os/worker.h"
#include "mesh/record.h"
#include "trust/member.h"
#include "trust/root.h"

/* At most this many verifications wait; more are refused with GW_EAGAIN (anti-entropy brings them again). */
enum { GW_VERIFY_MAX = 4096 };

struct gw_verify {
	struct gw_workers *workers;
	const struct gw_root *root; /* alive as long as this */
	struct gw_sink sink;
	/* Called, on the loop's thread, for every member record that verified, before its event. */
	void (*member)(void *ctx, const struct gw_member *m);
	void *member_ctx;
	struct gw_quiet *quiet; /* NULL: every refusal has its line */
	unsigned pending;
};

/* VERIFY_HEAD, VERIFY_MANIFEST, VERIFY_MEMBER; others are not for it (asserted). */
void gw_verify_act(struct gw_verify *v, const struct gw_action *act);

/* The mesh's view of a verified member; one reference, the caller's. */
int gw_verify_record(const struct gw_member *m, struct gw_bytes signed_bytes, struct gw_member_record **out);

#endif
