#include "gpu/driver.h"

#include <dlfcn.h>
#include <string.h>

int gw_cu_driver_load(struct gw_cu_driver *d, const char *soname, struct gw_diag *why)
{
	static const char *const symbols[] = {
#define X(name, symbol, arguments) symbol,
		GW_CU_FUNCTIONS(X)
#undef X
	};
	void **const slots[] = {
#define X(name, symbol, arguments) (void **)&d->name,
		GW_CU_FUNCTIONS(X)
#undef X
	};

	memset(d, 0, sizeof *d);
	d->library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
	if (!d->library)
		return gw_diag_set(why, GW_EUNSUP, "CUDA: no driver on this host (%s)", dlerror());
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
		void *f = dlsym(d->library, symbols[i]);

		if (!f) {
			gw_cu_driver_unload(d);
			return gw_diag_set(why, GW_EUNSUP, "CUDA: the driver has no %s; it is too old", symbols[i]);
		}
		memcpy(slots[i], &f, sizeof f);
	}
	return 0;
}

void gw_cu_driver_unload(struct gw_cu_driver *d)
{
	if (d->library)
		dlclose(d->library);
	d->library = NULL;
}
