/*
 * Kernels on the CPU. A .cu file that includes gpu/device.h compiles as plain C++ with GW_EMU defined, and
 * emu::launch runs its kernels: every block and warp, one fiber a thread, so that device code is tested where there is
 * no device. What hardware would leave undefined aborts with a message:
 *
 *  - a barrier or warp operation that some thread never reaches, or reaches at another line (divergence);
 *  - a lane outside of the mask it gives, masks that differ, a shuffle from a lane outside of the mask;
 *  - an access whose address is no multiple of its size;
 *  - a write race: two threads touch a byte, one of them writing, and no barrier lies between. Each byte carries stamps
 * of who last wrote and read it and in which phase. Blocks are never ordered; atomics may meet atomics.
 *
 * Memory is seen where kernels touch it through gw_ld, gw_st and the atomics (gpu/device.h), shared memory too.
 * Threads run in an order that is shuffled in every pass from the seed, so results that depend on order differ between
 * seeds. Buffers that end at a page that faults are the caller's to make. About 5 s a million threads of a dozen warp
 * operations. The CUDA C++ Programming Guide (synchronization functions, warp shuffles, memory alignment) is the source
 * of the rules.
 *
 * One launch at a time a process.
 */
#ifndef GW_GPU_EMU_H
#define GW_GPU_EMU_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <unordered_map>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __shared__ static __attribute__((section("emu_shared")))
#define __launch_bounds__(...)
#define __forceinline__ inline

/* Bounds of that section, which the linker knows; null where no kernel has shared memory. */
extern "C" {
extern char __start_emu_shared[] __attribute__((weak));
extern char __stop_emu_shared[] __attribute__((weak));
}

struct dim3 {
	unsigned x, y, z;
};

