/* What a signed manifest holds, as the verbs verify and inspect show it. */
#ifndef GW_TOOLS_MANIFEST_REPORT_H
#define GW_TOOLS_MANIFEST_REPORT_H

#include "tools/cmd.h"
#include "trust/manifest.h"

/* "transition", "anchor", "adapter", or "unknown". */
const char *manifest_kind_name(uint16_t kind);
/* All but the digests of the pieces. NULL where memory is short. */
json_t *manifest_json(const struct gw_manifest *m);
/* The same for people, on standard output. */
void manifest_show(const struct gw_manifest *m);

#endif
