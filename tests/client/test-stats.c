/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a handle and of a zone, with a daemon that tells them in pieces, or tells nonsense. */
#include "tests/client/common.h"

#include <errno.h>

#define PAGE	    65536u
#define BLOCK_BYTES (PAGE * FAKE_BLOCK_PAGES)

static void send_list(struct fake *fake, const struct hp_frame *frame,
		      const Hugepool__V1__Zone *zone, uint64_t next)
{
	Hugepool__V1__ListReply reply = HUGEPOOL__V1__LIST_REPLY__INIT;
	Hugepool__V1__Zone *zones[] = {(Hugepool__V1__Zone *)zone};

	reply.next = next;
	reply.n_zones = 1;
	reply.zones = zones;
	fake_send(fake, TYPE(LIST_REPLY), frame->tag, &reply.base);
}

/* The first piece has another zone. */
static bool tell(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Zone zone = fake_zone(fake);
	const Hugepool__V1__List *list;

	if (frame->type != TYPE(LIST))
		return false;
	list = fake_unpack(fake, frame);
	if (list->cursor == 0) {
		zone.id++;
		send_list(fake, frame, &zone, 1);
		return true;
	}
	zone.clean = 16;
	zone.free = 3;
	zone.pcp = 2;
	zone.draining = 1;
	zone.leasable = 20;
	zone.largest = 10;
	zone.limit_blocks = 4;
	zone.guarantee_blocks = 1;
	zone.held_blocks = 2;
	send_list(fake, frame, &zone, 0);
	return true;
}

static bool tell_for_ever(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Zone zone = fake_zone(fake);

	if (frame->type != TYPE(LIST))
		return false;
	zone.id++;
	send_list(fake, frame, &zone, (uint64_t)fake->counter);
	return true;
}

static void test_handle(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_stats stats = {.size = sizeof(stats)};
	struct hugepool_range range = take(pool, FAKE_BLOCK_PAGES + 1, 0);

	assert_int_equal(hugepool_stats(pool, &stats), 0);
	assert_int_equal(stats.size, sizeof(stats));
	assert_int_equal(stats.zones, 1);
	assert_int_equal(stats.ranges, 1);
	assert_int_equal(stats.bytes, range.bytes);
	assert_int_equal(stats.block_bytes, 2 * BLOCK_BYTES);
	assert_int_equal(stats.pending, 0);
	assert_int_equal(hugepool_free_async(pool, &range, NULL, NULL), 0);
	assert_int_equal(hugepool_stats(pool, &stats), 0);
	assert_int_equal(stats.pending, 1);
	while (stats.pending) {
		assert_true(hugepool_dispatch(pool, 1000) >= 0);
		assert_int_equal(hugepool_stats(pool, &stats), 0);
	}
	assert_int_equal(stats.ranges + stats.bytes + stats.block_bytes, 0);

	/* An older program's struct ends where it says. */
	stats = (struct hugepool_stats){.size = offsetof(struct hugepool_stats, ranges),
					.ranges = 4711};
	assert_int_equal(hugepool_stats(pool, &stats), 0);
	assert_int_equal(stats.zones, 1);
	assert_int_equal(stats.ranges, 4711);
	stats.size = 0;
	assert_int_equal(hugepool_stats(pool, &stats), -EINVAL);
}

static void test_zone(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_zone_stats stats = {.size = sizeof(stats)};

	f->fake.hook = tell;
	assert_int_equal(hugepool_zone_stats(pool, 1, &stats), -ENODEV);
	assert_int_equal(hugepool_zone_stats(pool, 0, &stats), 0);
	assert_string_equal(stats.name, FAKE_ZONE_NAME);
	assert_int_equal(stats.node, -1);
	assert_int_equal(stats.page_size, PAGE);
	assert_int_equal(stats.block_size, BLOCK_BYTES);
	assert_int_equal(stats.total_bytes, FAKE_PAGES * PAGE);
	assert_int_equal(stats.free_bytes, 22 * PAGE);
	assert_int_equal(stats.leasable_bytes, 20 * PAGE);
	assert_int_equal(stats.largest_bytes, 10 * PAGE);
	assert_int_equal(stats.limit_bytes, 4 * BLOCK_BYTES);
	assert_int_equal(stats.guarantee_bytes, BLOCK_BYTES);
	assert_int_equal(stats.charged_bytes, 2 * BLOCK_BYTES);
	stats.size = 1;
	assert_int_equal(hugepool_zone_stats(pool, 0, &stats), -EINVAL);
}

/* A zone that is not in the list, and a list that never ends. */
static void test_nonsense(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_zone_stats stats = {.size = sizeof(stats)};

	f->fake.hook = tell_for_ever;
	assert_int_equal(hugepool_zone_stats(pool, 0, &stats), -ENODEV);
	f->fake.counter = 1;
	assert_int_equal(hugepool_zone_stats(pool, 0, &stats), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_handle),
		FIXTURE_TEST(test_zone),
		FIXTURE_TEST(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
