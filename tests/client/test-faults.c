/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that the library asks of the kernel and of the C library fails once, each in its turn:
 * the n-th call of a kind, for every n until none is left. Whatever happens is an error or success,
 * what has been granted can be used, nothing leaks, and the handle goes on - unless the stream itself
 * has failed, and then every later call says so.
 *
 * Only calls of the testing thread count: the daemon has one of its own.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/handle.h"

#define PAGE	 65536u
#define ROUNDS	 500 /* more than there are calls of any kind */
#define NR_STEPS 12

/* --- the fault -------------------------------------------------------------------------------- */

static __thread struct {
	const char *kind; /* NULL: none */
	int countdown;
	int error;
	bool fired;
} fault;

static bool fails(const char *kind)
{
	if (!fault.kind || strcmp(fault.kind, kind) != 0 || --fault.countdown != 0)
		return false;
	fault.fired = true;
	errno = fault.error;
	return true;
}

/* Declares what the linker calls instead (--wrap), and what it has replaced. */
#define WRAP(type, failed, name, parameters, arguments)                 \
	type __real_##name parameters;                                  \
	type __wrap_##name parameters;                                  \
	type __wrap_##name parameters                                   \
	{                                                               \
		return fails(#name) ? failed : __real_##name arguments; \
	}

WRAP(void *, NULL, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, MAP_FAILED, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t offset),
     (p, n, prot, flags, fd, offset))
WRAP(int, -1, madvise, (void *p, size_t n, int advice), (p, n, advice))
WRAP(int, -1, fstat, (int fd, struct stat *st), (fd, st))
WRAP(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, -1, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
     (fd, level, name, value, size))
WRAP(int, -1, connect, (int fd, const struct sockaddr *address, socklen_t size),
     (fd, address, size))
WRAP(ssize_t, -1, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
WRAP(int, -1, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))
WRAP(int, -1, epoll_create1, (int flags), (flags))
WRAP(int, -1, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event),
     (epoll, op, fd, event))
WRAP(int, -1, epoll_wait, (int epoll, struct epoll_event *events, int n, int timeout),
     (epoll, events, n, timeout))
WRAP(int, -1, timerfd_create, (int clock, int flags), (clock, flags))

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);

/* "recvmsg" fails; "truncate" loses the descriptors of one that brings some. */
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct cmsghdr *cmsg;
	ssize_t n;
	int lost;

	if (fails("recvmsg"))
		return -1;
	n = __real_recvmsg(fd, msg, flags);
	cmsg = n > 0 && msg->msg_control ? CMSG_FIRSTHDR(msg) : NULL;
	if (cmsg && cmsg->cmsg_type == SCM_RIGHTS && fails("truncate")) {
		for (size_t at = CMSG_LEN(0); at < cmsg->cmsg_len; at += sizeof(lost)) {
			memcpy(&lost, (char *)cmsg + at, sizeof(lost));
			close(lost);
		}
		msg->msg_controllen = 0;
		msg->msg_flags |= MSG_CTRUNC;
	}
	return n;
}

/* --- a program's life ------------------------------------------------------------------------- */

struct life {
	struct fixture *f;
	struct hugepool *pool;
	struct hugepool_range ranges[4], cut, rest, async;
	bool has_range, has_bulk, has_async, asked;
	struct hugepool_cache *cache;
	int told;
};

static void use(const struct hugepool_range *range)
{
	memset(range->address, 0x5a, range->bytes);
}

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct life *life = userdata;

	(void)error;
	life->told = result;
	life->asked = false;
	if (result == 0) {
		use(range);
		life->async = *range;
		life->has_async = true;
	}
}

static int step_take(struct life *life)
{
	struct hugepool_request request = request_of(life->f, 3, HUGEPOOL_ZERO);
	int r = hugepool_alloc(life->pool, &request, &life->cut);

	life->has_range = r == 0;
	if (r == 0)
		use(&life->cut);
	return r;
}

static int step_bulk(struct life *life)
{
	struct hugepool_request request = request_of(life->f, FAKE_BLOCK_PAGES, 0);
	int r = hugepool_alloc_bulk(life->pool, &request, life->ranges, 4);

	life->has_bulk = r == 0;
	for (int i = 0; r == 0 && i < 4; i++)
		use(&life->ranges[i]);
	return r;
}

