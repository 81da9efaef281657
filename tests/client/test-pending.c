/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that nobody waits for. Here the daemon has requests with a deadline wait until it is told
 * to answer them, whatever room it has.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/handle.h"

#define PAGE	65536u
#define LONG_MS 30000

/* --- a daemon that lets requests wait --------------------------------------------------------- */

static struct {
	struct hp_frame frame;
	uint8_t payload[256];
} parked[HUGEPOOL_PENDING_MAX];

static atomic_int nr_parked, nr_cancelled;
static atomic_bool answer_parked; /* with the next FREE */

static void park(const struct hp_frame *frame)
{
	int n = nr_parked;

	assert_true(n < HUGEPOOL_PENDING_MAX && frame->length <= sizeof(parked[n].payload));
	parked[n].frame = *frame;
	memcpy(parked[n].payload, frame->payload, frame->length);
	parked[n].frame.payload = parked[n].payload;
	nr_parked++;
}

static void cancel(struct fake *fake, const struct hp_frame *frame)
{
	uint32_t tag = ((const Hugepool__V1__Cancel *)fake_unpack(fake, frame))->request_tag;

	for (int i = 0; i < nr_parked; i++)
		if (parked[i].frame.tag == tag) {
			memmove(&parked[i], &parked[i + 1],
				(size_t)(nr_parked - i - 1) * sizeof(parked[0]));
			for (int j = i; j < nr_parked - 1; j++)
				parked[j].frame.payload = parked[j].payload;
			nr_parked--;
			nr_cancelled++;
			fake_error(fake, (uint16_t)tag, CODE(CANCELLED));
			fake_done(fake, frame->tag);
			return;
		}
	fake_error(fake, frame->tag, CODE(INVALID));
}

static void answer_all(struct fake *fake)
{
	for (int i = 0; i < nr_parked; i++)
		fake_answer(fake, &parked[i].frame);
	nr_parked = 0;
}

static bool let_wait(struct fake *fake, const struct hp_frame *frame)
{
	switch (frame->type) {
	case TYPE(ALLOC):
		if (!((const Hugepool__V1__Alloc *)fake_unpack(fake, frame))->deadline_ms)
			return false;
		park(frame);
		return true;
	case TYPE(CANCEL):
		cancel(fake, frame);
		return true;
	case TYPE(FREE):
		fake_answer(fake, frame);
		if (answer_parked)
			answer_all(fake);
		return true;
	default:
		return false;
	}
}

/* --- what was told ---------------------------------------------------------------------------- */

struct told {
	struct hugepool *pool;
	int nr_alloc, nr_free, result;
	struct hugepool_range ranges[HUGEPOOL_PENDING_MAX];
	size_t nr_ranges;
	struct hugepool_error error;
	int again; /* so often the function makes the next request */
};

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct told *told = userdata;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	told->nr_alloc++;
	told->result = result;
	assert_true((result == 0) == (range != NULL));
	assert_true((result == 0) == (error == NULL));
	if (range)
		told->ranges[told->nr_ranges++] = *range;
	else
		told->error = *error;
	if (told->again-- > 0) {
		request.bytes = PAGE;
		assert_int_equal(hugepool_free(told->pool, &told->ranges[--told->nr_ranges]), 0);
		assert_true(hugepool_alloc_async(told->pool, &request, on_alloc, told) > 0);
		assert_true(hugepool_dispatch(told->pool, 0) >= 0);
	}
}

static void on_free(void *userdata, int result, const struct hugepool_range *range,
		    const struct hugepool_error *error)
{
	struct told *told = userdata;

	told->nr_free++;
	told->result = result;
	told->ranges[0] = *range;
	assert_true((result == 0) == (error == NULL));
	if (error)
		told->error = *error;
}

static struct told *told_new(struct hugepool *pool)
{
	static struct told told;

	told = (struct told){.pool = pool};
	nr_parked = nr_cancelled = 0;
	answer_parked = false;
	return &told;
}

