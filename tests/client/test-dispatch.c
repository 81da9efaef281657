/* SPDX-License-Identifier: Apache-2.0 */
/* What comes unasked, and the one descriptor that tells of it. */
#include "tests/client/common.h"

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/handle.h"

#define LONG_MS 30000 /* longer than anything takes, shorter than the test may */

struct heard {
	struct hugepool *pool;
	int pressure, revoked, resumed, logged, priority;
	char zone[HP_NAME_MAX + 1], message[256];
	struct hugepool_range range;
	size_t nr_ranges;
	bool frees;	 /* revoked() frees */
	bool dispatches; /* pressure() dispatches */
};

static void on_log(void *userdata, int priority, const char *message)
{
	struct heard *heard = userdata;

	heard->logged++;
	heard->priority = priority;
	strncpy(heard->message, message, sizeof(heard->message) - 1);
}

static void on_pressure(void *userdata, const char *zone)
{
	struct heard *heard = userdata;

	heard->pressure++;
	strncpy(heard->zone, zone, sizeof(heard->zone) - 1);
	if (heard->dispatches)
		assert_int_equal(hugepool_dispatch(heard->pool, 0), 0);
}

static void on_revoked(void *userdata, const struct hugepool_range *range)
{
	struct heard *heard = userdata;

	heard->revoked++;
	heard->range = *range;
	if (heard->frees)
		assert_int_equal(hugepool_free(heard->pool, range), 0);
}

static void on_resumed(void *userdata)
{
	struct heard *heard = userdata;

	heard->resumed++;
}

static struct heard listen_to(struct hugepool *pool)
{
	return (struct heard){.pool = pool};
}

static void set_callbacks(struct heard *heard)
{
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;

	callbacks.userdata = heard;
	callbacks.log = on_log;
	callbacks.pressure = on_pressure;
	callbacks.revoked = on_revoked;
	callbacks.resumed = on_resumed;
	assert_int_equal(hugepool_set_callbacks(heard->pool, &callbacks), 0);
}

/* Whether dispatch has something to do, waiting for it if need be. */
static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1 && p.revents & POLLIN;
}

static void send_pressure(struct fake *fake)
{
	Hugepool__V1__Pressure pressure = HUGEPOOL__V1__PRESSURE__INIT;

	pressure.zone = FAKE_ZONE;
	fake_send(fake, TYPE(PRESSURE), 0, &pressure.base);
}

/* Before the reply to FREE and, as often, behind it. */
static bool press(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(FREE))
		return false;
	send_pressure(fake);
	fake_answer(fake, frame);
	send_pressure(fake);
	send_pressure(fake);
	return true;
}

/* Nothing is called but by dispatch; what came twice is told once. */
static void test_pressure(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct heard heard = listen_to(pool);
	struct hugepool_range range;
	int fd = hugepool_get_fd(pool);

	set_callbacks(&heard);
	assert_true(fd >= 0);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	assert_false(is_readable(fd, 0));
	f->fake.hook = press;
	for (int i = 1; i <= 3; i++) {
		range = take(pool, 1, 0);
		assert_int_equal(hugepool_free(pool, &range), 0);
		assert_true(is_readable(fd, LONG_MS));
		assert_int_equal(heard.pressure, 0);
		assert_true(hugepool_dispatch(pool, LONG_MS) > 0);
		assert_true(heard.pressure > 0);
		assert_string_equal(heard.zone, FAKE_ZONE_NAME);
		assert_int_equal(hugepool_get_fd(pool), fd);
		/* The rest of them is read on the way to another reply. */
		f->fake.hook = NULL;
		range = take(pool, 1, 0);
		assert_int_equal(hugepool_free(pool, &range), 0);
		f->fake.hook = press;
		while (hugepool_dispatch(pool, 0) > 0)
			continue;
		assert_false(is_readable(fd, 0));
		heard.pressure = 0;
		heard.dispatches = !heard.dispatches;
	}
}

/* Dispatch itself reads and waits; a handle that never asked for a descriptor has none. */
static void test_dispatch_waits(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct heard heard = listen_to(pool);
	size_t before = count_open();
	struct hugepool_range range = take(pool, 1, 0);

	f->fake.hook = press;
	set_callbacks(&heard);
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(count_open(), before);
	assert_int_equal(hugepool_dispatch(pool, LONG_MS), 1);
	assert_true(count_open() > before);
	assert_int_equal(hugepool_dispatch(pool, 1) < 0, 0);
}