static int step_part(struct life *life)
{
	int r;

	if (!life->has_range)
		return 0;
	r = hugepool_free_part(life->pool, &life->cut, PAGE, PAGE, &life->rest);
	use(&life->cut);
	if (r == 0)
		use(&life->rest);
	return r;
}

static int step_fd(struct life *life)
{
	int r = hugepool_get_fd(life->pool);

	return r < 0 ? r : 0;
}

static int step_async(struct life *life)
{
	struct hugepool_request request = request_of(life->f, FAKE_BLOCK_PAGES + 1, 0);
	int r = hugepool_alloc_async(life->pool, &request, on_alloc, life);

	life->asked = r > 0;
	return r > 0 ? 0 : r;
}

static int step_dispatch(struct life *life)
{
	for (int i = 0; i < 100 && life->asked; i++) {
		int r = hugepool_dispatch(life->pool, 10000);

		if (r < 0)
			return r;
	}
	/* Nothing is due now. */
	if (hugepool_dispatch(life->pool, 1) < 0)
		return -EINTR;
	return life->told;
}

static int step_free_async(struct life *life)
{
	int r;

	if (!life->has_async)
		return 0;
	r = hugepool_free_async(life->pool, &life->async, NULL, NULL);
	life->has_async = r < 0;
	return r;
}

static int step_cache(struct life *life)
{
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_range range;
	int r;

	options.batch = 2;
	options.high = 2;
	r = hugepool_cache_new(&life->cache, life->pool, &options);
	if (r == 0)
		r = hugepool_cache_alloc(life->cache, &range);
	if (r == 0) {
		use(&range);
		r = hugepool_cache_release(life->cache, &range);
	}
	life->cache = hugepool_cache_free(life->cache);
	return r;
}

static int step_stats(struct life *life)
{
	struct hugepool_zone_stats stats = {.size = sizeof(stats)};
	int r = hugepool_zone_stats(life->pool, 0, &stats);

	return r == -EOPNOTSUPP ? 0 : r; /* this daemon has no lists */
}

static int step_give(struct life *life)
{
	int r = life->has_bulk ? hugepool_free_bulk(life->pool, life->ranges, 4) : 0;

	life->has_bulk = life->has_bulk && r < 0;
	return r;
}

static int step_exclusive(struct life *life)
{
	struct hugepool_request request = request_of(life->f, 1, HUGEPOOL_EXCLUSIVE);
	struct hugepool_range range;
	uint64_t offset;
	int r = hugepool_alloc(life->pool, &request, &range);

	if (r < 0)
		return r;
	use(&range);
	assert_true(hugepool_range_fd(life->pool, &range, &offset) >= 0);
	return hugepool_free(life->pool, &range);
}

static int step_callbacks(struct life *life)
{
	return hugepool_set_callbacks(life->pool, NULL);
}

static int (*const steps[NR_STEPS])(struct life *) = {
	step_callbacks, step_take,	 step_bulk,  step_fd,	 step_part, step_async,
	step_dispatch,	step_free_async, step_cache, step_stats, step_give, step_exclusive,
};

/* --- every fault in its turn ------------------------------------------------------------------ */

/* The handle as it is afterwards: it works, or it is broken and says so. */
static void check_handle(struct life *life, bool may_break)
{
	struct hugepool_request request = request_of(life->f, 1, 0);
	struct hugepool_range range;
	int r = hugepool_alloc(life->pool, &request, &range);

	if (r == -ECONNRESET && may_break)
		return;
	assert_int_equal(r, 0);
	use(&range);
	assert_int_equal(hugepool_free(life->pool, &range), 0);
}

static struct hugepool *open_it(struct fixture *f, unsigned flags, int *ret)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool = NULL;

	options.socket = f->fake.path;
	options.flags = flags;
	*ret = hugepool_open(&pool, &options);
	assert_true((*ret == 0) == (pool != NULL));
	return pool;
}