namespace emu
{

enum { WARP = 32, STACK = 256 << 10, GUARD = 4096 };

[[noreturn, gnu::format(printf, 1, 2)]] static inline void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("emu: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* Where threads meet: a block's barrier, or lanes of a warp under one mask. */
struct meeting {
	uint32_t mask = 0; /* of a warp's */
	unsigned arrived = 0, line = 0;
	const char *what = "";
	uint64_t generation = 0; /* goes up when all have arrived */
	uint64_t in[WARP] = {}, out[WARP] = {};
};

struct warp {
	meeting by_first_lane[WARP];   /* masks that do not overlap have different first lanes */
	uint64_t phase = 0;	       /* warp operations completed */
	uint64_t met[WARP][WARP] = {}; /* the last one that two lanes were both in */
};

struct fiber {
	ucontext_t context;
	uint8_t *stack = nullptr;
	unsigned thread = 0;
	bool done = false;
	const char *waits_for = nullptr;
	unsigned line = 0;
	void *fake_stack = nullptr;
};

/* Who touched a byte, and when. */
struct stamp {
	uint64_t block_phase = 0, warp_phase = 0;
	uint32_t block = 0, thread = 0;
	bool set = false;
};

struct shadow {
	stamp written[8], read[8];
	bool by_atomic[8] = {};
};

struct machine {
	dim3 grid{}, block{}, at{}; /* at: the block that runs */
	std::vector<fiber> fibers;
	std::vector<warp> warps;
	meeting barrier;
	uint64_t block_phase = 0, progress = 0;
	unsigned live = 0;
	fiber *current = nullptr;
	ucontext_t scheduler;
	const std::function<void()> *kernel = nullptr;
	std::unordered_map<uintptr_t, shadow> memory;
	const void *scheduler_stack = nullptr;
	size_t scheduler_bytes = 0;
	void *scheduler_fake = nullptr;
};

static inline machine *&the()
{
	static machine *m;

	return m;
}

static inline fiber &self()
{
	return *the()->current;
}

static inline unsigned lane()
{
	return self().thread % WARP;
}

static inline warp &my_warp()
{
	return the()->warps[self().thread / WARP];
}

/* Fibers. A sanitizer is told of every change of stack. */
static inline void to_scheduler(bool last)
{
	machine &m = *the();
	fiber &f = self();

#ifdef EMU_ASAN
	__sanitizer_start_switch_fiber(last ? nullptr : &f.fake_stack, m.scheduler_stack, m.scheduler_bytes);
#endif
	(void)last;
	swapcontext(&f.context, &m.scheduler);
#ifdef EMU_ASAN
	__sanitizer_finish_switch_fiber(f.fake_stack, &m.scheduler_stack, &m.scheduler_bytes);
#endif
}

static inline void to_fiber(fiber &f)
{
	machine &m = *the();

	m.current = &f;
#ifdef EMU_ASAN
	__sanitizer_start_switch_fiber(&m.scheduler_fake, f.stack + GUARD, STACK);
#endif
	swapcontext(&m.scheduler, &f.context);
#ifdef EMU_ASAN
	__sanitizer_finish_switch_fiber(m.scheduler_fake, nullptr, nullptr);
#endif
}

static inline void enter()
{
	machine &m = *the();

#ifdef EMU_ASAN
	__sanitizer_finish_switch_fiber(nullptr, &m.scheduler_stack, &m.scheduler_bytes);
#endif
	(*m.kernel)();
	if (m.barrier.arrived)
		die("block %u: thread %u ends, while others wait at the barrier of line %u", m.at.x, self().thread,
		    m.barrier.line);
	self().done = true;
	m.live--;
	m.progress++;
	to_scheduler(true);
	abort(); /* a fiber that is done never runs again */
}

/* Runs others until `m` has moved on. */
static inline void wait_for(const meeting &m, uint64_t generation)
{
	fiber &f = self();

	f.waits_for = m.what;
	f.line = m.line;
	while (m.generation == generation)
		to_scheduler(false);
	f.waits_for = nullptr;
}

static inline void same_place(const meeting &m, const char *what, unsigned line)
{
	if (m.arrived && (m.line != line || m.what != what))
		die("block %u: thread %u is at %s of line %u, others are at %s of line %u", the()->at.x, self().thread,
		    what, line, m.what, m.line);
}

static inline void sync_block(unsigned line)
{
	machine &m = *the();
	meeting &b = m.barrier;
	uint64_t generation = b.generation;

	if (m.live < m.fibers.size())
		die("block %u: thread %u is at the barrier of line %u, others have ended", m.at.x, self().thread, line);
	same_place(b, "the barrier", line);
	b.what = "the barrier";
	b.line = line;
	if (++b.arrived < m.live)
		return wait_for(b, generation);
	b.arrived = 0;
	b.generation++;
	m.block_phase++;
	m.progress++;
}

static inline void meet(warp &w, uint32_t mask)
{
	w.phase++;
	for (unsigned i = 0; i < WARP; i++)
		for (unsigned k = 0; k < WARP; k++)
			if (mask >> i & mask >> k & 1)
				w.met[i][k] = w.phase;
}

/* Lanes of the mask hand in a value each; all get all. */
static inline const meeting &exchange(uint32_t mask, uint64_t value, const char *what, unsigned line)
{
	machine &m = *the();
	unsigned l = lane();

	if (!(mask >> l & 1))
		die("block %u: lane %u is not in its own mask %08x, line %u", m.at.x, l, mask, line);
	meeting &w = my_warp().by_first_lane[__builtin_ctz(mask)];
	if (w.arrived && w.mask != mask)
		die("block %u: masks %08x and %08x meet at line %u", m.at.x, w.mask, mask, line);
	same_place(w, what, line);
	uint64_t generation = w.generation;
	w.what = what;
	w.line = line;
	w.mask = mask;
	w.in[l] = value;
	w.arrived |= 1u << l;
	if (w.arrived != mask) {
		wait_for(w, generation);
		return w;
	}
	memcpy(w.out, w.in, sizeof w.out);
	w.arrived = 0;
	w.generation++;
	m.progress++;
	meet(my_warp(), mask);
	return w;
}

/* What lane `from` handed in. */
template <class T> static inline T shuffle(uint32_t mask, T v, unsigned from, const char *what, unsigned line)
{
	uint64_t bits = 0;

	static_assert(sizeof v <= sizeof bits, "shuffles move up to 8 bytes");
	memcpy(&bits, &v, sizeof v);
	const meeting &w = exchange(mask, bits, what, line);
	if (!(mask >> from & 1))
		die("lane %u reads lane %u, which is not in mask %08x, line %u", lane(), from, mask, line);
	memcpy(&v, &w.out[from], sizeof v);
	return v;
}

static inline stamp now()
{
	machine &m = *the();

	return {m.block_phase, my_warp().phase, m.at.x, self().thread, true};
}

/* Whether nothing orders the stamped access before one made now. */
static inline bool races(const stamp &s)
{
	machine &m = *the();
	unsigned thread = self().thread;

	if (!s.set || (s.block == m.at.x && s.thread == thread))
		return false;
	if (s.block != m.at.x)
		return true;
	if (s.block_phase != m.block_phase)
		return false;
	if (s.thread / WARP != thread / WARP)
		return true;
	return my_warp().met[s.thread % WARP][thread % WARP] <= s.warp_phase;
}

enum access { READ, WRITE, ATOMIC };

static inline void touch(const volatile void *p, size_t bytes, access how)
{
	uintptr_t at = (uintptr_t)p;

	if (bytes > 8)
		die("accesses of %zu bytes are not emulated", bytes);
	if (at % bytes)
		die("block %u: thread %u touches %zu bytes at an address that is not a multiple of %zu", the()->at.x,
		    self().thread, bytes, bytes);
	shadow &s = the()->memory[at / 8];
	for (size_t i = at % 8; i < at % 8 + bytes; i++) {
		bool both_atomic = how == ATOMIC && s.by_atomic[i];

		if (!both_atomic && (races(s.written[i]) || (how != READ && races(s.read[i]))))
			die("race: thread %u of block %u %s what thread %u of block %u %s, and no barrier lies between",
			    self().thread, the()->at.x, how == READ ? "reads" : "writes",
			    races(s.written[i]) ? s.written[i].thread : s.read[i].thread,
			    races(s.written[i]) ? s.written[i].block : s.read[i].block,
			    races(s.written[i]) ? "wrote" : "read");
		if (how == READ) {
			s.read[i] = now();
			continue;
		}
		s.written[i] = now();
		s.by_atomic[i] = how == ATOMIC;
	}
}

static inline void make_fibers(machine &m, unsigned n)
{
	m.fibers.resize(n);
	m.warps.resize((n + WARP - 1) / WARP);
	for (unsigned i = 0; i < n; i++) {
		void *p = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE))
			die("no memory for %u stacks", n);
		m.fibers[i].stack = (uint8_t *)p;
		m.fibers[i].thread = i;
	}
}

