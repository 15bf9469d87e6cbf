#include "daemon/quiet.h"

#include <stdio.h>
#include <stddef.h>

#include "base/log.h"

/* Its slot, or a free one, or that of the event that began its span first. */
static struct gw_quiet_event *slot_of(struct gw_quiet *q, const char *event)
{
	struct gw_quiet_event *oldest = &q->v[0];

	for (size_t i = 0; i < GW_QUIET_EVENTS; i++) {
		if (q->v[i].event == event || !q->v[i].event)
			return &q->v[i];
		if (q->v[i].from_ns < oldest->from_ns)
			oldest = &q->v[i];
	}
	return oldest;
}

int gw_quiet_may_say(struct gw_quiet *q, const char *event, uint64_t now_ns)
{
	struct gw_quiet_event *e = slot_of(q, event);
	char times[16];

	if (e->event != event || now_ns - e->from_ns >= GW_QUIET_NS) {
		(void)snprintf(times, sizeof times, "%u", e->kept_back);
		if (e->kept_back)
			GW_LOG(GW_LOG_NOTICE, "lines were kept back", "event", e->event, "times", times, NULL);
		*e = (struct gw_quiet_event){.event = event, .from_ns = now_ns};
	}
	if (e->said < GW_QUIET_LINES) {
		e->said++;
		return 1;
	}
	e->kept_back++;
	return 0;
}
