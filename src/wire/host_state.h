/*
 * What a host says about itself and one policy, for the health query. X(code, name as in `health --json`).
 * The record that travels is host_status in proto/messages.def.
 */
#ifndef GW_WIRE_HOST_STATE_H
#define GW_WIRE_HOST_STATE_H

#define GW_HOST_STATES(X) \
	X(UNREACHABLE, "unreachable") /* did not answer; never sent */ \
	X(IDLE, "idle")               /* relays, serves nothing yet */ \
	X(FETCHING, "fetching")       /* behind, pieces are coming */ \
	X(STAGING, "staging")         /* behind, about to commit */ \
	X(SERVING, "serving")         /* serves the newest version it knows */ \
	X(STALE, "stale")             /* what it knows as newest has expired */ \
	X(POISONED, "poisoned")       /* cannot prove what it serves */ \
	X(SEEDING, "seeding")         /* the trainer's host */ \
	X(SUSPECT, "suspect")         /* did not answer and is suspected; never sent */

enum gw_host_state {
#define X(code, name) GW_HOST_##code,
	GW_HOST_STATES(X)
#undef X
	GW_HOST_STATES_COUNT
};

/* "unknown" for a number out of range. */
const char *gw_host_state_name(unsigned state);

#endif
