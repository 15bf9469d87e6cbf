#include "patch/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct leaf {
	uint64_t count;
	unsigned symbol;
};

static int by_count(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? -1 : 1;
	return x->symbol < y->symbol ? -1 : 1;
}

/* Moffat and Katajainen: a[] of rising counts becomes code lengths, longest first. n >= 2. */
static void minimum_redundancy(uint64_t *a, unsigned n)
{
	unsigned root = 0, leaf = 2, next, avail = 1, used = 0, depth = 0;

	a[0] += a[1];
	for (next = 1; next < n - 1; next++) {
		for (int twice = 0; twice < 2; twice++) {
			uint64_t take;

			if (leaf >= n || (root < next && a[root] < a[leaf])) {
				take = a[root];
				a[root++] = next;
			} else {
				take = a[leaf++];
			}
			a[next] = twice ? a[next] + take : take;
		}
	}
	/* a[i] is the parent of internal node i: depths of internal nodes, from the root down. */
	a[n - 2] = 0;
	for (unsigned i = n - 2; i-- > 0;)
		a[i] = a[a[i]] + 1;
	/* Depths of leaves. */
	root = n - 1;
	next = n;
	while (avail) {
		while (root && a[root - 1] == depth) {
			used++;
			root--;
		}
		while (avail > used) {
			a[--next] = depth;
			avail--;
		}
		avail = 2 * used;
		depth++;
		used = 0;
	}
}

/* How many codes have each length, with those over the limit cut and the sum of 2^-length made 1 again. */
static void cut_lengths(const uint64_t *depth, unsigned n, unsigned number[GW_PREFIX_BITS + 1])
{
	uint32_t sum = 0;

	memset(number, 0, (GW_PREFIX_BITS + 1) * sizeof *number);
	for (unsigned i = 0; i < n; i++) {
		unsigned l = depth[i] > GW_PREFIX_BITS ? GW_PREFIX_BITS : (unsigned)depth[i];

		number[l]++;
		sum += 1u << (GW_PREFIX_BITS - l);
	}
	/* Each turn pairs one of the longest codes with a shorter one that becomes longer: one unit less. */
	while (sum > 1u << GW_PREFIX_BITS) {
		unsigned l = GW_PREFIX_BITS - 1;

		while (!number[l])
			l--;
		number[l]--;
		number[l + 1] += 2;
		number[GW_PREFIX_BITS]--;
		sum--;
	}
}

void gw_prefix_lengths(const uint64_t *count, unsigned n, uint8_t *len)
{
	struct leaf leaf[GW_PREFIX_SYMBOLS_MAX];
	uint64_t depth[GW_PREFIX_SYMBOLS_MAX];
	unsigned number[GW_PREFIX_BITS + 1], used = 0;

	assert(n <= GW_PREFIX_SYMBOLS_MAX);
	memset(len, 0, n);
	for (unsigned i = 0; i < n; i++)
		if (count[i])
			leaf[used++] = (struct leaf){count[i], i};
	if (used == 1)
		len[leaf[0].symbol] = 1;
	if (used < 2)
		return;
	qsort(leaf, used, sizeof *leaf, by_count);
	for (unsigned i = 0; i < used; i++)
		depth[i] = leaf[i].count;
	minimum_redundancy(depth, used);
	cut_lengths(depth, used, number);
	/* Rarest first, longest first. */
	for (unsigned l = GW_PREFIX_BITS, i = 0; l > 0; l--)
		while (number[l]--)
			len[leaf[i++].symbol] = (uint8_t)l;
}

int gw_prefix_codes(const uint8_t *len, unsigned n, uint16_t *code)
{
	unsigned number[GW_PREFIX_BITS + 1] = {0}, next[GW_PREFIX_BITS + 2] = {0}, used = 0;
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (len[i] > GW_PREFIX_BITS)
			return GW_EMALFORMED;
		if (!len[i])
			continue;
		used++;
		number[len[i]]++;
		sum += 1u << (GW_PREFIX_BITS - len[i]);
	}
	if (used == 1 ? !number[1] : used && sum != 1u << GW_PREFIX_BITS)
		return GW_EMALFORMED;
	for (unsigned l = 1; l <= GW_PREFIX_BITS; l++)
		next[l + 1] = (next[l] + number[l]) << 1;
	for (unsigned i = 0; i < n; i++) {
		unsigned c = len[i] ? next[len[i]]++ : 0, reversed = 0;

		for (unsigned b = 0; b < len[i]; b++)
			reversed |= (c >> b & 1) << (len[i] - 1 - b);
		code[i] = (uint16_t)reversed;
	}
	return 0;
}

int gw_prefix_table(const uint8_t *len, unsigned n, uint16_t *table)
{
	uint16_t code[GW_PREFIX_SYMBOLS_MAX];
	int err;

	assert(n <= GW_PREFIX_SYMBOLS_MAX);
	err = gw_prefix_codes(len, n, code);
	if (err)
		return err;
	memset(table, 0, sizeof *table << GW_PREFIX_BITS);
	for (unsigned i = 0; i < n; i++)
		if (len[i])
			for (uint32_t at = code[i]; at < 1u << GW_PREFIX_BITS; at += 1u << len[i])
				table[at] = (uint16_t)(len[i] | i << 4);
	return 0;
}
