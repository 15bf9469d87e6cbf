/* The members that a start begins with. */
#include "base/num.h"
#include "mesh/inner.h"

#define KEEP_EACH (GW_MESH_SECOND / 100)
#define KEEP_LEAST GW_MESH_SECOND
#define KEEP_MOST (30 * GW_MESH_SECOND)

static int of_kind(const struct gw_roster_entry *e, enum gw_member_state kind)
{
	return e->state == kind || (kind == GW_MEMBER_ALIVE && gw_roster_is_in(e));
}

static size_t list(const struct gw_roster *r, enum gw_member_state kind, struct gw_member_record **v, size_t max)
{
	size_t n = 0;

	for (gw_host h = 1; h < r->n && n < max; h++)
		if (r->at[h] && of_kind(r->at[h], kind))
			v[n++] = r->at[h]->record;
	return n;
}

struct gw_mesh_kinds gw_mesh_known(const struct gw_mesh *m, struct gw_member_record **v, size_t max)
{
	struct gw_mesh_kinds k;

	k.in = list(&m->roster, GW_MEMBER_ALIVE, v, max);
	k.dead = list(&m->roster, GW_MEMBER_DEAD, v + k.in, max - k.in);
	k.left = list(&m->roster, GW_MEMBER_LEFT, v + k.in + k.dead, max - k.in - k.dead);
	if (!k.in)
		k = (struct gw_mesh_kinds){k.dead + k.left, 0, 0};
	return k;
}

uint64_t gw_mesh_keep_at(uint64_t kept_ns, size_t n)
{
	return kept_ns + gw_min_u64(gw_max_u64(n * KEEP_EACH, KEEP_LEAST), KEEP_MOST);
}
