/* Writes the versions of a synthetic checkpoint: OUT-DIR/v0 … vK, each whole or not at all. */
#ifndef GW_LAB_SYNTH_WRITE_H
#define GW_LAB_SYNTH_WRITE_H

#include "base/file.h"
#include "base/pool.h"
#include "synth_model.h"
#include "synth_stats.h"

enum { SYNTH_STEPS_MAX = 500 };

/* Memory: one block of masters a worker, whatever the sizes (fp8: 128 rows). Folders that are there already are
 * refused. */
int synth_write(struct gw_fs *fs, struct gw_pool *pool, const char *dir, const struct synth_model *m,
		const struct synth_stats *s, unsigned steps, struct gw_diag *why);

#endif
