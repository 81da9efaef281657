/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that use the whole library at random, as several users, in several threads each: calls that
 * wait and requests that do not, caches, parts, children of fork(); they end in order, without a word,
 * or are killed at any moment. Whoever holds a range has marked it, and looks whether it is so still.
 *
 * client-soak [--seconds N] [--seed S] [HUGEPOOLD]
 *
 * At the end everything has come back, and the daemon's books are right.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"

#define PROGRAMS    5
#define USERS	    3
#define FIRST_UID   54331
#define THREADS_MAX 3
#define HELD_MAX    8
#define PAGES_MAX   9 /* of a range: over three blocks */
#define OPS_MAX	    400
#define PAGE	    (UINT64_C(2) << 20)
#define ZONE_PAGES  96
#define STRIDE	    4096
#define GIVE_UP_S   300

/* Seen by all processes. */
static struct shared {
	atomic_bool over;
	atomic_bool failed;
	atomic_uint_least64_t ops, grants, kills, lives, children;
	char message[256]; /* the first failure */
} * shared;

static const char *executable;
static unsigned seconds = 12;
static uint64_t first_seed;

static __attribute__((format(printf, 1, 2))) void complain(const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&shared->failed, true))
		return;
	va_start(args, format);
	(void)vsnprintf(shared->message, sizeof(shared->message), format, args);
	va_end(args);
	shared->over = true;
}

/* splitmix64 */
static uint64_t next(uint64_t *seed)
{
	uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(uint64_t *seed, unsigned n)
{
	return (unsigned)(next(seed) % n);
}

/* --- one thread of a program ------------------------------------------------------------------ */

struct held {
	struct hugepool_range range;
	uint64_t mark;
	uint64_t offset; /* of its beginning in what was marked */
};

struct thread {
	struct hugepool *pool;
	struct hugepool_cache *cache; /* NULL: none */
	uint64_t seed;
	bool dispatches;
	struct held held[HELD_MAX];
	unsigned nr;
	int asked; /* number of the request that is pending; 0: none */
	unsigned told;
	pthread_t thread;
};

static void mark(struct thread *t, const struct hugepool_range *range)
{
	struct held *held = &t->held[t->nr++];

	*held = (struct held){.range = *range, .mark = next(&t->seed)};
	for (uint64_t at = 0; at < range->bytes; at += STRIDE)
		*(volatile uint64_t *)((char *)range->address + at) = held->mark + at;
	shared->grants++;
}

static void verify(const struct held *held)
{
	for (uint64_t at = 0; at < held->range.bytes; at += STRIDE) {
		uint64_t word = *(volatile uint64_t *)((char *)held->range.address + at);

		if (word != held->mark + held->offset + at) {
			complain("a range of %" PRIu64 " bytes holds what its holder did not write "
				 "(at %" PRIu64 ")",
				 held->range.bytes, at);
			return;
		}
	}
}

static void verify_zero(const struct hugepool_range *range)
{
	for (uint64_t at = 0; at < range->bytes; at += STRIDE / 8)
		if (*(volatile uint64_t *)((char *)range->address + at)) {
			complain("a range that was to be zero is not");
			return;
		}
}

/* What a request for memory may end with in a zone that others want, too. */
static bool is_no_room(int r)
{
	return r == -ENOMEM || r == -EDQUOT || r == -ETIMEDOUT || r == -EUSERS || r == -ECANCELED;
}

static void expect(int r, const char *what)
{
	if (r < 0)
		complain("%s: %s", what, strerror(-r));
}

static struct held drop(struct thread *t, unsigned i)
{
	struct held held = t->held[i];

	t->held[i] = t->held[--t->nr];
	return held;
}

static struct hugepool_request a_request(struct thread *t)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = (1 + below(&t->seed, PAGES_MAX)) * PAGE;
	request.flags = below(&t->seed, 3) ? 0 : HUGEPOOL_ZERO;
	if (below(&t->seed, 8) == 0)
		request.alignment = 2 * PAGE;
	if (below(&t->seed, 4) == 0)
		request.deadline_ms = 1 + below(&t->seed, 20);
	return request;
}

static void op_take(struct thread *t)
{
	struct hugepool_request request = a_request(t);
	struct hugepool_range range;
	int r;

	if (t->nr == HELD_MAX)
		return;
	r = hugepool_alloc(t->pool, &request, &range);
	if (r == 0 && request.flags & HUGEPOOL_ZERO)
		verify_zero(&range);
	if (r == 0)
		mark(t, &range);
	else if (!is_no_room(r))
		expect(r, "alloc");
}

static void op_take_many(struct thread *t)
{
	struct hugepool_request request = a_request(t);
	struct hugepool_range ranges[HELD_MAX];
	unsigned n = HELD_MAX - t->nr;
	int r;

	if (n == 0)
		return;
	request.bytes = PAGE;
	r = hugepool_alloc_bulk(t->pool, &request, ranges, n);
	for (unsigned i = 0; r == 0 && i < n; i++)
		mark(t, &ranges[i]);
	if (r < 0 && !is_no_room(r))
		expect(r, "alloc_bulk");
}