static int ask(struct fixture *f, uint64_t pages, unsigned flags, uint64_t deadline_ms,
	       struct told *told)
{
	struct hugepool_request request = request_of(f, pages, flags);

	request.deadline_ms = deadline_ms;
	return hugepool_alloc_async(f->pool, &request, on_alloc, told);
}

/* Until so many have been told. */
static void dispatch_until(struct hugepool *pool, const int *counter, int n)
{
	while (*counter < n)
		assert_true(hugepool_dispatch(pool, LONG_MS) > 0);
	assert_int_equal(*counter, n);
}

static void await_parked(int n)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < 10000 && nr_parked < n; i++)
		nanosleep(&pause, NULL);
	assert_int_equal(nr_parked, n);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_alloc_and_free(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range;

	for (int i = 0; i < 5; i++)
		assert_true(ask(f, 2, 0, 0, told) > 0);
	fake_await(&f->fake, TYPE(ALLOC), 5);
	assert_int_equal(told->nr_alloc, 0);
	dispatch_until(pool, &told->nr_alloc, 5);
	assert_int_equal(told->nr_ranges, 5);
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(told->ranges[i].bytes, 2 * PAGE);
		memset(told->ranges[i].address, (int)i, 2 * PAGE);
	}
	assert_int_equal(f->fake.leased_pages, 10);

	/* With a function, without one, and by the call that waits. */
	range = told->ranges[0];
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), 0);
	assert_int_equal(hugepool_free_async(pool, &told->ranges[1], NULL, NULL), 0);
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), -EINVAL);
	assert_int_equal(hugepool_free(pool, &range), -EINVAL);
	assert_int_equal(hugepool_free_part(pool, &range, 0, PAGE, NULL), -EINVAL);
	assert_int_equal(hugepool_free(pool, &told->ranges[2]), 0);
	assert_int_equal(told->nr_free, 0);
	dispatch_until(pool, &told->nr_free, 1);
	assert_int_equal(told->result, 0);
	assert_memory_equal(&told->ranges[0], &range, sizeof(range));
	assert_int_equal(hugepool_free(pool, &told->ranges[3]), 0);
	assert_int_equal(f->fake.leased_pages, 2);
}

static void test_zero(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 3, 0);

	memset(range.address, 0xa5, range.bytes);
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_true(ask(f, 3, HUGEPOOL_ZERO, 0, told) > 0);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_ptr_equal(told->ranges[0].address, range.address);
	for (size_t i = 0; i < range.bytes; i++)
		assert_int_equal(((char *)range.address)[i], 0);
}

/* Errors at once leave nothing pending; those of the daemon come with their numbers. */
static void test_errors(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_request request = request_of(f, 1, 0);

	assert_int_equal(hugepool_alloc_async(pool, &request, NULL, told), -EINVAL);
	assert_int_equal(ask(f, 0, 0, 0, told), -EINVAL);
	request.zone = "elsewhere";
	assert_int_equal(hugepool_alloc_async(pool, &request, on_alloc, told), -ENODEV);
	assert_int_equal(hugepool_cancel(pool, 0), -ENOENT);
	assert_int_equal(hugepool_cancel(pool, -1), -ENOENT);
	assert_int_equal(hugepool_cancel(pool, 4711), -ENOENT);

	assert_true(ask(f, FAKE_PAGES + 1, 0, 0, told) > 0);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_int_equal(told->result, -ENOMEM);
	assert_int_equal(told->error.size, sizeof(told->error));
	assert_int_equal(told->error.error, ENOMEM);
	assert_int_equal(told->error.asked_bytes, (FAKE_PAGES + 1) * PAGE);
	assert_int_equal(told->error.leasable_bytes, 3 * PAGE);
	/* The handle's last error is that of the last call. */
	assert_int_equal(error_of(pool).error, ENOENT);
}