static void test_revoked_and_resumed(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct heard heard = listen_to(pool);
	struct hugepool_range ranges[FAKE_PAGES];
	struct hugepool_request request = request_of(f, 1, 0);
	struct hp_wire_range wire;

	set_callbacks(&heard);
	heard.frees = true;
	assert_int_equal(hugepool_alloc_bulk(pool, &request, ranges, FAKE_PAGES), 0);
	for (size_t i = 0; i < FAKE_PAGES; i++) {
		assert_int_equal(hp_wire_get_range(ranges[i].lease, &wire), 0);
		event_revoked(pool, range_table_find(&pool->ranges, wire.zone, wire.page));
		event_revoked(pool, range_table_find(&pool->ranges, wire.zone, wire.page));
	}
	event_resumed(pool);
	/* What is freed before is not told. */
	assert_int_equal(hugepool_free(pool, &ranges[0]), 0);
	assert_int_equal(hugepool_dispatch(pool, 0), FAKE_PAGES);
	assert_int_equal(heard.revoked, FAKE_PAGES - 1);
	assert_int_equal(heard.resumed, 1);
	assert_int_equal(heard.range.bytes, f->fake.page_bytes);
	assert_int_equal(f->fake.leased_pages, 0);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
}

/* News without a function are dropped, and what is no struct is refused. */
static void test_set_callbacks(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;
	struct {
		struct hugepool_callbacks callbacks;
		void *later;
	} newer = {.callbacks = HUGEPOOL_CALLBACKS_INIT};

	event_resumed(pool);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	assert_int_equal(hugepool_set_callbacks(pool, &callbacks), 0);
	assert_int_equal(hugepool_set_callbacks(pool, NULL), 0);
	/* Smaller than it ever was. */
	callbacks.size = offsetof(struct hugepool_callbacks, wanted) - 1;
	assert_int_equal(hugepool_set_callbacks(pool, &callbacks), -EINVAL);
	newer.callbacks.size = sizeof(newer);
	assert_int_equal(hugepool_set_callbacks(pool, &newer.callbacks), 0);
	newer.later = &newer;
	assert_int_equal(hugepool_set_callbacks(pool, &newer.callbacks), -E2BIG);
}

static bool hang_up(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(ALLOC))
		return false;
	send_pressure(fake);
	fake_error(fake, 0, CODE(SHUTTING_DOWN));
	return true;
}

/* The daemon's last word: logged at once, the news come first, then the end, and no spinning. */
static void test_end(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct heard heard = listen_to(pool);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;
	int fd = hugepool_get_fd(pool);

	set_callbacks(&heard);
	f->fake.hook = hang_up;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ESHUTDOWN);
	assert_int_equal(heard.logged, 1);
	assert_int_equal(heard.priority, 3);
	assert_true(heard.message[0] != '\0');
	assert_true(is_readable(fd, LONG_MS));
	assert_int_equal(hugepool_dispatch(pool, LONG_MS), 1);
	assert_int_equal(heard.pressure, 1);
	assert_true(is_readable(fd, LONG_MS));
	assert_int_equal(hugepool_dispatch(pool, LONG_MS), -ECONNRESET);
	assert_false(is_readable(fd, 0));
	assert_int_equal(heard.logged, 1);
}

/* The epoll set is the parent's, whatever the child does. */
static void test_fork(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct heard heard = listen_to(pool);
	struct hugepool_range range = take(pool, 1, 0);
	int fd = hugepool_get_fd(pool), status;
	pid_t pid;

	set_callbacks(&heard);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		_exit(hugepool_dispatch(pool, 0) != -ECHILD || hugepool_get_fd(pool) != -ECHILD ||
		      hugepool_set_callbacks(pool, NULL) != -ECHILD || hugepool_close(pool));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f->fake.hook = press;
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_true(is_readable(fd, LONG_MS));
	assert_int_equal(hugepool_dispatch(pool, LONG_MS), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_pressure),
		FIXTURE_TEST(test_dispatch_waits),
		FIXTURE_TEST(test_revoked_and_resumed),
		FIXTURE_TEST(test_set_callbacks),
		FIXTURE_TEST(test_end),
		FIXTURE_TEST(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
