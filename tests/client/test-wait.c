/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait for room. The daemon answers late, on purpose: the time-out of replies is
 * shorter than that in most tests, and must not matter.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define PAGE	   65536u
#define TIMEOUT_MS 100
#define LATE_MS	   400

/* What the last ALLOC said. */
static _Atomic uint32_t deadline_ms, priority;

static void pause_ms(long ms)
{
	const struct timespec pause = {.tv_nsec = ms * 1000000};

	nanosleep(&pause, NULL);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool listen_in(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Alloc *alloc;

	if (frame->type != TYPE(ALLOC))
		return false;
	alloc = fake_unpack(fake, frame);
	deadline_ms = alloc->deadline_ms;
	priority = alloc->priority;
	return false;
}

static void send_pressure(struct fake *fake)
{
	Hugepool__V1__Pressure pressure = HUGEPOOL__V1__PRESSURE__INIT;

	pressure.zone = FAKE_ZONE;
	fake_send(fake, TYPE(PRESSURE), 0, &pressure.base);
}

/* Its answer is late, and somebody else wants something meanwhile. */
static bool grant_late(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(ALLOC))
		return false;
	send_pressure(fake);
	pause_ms(LATE_MS / 2);
	send_pressure(fake);
	pause_ms(LATE_MS / 2);
	fake_answer(fake, frame);
	return true;
}

static bool time_out_late(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(ALLOC))
		return false;
	pause_ms(LATE_MS);
	fake_error(fake, frame->tag, CODE(TIMED_OUT));
	return true;
}

static bool say_nothing(struct fake *fake, const struct hp_frame *frame)
{
	(void)fake;
	return frame->type == TYPE(ALLOC);
}

static void test_what_is_said(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;

	f->fake.hook = listen_in;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_int_equal(deadline_ms, 0);
	assert_int_equal(priority, 0);
	request.deadline_ms = 60000;
	request.priority = 200;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_in_range(deadline_ms, 30000, 60000);
	assert_int_equal(priority, 200);
	/* A short one is never none. */
	request.deadline_ms = 1;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_int_equal(deadline_ms, 1);
	/* More than the wire can say: still more than the daemon allows. */
	request.deadline_ms = UINT64_MAX;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_true(deadline_ms > HP_DEADLINE_MAX_MS);
}

/* A program that was built before there were deadlines. Whatever lies behind its struct is not read. */
static void test_older_request(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;

	memset((char *)&request + offsetof(struct hugepool_request, deadline_ms), 0xa5,
	       sizeof(request) - offsetof(struct hugepool_request, deadline_ms));
	request.size = offsetof(struct hugepool_request, deadline_ms);
	f->fake.hook = listen_in;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_int_equal(deadline_ms, 0);
	assert_int_equal(priority, 0);
	request.size--;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
}

/* It comes after the time-out of replies, and before the deadline. */
static void test_granted_late(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, TIMEOUT_MS);
	struct hugepool_request request = request_of(f, 2, 0);
	struct hugepool_range range;
	uint64_t start = now_ms();

	f->fake.hook = grant_late;
	request.deadline_ms = 60000;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_true(now_ms() - start >= LATE_MS);
	memset(range.address, 1, range.bytes);
	f->fake.hook = NULL;
	assert_int_equal(hugepool_free(pool, &range), 0);
}

/* The deadline passes: the numbers, and the handle goes on. */
static void test_deadline_passes(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, TIMEOUT_MS);
	struct hugepool_range held = take(pool, 1, 0), range = {.address = &range};
	struct hugepool_request request = request_of(f, 3, 0);
	struct hugepool_error error;

	f->fake.hook = time_out_late;
	request.deadline_ms = LATE_MS;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ETIMEDOUT);
	assert_ptr_equal(range.address, &range);
	error = error_of(pool);
	assert_int_equal(error.error, ETIMEDOUT);
	assert_string_equal(error.zone, FAKE_ZONE_NAME);
	assert_int_equal(error.asked_bytes, 3 * PAGE);
	assert_int_equal(error.free_bytes, 2 * PAGE);
	assert_int_equal(error.leasable_bytes, 3 * PAGE);
	assert_int_equal(error.limit_bytes, 4 * PAGE);
	assert_int_equal(error.largest_bytes, 5 * PAGE);

	f->fake.hook = NULL;
	request.deadline_ms = 0;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(hugepool_free(pool, &held), 0);
}

/* Silence ends it, but only when both times are over; then there are no numbers, and no handle. */
static void test_silence(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, TIMEOUT_MS);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;
	uint64_t start = now_ms();

	f->fake.hook = say_nothing;
	request.deadline_ms = LATE_MS;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ETIMEDOUT);
	assert_in_range(now_ms() - start, LATE_MS + TIMEOUT_MS, 30000);
	assert_int_equal(error_of(pool).asked_bytes, 0);
	f->fake.hook = NULL;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ECONNRESET);
}

/* What cannot be waited for is said at once. */
static void test_refused_at_once(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, FAKE_PAGES + 1, 0);
	struct hugepool_range range;

	request.deadline_ms = 60000;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENOMEM);
	assert_int_equal(error_of(pool).asked_bytes, (FAKE_PAGES + 1) * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_what_is_said), FIXTURE_TEST(test_older_request),
		FIXTURE_TEST(test_granted_late), FIXTURE_TEST(test_deadline_passes),
		FIXTURE_TEST(test_silence),	 FIXTURE_TEST(test_refused_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
