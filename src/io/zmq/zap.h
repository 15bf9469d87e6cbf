/*
 * The ZAP handler (RFC 27): one thread that answers for both contexts who may connect. Its replies name a connection
 * by the CURVE key in hexadecimal ("User-Id"). A question that is odd in any way is answered 500.
 */
#ifndef GW_IO_ZMQ_ZAP_H
#define GW_IO_ZMQ_ZAP_H

#include "io/zmq/net.h"

struct gw_zap;

/* `admitted` is asked on the handler's thread, for the domains "control" and "bulk". */
int gw_zap_start(struct gw_zap **out, void *control_context, void *bulk_context,
		 int (*admitted)(void *ctx, const uint8_t key[GW_NET_KEY]), void *ctx);
/* Before the contexts end. NULL does nothing. */
void gw_zap_stop(struct gw_zap *z);
void gw_zap_counts(struct gw_zap *z, struct gw_net_counts *out);

#endif
