/*
 * The CUDA row's kernels: a staged list against memory (check, write), and a window of elements (print, gather).
 * Arguments are device addresses; gpu/cuda.c makes sure beforehand that lists are sound and that everything lies
 * inside.
 *
 * Lists: one warp a run at a time. A lane takes four neighbouring gaps with one load and adds them up; a prefix sum
 * over the warp by shuffles gives it its places, so places are never stored. 128 records a step, at rising addresses.
 */
#include "gpu/device.h"
#include "gpu/kernels.h"

#define FULL 0xffffffffu
enum { WARP = 32, PER_LANE = 4 };

GW_DEVICE unsigned lane_id()
{
	return threadIdx.x % WARP;
}

GW_DEVICE uint64_t warp_id()
{
	return (uint64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
}

GW_DEVICE uint64_t warp_count()
{
	return (uint64_t)gridDim.x * (blockDim.x / WARP);
}

/* An element at any address: at a multiple of its width in one access, else by bytes. */
template <class T> GW_DEVICE T load_any(uint64_t at)
{
	T v = 0;

	if (at % sizeof(T) == 0)
		return gw_ld((const T *)at);
	for (unsigned i = 0; i < sizeof(T); i++)
		v = (T)(v | (T)((T)gw_ld((const uint8_t *)at + i) << 8 * i));
	return v;
}

template <class T> GW_DEVICE void store_any(uint64_t at, T v)
{
	if (at % sizeof(T) == 0) {
		gw_st((T *)at, v);
		return;
	}
	for (unsigned i = 0; i < sizeof(T); i++)
		gw_st((uint8_t *)at + i, (uint8_t)(v >> 8 * i));
}

/* The sum over lanes below this one. */
GW_DEVICE uint32_t sum_below(uint32_t v)
{
	uint32_t sum = v;

	for (unsigned by = 1; by < WARP; by *= 2) {
		uint32_t other = __shfl_up_sync(FULL, sum, by);

		if (lane_id() >= by)
			sum += other;
	}
	return sum - v;
}

/* In lane 0: the sum over the warp. */
GW_DEVICE uint64_t sum_all(uint64_t v)
{
	for (unsigned by = WARP / 2; by; by /= 2)
		v += __shfl_down_sync(FULL, v, by);
	return v;
}

struct columns {
	const uint8_t *gaps, *old_bits, *new_bits;
	uint64_t base; /* address of the place that a first gap of 0 means */
	uint32_t count;
};

GW_DEVICE columns columns_of(const uint8_t *list, const gw_list_run *r, const gw_dev_mem *mem)
{
	uint64_t count = gw_ld(&r->count), width = gw_ld(&r->width);
	columns c;

	c.gaps = list + gw_ld(&r->data_at);
	c.old_bits = c.gaps + (2 * count + 7) / 8 * 8;
	c.new_bits = c.old_bits + (width * count + 7) / 8 * 8;
	c.base = gw_ld(&mem[gw_ld(&r->segment)].addr) + gw_ld(&r->base);
	c.count = (uint32_t)count;
	return c;
}

/* Calls each(i, place) for all records of a run. The whole warp comes here together. */
template <class T, class Each> GW_DEVICE void each_record(const columns &c, Each each)
{
	uint64_t at = c.base;

	for (uint32_t step = 0; step < c.count; step += WARP * PER_LANE) {
		uint32_t first = step + lane_id() * PER_LANE, sums[PER_LANE], sum = 0;
		/* The column of gaps is filled up with zeros to 8 bytes, four gaps. */
		uint64_t gaps = first < c.count ? gw_ld((const uint64_t *)(c.gaps + 2 * first)) : 0;

		for (unsigned k = 0; k < PER_LANE; k++)
			sums[k] = sum += (uint32_t)(gaps >> 16 * k) & 0xffff;
		uint32_t below = sum_below(sum);
		for (unsigned k = 0; k < PER_LANE; k++)
			if (first + k < c.count)
				each(first + k, at + (uint64_t)(below + sums[k]) * sizeof(T));
		at += (uint64_t)__shfl_sync(FULL, below + sum, WARP - 1) * sizeof(T);
	}
}

template <class T> GW_DEVICE void write_run(const columns &c, int to_new)
{
	const T *bits = (const T *)(to_new ? c.new_bits : c.old_bits);

	each_record<T>(c, [=](uint32_t i, uint64_t place) { store_any<T>(place, gw_ld(bits + i)); });
}

template <class T> GW_DEVICE void check_run(const columns &c, uint64_t run, gw_kernel_found *found)
{
	uint64_t old_n = 0, new_n = 0, neither_n = 0, bad = ~0ull;

	each_record<T>(c, [&](uint32_t i, uint64_t place) {
		T bits = load_any<T>(place);
		bool is_old = bits == gw_ld((const T *)c.old_bits + i),
		     is_new = bits == gw_ld((const T *)c.new_bits + i);

		old_n += is_old;
		new_n += is_new;
		if (is_old || is_new)
			return;
		if (!neither_n++)
			bad = run << 16 | i;
	});
	old_n = sum_all(old_n);
	new_n = sum_all(new_n);
	neither_n = sum_all(neither_n);
	if (bad != ~0ull)
		atomicMin(&found->bad, (unsigned long long)bad);
	if (lane_id())
		return;
	atomicAdd(&found->old_n, (unsigned long long)old_n);
	atomicAdd(&found->new_n, (unsigned long long)new_n);
	if (neither_n)
		atomicAdd(&found->neither_n, (unsigned long long)neither_n);
}

/* Calls body(columns, run, a value of the element's type) for all runs, a warp each. */
template <class Body>
GW_DEVICE void each_run(const uint8_t *list, uint64_t runs_at, uint32_t runs, const gw_dev_mem *mem, Body body)
{
	for (uint64_t i = warp_id(); i < runs; i += warp_count()) {
		const gw_list_run *r = (const gw_list_run *)(list + runs_at) + i;
		columns c = columns_of(list, r, mem);

		switch (gw_ld(&r->width)) {
		case 1:
			body(c, i, uint8_t());
			break;
		case 2:
			body(c, i, uint16_t());
			break;
		case 4:
			body(c, i, uint32_t());
			break;
		default:
			body(c, i, uint64_t());
		}
	}
}

extern "C" __global__ void gw_kernel_write(const uint8_t *list, uint64_t runs_at, uint32_t runs, const gw_dev_mem *mem,
					   int to_new)
{
	each_run(list, runs_at, runs, mem,
		 [=](const columns &c, uint64_t, auto element) { write_run<decltype(element)>(c, to_new); });
}

extern "C" __global__ void gw_kernel_check(const uint8_t *list, uint64_t runs_at, uint32_t runs, const gw_dev_mem *mem,
					   gw_kernel_found *found)
{
	each_run(list, runs_at, runs, mem,
		 [=](const columns &c, uint64_t run, auto element) { check_run<decltype(element)>(c, run, found); });
}

/* proto/FINGERPRINT.md: S(seed, n). */
GW_DEVICE uint64_t print_key(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) | 1;
}

