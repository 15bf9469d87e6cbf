#include "weights/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

static void text(struct gw_wr *w, const char *s)
{
	gw_wr_bytes(w, s, strlen(s));
}

static void number(struct gw_wr *w, uint64_t v)
{
	char digits[24];

	(void)snprintf(digits, sizeof digits, "%" PRIu64, v);
	text(w, digits);
}

/* UTF-8 as it is; the reader, which has the last word, refuses what is not UTF-8. */
static void string(struct gw_wr *w, const char *s)
{
	gw_wr_u8(w, '"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		char escaped[8];

		if (c == '"' || c == '\\') {
			gw_wr_u8(w, '\\');
			gw_wr_u8(w, c);
		} else if (c < 0x20) {
			(void)snprintf(escaped, sizeof escaped, "\\u%04x", c);
			text(w, escaped);
		} else {
			gw_wr_u8(w, c);
		}
	}
	gw_wr_u8(w, '"');
}

static void metadata_object(struct gw_wr *w, const struct gw_safetensors_pair *metadata, size_t pairs)
{
	text(w, "\"__metadata__\":{");
	for (size_t i = 0; i < pairs; i++) {
		if (i)
			gw_wr_u8(w, ',');
		string(w, metadata[i].key);
		gw_wr_u8(w, ':');
		string(w, metadata[i].value);
	}
	gw_wr_u8(w, '}');
}

/* Adds the tensor's bytes to *at. */
static int tensor_object(struct gw_wr *w, const struct gw_safetensors_spec *t, uint64_t *at, struct gw_diag *why)
{
	const char *dtype = gw_dtype_name(t->dtype);
	uint64_t bytes = 0, end = 0;
	int err = dtype ? gw_tensor_bytes(t->dtype, t->rank, t->shape, &bytes) : GW_EINVAL;

	if (!err)
		err = gw_add_u64(*at, bytes, &end);
	if (err)
		return gw_diag_set(why, err, "tensor %.200s cannot be written: %s", t->name, gw_err_text(err));
	string(w, t->name);
	text(w, ":{\"dtype\":\"");
	text(w, dtype);
	text(w, "\",\"shape\":[");
	for (unsigned i = 0; i < t->rank; i++) {
		if (i)
			gw_wr_u8(w, ',');
		number(w, t->shape[i]);
	}
	text(w, "],\"data_offsets\":[");
	number(w, *at);
	gw_wr_u8(w, ',');
	number(w, end);
	text(w, "]}");
	*at = end;
	return 0;
}

/* What was written at p must be what the reader takes. */
static int read_back(const uint8_t *p, size_t n, uint64_t data_bytes, struct gw_diag *why)
{
	struct gw_safetensors *s;
	uint64_t file_bytes;
	int err = gw_add_u64(n, data_bytes, &file_bytes);

	if (err)
		return err;
	err = gw_safetensors_open(&s, p, n, file_bytes, why);
	gw_safetensors_free(s);
	return err;
}

int gw_safetensors_write(struct gw_wr *w, const struct gw_safetensors_spec *tensors, size_t n,
			 const struct gw_safetensors_pair *metadata, size_t pairs, struct gw_diag *why)
{
	size_t start = w->n;
	uint64_t data_bytes = 0;
	int err = 0;

	gw_wr_u64(w, 0);
	gw_wr_u8(w, '{');
	if (pairs)
		metadata_object(w, metadata, pairs);
	for (size_t i = 0; i < n && !err; i++) {
		if (i || pairs)
			gw_wr_u8(w, ',');
		err = tensor_object(w, &tensors[i], &data_bytes, why);
	}
	gw_wr_u8(w, '}');
	while (!w->err && (w->n - start) % 8)
		gw_wr_u8(w, ' ');
	if (!err)
		err = w->err;
	if (!err) {
		gw_put_le64(w->p + start, w->n - start - 8);
		err = read_back(w->p + start, w->n - start, data_bytes, why);
	}
	return err;
}
