#include "ceiling.h"

#include <string.h>

enum { LINE = 64, UNROLLED = 4, STEP = LINE * UNROLLED, AHEAD = 1024 };

typedef uint64_t vec __attribute__((vector_size(LINE), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* The whole steps of n bytes, as `streams` stretches side by side. */
INLINE uint64_t read_streams(const uint8_t *p, const uint8_t *q, size_t n, size_t streams, int ahead)
{
	size_t stretch = n / streams / STEP * STEP;
	vec acc[UNROLLED];
	uint64_t r = 0;

	memset(acc, 0, sizeof acc);
	for (size_t i = 0; i < stretch; i += STEP)
		for (size_t s = 0; s < streams; s++)
			for (size_t u = 0; u < UNROLLED; u++) {
				size_t at = s * stretch + i + u * LINE;

				if (ahead)
					__builtin_prefetch(p + at + AHEAD);
				if (ahead && q)
					__builtin_prefetch(q + at + AHEAD);
				if (q)
					acc[u] |= *(const vec *)(p + at) ^ *(const vec *)(q + at);
				else
					acc[u] |= *(const vec *)(p + at);
			}
	for (size_t u = 0; u < UNROLLED; u++)
		for (size_t k = 0; k < LINE / sizeof(uint64_t); k++)
			r |= acc[u][k];
	for (size_t i = stretch * streams; i < n; i++)
		r |= q ? (uint64_t)(p[i] ^ q[i]) : p[i];
	return r;
}

INLINE uint64_t read_shape(unsigned shape, const uint8_t *p, const uint8_t *q, size_t n)
{
	switch (shape) {
	case 0:
		return read_streams(p, q, n, 1, 0);
	case 1:
		return read_streams(p, q, n, 1, 1);
	case 2:
		return read_streams(p, q, n, 4, 0);
	default:
		return read_streams(p, q, n, 4, 1);
	}
}

#define READERS(name, target)                                                                                          \
	static target uint64_t name##_one(unsigned shape, const uint8_t *p, size_t n)                                  \
	{                                                                                                              \
		return read_shape(shape, p, NULL, n);                                                                  \
	}                                                                                                              \
	static target uint64_t name##_two(unsigned shape, const uint8_t *p, const uint8_t *q, size_t n)                \
	{                                                                                                              \
		return read_shape(shape, p, q, n);                                                                     \
	}

READERS(plain, )
#if defined(__x86_64__)
READERS(avx2, __attribute__((target("avx2"))))
READERS(avx512, __attribute__((target("avx512f"))))
#endif

uint64_t bench_read(unsigned shape, const uint8_t *p, const uint8_t *q, size_t n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return q ? avx512_two(shape, p, q, n) : avx512_one(shape, p, n);
	if (__builtin_cpu_supports("avx2"))
		return q ? avx2_two(shape, p, q, n) : avx2_one(shape, p, n);
#endif
	return q ? plain_two(shape, p, q, n) : plain_one(shape, p, n);
}
