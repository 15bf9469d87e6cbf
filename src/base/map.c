#include "base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "base/rng.h"

static uint64_t rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

uint64_t gw_siphash13(uint64_t k0, uint64_t k1, const void *p, size_t n)
{
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
			 k1 ^ 0x7465646279746573u};
	const uint8_t *b = p;
	uint64_t last = (uint64_t)n << 56;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t m = gw_le64(b + i);

		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
	}
	for (size_t j = i; j < n; j++)
		last |= (uint64_t)b[j] << (8 * (j - i));
	v[3] ^= last;
	sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	for (int r = 0; r < 3; r++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void gw_map_init(struct gw_map *m, uint64_t seed)
{
	memset(m, 0, sizeof *m);
	m->k0 = gw_splitmix64(&seed);
	m->k1 = gw_splitmix64(&seed);
}

void gw_map_free(struct gw_map *m, void (*free_value)(void *))
{
	for (size_t i = 0; i < m->used; i++) {
		if (!m->entries[i].key)
			continue;
		free(m->entries[i].key);
		if (free_value)
			free_value(m->entries[i].value);
	}
	free(m->entries);
	free(m->slots);
	m->entries = NULL;
	m->slots = NULL;
	m->n = m->used = m->cap = m->slot_count = 0;
}

size_t gw_map_count(const struct gw_map *m)
{
	return m->n;
}

static struct gw_map_entry *find(const struct gw_map *m, const void *key, size_t len)
{
	uint64_t h = gw_siphash13(m->k0, m->k1, key, len);

	if (!m->slot_count)
		return NULL;
	for (size_t s = h & (m->slot_count - 1); m->slots[s]; s = (s + 1) & (m->slot_count - 1)) {
		struct gw_map_entry *e = &m->entries[m->slots[s] - 1];

		if (e->key && e->hash == h && e->key_len == len && !memcmp(e->key, key, len))
			return e;
	}
	return NULL;
}

void *gw_map_get(const struct gw_map *m, const void *key, size_t key_len)
{
	const struct gw_map_entry *e = find(m, key, key_len);

	return e ? e->value : NULL;
}

static void place(struct gw_map *m, size_t index)
{
	size_t s = m->entries[index].hash & (m->slot_count - 1);

	while (m->slots[s])
		s = (s + 1) & (m->slot_count - 1);
	m->slots[s] = (uint32_t)index + 1;
}

/* Drops removed entries, and doubles where the live ones need it. */
static int rebuild(struct gw_map *m)
{
	size_t cap = 16, live = 0;
	struct gw_map_entry *entries;
	uint32_t *slots;

	while (cap < 2 * (m->n + 1))
		cap *= 2;
	if (cap > UINT32_MAX / 4)
		return GW_ELIMIT;
	entries = calloc(cap, sizeof *entries);
	slots = calloc(2 * cap, sizeof *slots);
	if (!entries || !slots) {
		free(entries);
		free(slots);
		return GW_ENOMEM;
	}
	for (size_t i = 0; i < m->used; i++)
		if (m->entries[i].key)
			entries[live++] = m->entries[i];
	free(m->entries);
	free(m->slots);
	m->entries = entries;
	m->slots = slots;
	m->used = live;
	m->cap = cap;
	m->slot_count = 2 * cap;
	for (size_t i = 0; i < live; i++)
		place(m, i);
	return 0;
}

int gw_map_put(struct gw_map *m, const void *key, size_t key_len, void *value, void **old)
{
	struct gw_map_entry *e = find(m, key, key_len);
	uint8_t *copy;
	int err;

	assert(value);
	if (old)
		*old = e ? e->value : NULL;
	if (e) {
		e->value = value;
		return 0;
	}
	if (m->used == m->cap) {
		err = rebuild(m);
		if (err)
			return err;
	}
	copy = malloc(key_len + 1);
	if (!copy)
		return GW_ENOMEM;
	if (key_len)
		memcpy(copy, key, key_len);
	copy[key_len] = 0;
	e = &m->entries[m->used];
	e->key = copy;
	e->key_len = key_len;
	e->value = value;
	e->hash = gw_siphash13(m->k0, m->k1, key, key_len);
	place(m, m->used++);
	m->n++;
	return 0;
}

void *gw_map_del(struct gw_map *m, const void *key, size_t key_len)
{
	struct gw_map_entry *e = find(m, key, key_len);

	if (!e)
		return NULL;
	free(e->key);
	e->key = NULL; /* the slot stays taken until the next rebuild, so that probing goes on past it */
	m->n--;
	return e->value;
}

const struct gw_map_entry *gw_map_next(const struct gw_map *m, size_t *at)
{
	while (*at < m->used) {
		const struct gw_map_entry *e = &m->entries[(*at)++];

		if (e->key)
			return e;
	}
	return NULL;
}
