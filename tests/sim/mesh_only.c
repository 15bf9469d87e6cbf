/* The mesh alone as the machine under test. */
#include <string.h>

#include "sim.h"

static int make(struct sim *s, struct sim_host *h, void **out)
{
	struct gw_mesh_config c = {
		.seed = gw_rng_u64(&s->rng),
		.self = h->record,
		.bootstrap = h->known,
		.bootstrap_count = h->known_of.in,
		.bootstrap_dead = h->known_of.dead,
		.bootstrap_left = h->known_of.left,
	};
	struct gw_mesh *m;
	int err;

	for (int i = 0; i < SIM_SLOTS; i++)
		if (h->slots[i].name && !strcmp(h->slots[i].name, "mesh"))
			c.stored = (struct gw_bytes){h->slots[i].p, h->slots[i].n};
	err = gw_mesh_new(&c, &m);
	*out = err ? NULL : m;
	return err;
}

static void free_mesh(void *machine)
{
	gw_mesh_free(machine);
}

static int step(void *machine, const struct gw_event *ev, struct gw_actions *out)
{
	return gw_mesh_step(machine, ev, out);
}

static const struct gw_mesh *mesh_of(const void *machine)
{
	return machine;
}

const struct sim_ops sim_mesh_ops = {make, free_mesh, step, mesh_of, NULL};
