/* An index is refused, or gives each tensor once to a file with a plain name. */
#include "fuzz.h"

#include <assert.h>
#include <string.h>

#include "base/publish.h"
#include "weights/index.h"

const char fuzz_name[] = "index";

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct gw_index x;
	int refused = gw_index_parse(&x, p, n, NULL) != 0;

	assert(!refused || (!x.count && !x.file_count && !x.entries && !x.files && !x.names));
	for (size_t i = 0; i < x.count; i++) {
		assert(!i || strcmp(x.entries[i - 1].tensor, x.entries[i].tensor) < 0);
		assert(x.entries[i].file < x.file_count);
	}
	for (uint32_t i = 0; i < x.file_count; i++)
		assert(gw_path_is_plain(x.files[i]));
	gw_index_free(&x);
	return refused ? -1 : 0;
}