static void op_give(struct thread *t)
{
	struct held held;

	if (t->nr == 0)
		return;
	held = drop(t, below(&t->seed, t->nr));
	verify(&held);
	if (below(&t->seed, 2))
		expect(hugepool_free(t->pool, &held.range), "free");
	else
		expect(hugepool_free_async(t->pool, &held.range, NULL, NULL), "free_async");
	if (below(&t->seed, 8) == 0 && hugepool_free(t->pool, &held.range) != -EINVAL)
		complain("a range was freed twice");
}

static void op_give_part(struct thread *t)
{
	struct hugepool_range rest = {.bytes = 0};
	uint64_t pages, first, n;
	struct held held;

	if (t->nr == 0 || t->nr == HELD_MAX)
		return;
	held = drop(t, below(&t->seed, t->nr));
	verify(&held);
	pages = held.range.bytes / PAGE;
	first = below(&t->seed, (unsigned)pages);
	n = 1 + below(&t->seed, (unsigned)(pages - first));
	expect(hugepool_free_part(t->pool, &held.range, first * PAGE, n * PAGE, &rest),
	       "free_part");
	if (held.range.bytes) {
		t->held[t->nr++] = (struct held){
			.range = held.range,
			.mark = held.mark,
			.offset = held.offset + (first == 0 ? n * PAGE : 0),
		};
		verify(&t->held[t->nr - 1]);
	}
	if (rest.bytes) {
		t->held[t->nr++] = (struct held){
			.range = rest,
			.mark = held.mark,
			.offset = held.offset + (first + n) * PAGE,
		};
		verify(&t->held[t->nr - 1]);
	}
}

static void op_cache(struct thread *t)
{
	struct hugepool_range range;
	int r;

	if (!t->cache)
		return;
	r = hugepool_cache_alloc(t->cache, &range);
	if (r < 0 && !is_no_room(r))
		expect(r, "cache_alloc");
	if (r < 0)
		return;
	if (t->nr < HELD_MAX && below(&t->seed, 4) == 0) {
		mark(t, &range);
		return;
	}
	memset(range.address, 0x5a, STRIDE);
	if (below(&t->seed, 2) && t->nr > 0 && t->held[0].range.bytes == PAGE) {
		struct held held = drop(t, 0);

		verify(&held);
		expect(hugepool_cache_release(t->cache, &held.range), "cache_release");
	}
	expect(hugepool_cache_release(t->cache, &range), "cache_release");
	if (below(&t->seed, 20) == 0)
		expect(hugepool_cache_flush(t->cache), "cache_flush");
}

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct thread *t = userdata;

	(void)error;
	t->asked = 0;
	t->told++;
	if (result < 0) {
		if (!is_no_room(result))
			expect(result, "alloc_async");
		return;
	}
	if (t->nr < HELD_MAX)
		mark(t, range);
	else
		expect(hugepool_free_async(t->pool, range, NULL, NULL), "free_async");
}

/* Only the first thread dispatches: so its functions are called in it. */
static void op_async(struct thread *t)
{
	struct hugepool_request request = a_request(t);

	if (!t->dispatches)
		return;
	if (!t->asked) {
		request.flags = 0;
		t->asked = hugepool_alloc_async(t->pool, &request, on_alloc, t);
		expect(t->asked, "alloc_async");
	} else if (below(&t->seed, 4) == 0) {
		int r = hugepool_cancel(t->pool, t->asked);

		if (r < 0 && r != -ENOENT)
			expect(r, "cancel");
	}
	expect(hugepool_dispatch(t->pool, (int)below(&t->seed, 3)), "dispatch");
}

/* A child of fork() can do nothing with any of it, and harms nobody. */
static void op_fork(struct thread *t)
{
	struct hugepool_request request = a_request(t);
	struct hugepool_range range;
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (pid == 0)
		_exit(hugepool_alloc(t->pool, &request, &range) != -ECHILD ||
		      hugepool_dispatch(t->pool, 0) != -ECHILD ||
		      (t->cache && hugepool_cache_alloc(t->cache, &range) != -ECHILD));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (status)
		complain("a child of fork() got %#x", (unsigned)status);
	shared->children++;
}

static void op(struct thread *t)
{
	unsigned dice = below(&t->seed, 100);

	shared->ops++;
	if (dice < 25)
		op_take(t);
	else if (dice < 30)
		op_take_many(t);
	else if (dice < 55)
		op_give(t);
	else if (dice < 65)
		op_give_part(t);
	else if (dice < 85)
		op_cache(t);
	else if (dice < 98)
		op_async(t);
	else if (dice < 99)
		op_fork(t);
	else
		for (unsigned i = 0; i < t->nr; i++)
			verify(&t->held[i]);
}

static void make_cache(struct thread *t)
{
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;

	if (below(&t->seed, 2) == 0)
		return;
	options.high = 1 + below(&t->seed, 6);
	options.batch = 1 + below(&t->seed, options.high);
	expect(hugepool_cache_new(&t->cache, t->pool, &options), "cache_new");
}