static void live(struct fixture *f, unsigned flags, bool may_break)
{
	struct life life = {.f = f};
	int r;

	life.pool = open_it(f, flags, &r);
	if (!life.pool) {
		assert_true(fault.fired && r < 0);
		return;
	}
	for (int i = 0; i < NR_STEPS; i++) {
		bool before = fault.fired;

		r = steps[i](&life);
		if (r == 0)
			continue;
		/* No fault, no error: but for what a broken stream leaves behind. */
		assert_true(r < 0);
		assert_true(fault.fired);
		assert_true(!before || may_break);
	}
	if (fault.fired)
		check_handle(&life, may_break);
	assert_null(hugepool_close(life.pool));
}

static void try_kind(struct fixture *f, const char *kind, int error, bool may_break)
{
	static const unsigned flags[] = {0, HUGEPOOL_KEEP_BLOCKS};

	/* What becomes of blocks has to do with memory. */
	for (int i = 0; i < (error == ENOMEM ? 2 : 1); i++) {
		int n = 0;

		do {
			size_t open_before = count_open(), open_now = 0;

			assert_true(n < ROUNDS);
			fault.kind = kind;
			fault.countdown = ++n;
			fault.error = error;
			fault.fired = false;
			live(f, flags[i], may_break);
			fault.kind = NULL;
			/* The daemon may still have its end, or may not even have taken it yet. */
			for (int j = 0; j < 10000 && (open_now = count_open()) > open_before; j++)
				poll(NULL, 0, 1);
			assert_in_range(open_now, 0, open_before);
			assert_int_equal(count_mapped(), 0);
		} while (fault.fired);
		assert_true(n > 1); /* it is called at all */
	}
}

static void test_memory(void **state)
{
	try_kind(*state, "calloc", ENOMEM, false);
}

static void test_mappings(void **state)
{
	try_kind(*state, "mmap", ENOMEM, false);
	try_kind(*state, "madvise", ENOMEM, false);
	try_kind(*state, "fstat", EIO, false);
}

static void test_descriptors(void **state)
{
	try_kind(*state, "socket", EMFILE, false);
	try_kind(*state, "epoll_create1", EMFILE, false);
	try_kind(*state, "timerfd_create", ENFILE, false);
	try_kind(*state, "truncate", 0, false);
}

static void test_calls(void **state)
{
	try_kind(*state, "connect", ECONNREFUSED, false);
	try_kind(*state, "setsockopt", ENOBUFS, false);
	try_kind(*state, "epoll_ctl", ENOMEM, false);
	try_kind(*state, "epoll_wait", EINTR, true);
}

/* Interruptions are nothing; anything else is the end of the stream. */
static void test_stream(void **state)
{
	try_kind(*state, "send", EINTR, false);
	try_kind(*state, "recvmsg", EINTR, false);
	try_kind(*state, "poll", EINTR, false);
	try_kind(*state, "send", EPIPE, true);
	try_kind(*state, "recvmsg", ECONNRESET, true);
	try_kind(*state, "recvmsg", ENOMEM, true);
	try_kind(*state, "poll", ENOMEM, true);
}

/* The descriptor table is full for a while: an error with a clear name, and all goes on after it. */
static void test_full_table(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, FAKE_BLOCK_PAGES, 0);
	struct hugepool_range ranges[FAKE_BLOCKS];
	struct rlimit old, low;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	for (int i = 0; i < FAKE_BLOCKS; i++) {
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
		int r = hugepool_alloc(pool, &request, &ranges[i]);
		int fd = hugepool_get_fd(pool);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		assert_int_equal(r, -EMFILE);
		assert_int_equal(error_of(pool).error, EMFILE);
		assert_int_equal(fd, -EMFILE);
		assert_int_equal(hugepool_alloc(pool, &request, &ranges[i]), 0);
		use(&ranges[i]);
	}
	assert_true(hugepool_get_fd(pool) >= 0);
	assert_int_equal(hugepool_free_bulk(pool, ranges, FAKE_BLOCKS), 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_memory),	FIXTURE_TEST(test_mappings),
		FIXTURE_TEST(test_descriptors), FIXTURE_TEST(test_calls),
		FIXTURE_TEST(test_stream),	FIXTURE_TEST(test_full_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
