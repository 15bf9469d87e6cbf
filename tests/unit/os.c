#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/publish.h"
#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "io/os/guard.h"
#include "io/os/memfd.h"
#include "io/os/notify.h"
#include "io/os/pidfd.h"
#include "io/os/pool.h"
#include "io/os/seqpacket.h"
#include "io/os/thread.h"
#include "os.h"
#include "unit.h"

static char dir[64];

static void setup(void)
{
	ck_assert_ptr_nonnull(temp_dir(dir));
}

static void teardown(void)
{
	temp_dir_remove(dir);
}

static const char *in_dir(const char *name)
{
	static char path[4][128];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

/* --- files --- */

static int collect(void *ctx, const char *name)
{
	strcat(ctx, name);
	strcat(ctx, " ");
	return !strcmp(name, "stop");
}

START_TEST(files_are_written_read_and_listed)
{
	struct gw_fs *fs = gw_fs_os();
	struct gw_file *f;
	struct gw_stat st;
	char b[8], names[64] = "";

	ck_assert_int_eq(gw_fs_open(fs, in_dir("a"), GW_OPEN_READ, &f), GW_ENOENT);
	ck_assert_int_eq(gw_fs_open(fs, in_dir("a"),
				    GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL | GW_OPEN_PRIVATE, &f),
			 0);
	ck_assert_int_ne(fcntl(gw_fs_os_fd(f), F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_eq(gw_fs_pwrite(fs, f, "hello", 5, 3), 0);
	ck_assert_int_eq(gw_fs_pread(fs, f, b, 8, 0), 0);
	ck_assert_mem_eq(b, "\0\0\0hello", 8);
	ck_assert_int_eq(gw_fs_pread(fs, f, b, 8, 1), GW_ETRUNC);
	ck_assert_int_eq(gw_fs_pread(fs, f, b, 1, UINT64_MAX), GW_EOVERFLOW);
	ck_assert_int_eq(gw_fs_resize(fs, f, 4), 0);
	ck_assert_int_eq(gw_fs_sync(fs, f), 0);
	ck_assert_int_eq(gw_fs_fstat(fs, f, &st), 0);
	ck_assert_uint_eq(st.size, 4);
	ck_assert_uint_eq(st.mode, 0600);
	gw_fs_close(fs, f);
	ck_assert_int_eq(gw_fs_open(fs, in_dir("a"), GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL, &f), GW_EEXIST);
	ck_assert_int_eq(gw_fs_symlink(fs, "a", in_dir("link")), 0);
	ck_assert_int_eq(gw_fs_open(fs, in_dir("link"), GW_OPEN_READ | GW_OPEN_NOFOLLOW, &f), GW_EACCESS);
	ck_assert_int_eq(gw_fs_stat(fs, in_dir("link"), &st), 0);
	ck_assert_int_eq(st.type, GW_FILE_LINK);
	ck_assert_int_eq(gw_fs_mkdir(fs, in_dir("stop")), 0);
	ck_assert_int_eq(gw_fs_mkdir(fs, in_dir("zz")), 0);
	ck_assert_int_eq(gw_fs_list(fs, dir, collect, names), 1);
	ck_assert_str_eq(names, "a link stop ");
	ck_assert_int_eq(gw_fs_rename(fs, in_dir("a"), in_dir("stop/a")), 0);
	ck_assert_int_eq(gw_fs_unlink(fs, in_dir("stop")), GW_EEXIST); /* not empty */
	ck_assert_int_eq(gw_fs_unlink(fs, in_dir("stop/a")), 0);
	ck_assert_int_eq(gw_fs_unlink(fs, in_dir("stop")), 0);
	ck_assert_int_eq(gw_fs_sync_dir(fs, dir), 0);
	ck_assert(gw_fs_nonce(fs) != gw_fs_nonce(fs));
}
END_TEST

START_TEST(a_fifo_in_place_of_a_file_does_not_hang)
{
	struct gw_file *f;
	struct gw_mapping m;

	ck_assert_int_eq(mkfifo(in_dir("fifo"), 0600), 0);
	ck_assert_int_eq(gw_fs_open(gw_fs_os(), in_dir("fifo"), GW_OPEN_READ, &f), 0);
	ck_assert_int_eq(gw_fs_map(gw_fs_os(), f, &m), GW_EINVAL);
	gw_fs_close(gw_fs_os(), f);
}
END_TEST

/* Sums in a way that the compiler must really read. */
static unsigned sum(const uint8_t *p, size_t n)
{
	const volatile uint8_t *v = p;
	unsigned s = 0;

	for (size_t i = 0; i < n; i++)
		s += v[i];
	return s;
}

static void write_ones(const char *path, size_t n, struct gw_file **f)
{
	uint8_t *b = malloc(n);

	ck_assert_ptr_nonnull(b);
	memset(b, 1, n);
	ck_assert_int_eq(gw_fs_open(gw_fs_os(), path, GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_CREATE, f), 0);
	ck_assert_int_eq(gw_fs_pwrite(gw_fs_os(), *f, b, n, 0), 0);
	free(b);
}

START_TEST(a_mapped_file_that_shrinks_is_an_error)
{
	struct gw_fs *fs = gw_fs_os();
	struct gw_file *f, *whole;
	struct gw_mapping m, other, empty;

	write_ones(in_dir("cut"), 10 * 4096, &f);
	write_ones(in_dir("whole"), 4096, &whole);
	ck_assert_int_eq(gw_fs_map(fs, f, &m), 0);
	ck_assert_int_eq(gw_fs_map(fs, whole, &other), 0);
	ck_assert_uint_eq(sum(m.p, m.n), 10 * 4096);
	ck_assert_int_eq(gw_fs_mapping_check(fs, &m), 0);
	ck_assert_int_eq(truncate(in_dir("cut"), 2 * 4096), 0);
	ck_assert_uint_eq(sum(m.p, m.n), 2 * 4096);
	ck_assert_int_eq(gw_fs_mapping_check(fs, &m), GW_ESHRUNK);
	ck_assert_int_eq(gw_fs_mapping_check(fs, &other), 0);
	ck_assert_int_eq(gw_fs_unmap(fs, &m), GW_ESHRUNK);
	ck_assert_int_eq(gw_fs_unmap(fs, &other), 0);
	ck_assert_int_eq(gw_fs_resize(fs, f, 0), 0);
	ck_assert_int_eq(gw_fs_map(fs, f, &empty), 0);
	ck_assert_ptr_nonnull(empty.p);
	ck_assert_uint_eq(empty.n, 0);
	ck_assert_int_eq(gw_fs_unmap(fs, &empty), 0);
	gw_fs_close(fs, f);
	gw_fs_close(fs, whole);
}
END_TEST

static atomic_int foreign_faults;
static void *foreign_page;

static void on_foreign(int signo)
{
	(void)signo;
	atomic_fetch_add(&foreign_faults, 1);
	(void)mmap(foreign_page, 4096, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Runs it in a child, whose handlers of signals are its own; the child's status. */
static int in_child(int (*run)(struct gw_file *f), struct gw_file *f)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		_exit(run(f));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

static void *map_unguarded(struct gw_file *f)
{
	return mmap(NULL, 4096, PROT_READ, MAP_SHARED, gw_fs_os_fd(f), 0);
}

/* 0 where all was as it should be. The first range installs the handler, so this must come before all other tests that
 * map, where all run in one process. */
static int fault_with_handler(struct gw_file *f)
{
	struct gw_file *other;
	struct gw_mapping m;

	(void)signal(SIGBUS, on_foreign);
	write_ones(in_dir("foreign"), 4096, &other);
	if (gw_fs_map(gw_fs_os(), f, &m))
		return 1;
	foreign_page = map_unguarded(other);
	if (foreign_page == MAP_FAILED || gw_fs_resize(gw_fs_os(), other, 0))
		return 2;
	if (sum(foreign_page, 4096) || atomic_load(&foreign_faults) != 1)
		return 3;
	if (raise(SIGBUS) || atomic_load(&foreign_faults) != 2) /* sent, not a fault */
		return 4;
	if (gw_fs_mapping_check(gw_fs_os(), &m) || gw_fs_unmap(gw_fs_os(), &m))
		return 5;
	gw_fs_close(gw_fs_os(), other);
	return 0;
}

START_TEST(a_fault_elsewhere_goes_to_the_handler_before)
{
	struct gw_file *f;

	write_ones(in_dir("guarded"), 4096, &f);
	ck_assert_int_eq(in_child(fault_with_handler, f), 0);
	gw_fs_close(gw_fs_os(), f);
}
END_TEST

static int fault_without_handler(struct gw_file *f)
{
	struct gw_mapping m;
	void *p = map_unguarded(f);

	/* Whatever a sanitizer has put there. */
	(void)signal(SIGBUS, SIG_DFL);
	if (p != MAP_FAILED && !gw_fs_map(gw_fs_os(), f, &m) && !gw_fs_resize(gw_fs_os(), f, 0))
		(void)sum(p, 4096);
	return 0;
}

START_TEST(a_fault_that_nobody_expects_still_kills)
{
	struct gw_file *f;
	int status;

	write_ones(in_dir("guarded"), 4096, &f);
	status = in_child(fault_without_handler, f);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	gw_fs_close(gw_fs_os(), f);
}
END_TEST

START_TEST(guards_are_bounded)
{
	struct gw_guard *g[GW_GUARD_MAX], *more;
	uint8_t *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < GW_GUARD_MAX; i++)
		ck_assert_int_eq(gw_guard_add(p, 4096, 0, &g[i]), 0);
	ck_assert_int_eq(gw_guard_add(p, 4096, 0, &more), GW_ELIMIT);
	for (size_t i = 0; i < GW_GUARD_MAX; i++)
		ck_assert_int_eq(gw_guard_remove(g[i]), 0);
	ck_assert_int_eq(gw_guard_add(p, 4096, 0, &more), 0);
	ck_assert_int_eq(gw_guard_remove(more), 0);
	ck_assert_int_eq(gw_guard_remove(NULL), 0);
	(void)munmap(p, 4096);
}
END_TEST

START_TEST(publishing_works_on_a_real_disk)
{
	struct gw_file *f;
	char b[3];

	ck_assert_int_eq(gw_publish_bytes(gw_fs_os(), in_dir("x"), 0, "one", 3, NULL), 0);
	ck_assert_int_eq(gw_publish_bytes(gw_fs_os(), in_dir("x"), 0, "two", 3, NULL), GW_EEXIST);
	ck_assert_int_eq(gw_publish_bytes(gw_fs_os(), in_dir("x"), GW_PUBLISH_REPLACE, "two", 3, NULL), 0);
	ck_assert_int_eq(gw_fs_open(gw_fs_os(), in_dir("x"), GW_OPEN_READ, &f), 0);
	ck_assert_int_eq(gw_fs_pread(gw_fs_os(), f, b, 3, 0), 0);
	ck_assert_mem_eq(b, "two", 3);
	gw_fs_close(gw_fs_os(), f);
}
END_TEST

/* --- pool --- */

struct count {
	atomic_uint done[1000];
	atomic_int busy[8]; /* tasks running on a worker: never two */
	size_t fail_from;
};

static int count_task(void *arg, size_t i, unsigned worker)
{
	struct count *c = arg;

	if (atomic_fetch_add(&c->busy[worker], 1))
		return GW_ESTATE;
	atomic_fetch_add(&c->done[i], 1);
	atomic_fetch_sub(&c->busy[worker], 1);
	return i >= c->fail_from ? -(int)i : 0;
}

START_TEST(a_pool_runs_each_task_once)
{
	static struct count c;
	struct gw_pool pool;

	ck_assert_int_eq(gw_pool_threads_init(&pool, 8, NULL), 0);
	for (int round = 0; round < 50; round++) {
		memset(&c, 0, sizeof c);
		c.fail_from = SIZE_MAX;
		ck_assert_int_eq(pool.run(&pool, 1000, count_task, &c), 0);
		for (size_t i = 0; i < 1000; i++)
			ck_assert_uint_eq(atomic_load(&c.done[i]), 1);
	}
	ck_assert_int_eq(pool.run(&pool, 0, count_task, &c), 0);
	gw_pool_threads_free(&pool);
	gw_pool_threads_free(&pool);
}
END_TEST

START_TEST(a_pool_reports_the_lowest_failure)
{
	static struct count c;
	struct gw_pool pool;

	ck_assert_int_eq(gw_pool_threads_init(&pool, 4, NULL), 0);
	for (int round = 0; round < 50; round++) {
		memset(&c, 0, sizeof c);
		c.fail_from = 500;
		ck_assert_int_eq(pool.run(&pool, 1000, count_task, &c), -500);
	}
	gw_pool_threads_free(&pool);
}
END_TEST

static void *use_pool(void *arg)
{
	static struct count c[2];
	static atomic_int turn;
	struct count *mine = &c[atomic_fetch_add(&turn, 1) % 2];
	struct gw_pool *pool = arg;

	mine->fail_from = SIZE_MAX;
	return (void *)(intptr_t)pool->run(pool, 1000, count_task, mine);
}

START_TEST(two_callers_take_turns)
{
	struct gw_pool pool;
	pthread_t t[2];
	void *r;

	ck_assert_int_eq(gw_pool_threads_init(&pool, 3, NULL), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gw_thread_start(&t[i], "caller", use_pool, &pool), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(t[i], &r), 0);
		ck_assert_ptr_null(r);
	}
	gw_pool_threads_free(&pool);
}
END_TEST

/* --- sockets --- */

static size_t open_fds(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(messages_keep_their_bounds_and_bring_descriptors)
{
	struct gw_seq_peer peer;
	int listener, client, server, mem, got[2];
	size_t n, nfds, before;
	char b[64];

	ck_assert_int_eq(gw_seq_listen(in_dir("s"), 0600, &listener, NULL), 0);
	ck_assert_int_eq(gw_seq_accept(listener, &server, &peer), GW_EAGAIN);
	ck_assert_int_eq(gw_seq_connect(in_dir("s"), &client, NULL), 0);
	ck_assert_int_eq(gw_seq_accept(listener, &server, &peer), 0);
	ck_assert_int_eq(peer.pid, getpid());
	ck_assert_uint_eq(peer.uid, getuid());
	ck_assert_int_ne(fcntl(server, F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_eq(gw_seq_recv(server, b, sizeof b, &n, NULL, 0, &nfds), GW_EAGAIN);
	ck_assert_int_eq(gw_seq_wait(server, 0, 5), GW_ETIMEOUT);
	ck_assert_int_eq(gw_memfd_new("test", &mem), 0);
	ck_assert_int_eq(gw_seq_send(client, "one", 3, NULL, 0), 0);
	ck_assert_int_eq(gw_seq_send(client, "two", 3, (int[]){mem, mem}, 2), 0);
	ck_assert_int_eq(gw_seq_send(client, "", 0, NULL, 0), GW_EINVAL);
	ck_assert_int_eq(gw_seq_wait(server, 0, 1000), 0);
	ck_assert_int_eq(gw_seq_recv(server, b, sizeof b, &n, got, 2, &nfds), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(nfds, 0);
	ck_assert_int_eq(gw_seq_recv(server, b, sizeof b, &n, got, 2, &nfds), 0);
	ck_assert_mem_eq(b, "two", 3);
	ck_assert_uint_eq(nfds, 2);
	ck_assert_int_ne(fcntl(got[1], F_GETFD) & FD_CLOEXEC, 0);
	gw_seq_close_fds(got, 2);
	/* Too many descriptors, or too long: refused, and nothing is left open. */
	before = open_fds();
	ck_assert_int_eq(gw_seq_send(client, "x", 1, (int[]){mem, mem, mem}, 3), 0);
	ck_assert_int_eq(gw_seq_recv(server, b, sizeof b, &n, got, 2, &nfds), GW_ELIMIT);
	ck_assert_int_eq(gw_seq_send(client, "12345678", 8, &mem, 1), 0);
	ck_assert_int_eq(gw_seq_recv(server, b, 7, &n, got, 2, &nfds), GW_ELIMIT);
	ck_assert_uint_eq(open_fds(), before);
	(void)close(client);
	ck_assert_int_eq(gw_seq_recv(server, b, sizeof b, &n, got, 2, &nfds), GW_ECLOSED);
	ck_assert_int_eq(gw_seq_send(server, "x", 1, NULL, 0), GW_ECLOSED);
	(void)close(server);
	(void)close(listener);
	(void)close(mem);
}
END_TEST

START_TEST(a_message_of_the_greatest_length_passes)
{
	static uint8_t out[GW_SEQ_MESSAGE_MAX + 1], in[GW_SEQ_MESSAGE_MAX];
	size_t n, nfds;
	int fd[2];

	ck_assert_int_eq(gw_seq_pair(fd), 0);
	memset(out, 7, sizeof out);
	ck_assert_int_eq(gw_seq_send(fd[0], out, sizeof out, NULL, 0), GW_ELIMIT);
	ck_assert_int_eq(gw_seq_send(fd[0], out, sizeof in, NULL, 0), 0);
	ck_assert_int_eq(gw_seq_recv(fd[1], in, sizeof in, &n, NULL, 0, &nfds), 0);
	ck_assert_uint_eq(n, sizeof in);
	ck_assert_mem_eq(in, out, sizeof in);
	/* A reader that does not read: the sender is told, not held. */
	for (int i = 0; i < 64 && !gw_seq_send(fd[0], out, sizeof in, NULL, 0); i++)
		;
	ck_assert_int_eq(gw_seq_send(fd[0], out, sizeof in, NULL, 0), GW_EAGAIN);
	gw_seq_close_fds(fd, 2);
}
END_TEST

START_TEST(a_dead_socket_file_is_replaced_and_a_live_one_is_not)
{
	struct gw_diag why = {""};
	struct stat st;
	int a, b;

	ck_assert_int_eq(gw_seq_connect(in_dir("s"), &a, &why), GW_EUNREACH);
	ck_assert_int_eq(gw_seq_listen(in_dir("s"), 0660, &a, NULL), 0);
	ck_assert_int_eq(stat(in_dir("s"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0660);
	ck_assert_int_eq(gw_seq_listen(in_dir("s"), 0660, &b, NULL), GW_EEXIST);
	(void)close(a);
	ck_assert_int_eq(gw_seq_connect(in_dir("s"), &b, NULL), GW_EUNREACH);
	ck_assert_int_eq(gw_seq_listen(in_dir("s"), 0660, &b, NULL), 0);
	(void)close(b);
	ck_assert_int_eq(gw_publish_bytes(gw_fs_os(), in_dir("file"), 0, "x", 1, NULL), 0);
	ck_assert_int_eq(gw_seq_listen(in_dir("file"), 0660, &b, NULL), GW_EEXIST);
}
END_TEST

/* --- memory --- */

START_TEST(received_memory_is_checked)
{
	uint64_t bytes = 0;
	struct gw_shm m;
	int fd, pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_eq(gw_memfd_check(pipes[0], 0, 100, &bytes, NULL), GW_EINVAL);
	gw_seq_close_fds(pipes, 2);
	ck_assert_int_eq(gw_memfd_new("test", &fd), 0);
	ck_assert_int_eq(gw_memfd_resize(fd, 8192), 0);
	ck_assert_int_eq(gw_memfd_check(fd, 0, 8191, &bytes, NULL), GW_ELIMIT);
	ck_assert_int_eq(gw_memfd_check(fd, GW_SEAL_SIZE, 8192, &bytes, NULL), GW_ESTATE);
	ck_assert_int_eq(gw_shm_map(fd, 8193, 1, &m), GW_ETRUNC);
	ck_assert_int_eq(gw_shm_map(fd, 8192, 1, &m), 0);
	ck_assert_ptr_nonnull(m.guard);
	memset(m.p, 1, 8192);
	ck_assert_int_eq(gw_memfd_seal(fd, GW_SEAL_WRITE), GW_ESTATE); /* mapped for writing */
	ck_assert_int_eq(gw_memfd_resize(fd, 4096), 0);
	ck_assert_uint_eq(sum(m.p, 8192), 4096);
	m.p[8000] = 3; /* a lost page still takes writes */
	ck_assert_int_eq(gw_shm_check(&m), GW_ESHRUNK);
	ck_assert_int_eq(gw_shm_unmap(&m), GW_ESHRUNK);
	ck_assert_int_eq(gw_shm_unmap(&m), 0);
	ck_assert_int_eq(gw_memfd_seal(fd, GW_SEAL_SIZE | GW_SEAL_WRITE), 0);
	ck_assert_int_eq(gw_memfd_check(fd, GW_SEAL_SIZE | GW_SEAL_WRITE, 8192, &bytes, NULL), 0);
	ck_assert_uint_eq(bytes, 4096);
	ck_assert_int_ne(gw_memfd_resize(fd, 0), 0);
	ck_assert_int_ne(gw_shm_map(fd, 4096, 1, &m), 0);
	ck_assert_int_eq(gw_shm_map(fd, 4096, 0, &m), 0);
	ck_assert_ptr_null(m.guard); /* cannot be cut */
	ck_assert_int_eq(gw_shm_unmap(&m), 0);
	(void)close(fd);
}
END_TEST

START_TEST(list_memory_grows_and_is_sealed)
{
	struct gw_memfd_grow g;
	struct gw_list_mem mem;
	uint8_t *p;
	uint64_t bytes;

	ck_assert_int_eq(gw_memfd_grow_init(&g, "list", (size_t)5 << 20), 0);
	mem = gw_memfd_list_mem(&g);
	p = mem.grow(mem.ctx, 10);
	ck_assert_ptr_nonnull(p);
	memcpy(p, "0123456789", 10);
	p = mem.grow(mem.ctx, (size_t)4 << 20);
	ck_assert_ptr_nonnull(p);
	p[((size_t)4 << 20) - 1] = 9;
	ck_assert_ptr_null(mem.grow(mem.ctx, ((size_t)5 << 20) + 1));
	ck_assert_mem_eq(g.p, "0123456789", 10);
	ck_assert_int_eq(gw_memfd_grow_seal(&g, 5000), 0);
	ck_assert_int_eq(gw_memfd_check(g.fd, GW_SEAL_SIZE, 5000, &bytes, NULL), 0);
	ck_assert_uint_eq(bytes, 5000);
	g.p[0] = 'x'; /* the state word stays writable */
	gw_memfd_grow_free(&g);
	gw_memfd_grow_free(&g);
}
END_TEST

/* --- processes --- */

START_TEST(a_process_that_ends_is_noticed)
{
	int fd, pair[2], peer;
	pid_t child = fork();

	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail */
		(void)pause();
		_exit(0);
	}
	ck_assert_int_eq(gw_pidfd_open(child, &fd), 0);
	ck_assert_int_eq(gw_pidfd_ended(fd), 0);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(gw_pidfd_ended(fd), 1);
	(void)close(fd);
	ck_assert_int_eq(gw_pidfd_open(child, &fd), GW_ENOENT);
	ck_assert_int_eq(gw_seq_pair(pair), 0);
	ck_assert_int_eq(gw_pidfd_of_peer(pair[0], &peer), 0);
	ck_assert_int_eq(gw_pidfd_ended(peer), 0);
	ck_assert_int_ne(fcntl(peer, F_GETFD) & FD_CLOEXEC, 0);
	(void)close(peer);
	gw_seq_close_fds(pair, 2);
}
END_TEST

START_TEST(the_supervisor_is_told)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char b[64];

	(void)unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(gw_notify("READY=1"), 0);
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", in_dir("notify"));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", a.sun_path, 1), 0);
	ck_assert_int_eq(gw_notify("READY=1\nSTATUS=well"), 1);
	ck_assert_int_eq(recv(fd, b, sizeof b, 0), 19);
	ck_assert_mem_eq(b, "READY=1\nSTATUS=well", 19);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", "relative", 1), 0);
	ck_assert_int_eq(gw_notify("READY=1"), GW_EINVAL);
	(void)close(fd);
	(void)unsetenv("WATCHDOG_PID");
	(void)unsetenv("WATCHDOG_USEC");
	ck_assert_uint_eq(gw_notify_watchdog_ns(), 0);
	ck_assert_int_eq(setenv("WATCHDOG_USEC", "2000000", 1), 0);
	ck_assert_uint_eq(gw_notify_watchdog_ns(), 2000000000u);
	ck_assert_int_eq(setenv("WATCHDOG_PID", "1", 1), 0);
	ck_assert_uint_eq(gw_notify_watchdog_ns(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("os");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, a_fault_elsewhere_goes_to_the_handler_before);
	tcase_add_test(t, a_fault_that_nobody_expects_still_kills);
	tcase_add_test(t, files_are_written_read_and_listed);
	tcase_add_test(t, a_fifo_in_place_of_a_file_does_not_hang);
	tcase_add_test(t, a_mapped_file_that_shrinks_is_an_error);
	tcase_add_test(t, guards_are_bounded);
	tcase_add_test(t, publishing_works_on_a_real_disk);
	tcase_add_test(t, a_pool_runs_each_task_once);
	tcase_add_test(t, a_pool_reports_the_lowest_failure);
	tcase_add_test(t, two_callers_take_turns);
	tcase_add_test(t, messages_keep_their_bounds_and_bring_descriptors);
	tcase_add_test(t, a_message_of_the_greatest_length_passes);
	tcase_add_test(t, a_dead_socket_file_is_replaced_and_a_live_one_is_not);
	tcase_add_test(t, received_memory_is_checked);
	tcase_add_test(t, list_memory_grows_and_is_sealed);
	tcase_add_test(t, a_process_that_ends_is_noticed);
	tcase_add_test(t, the_supervisor_is_told);
	suite_add_tcase(s, t);
	suite_add_tcase(s, os_loop_case());
	return s;
}

UNIT_MAIN(suite)
