#include "trust/join.h"

#include <stdlib.h>
#include <string.h>

int gw_join_check(const struct gw_root *r, uint64_t now_ns, const struct gw_m_join_request *req, struct gw_member *m,
		  struct gw_diag *why)
{
	int err = gw_member_open(r, now_ns, req->member.p, req->member.n, m, why);

	return err ? err : gw_member_may_join(m, now_ns, why);
}

int gw_join_roots(const struct gw_m_join_reply *reply, const struct gw_digest *pin, const struct gw_root *have,
		  struct gw_root *out, struct gw_diag *why)
{
	struct gw_root *before = malloc(sizeof *before);
	int err = 0;

	if (!before)
		return gw_diag_set(why, GW_ENOMEM, "out of memory");
	if (have)
		*out = *have;
	else if (!reply->roots.n)
		err = gw_diag_set(why, GW_EMALFORMED, "the answer holds no root record");
	else
		err = gw_root_open(reply->roots.v[0].signed_bytes.p, reply->roots.v[0].signed_bytes.n, pin, out, why);
	for (size_t i = have ? 0 : 1; !err && i < reply->roots.n; i++) {
		*before = *out;
		err = gw_root_next(before, reply->roots.v[i].signed_bytes.p, reply->roots.v[i].signed_bytes.n, out, why);
	}
	free(before);
	if (err)
		memset(out, 0, sizeof *out);
	return err;
}
