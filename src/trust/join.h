/*
 * What the two ends of a join socket decide, without the socket: may this newcomer come in, and which root does
 * the answer lead to. proto/TRUST.md, "Joining".
 */
#ifndef GW_TRUST_JOIN_H
#define GW_TRUST_JOIN_H

#include "trust/member.h"
#include "wire/msg.h"

enum { GW_JOIN_REQUEST_MAX = 4096 }; /* bytes of the frame; nothing longer is read */

/* At the join socket: verifies the record in the request and that its token has not ended. 0 and *m, or the
 * status to answer with. */
int gw_join_check(const struct gw_root *r, uint64_t now_ns, const struct gw_m_join_request *req, struct gw_member *m,
		  struct gw_diag *why);

/* At the newcomer: walks the roots of the answer, from `have`, or where that is NULL from the pinned one, which must
 * come first. *out is the newest. GW_EDIGEST and GW_ESIGNATURE for a mesh that is not the one invited to. With
 * `have`, no roots at all is an answer too. */
int gw_join_roots(const struct gw_m_join_reply *reply, const struct gw_digest *pin, const struct gw_root *have,
		  struct gw_root *out, struct gw_diag *why);

#endif