static void *run_thread(void *userdata)
{
	struct thread *t = userdata;
	unsigned ops = 1 + below(&t->seed, OPS_MAX);

	make_cache(t);
	for (unsigned i = 0; i < ops && !shared->over; i++)
		op(t);
	for (unsigned i = 0; i < t->nr; i++)
		verify(&t->held[i]);
	/* Some leave to hugepool_close() what they hold. */
	while (t->nr && below(&t->seed, 4)) {
		struct held held = drop(t, t->nr - 1);

		expect(hugepool_free(t->pool, &held.range), "free at the end");
	}
	t->cache = hugepool_cache_free(t->cache);
	return NULL;
}

/* --- a program -------------------------------------------------------------------------------- */

static _Noreturn void run_program(const char *socket, uint64_t seed)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	static struct thread threads[THREADS_MAX];
	unsigned n = 1 + below(&seed, THREADS_MAX);
	uid_t uid = FIRST_UID + below(&seed, USERS);
	struct hugepool *pool = NULL;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(GIVE_UP_S);
	if (getuid() == 0 && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		_exit(1);
	options.socket = socket;
	options.flags = below(&seed, 3) ? 0 : HUGEPOOL_KEEP_BLOCKS;
	r = hugepool_open(&pool, &options);
	if (r < 0) {
		complain("open: %s", strerror(-r));
		_exit(1);
	}
	for (unsigned i = 0; i < n; i++)
		threads[i] =
			(struct thread){.pool = pool, .seed = next(&seed), .dispatches = i == 0};
	for (unsigned i = 1; i < n; i++)
		if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]))
			_exit(1);
	run_thread(&threads[0]);
	for (unsigned i = 1; i < n; i++)
		pthread_join(threads[i].thread, NULL);
	if (below(&seed, 3) == 0)
		_exit(0); /* without a word */
	hugepool_close(pool);
	exit(0); /* where sanitizers look for what was not freed */
}

/* --- all of them ------------------------------------------------------------------------------ */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static pid_t start(const char *socket, uint64_t seed)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		run_program(socket, seed);
	shared->lives++;
	return pid;
}

/* Ends of programs are looked at; one of them is killed now and then. */
static void supervise(const char *socket, uint64_t *seed)
{
	uint64_t end = now_ms() + seconds * UINT64_C(1000), kill_at = 0;
	pid_t pids[PROGRAMS] = {0};
	int status;

	while (!shared->over) {
		for (int i = 0; i < PROGRAMS; i++) {
			if (pids[i] && waitpid(pids[i], &status, WNOHANG) == 0)
				continue;
			if (pids[i] && status &&
			    !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
				complain("a program ended with %#x", (unsigned)status);
			pids[i] = start(socket, next(seed));
		}
		if (now_ms() >= kill_at) {
			if (kill_at && kill(pids[below(seed, PROGRAMS)], SIGKILL) == 0)
				shared->kills++;
			kill_at = now_ms() + below(seed, 1000);
		}
		if (now_ms() >= end)
			shared->over = true;
		poll(NULL, 0, 2);
	}
	for (int i = 0; i < PROGRAMS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			complain("a program ended with %#x", (unsigned)status);
	}
}

static void test_soak(void **state)
{
	struct program *program =
		program_new(executable, "idle-delay = 50ms\n"
					"[zone main]\npage-size = 2M\nblock-size = 8M\n"
					"size = 192M\nbacking = shmem\n"
					"[default]\nlimit.main = 10\n");
	uint64_t seed = first_seed;
	struct peer *admin;

	(void)state;
	program_start(program);
	supervise(program->socket, &seed);
	admin = peer_connect(program->admin_socket);
	peer_hello(admin);
	for (int i = 0; i < 6000 && peer_zone(admin, 0).clean != ZONE_PAGES; i++)
		poll(NULL, 0, 5);
	if (!shared->failed && peer_zone(admin, 0).clean != ZONE_PAGES)
		complain("not all pages have come back");
	peer_check(admin);
	peer_free(admin);
	assert_int_equal(program_end(program, SIGTERM), 0);
	program_free(program);
	if (shared->failed)
		fail_msg("seed %" PRIu64 ": %s", first_seed, shared->message);
	assert_true(shared->grants > 0 && shared->children > 0);
	printf("%" PRIu64 " operations of %" PRIu64 " programs, %" PRIu64 " killed, %" PRIu64
	       " ranges, %" PRIu64 " forks; seed %" PRIu64 "\n",
	       shared->ops, shared->lives, shared->kills, shared->grants, shared->children,
	       first_seed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
	static char beside[512];
	ssize_t n = readlink("/proc/self/exe", beside, sizeof(beside) - 64);

	first_seed = (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
			seconds = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
			first_seed = strtoull(argv[++i], NULL, 10);
		else
			executable = argv[i];
	}
	if (!executable && n > 0) {
		/* Of the same build. */
		char *end = beside + n;

		for (int i = 0; i < 3 && end > beside; i++)
			while (end > beside && *--end != '/')
				continue;
		strcpy(end, "/daemon/hugepoold");
		executable = beside;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!executable || shared == MAP_FAILED)
		return 2;
	printf("seed %" PRIu64 "\n", first_seed);
	fflush(stdout);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
