#include "daemon/engine_requests.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/table.h"

/* A patch file on its way into the engine. */
struct file_patch {
	struct gw_attach_patch patch;
	struct gw_fs *fs;
	struct gw_mapping map;
};

struct gw_engine_requests {
	struct gw_fs *fs;
	struct gw_attach *attach;
	struct gw_control *control;
	uint64_t applying, to; /* who waits for which version; 0: nobody */
	int stage_only;
	uint64_t scrubbing;
};

int gw_engine_requests_new(struct gw_engine_requests **out, struct gw_fs *fs)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return GW_ENOMEM;
	(*out)->fs = fs;
	return 0;
}

void gw_engine_requests_free(struct gw_engine_requests *r)
{
	free(r);
}

void gw_engine_requests_join(struct gw_engine_requests *r, struct gw_attach *a, struct gw_control *c)
{
	r->attach = a;
	r->control = c;
}

/* --- ctl_status --- */

static struct gw_text text_of(const char *s)
{
	return (struct gw_text){.p = s, .n = strlen(s)};
}

static void status(struct gw_engine_requests *r, uint64_t who)
{
	struct gw_msg m = {.type = GW_MSG_ctl_engine};
	struct gw_m_ctl_engine *e = &m.u.ctl_engine;
	struct gw_attach_status s;
	char engine[65], error[512]; /* the fields' limits */

	gw_attach_status(r->attach, &s);
	(void)gw_utf8_clean(engine, sizeof engine, s.engine);
	(void)gw_utf8_clean(error, sizeof error, s.last_error);
	e->state = text_of(gw_engine_state_text(s.state));
	memcpy(e->run, s.run, sizeof e->run);
	e->served = s.served;
	e->staged = s.staged;
	e->engine = text_of(engine);
	e->ranks = s.ranks;
	e->ranks_wanted = s.ranks_wanted;
	e->last_apply_ns = s.last_apply_ns;
	e->last_pause_ns = s.last_pause_ns;
	e->last_records = s.last_records;
	e->proven = s.proven;
	e->opaque = s.opaque;
	e->last_error = text_of(error);
	gw_control_send(r->control, who, &m);
}

/* --- ctl_apply_file --- */

static int check_file(struct gw_attach_patch *p)
{
	struct file_patch *f = (struct file_patch *)p;

	return gw_fs_mapping_check(f->fs, &f->map);
}

static void release_file(struct gw_attach_patch *p)
{
	struct file_patch *f = (struct file_patch *)p;

	(void)gw_fs_unmap(f->fs, &f->map); /* whether it shrank was asked after the reading */
	free(f);
}

/* On the loop, for a tool that waits: tables of a patch are small beside its tiles. */
static int look_at(struct file_patch *f, struct gw_diag *why)
{
	struct gw_patch_info info;
	struct gw_patch *pt;
	int err = gw_patch_open(&pt, f->map.p, f->map.n, why);

	if (err)
		return err;
	gw_patch_info(pt, &info);
	gw_patch_close(pt);
	f->patch.anchor = info.anchor;
	return 0;
}

static int map_file(struct gw_fs *fs, const char *path, struct file_patch **out, struct gw_diag *why)
{
	struct file_patch *f = calloc(1, sizeof *f);
	struct gw_file *file;
	int err;

	if (!f)
		return GW_ENOMEM;
	err = gw_fs_open(fs, path, GW_OPEN_READ, &file);
	if (!err) {
		err = gw_fs_map(fs, file, &f->map);
		gw_fs_close(fs, file);
	}
	if (err) {
		free(f);
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	}
	f->fs = fs;
	f->patch = (struct gw_attach_patch){.p = f->map.p, .n = f->map.n, .check = check_file, .release = release_file};
	*out = f;
	return 0;
}

static int apply_file(struct gw_engine_requests *r, const struct gw_m_ctl_apply_file *m, struct gw_diag *why)
{
	struct gw_attach_status s;
	struct file_patch *f = NULL;
	char path[1025];
	int err;

	if (m->path.n == 0 || m->path.n >= sizeof path || m->path.p[0] != '/')
		return gw_diag_set(why, GW_EINVAL, "the path of the patch must be absolute");
	if (r->applying)
		return gw_diag_set(why, GW_EAGAIN, "a patch is being applied; try again");
	memcpy(path, m->path.p, m->path.n);
	path[m->path.n] = 0;
	err = map_file(r->fs, path, &f, why);
	if (err)
		return err;
	gw_attach_status(r->attach, &s);
	memcpy(f->patch.run, s.run, sizeof f->patch.run);
	f->patch.from = m->from;
	f->patch.to = m->to;
	err = look_at(f, why);
	if (err)
		release_file(&f->patch);
	else
		err = gw_attach_stage(r->attach, &f->patch, !m->stage_only, why);
	return err ? gw_diag_wrap(why, err, "%s", path) : 0;
}

static void answer(struct gw_engine_requests *r, int err, const char *text)
{
	uint64_t who = r->applying;

	r->applying = 0;
	gw_control_reply(r->control, who, err, text);
}

int gw_engine_requests_handle(struct gw_engine_requests *r, uint64_t who, const struct gw_msg *m)
{
	struct gw_diag why = {""};
	int err;

	switch (m->type) {
	case GW_MSG_ctl_status:
		status(r, who);
		return 0;
	case GW_MSG_ctl_apply_file:
		err = apply_file(r, &m->u.ctl_apply_file, &why);
		if (!err) {
			r->applying = who;
			r->to = m->u.ctl_apply_file.to;
			r->stage_only = m->u.ctl_apply_file.stage_only;
			return 0;
		}
		break;
	case GW_MSG_ctl_scrub:
		err = r->scrubbing ? gw_diag_set(&why, GW_EAGAIN, "a scrub is under way") : gw_attach_scrub(r->attach, &why);
		if (!err) {
			r->scrubbing = who;
			return 0;
		}
		break;
	default: return GW_EUNKNOWN;
	}
	gw_control_reply(r->control, who, err, why.text[0] ? why.text : gw_err_text(err));
	return 0;
}

/* --- outcomes --- */

void gw_engine_requests_served(struct gw_engine_requests *r, uint64_t version)
{
	if (r->applying && version == r->to)
		answer(r, 0, "served");
}

void gw_engine_requests_staged(struct gw_engine_requests *r, uint64_t version)
{
	if (r->applying && r->stage_only && version == r->to)
		answer(r, 0, "staged");
}

void gw_engine_requests_failed(struct gw_engine_requests *r, uint64_t version, int err, const char *text)
{
	if (r->applying && version == r->to)
		answer(r, err, text);
}

void gw_engine_requests_changed(struct gw_engine_requests *r, enum gw_engine_state state)
{
	if (r->applying && state == GW_ENGINE_DETACHED)
		answer(r, GW_ECLOSED, "the engine went away before it served the version");
}

void gw_engine_requests_scrubbed(struct gw_engine_requests *r, int err, const char *text)
{
	uint64_t who = r->scrubbing;

	if (!who)
		return;
	r->scrubbing = 0;
	gw_control_reply(r->control, who, err, err ? text : "proven");
}