/* While one waits, calls that wait go on, and answers behind their backs are told later. */
static void test_waiting(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range;
	int fd = hugepool_get_fd(pool);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	f->fake.hook = let_wait;
	assert_true(ask(f, 1, 0, 60000, told) > 0);
	await_parked(1);
	for (int i = 0; i < 3; i++) {
		range = take(pool, 4, 0);
		memset(range.address, 1, range.bytes);
		assert_int_equal(hugepool_free(pool, &range), 0);
	}
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	answer_parked = true;
	range = take(pool, 4, 0);
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(poll(&p, 1, LONG_MS), 1);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_int_equal(told->result, 0);
	memset(told->ranges[0].address, 1, PAGE);
	assert_int_equal(hugepool_free(pool, &told->ranges[0]), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
}

static void test_cancel(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	int id, other;

	f->fake.hook = let_wait;
	id = ask(f, 1, 0, 60000, told);
	other = ask(f, 2, 0, 60000, told);
	assert_true(id > 0 && other > 0 && id != other);
	await_parked(2);
	assert_int_equal(hugepool_cancel(pool, id), 0);
	assert_int_equal(hugepool_cancel(pool, id), 0);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_int_equal(told->result, -ECANCELED);
	assert_int_equal(hugepool_cancel(pool, id), -ENOENT);
	assert_int_equal(nr_cancelled, 1);
	assert_int_equal(f->fake.seen[TYPE(CANCEL)], 1);

	/* Too late: it was granted before, and the range is there. */
	id = ask(f, 1, 0, 0, told);
	(void)hugepool_cancel(pool, id);
	dispatch_until(pool, &told->nr_alloc, 2);
	assert_int_equal(told->result, 0);
	assert_int_equal(hugepool_cancel(pool, other), 0);
	dispatch_until(pool, &told->nr_alloc, 3);
	assert_int_equal(told->result, -ECANCELED);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
}

/* A block that holds nothing any more goes, though a grant in it may come. */
static void test_release_while_waiting(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range a = take(pool, 1, 0), b;

	f->fake.hook = let_wait;
	assert_true(ask(f, 1, 0, 60000, told) > 0);
	await_parked(1);
	assert_int_equal(hugepool_free(pool, &a), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	/* The answer to that comes before any other. */
	b = take(pool, 1, 0);
	assert_int_equal(f->fake.blocks_sent, 2);
	assert_int_equal(count_mapped(), 1);

	/* And now the grant is faster: the block stays, and no descriptor comes. */
	answer_parked = true;
	assert_int_equal(hugepool_free(pool, &b), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 2);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_int_equal(told->result, 0);
	memset(told->ranges[0].address, 7, PAGE);
	assert_int_equal(f->fake.blocks_sent, 2);
	b = take(pool, 1, 0);
	assert_int_equal(count_mapped(), 1);
	assert_int_equal(hugepool_free(pool, &b), 0);
	assert_int_equal(hugepool_free(pool, &told->ranges[0]), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 3);
	assert_int_equal(count_mapped(), 0);
}

/* As many as there can be, of which so many wait at the daemon as it allows; frees overtake them. */
static void test_many(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 1, 0);
	const int free_of = HP_WAITS_PER_SESSION_MAX - 1;

	f->fake.hook = let_wait;
	for (int i = 0; i < HUGEPOOL_PENDING_MAX - 1; i++)
		assert_true(ask(f, 1, 0, 60000, told) > 0);
	await_parked(free_of);
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), 0);
	assert_int_equal(ask(f, 1, 0, 0, told), -EAGAIN);
	dispatch_until(pool, &told->nr_free, 1);
	assert_int_equal(told->nr_alloc, 0);
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 1 + free_of);

	/* Each time room is made for one of them, all that wait are answered: some with an error. */
	answer_parked = true;
	while (told->nr_alloc < HUGEPOOL_PENDING_MAX - 1) {
		range = take(pool, 1, 0);
		assert_int_equal(hugepool_free(pool, &range), 0);
		while (told->nr_ranges)
			assert_int_equal(hugepool_free(pool, &told->ranges[--told->nr_ranges]), 0);
		assert_true(hugepool_dispatch(pool, 0) >= 0);
	}
	while (told->nr_ranges)
		assert_int_equal(hugepool_free(pool, &told->ranges[--told->nr_ranges]), 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

static atomic_bool daemon_reads;

static bool sleep_until_told(struct fake *fake, const struct hp_frame *frame)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	(void)fake;
	for (int i = 0; i < LONG_MS && frame->type == TYPE(ALLOC) && !daemon_reads; i++)
		nanosleep(&pause, NULL);
	return false;
}

