/* `godwit status`: this host alone: its engine, its policies, its objects. */
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "tools/cmd.h"
#include "tools/control.h"
#include "tools/manifest_report.h"

enum { ANSWER_MS = 15000 };

static json_t *text(struct gw_text t)
{
	return json_stringn(t.p, t.n);
}

static json_t *version(uint64_t v)
{
	return v == UINT64_MAX ? json_null() : json_u64(v);
}

static json_t *hex(const uint8_t *p, size_t n)
{
	char buf[65];

	return json_string(gw_hex(buf, p, n));
}

static int ask_engine(struct control *c, struct args *a, json_t *doc)
{
	struct gw_msg q = {.type = GW_MSG_ctl_status}, r;
	const struct gw_m_ctl_engine *e = &r.u.ctl_engine;
	int err;

	q.u.ctl_status.policy = (struct gw_text){"", 0};
	err = control_ask(c, &q, GW_MSG_ctl_engine, ANSWER_MS, &r, &a->why);
	if (err)
		return err;
	json_object_set_new(doc, "engine",
			    json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:o, s:o, s:o, s:o}", "state",
				      text(e->state), "name", text(e->engine), "run", hex(e->run, sizeof e->run), "served",
				      version(e->served), "staged", version(e->staged), "ranks", (json_int_t)e->ranks,
				      "ranks_wanted", (json_int_t)e->ranks_wanted, "last_apply_ms",
				      (double)e->last_apply_ns / 1e6, "last_pause_ms", (double)e->last_pause_ns / 1e6,
				      "last_records", json_u64(e->last_records), "proven_tensors", json_u64(e->proven),
				      "opaque_tensors", json_u64(e->opaque), "last_error", text(e->last_error)));
	return 0;
}

static int ask_policies(struct control *c, struct args *a, json_t *doc)
{
	struct gw_msg q = {.type = GW_MSG_ctl_policies}, r;
	json_t *list = json_array();
	int err;

	json_object_set_new(doc, "policies", list);
	q.u.ctl_policies.policy = (struct gw_text){"", 0};
	err = control_ask(c, &q, GW_MSG_ctl_policy_states, ANSWER_MS, &r, &a->why);
	for (size_t i = 0; !err && i < r.u.ctl_policy_states.policies.n; i++) {
		const struct gw_r_policy_state *s = &r.u.ctl_policy_states.policies.v[i];

		json_array_append_new(
			list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:I, s:o, s:b, s:b}", "policy",
					text(s->policy), "run", hex(s->run, sizeof s->run), "newest", version(s->newest),
					"sequence", json_u64(s->sequence), "created_ns", json_u64(s->created_ns), "expires_ns",
					json_u64(s->expires_ns), "stale", s->stale, "served", version(s->served), "fetched",
					version(s->fetched), "steps", (json_int_t)s->steps, "path_bytes",
					json_u64(s->path_bytes), "no_path", s->no_path, "publishes", s->publishes));
	}
	return err;
}

static json_t *object_json(const struct gw_r_object_state *s)
{
	return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "manifest",
			 hex(s->manifest, sizeof s->manifest), "policy", text(s->policy), "kind", manifest_kind_name((uint16_t)s->kind), "from",
			 version(s->from), "to", version(s->to), "bytes", json_u64(s->bytes), "pieces", (json_int_t)s->pieces,
			 "have", (json_int_t)s->have, "rx_bytes", json_u64(s->rx_bytes), "border_rx_bytes",
			 json_u64(s->border_rx_bytes), "duplicate_bytes", json_u64(s->duplicate_bytes), "bad_bytes",
			 json_u64(s->bad_bytes), "tx_bytes", json_u64(s->tx_bytes), "border_tx_bytes",
			 json_u64(s->border_tx_bytes));
}

