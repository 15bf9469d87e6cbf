/*
 * A hash map from byte strings to pointers. Keys are copied, values are the caller's. Hashing is
 * keyed (SipHash-1-3, Aumasson and Bernstein) because peers choose many of the keys.
 *
 * Iteration runs in order of insertion (of what is left), the same on every machine: state machines
 * may walk a map without their behaviour depending on the hash.
 */
#ifndef GW_BASE_MAP_H
#define GW_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct gw_map_entry {
	uint8_t *key;
	size_t key_len;
	void *value;
	uint64_t hash;
};

struct gw_map {
	struct gw_map_entry *entries; /* in order of insertion; key NULL where removed */
	uint32_t *slots;              /* index + 1 into entries, 0 free */
	size_t n, used, cap, slot_count;
	uint64_t k0, k1;
};

/* The seed keys the hash; any value works, an unpredictable one also resists crafted keys. */
void gw_map_init(struct gw_map *m, uint64_t seed);
/* Frees the map and its keys; values first by `free_value` where given. */
void gw_map_free(struct gw_map *m, void (*free_value)(void *));
size_t gw_map_count(const struct gw_map *m);
/* The value, or NULL. */
void *gw_map_get(const struct gw_map *m, const void *key, size_t key_len);
/* Adds or replaces; *old (may be NULL) gets the replaced value or NULL. Values must not be NULL. */
int gw_map_put(struct gw_map *m, const void *key, size_t key_len, void *value, void **old);
/* Removes and returns the value, or NULL. */
void *gw_map_del(struct gw_map *m, const void *key, size_t key_len);
/* Walk: start with *at = 0; NULL at the end. Removing the entry just returned is allowed, adding is not. */
const struct gw_map_entry *gw_map_next(const struct gw_map *m, size_t *at);

uint64_t gw_siphash13(uint64_t k0, uint64_t k1, const void *p, size_t n);

#endif