/* Shared memory begins as anything, and new with each block. */
static inline void fresh_shared(machine &m)
{
	if (!__start_emu_shared)
		return;
	memset(__start_emu_shared, 0xa5, (size_t)(__stop_emu_shared - __start_emu_shared));
	for (uintptr_t at = (uintptr_t)__start_emu_shared / 8; at <= (uintptr_t)__stop_emu_shared / 8; at++)
		m.memory.erase(at);
}

static inline void run_block(machine &m, std::mt19937_64 &order)
{
	std::vector<fiber *> turn;

	fresh_shared(m);
	m.live = (unsigned)m.fibers.size();
	m.block_phase = 0;
	m.barrier = meeting();
	for (warp &w : m.warps)
		w = warp();
	for (fiber &f : m.fibers) {
		f.done = false;
		getcontext(&f.context);
		f.context.uc_stack.ss_sp = f.stack + GUARD;
		f.context.uc_stack.ss_size = STACK;
		f.context.uc_link = nullptr;
		makecontext(&f.context, enter, 0);
		turn.push_back(&f);
	}
	while (m.live) {
		uint64_t before = m.progress;

		/* std::shuffle differs between libraries; seeds should replay everywhere. */
		for (size_t i = turn.size(); i > 1; i--)
			std::swap(turn[i - 1], turn[order() % i]);
		for (fiber *f : turn)
			if (!f->done)
				to_fiber(*f);
		if (m.progress != before)
			continue;
		for (fiber &f : m.fibers)
			if (!f.done)
				die("block %u: thread %u waits for ever at %s of line %u: not all threads that it "
				    "waits for get there",
				    m.at.x, f.thread, f.waits_for, f.line);
	}
}

/* Runs `kernel` in `grid` blocks of `block` threads, one dimension each. */
static inline void launch(unsigned grid, unsigned block, uint64_t seed, const std::function<void()> &kernel)
{
	machine m;
	std::mt19937_64 order(seed);

	if (the())
		die("a launch inside a launch");
	the() = &m;
	m.grid = {grid, 1, 1};
	m.block = {block, 1, 1};
	m.kernel = &kernel;
	make_fibers(m, block);
	for (unsigned i = 0; i < grid; i++) {
		m.at = {i, 0, 0};
		run_block(m, order);
	}
	for (fiber &f : m.fibers)
		munmap(f.stack, STACK + GUARD);
	the() = nullptr;
}

template <class T> static inline T atomic(T *p, T v, T (*merge)(T, T))
{
	touch(p, sizeof *p, ATOMIC);
	T old = *p;
	*p = merge(old, v);
	return old;
}

} // namespace emu

#define threadIdx (dim3{emu::self().thread, 0, 0})
#define blockIdx (emu::the()->at)
#define blockDim (emu::the()->block)
#define gridDim (emu::the()->grid)

/* The default argument is the caller's line. */
#define EMU_LINE unsigned line = (unsigned)__builtin_LINE()

static inline void __syncthreads(EMU_LINE)
{
	emu::sync_block(line);
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu, EMU_LINE)
{
	emu::exchange(mask, 0, "__syncwarp", line);
}

static inline uint32_t __ballot_sync(uint32_t mask, int predicate, EMU_LINE)
{
	const emu::meeting &w = emu::exchange(mask, predicate != 0, "__ballot_sync", line);
	uint32_t votes = 0;

	for (unsigned i = 0; i < emu::WARP; i++)
		if (mask >> i & 1)
			votes |= (uint32_t)w.out[i] << i;
	return votes;
}

template <class T> static inline T __shfl_sync(uint32_t mask, T v, unsigned from, EMU_LINE)
{
	return emu::shuffle(mask, v, from % emu::WARP, "__shfl_sync", line);
}

template <class T> static inline T __shfl_up_sync(uint32_t mask, T v, unsigned by, EMU_LINE)
{
	unsigned l = emu::lane();

	return emu::shuffle(mask, v, l >= by ? l - by : l, "__shfl_up_sync", line);
}

template <class T> static inline T __shfl_down_sync(uint32_t mask, T v, unsigned by, EMU_LINE)
{
	unsigned l = emu::lane();

	return emu::shuffle(mask, v, l + by < emu::WARP ? l + by : l, "__shfl_down_sync", line);
}

template <class T> static inline T atomicAdd(T *p, T v)
{
	return emu::atomic<T>(p, v, [](T a, T b) { return (T)(a + b); });
}

template <class T> static inline T atomicMin(T *p, T v)
{
	return emu::atomic<T>(p, v, [](T a, T b) { return a < b ? a : b; });
}

#endif
