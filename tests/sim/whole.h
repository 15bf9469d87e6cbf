/* Whole hosts and their trainer: what sim_test.c's stories are made of. */
#ifndef GW_TESTS_SIM_WHOLE_H
#define GW_TESTS_SIM_WHOLE_H

#include "node/node.h"
#include "sim.h"

struct gw_node *sim_node(const struct sim_host *h);

/* From now on the trainer renews its head every 20 s while it runs. */
void sim_trainer_starts(struct sim *s, int trainer);
/* Makes an object with its manifest and a new head, whole in the trainer's store, and tells the trainer's node. */
struct sim_object *sim_publish(struct sim *s, int trainer, uint16_t kind, uint64_t from, uint64_t to, uint32_t pieces);
/* The parts of it: signed in this world, but told to nobody. The event lives as long as the world. */
struct sim_object *sim_make_object(struct sim *s, uint16_t kind, uint64_t from, uint64_t to, uint32_t pieces);
const struct gw_event *sim_make_head(struct sim *s, uint64_t sequence, uint64_t lives_ns);
/* All hosts that run serve the newest version. */
int sim_all_serve_head(struct sim *s, void *ctx);

#endif