/* A daemon that does not read makes nobody wait; all goes its way when it does again. */
static void test_full_socket(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct timespec before, after;
	int fd = hugepool_get_fd(pool), small = 1;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	/* A buffer of a few requests. */
	assert_int_equal(
		setsockopt(pool->connection.socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)),
		0);
	daemon_reads = false;
	f->fake.hook = sleep_until_told;
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < 100; i++)
		assert_true(ask(f, 1, 0, 0, told) > 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true(after.tv_sec - before.tv_sec < LONG_MS / 2000);
	assert_true(f->fake.seen[TYPE(ALLOC)] <= 1);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	daemon_reads = true;
	/* The descriptor alone says when there is something to do. */
	while (told->nr_alloc < 100) {
		assert_int_equal(poll(&p, 1, LONG_MS), 1);
		assert_true(hugepool_dispatch(pool, 0) >= 0);
	}
	assert_int_equal(told->nr_ranges, 100);
}

static bool say_nothing(struct fake *fake, const struct hp_frame *frame)
{
	(void)fake;
	return frame->type == TYPE(ALLOC) || frame->type == TYPE(FREE);
}

/* The time-out makes the descriptor readable. What was to be freed is still held. */
static void test_silence(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 200);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 1, 0);
	int fd = hugepool_get_fd(pool);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	f->fake.hook = say_nothing;
	assert_true(ask(f, 1, 0, 0, told) > 0);
	assert_true(ask(f, 1, 0, 100, told) > 0);
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), 0);
	while (told->nr_alloc + told->nr_free < 3) {
		assert_int_equal(poll(&p, 1, LONG_MS), 1);
		assert_true(hugepool_dispatch(pool, 0) >= 0);
	}
	assert_int_equal(told->result, -ETIMEDOUT);
	assert_int_equal(hugepool_dispatch(pool, LONG_MS), -ECONNRESET);
	assert_int_equal(ask(f, 1, 0, 0, told), -ECONNRESET);
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), -ECONNRESET);
	((char *)range.address)[0] = 1;
}

static bool hang_up(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type == TYPE(FREE))
		shutdown(fake->session, SHUT_RDWR);
	return frame->type == TYPE(FREE) || frame->type == TYPE(ALLOC);
}

static void test_end(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 1, 0);

	f->fake.hook = hang_up;
	assert_true(ask(f, 1, 0, 0, told) > 0);
	assert_true(ask(f, 1, 0, 60000, told) > 0);
	assert_int_equal(hugepool_free_async(pool, &range, on_free, told), 0);
	dispatch_until(pool, &told->nr_alloc, 2);
	assert_int_equal(told->nr_free, 1);
	assert_int_equal(told->result, -ECONNRESET);
	assert_int_equal(told->error.error, ECONNRESET);
}

/* Functions may do what they like, also dispatch. */
static void test_from_functions(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);

	told->again = 100;
	assert_true(ask(f, 1, 0, 0, told) > 0);
	dispatch_until(pool, &told->nr_alloc, 101);
	assert_int_equal(f->fake.leased_pages, 1);
}

