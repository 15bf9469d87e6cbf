#include "wire/host_state.h"

const char *gw_host_state_name(unsigned state)
{
	static const char *const names[] = {
#define X(code, name) name,
		GW_HOST_STATES(X)
#undef X
	};

	return state < GW_HOST_STATES_COUNT ? names[state] : "unknown";
}