/* A warp takes the part of one row that lies in one block of units; then the block's key is one factor for all. */
template <class T> GW_DEVICE void print_window(const gw_kernel_window &w, const uint64_t *offset_keys, uint64_t lane[2])
{
	uint64_t units = w.cols * w.units, chunks = units / GW_KERNEL_BLOCK + 2;

	for (uint64_t i = warp_id(); i < w.rows * chunks; i += warp_count()) {
		uint64_t row = i / chunks, first = w.first + row * w.row_units;
		uint64_t block = first / GW_KERNEL_BLOCK + i % chunks, begin = block * GW_KERNEL_BLOCK;
		uint64_t from = begin > first ? begin : first;
		uint64_t to = begin + GW_KERNEL_BLOCK < first + units ? begin + GW_KERNEL_BLOCK : first + units;
		uint64_t sum[2] = {0, 0};

		for (uint64_t u = from + lane_id(); u < to; u += WARP) {
			uint64_t element = (u - first) / w.units, half = (u - first) % w.units;
			uint64_t bits =
				load_any<T>(w.addr + row * w.row_pitch + element * w.col_pitch + half * sizeof(T));

			sum[0] += gw_ld(&offset_keys[u - begin]) * bits;
			sum[1] += gw_ld(&offset_keys[GW_KERNEL_BLOCK + u - begin]) * bits;
		}
		lane[0] += print_key(w.block_seed[0], block) * sum[0];
		lane[1] += print_key(w.block_seed[1], block) * sum[1];
	}
}

extern "C" __global__ void gw_kernel_print(gw_kernel_window w, const uint64_t *offset_keys, unsigned long long *out)
{
	uint64_t lane[2] = {0, 0};

	switch (w.unit_width) {
	case 1:
		print_window<uint8_t>(w, offset_keys, lane);
		break;
	case 2:
		print_window<uint16_t>(w, offset_keys, lane);
		break;
	default:
		print_window<uint32_t>(w, offset_keys, lane);
	}
	for (unsigned l = 0; l < 2; l++) {
		uint64_t all = sum_all(lane[l]);

		if (!lane_id())
			atomicAdd(&out[l], (unsigned long long)all);
	}
}

template <class T> GW_DEVICE void gather_elements(const gw_kernel_window &w, uint64_t from, uint64_t n, uint8_t *out)
{
	uint64_t stride = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		uint64_t row = (from + i) / w.cols, col = (from + i) % w.cols;

		gw_st((T *)out + i, load_any<T>(w.addr + row * w.row_pitch + col * w.col_pitch));
	}
}

/* Elements from … from + n - 1 of the window, counted row by row. */
extern "C" __global__ void gw_kernel_gather(gw_kernel_window w, uint64_t from, uint64_t n, uint8_t *out)
{
	switch (w.unit_width * w.units) {
	case 1:
		gather_elements<uint8_t>(w, from, n, out);
		break;
	case 2:
		gather_elements<uint16_t>(w, from, n, out);
		break;
	case 4:
		gather_elements<uint32_t>(w, from, n, out);
		break;
	default:
		gather_elements<uint64_t>(w, from, n, out);
	}
}
