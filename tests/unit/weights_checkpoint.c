#include "tests/unit/weights.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/fakefs.h"
#include "weights/checkpoint.h"

#define U8(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[" #begin "," #end "]}"

static struct fake_fs fs;
static uint8_t *bytes[8]; /* of shards, freed after a test */
static size_t bytes_n;

static void setup(void)
{
	fake_init(&fs);
	(void)fake_add(&fs, "dir", GW_FILE_DIR, NULL, 0);
	bytes_n = 0;
}

/* Nothing may stay open or mapped, whatever happened. */
static void teardown(void)
{
	ck_assert_int_eq(fs.open, 0);
	for (size_t i = 0; i < fs.n; i++)
		ck_assert_int_eq(fs.files[i].mapped, 0);
	while (bytes_n)
		free(bytes[--bytes_n]);
}

static struct fake_file *shard(const char *path, const char *json, size_t data_bytes)
{
	size_t n;
	uint8_t *p = file_of(json, data_bytes, &n);

	bytes[bytes_n++] = p;
	return fake_add(&fs, path, GW_FILE_REGULAR, p, n);
}

static void text(const char *path, const char *content)
{
	(void)fake_add(&fs, path, GW_FILE_REGULAR, content, strlen(content));
}

static struct gw_checkpoint *opened(const char *path)
{
	struct gw_diag why = {""};
	struct gw_checkpoint *c;
	int err = gw_checkpoint_open(&c, &fs.fs, path, &why);

	ck_assert_msg(!err, "%s", why.text);
	return c;
}

/* Refused with that error, and a message that names what it is about. */
static void refused(const char *path, int want, const char *names)
{
	struct gw_diag why = {""};
	struct gw_checkpoint *c;
	int err = gw_checkpoint_open(&c, &fs.fs, path, &why);

	ck_assert_msg(err == want, "%s, not %s: %s", gw_err_name(err), gw_err_name(want), why.text);
	ck_assert_ptr_null(c);
	ck_assert_msg(strstr(why.text, names) != NULL, "%s does not name %s", why.text, names);
}

START_TEST(a_single_file)
{
	struct gw_checkpoint *c;
	const struct gw_tensor *t;

	shard("m", "{" U8("b", 0, 2) "," U8("a", 2, 4) "}", 4);
	c = opened("m");
	ck_assert_int_eq(gw_checkpoint_is_file(c), 1);
	ck_assert_uint_eq(gw_checkpoint_shards(c), 1);
	ck_assert_uint_eq(gw_checkpoint_others(c), 0);
	ck_assert_uint_eq(gw_checkpoint_tensors(c), 2);
	t = gw_checkpoint_tensor(c, 0);
	ck_assert_str_eq(t->name, "a");
	ck_assert_uint_eq(t->p[0], 2);
	ck_assert_ptr_eq(t->p, gw_checkpoint_shard(c, 0)->p + t->offset);
	ck_assert_uint_eq(t->offset + t->bytes, gw_checkpoint_shard(c, 0)->bytes);
	ck_assert_ptr_eq(gw_checkpoint_find(c, "a"), t);
	ck_assert_ptr_null(gw_checkpoint_find(c, "c"));
	gw_checkpoint_close(c);
}
END_TEST

START_TEST(a_folder_without_an_index)
{
	struct gw_checkpoint *c;

	shard("dir/2.safetensors", "{" U8("a", 0, 2) "}", 2);
	shard("dir/1.safetensors", "{" U8("b", 0, 2) "}", 2);
	text("dir/config.json", "{}");
	text("dir/.gitattributes", "");
	c = opened("dir");
	ck_assert_int_eq(gw_checkpoint_is_file(c), 0);
	ck_assert_uint_eq(gw_checkpoint_shards(c), 2);
	ck_assert_str_eq(gw_checkpoint_shard(c, 0)->name, "1.safetensors");
	ck_assert_uint_eq(gw_checkpoint_shard(c, 0)->carried_count, 0);
	ck_assert_uint_eq(gw_checkpoint_tensors(c), 2);
	ck_assert_uint_eq(gw_checkpoint_tensor(c, 0)->shard, 1);
	ck_assert_uint_eq(gw_checkpoint_others(c), 2);
	ck_assert_str_eq(gw_checkpoint_other(c, 0)->name, ".gitattributes");
	ck_assert_uint_eq(gw_checkpoint_other(c, 1)->bytes, 2);
	ck_assert_int_eq(memcmp(gw_checkpoint_other(c, 1)->p, "{}", 2), 0);
	ck_assert_ptr_null(gw_checkpoint_other(c, 2));
	gw_checkpoint_close(c);
}
END_TEST

