/*
 * A ZMTP 3.0 client with CURVE (RFC 23 and 26) on a plain TCP socket, blocking, for tests that must say what libzmq
 * would not say. Every function returns 0, or -1 when the other side has closed.
 */
#ifndef GW_TESTS_UNIT_CURVE_CLIENT_H
#define GW_TESTS_UNIT_CURVE_CLIENT_H

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

struct curve_client {
	int fd;
	uint8_t pk[32], sk[32];     /* of this connection */
	uint8_t server[32];         /* the server's, of this connection */
	uint64_t nonce;
};

static inline int cc_send(int fd, const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n) {
		ssize_t put = send(fd, b, n, MSG_NOSIGNAL);

		if (put <= 0)
			return -1;
		b += put;
		n -= (size_t)put;
	}
	return 0;
}

static inline int cc_recv(int fd, void *p, size_t n)
{
	uint8_t *b = p;

	while (n) {
		ssize_t got = recv(fd, b, n, 0);

		if (got <= 0)
			return -1;
		b += got;
		n -= (size_t)got;
	}
	return 0;
}

/* 16 or 8 bytes of name and the short nonce, which rises by one each time. */
static inline void cc_nonce(struct curve_client *c, uint8_t full[24], const char *name, uint8_t short_nonce[8])
{
	c->nonce++;
	for (int i = 0; i < 8; i++)
		short_nonce[i] = (uint8_t)(c->nonce >> (56 - 8 * i));
	memcpy(full, name, 16);
	memcpy(full + 16, short_nonce, 8);
}

static inline int cc_command(int fd, const uint8_t *body, uint64_t n)
{
	uint8_t head[9] = {6};

	for (int i = 0; i < 8; i++)
		head[1 + i] = (uint8_t)(n >> (56 - 8 * i));
	return cc_send(fd, head, sizeof head) || cc_send(fd, body, n) ? -1 : 0;
}

/* A short command of exactly n bytes. */
static inline int cc_answer(int fd, uint8_t *body, size_t n)
{
	uint8_t head[2];

	return cc_recv(fd, head, 2) || head[0] != 4 || head[1] != n || cc_recv(fd, body, n) ? -1 : 0;
}

static inline int cc_hello(struct curve_client *c, const uint8_t server_key[32])
{
	uint8_t b[200] = "\x05HELLO\x01", full[24], zeros[64] = {0};

	memcpy(b + 80, c->pk, 32);
	cc_nonce(c, full, "CurveZMQHELLO---", b + 112);
	(void)!crypto_box_easy(b + 120, zeros, sizeof zeros, full, server_key, c->sk);
	return cc_command(c->fd, b, sizeof b);
}

static inline int cc_welcome(struct curve_client *c, const uint8_t server_key[32], uint8_t cookie[96])
{
	uint8_t b[168], full[24] = "WELCOME-", plain[128];

	if (cc_answer(c->fd, b, sizeof b))
		return -1;
	memcpy(full + 8, b + 8, 16);
	if (crypto_box_open_easy(plain, b + 24, 144, full, server_key, c->sk))
		return -1;
	memcpy(c->server, plain, 32);
	memcpy(cookie, plain + 32, 96);
	return 0;
}

static inline int cc_initiate(struct curve_client *c, const uint8_t server_key[32], const uint8_t cookie[96],
			      const uint8_t own_pk[32], const uint8_t own_sk[32])
{
	static const uint8_t metadata[] = "\x0bSocket-Type\0\0\0\x06" "DEALER";
	uint8_t plain[128 + sizeof metadata - 1], vouch[64], full[24] = "VOUCH---";
	uint8_t b[9 + 96 + 8 + 16 + sizeof plain] = "\x08INITIATE", ready[300], head[2];

	memcpy(plain, own_pk, 32);
	randombytes_buf(plain + 32, 16);
	memcpy(full + 8, plain + 32, 16);
	memcpy(vouch, c->pk, 32);
	memcpy(vouch + 32, server_key, 32);
	(void)!crypto_box_easy(plain + 48, vouch, sizeof vouch, full, c->server, own_sk);
	memcpy(plain + 128, metadata, sizeof metadata - 1);
	memcpy(b + 9, cookie, 96);
	cc_nonce(c, full, "CurveZMQINITIATE", b + 105);
	(void)!crypto_box_easy(b + 113, plain, sizeof plain, full, c->server, c->sk);
	if (cc_command(c->fd, b, sizeof b))
		return -1;
	/* READY, whose content does not matter here; ERROR is shorter. */
	return cc_recv(c->fd, head, 2) || head[0] != 4 || cc_recv(c->fd, ready, head[1]) || memcmp(ready, "\x05READY", 6)
		       ? -1
		       : 0;
}

/* Shakes hands over a connected socket, which becomes c's. */
static inline int curve_client_begin(struct curve_client *c, int fd, const uint8_t server_key[32],
				     const uint8_t own_pk[32], const uint8_t own_sk[32])
{
	uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'C', 'U', 'R', 'V', 'E'}, theirs[64], cookie[96];

	memset(c, 0, sizeof *c);
	c->fd = fd;
	(void)crypto_box_keypair(c->pk, c->sk);
	if (cc_send(fd, greeting, sizeof greeting) || cc_recv(fd, theirs, sizeof theirs) || cc_hello(c, server_key) ||
	    cc_welcome(c, server_key, cookie))
		return -1;
	return cc_initiate(c, server_key, cookie, own_pk, own_sk);
}

/* One part of a message; more = 1: others follow. */
static inline int curve_client_part(struct curve_client *c, const void *p, size_t n, int more)
{
	size_t size = 8 + 8 + 16 + 1 + n;
	uint8_t *frame = malloc(9 + size), *plain = malloc(1 + n), full[24];
	int r = -1;

	if (frame && plain) {
		frame[0] = 2;
		for (int i = 0; i < 8; i++)
			frame[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
		memcpy(frame + 9, "\x07MESSAGE", 8);
		cc_nonce(c, full, "CurveZMQMESSAGEC", frame + 17);
		plain[0] = (uint8_t)more;
		memcpy(plain + 1, p, n);
		(void)!crypto_box_easy(frame + 25, plain, 1 + n, full, c->server, c->sk);
		r = cc_send(c->fd, frame, 9 + size);
	}
	free(frame);
	free(plain);
	return r;
}

#endif