/* No descriptor left to receive the block with: an error, and all is as before. */
static void test_no_descriptors(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct rlimit old, low;

	assert_true(hugepool_get_fd(pool) >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	assert_true(ask(f, 1, 0, 0, told) > 0);
	fake_await(&f->fake, TYPE(ALLOC), 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (told->nr_alloc == 0)
		if (hugepool_dispatch(pool, LONG_MS) < 0)
			break;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(told->nr_alloc, 1);
	assert_int_equal(told->result, -EMFILE);
	assert_true(ask(f, 1, 0, 0, told) > 0);
	dispatch_until(pool, &told->nr_alloc, 2);
	assert_int_equal(told->result, 0);
	memset(told->ranges[0].address, 1, PAGE);
	assert_int_equal(f->fake.leased_pages, 1);
}

/* Closed with requests in every state: nothing is called, nothing stays. */
static void test_close(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 1, 0);

	f->fake.hook = let_wait;
	for (int i = 0; i < HP_WAITS_PER_SESSION_MAX + 10; i++)
		assert_true(ask(f, 1, 0, 60000, told) > 0);
	assert_true(ask(f, 1, 0, 0, told) > 0);
	assert_int_equal(hugepool_free(pool, &range), 0);
	/* The answers to these come while it says goodbye. */
	range = take(pool, 1, 0);
	assert_int_equal(hugepool_free_async(pool, &range, NULL, NULL), 0);
	assert_true(ask(f, FAKE_BLOCK_PAGES + 1, 0, 0, told) > 0);
	f->pool = hugepool_close(pool);
	assert_int_equal(told->nr_alloc, 0);
	assert_int_equal(count_mapped(), 0);
}

static void test_fork(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct told *told = told_new(pool);
	struct hugepool_range range = take(pool, 1, 0);
	int id = ask(f, 1, 0, 0, told), status;
	pid_t pid;

	assert_true(id > 0);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		_exit(ask(f, 1, 0, 0, told) != -ECHILD ||
		      hugepool_free_async(pool, &range, NULL, NULL) != -ECHILD ||
		      hugepool_cancel(pool, id) != -ECHILD || hugepool_close(pool));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	dispatch_until(pool, &told->nr_alloc, 1);
	assert_int_equal(told->result, 0);
}

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS	150

struct shared {
	struct hugepool *pool;
	atomic_int granted, over;
	atomic_bool failed;
};

static void give_at_once(void *userdata, int result, const struct hugepool_range *range,
			 const struct hugepool_error *error)
{
	struct shared *shared = userdata;

	(void)error;
	if (result == 0) {
		memset(range->address, 0x5a, range->bytes);
		if (hugepool_free_async(shared->pool, range, NULL, NULL) < 0)
			shared->failed = true;
		shared->granted++;
	}
	shared->over++;
}

static void *use(void *userdata)
{
	struct shared *shared = userdata;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = PAGE;
	for (int i = 0; i < ROUNDS; i++) {
		struct hugepool_range range;

		while (hugepool_alloc_async(shared->pool, &request, give_at_once, shared) ==
		       -EAGAIN)
			(void)hugepool_dispatch(shared->pool, 1);
		if (hugepool_alloc(shared->pool, &request, &range) == 0) {
			memset(range.address, 0xa5, range.bytes);
			if (hugepool_free(shared->pool, &range))
				shared->failed = true;
		}
		if (i % 8 == 0)
			(void)hugepool_dispatch(shared->pool, 0);
	}
	return NULL;
}

/* Calls that wait, requests that do not, and dispatching, all at once in all threads. */
static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct shared shared = {.pool = open_pool(f, 0, 0)};
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, &shared), 0);
	while (shared.over < THREADS * ROUNDS)
		assert_true(hugepool_dispatch(shared.pool, LONG_MS) >= 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_false(shared.failed);
	assert_true(shared.granted > 0);
	while (shared.pool->pendings.nr)
		assert_true(hugepool_dispatch(shared.pool, 100) >= 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_alloc_and_free), FIXTURE_TEST(test_zero),
		FIXTURE_TEST(test_errors),	   FIXTURE_TEST(test_waiting),
		FIXTURE_TEST(test_cancel),	   FIXTURE_TEST(test_release_while_waiting),
		FIXTURE_TEST(test_many),	   FIXTURE_TEST(test_full_socket),
		FIXTURE_TEST(test_silence),	   FIXTURE_TEST(test_end),
		FIXTURE_TEST(test_from_functions), FIXTURE_TEST(test_no_descriptors),
		FIXTURE_TEST(test_close),	   FIXTURE_TEST(test_fork),
		FIXTURE_TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