START_TEST(a_name_twice_needs_an_index)
{
	shard("dir/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	shard("dir/2.safetensors", "{" U8("a", 0, 2) "}", 2);
	refused("dir", GW_EDUPLICATE, "2.safetensors");
}
END_TEST

START_TEST(the_index_is_the_authority)
{
	struct gw_checkpoint *c;
	const struct gw_shard *s;

	shard("dir/1.safetensors", "{" U8("a", 0, 2) "," U8("b", 2, 4) "," U8("c", 4, 6) "}", 6);
	shard("dir/2.safetensors", "{" U8("b", 0, 2) "}", 2);
	shard("dir/3.safetensors", "{" U8("a", 0, 2) "}", 2);
	shard("dir/weights.bin", "{" U8("d", 0, 2) "}", 2);
	text("dir/" GW_INDEX_NAME, "{\"metadata\":{\"total_size\":1.5e3,\"x\":[null]},\"more\":true,\"weight_map\":"
				   "{\"d\":\"weights.bin\",\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}\n");
	c = opened("dir");
	ck_assert_uint_eq(gw_checkpoint_tensors(c), 3);
	ck_assert_uint_eq(gw_checkpoint_find(c, "a")->shard, 0);
	ck_assert_uint_eq(gw_checkpoint_find(c, "b")->shard, 1);
	ck_assert_uint_eq(gw_checkpoint_find(c, "d")->shard, 3);
	ck_assert_ptr_null(gw_checkpoint_find(c, "c"));
	/* Given to another shard, and to none. */
	s = gw_checkpoint_shard(c, 0);
	ck_assert_uint_eq(s->carried_count, 2);
	ck_assert_str_eq(s->carried[0].name, "b");
	ck_assert_str_eq(s->carried[1].name, "c");
	ck_assert_uint_eq(s->carried[1].p[0], 4);
	/* A shard that the index does not know is carried whole. */
	ck_assert_uint_eq(gw_checkpoint_shard(c, 2)->carried_count, 1);
	ck_assert_uint_eq(gw_checkpoint_others(c), 1);
	ck_assert_str_eq(gw_checkpoint_other(c, 0)->name, GW_INDEX_NAME);
	gw_checkpoint_close(c);
}
END_TEST

START_TEST(an_index_is_read_strictly)
{
	static const struct {
		int err;
		const char *names, *index;
	} rows[] = {
		{GW_EMALFORMED, "tensor b", "{\"weight_map\":{\"b\":\"1.safetensors\"}}"},
		{GW_ENOENT, "2.safetensors", "{\"weight_map\":{\"a\":\"2.safetensors\"}}"},
		{GW_ENOENT, GW_INDEX_NAME, "{\"weight_map\":{\"a\":\"" GW_INDEX_NAME "\"}}"},
		{GW_EMALFORMED, "plain base name", "{\"weight_map\":{\"a\":\"../1.safetensors\"}}"},
		{GW_EMALFORMED, "plain base name", "{\"weight_map\":{\"a\":\"./1.safetensors\"}}"},
		{GW_EMALFORMED, "plain base name", "{\"weight_map\":{\"a\":\"..\"}}"},
		{GW_EMALFORMED, "plain base name", "{\"weight_map\":{\"a\":\"\"}}"},
		{GW_EMALFORMED, "control", "{\"weight_map\":{\"a\":\"1.safetensors\\u0000x\"}}"},
		{GW_EMALFORMED, "control", "{\"weight_map\":{\"a\\u0000\":\"1.safetensors\"}}"},
		{GW_EDUPLICATE, "tensor a", "{\"weight_map\":{\"a\":\"1.safetensors\",\"\\u0061\":\"1.safetensors\"}}"},
		{GW_EDUPLICATE, "weight_map", "{\"weight_map\":{},\"weight_map\":{}}"},
		{GW_EMALFORMED, "weight_map", "{}"},
		{GW_EMALFORMED, GW_INDEX_NAME, "[]"},
		{GW_EMALFORMED, GW_INDEX_NAME, "{\"weight_map\":{\"a\":1}}"},
		{GW_ETRUNC, GW_INDEX_NAME, "{\"weight_map\":{\"a\":\"1.safetensors\"}"},
		{GW_ETRUNC, GW_INDEX_NAME, ""},
		{GW_ETRAILING, GW_INDEX_NAME, "{\"weight_map\":{\"a\":\"1.safetensors\"}} x"},
		{GW_EMALFORMED, GW_INDEX_NAME, "{\"metadata\":{\"x\":tru},\"weight_map\":{}}"},
	};

	shard("dir/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		text("dir/" GW_INDEX_NAME, rows[i].index);
		refused("dir", rows[i].err, rows[i].names);
		fs.n--;
	}
}
END_TEST

START_TEST(an_index_cut_anywhere_is_refused)
{
	const char index[] = "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"a\":\"1.safetensors\"}}";

	shard("dir/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	for (size_t n = 0; n < sizeof index; n++) {
		struct gw_checkpoint *c;
		char *copy = malloc(n + 1);
		int err;

		memcpy(copy, index, n);
		(void)fake_add(&fs, "dir/" GW_INDEX_NAME, GW_FILE_REGULAR, copy, n);
		err = gw_checkpoint_open(&c, &fs.fs, "dir", NULL);
		ck_assert_int_eq(!err, n == sizeof index - 1);
		gw_checkpoint_close(c);
		free(copy);
		fs.n--;
	}
}
END_TEST

START_TEST(odd_things_in_a_folder_are_refused_by_name)
{
	static const struct {
		const char *path, *says;
		enum gw_file_type type;
		size_t n;
		int err;
	} rows[] = {
		{"dir/link.json", "is a link", GW_FILE_LINK, 0, GW_EINVAL},
		{"dir/2.safetensors", "is a link", GW_FILE_LINK, 0, GW_EINVAL},
		{"dir/.cache", "is a folder", GW_FILE_DIR, 0, GW_EINVAL},
		{"dir/fifo", "not a regular file", GW_FILE_OTHER, 0, GW_EINVAL},
		{"dir/big.bin", "64 MiB", GW_FILE_REGULAR, (size_t)GW_OTHER_FILE_MAX + 1, GW_ELIMIT},
		{"dir/2.safetensors", "dir/2.safetensors", GW_FILE_REGULAR, 0, GW_ETRUNC},
	};

	shard("dir/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		(void)fake_add(&fs, rows[i].path, rows[i].type, "", rows[i].n);
		refused("dir", rows[i].err, rows[i].path);
		refused("dir", rows[i].err, rows[i].says);
		fs.n--;
	}
}
END_TEST

START_TEST(paths_that_are_no_checkpoint)
{
	text("text", "hello, world");
	(void)fake_add(&fs, "pipe", GW_FILE_OTHER, NULL, 0);
	text("dir/config.json", "{}");
	refused("nowhere", GW_ENOENT, "nowhere");
	refused("pipe", GW_EINVAL, "pipe");
	refused("dir", GW_ENOENT, ".safetensors");
	refused("text", GW_ELIMIT, "text");
}
END_TEST

START_TEST(the_path_itself_may_be_a_link)
{
	struct gw_checkpoint *c;

	(void)fake_add(&fs, "current", GW_FILE_LINK, NULL, 0);
	(void)fake_add(&fs, "current/.", GW_FILE_DIR, NULL, 0);
	shard("current/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	c = opened("current");
	ck_assert_uint_eq(gw_checkpoint_tensors(c), 1);
	gw_checkpoint_close(c);
}
END_TEST

START_TEST(a_file_that_shrinks_is_noticed)
{
	struct gw_diag why = {""};
	struct gw_checkpoint *c;
	struct fake_file *f;

	f = shard("dir/1.safetensors", "{" U8("a", 0, 2) "}", 2);
	c = opened("dir");
	ck_assert_int_eq(gw_checkpoint_check(c, &why), 0);
	f->shrunk = 1;
	ck_assert_int_eq(gw_checkpoint_check(c, &why), GW_ESHRUNK);
	ck_assert_ptr_nonnull(strstr(why.text, "1.safetensors"));
	gw_checkpoint_close(c);
	refused("dir", GW_ESHRUNK, "1.safetensors");
}
END_TEST

TCase *checkpoint_case(void)
{
	TCase *t = tcase_create("checkpoint");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_single_file);
	tcase_add_test(t, a_folder_without_an_index);
	tcase_add_test(t, a_name_twice_needs_an_index);
	tcase_add_test(t, the_index_is_the_authority);
	tcase_add_test(t, an_index_is_read_strictly);
	tcase_add_test(t, an_index_cut_anywhere_is_refused);
	tcase_add_test(t, odd_things_in_a_folder_are_refused_by_name);
	tcase_add_test(t, paths_that_are_no_checkpoint);
	tcase_add_test(t, the_path_itself_may_be_a_link);
	tcase_add_test(t, a_file_that_shrinks_is_noticed);
	return t;
}
