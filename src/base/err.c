#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { US = GW_WHOSE_US, PEER = GW_WHOSE_PEER, HOST = GW_WHOSE_HOST, USER = GW_WHOSE_USER };

static const struct row {
	int err;
	const char *name, *text;
	enum gw_whose whose;
	int retry;
} table[] = {
#define GW_ERR(num, name, text, whose, retry) {(num), #name, text, (enum gw_whose)(whose), (retry)},
#include "base/err.def"
#undef GW_ERR
};

static const struct row *find(int err)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].err == err)
			return &table[i];
	return NULL;
}

const char *gw_err_text(int err)
{
	const struct row *r = find(err);

	return r ? r->text : err == 0 ? "ok" : "unknown error";
}

const char *gw_err_name(int err)
{
	const struct row *r = find(err);

	return r ? r->name : err == 0 ? "OK" : "UNKNOWN_ERROR";
}

enum gw_whose gw_err_whose(int err)
{
	const struct row *r = find(err);

	return r ? r->whose : GW_WHOSE_US;
}

int gw_err_retryable(int err)
{
	const struct row *r = find(err);

	return r ? r->retry : 0;
}

int gw_err_from_errno(int errnum)
{
	switch (errnum) {
	case ENOMEM:
		return GW_ENOMEM;
	case ENOENT:
	case ENOTDIR:
		return GW_ENOENT;
	case EEXIST:
	case ENOTEMPTY:
		return GW_EEXIST;
	case ENOSPC:
	case EDQUOT:
		return GW_ENOSPACE;
	case EACCES:
	case EPERM:
	case EROFS:
		return GW_EACCESS;
	case EINVAL:
	case ENAMETOOLONG:
	case ELOOP:
	case EISDIR:
		return GW_EINVAL;
	case EAGAIN:
		return GW_EAGAIN;
	case ETIMEDOUT:
		return GW_ETIMEOUT;
	case EPIPE:
	case ECONNRESET:
		return GW_ECLOSED;
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return GW_EUNREACH;
	case EINTR:
		return GW_EINTR;
	case ENOSYS:
	case EOPNOTSUPP:
		return GW_EUNSUP;
	default:
		return GW_EIO;
	}
}

int gw_err_exit_code(int err)
{
	switch (err) {
	case GW_OK:
		return 0;
	case GW_EINVAL:
		return 2;
	case GW_EUNREACH:
	case GW_ECLOSED:
		return 3;
	case GW_EPOISONED:
		return 4;
	case GW_ENOTREADY:
	case GW_ETIMEOUT:
	case GW_ENOPATH:
		return 5;
	case GW_EDIGEST:
	case GW_EBASE:
	case GW_EFINGERPRINT:
	case GW_ESIGNATURE:
	case GW_EROLLBACK:
	case GW_EEXPIRED:
	case GW_EUNTRUSTED:
	case GW_EWRONGRUN:
	case GW_EREVOKED:
	case GW_EEQUIVOCATE:
		return 6;
	case GW_ECONFIG:
		return 7;
	case GW_EINTR:
		return 130;
	default:
		return 1;
	}
}

int gw_diag_set(struct gw_diag *why, int err, const char *fmt, ...)
{
	va_list ap;

	if (!why || why->text[0])
		return err;
	va_start(ap, fmt);
	(void)vsnprintf(why->text, sizeof why->text, fmt, ap);
	va_end(ap);
	return err;
}

int gw_diag_wrap(struct gw_diag *why, int err, const char *fmt, ...)
{
	char head[sizeof why->text], rest[sizeof why->text];
	va_list ap;
	size_t n;

	if (!why)
		return err;
	(void)snprintf(rest, sizeof rest, "%s", why->text[0] ? why->text : gw_err_text(err));
	va_start(ap, fmt);
	(void)vsnprintf(head, sizeof head, fmt, ap);
	va_end(ap);
	(void)snprintf(why->text, sizeof why->text, "%s", head);
	n = strlen(why->text);
	(void)snprintf(why->text + n, sizeof why->text - n, ": %s", rest);
	return err;
}