static int ask_objects(struct control *c, struct args *a, json_t *doc)
{
	struct gw_msg q = {.type = GW_MSG_ctl_objects}, r = {.type = GW_MSG_NONE};
	json_t *list = json_array();
	int err;

	json_object_set_new(doc, "objects", list);
	q.u.ctl_objects.policy = (struct gw_text){"", 0};
	err = control_send(c, &q, &a->why);
	do {
		if (!err)
			err = control_next(c, GW_MSG_ctl_object_states, ANSWER_MS, &r, &a->why);
		for (size_t i = 0; !err && i < r.u.ctl_object_states.objects.n; i++)
			json_array_append_new(list, object_json(&r.u.ctl_object_states.objects.v[i]));
	} while (!err && r.u.ctl_object_states.more);
	return err;
}

/* --- for people --- */

static const char *string_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static const char *number_of(char *buf, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		(void)snprintf(buf, 32, "%lld", (long long)json_integer_value(v));
	else
		(void)snprintf(buf, 32, "%s", json_is_string(v) ? json_string_value(v) : "-");
	return buf;
}

static void show_engine(const json_t *e)
{
	char x[32], y[32], z[32];

	if (!strcmp(string_of(e, "state"), "detached"))
		(void)printf("engine: none is attached\n");
	else
		(void)printf("engine: %s %s, serves %s, staged %s, ranks %s, last pause %.1f ms\n", string_of(e, "state"),
			     string_of(e, "name"), number_of(x, e, "served"), number_of(y, e, "staged"), number_of(z, e, "ranks"),
			     json_real_value(json_object_get(e, "last_pause_ms")));
	if (strlen(string_of(e, "last_error")) > 1)
		(void)printf("  last error: %s\n", string_of(e, "last_error"));
}

static void show(const json_t *doc)
{
	const json_t *v;
	char x[32], y[32], z[32], b[32];
	size_t i;

	show_engine(json_object_get(doc, "engine"));
	if (!json_array_size(json_object_get(doc, "policies")))
		(void)printf("no policy is known yet\n");
	json_array_foreach(json_object_get(doc, "policies"), i, v)
		(void)printf("policy %s: newest %s%s, fetched %s, served %s%s%s\n", string_of(v, "policy"),
			     number_of(x, v, "newest"), json_is_true(json_object_get(v, "stale")) ? " (head expired)" : "",
			     number_of(y, v, "fetched"), number_of(z, v, "served"),
			     json_is_true(json_object_get(v, "no_path")) ? ", no signed path to the newest" : "",
			     json_is_true(json_object_get(v, "publishes")) ? ", published here" : "");
	json_array_foreach(json_object_get(doc, "objects"), i, v) {
		(void)printf("  %-10s %-16s %s", string_of(v, "kind"), string_of(v, "policy"), number_of(y, v, "to"));
		if (strcmp(string_of(v, "kind"), "anchor") != 0)
			(void)printf(" from %s", number_of(x, v, "from"));
		(void)printf("  %s, %lld of %lld pieces here\n",
			     human_bytes(b, (uint64_t)json_integer_value(json_object_get(v, "bytes"))),
			     (long long)json_integer_value(json_object_get(v, "have")),
			     (long long)json_integer_value(json_object_get(v, "pieces")));
	}
}

static int run(struct args *a)
{
	json_t *doc = json_object();
	struct control c;
	int err = control_open(&c, arg_value(a, "run"), &a->why);

	if (err) {
		json_decref(doc);
		return err;
	}
	err = ask_engine(&c, a, doc);
	if (!err)
		err = ask_policies(&c, a, doc);
	if (!err)
		err = ask_objects(&c, a, doc);
	control_close(&c);
	if (!err && !strcmp(string_of(json_object_get(doc, "engine"), "state"), "poisoned"))
		a->exit_code = 4;
	if (!err && arg_flag(a, "json"))
		return print_json(doc, &a->why);
	if (!err)
		show(doc);
	json_decref(doc);
	return err;
}

static const struct opt opts[] = {
	{"json", NULL, "as one JSON document"},
	CONTROL_OPTION_RUN,
	{NULL, NULL, NULL},
};

const struct cmd cmd_status = {
	"status", "", "this host: its engine, its policies, the objects it holds", 0, 0, opts, run,
};
