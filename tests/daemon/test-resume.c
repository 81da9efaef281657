/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESUME, as any client may say it: what is listed stays, what is not is freed, and nothing happens
 * before the list is whole.
 */
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/net/session.h"

struct fixture {
	struct rig *rig;
	uint8_t token[SLOT_TOKEN_BYTES];
};

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	f.rig = rig_new(&(struct rig_options){0});
	f.rig->net.grace_ms = 600000;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_free(f.rig);
	return 0;
}

/* A connection with a session that can be resumed. */
static struct peer *begin(void)
{
	struct peer *peer = rig_connect(f.rig, SOCKET_DATA);
	const Hugepool__V1__Welcome *welcome = peer_hello(peer);

	assert_int_equal(welcome->token.len, SLOT_TOKEN_BYTES);
	assert_int_equal(welcome->grace_ms, f.rig->net.grace_ms);
	assert_false(welcome->durable);
	memcpy(f.token, welcome->token.data, SLOT_TOKEN_BYTES);
	return peer;
}

/* Its connection breaks, and the daemon has seen that. */
static struct peer *break_off(struct peer *peer)
{
	peer_free(peer);
	rig_wait_connections(f.rig, 0);
	return rig_connect_hello(f.rig, SOCKET_DATA);
}

static Hugepool__V1__Resume message_of(const struct peer_range *ranges, size_t n, bool last)
{
	Hugepool__V1__Resume message = HUGEPOOL__V1__RESUME__INIT;

	message.token.data = f.token;
	message.token.len = SLOT_TOKEN_BYTES;
	message.ranges = (uint64_t *)(uintptr_t)ranges;
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.last = last;
	return message;
}

/* Sends a frame of the list. Return: how many of its ranges are kept. */
static size_t list(struct peer *peer, const struct peer_range *ranges, size_t n, bool last)
{
	const Hugepool__V1__Resume message = message_of(ranges, n, last);
	const Hugepool__V1__Ranges *kept;

	peer_send(peer, TYPE(RESUME), 9, &message.base);
	kept = peer_expect(peer, TYPE(RESUMED), 9);
	return kept->n_ranges / HP_WIRE_RANGE_WORDS;
}

static void refused(struct peer *peer, const struct peer_range *ranges, size_t n, bool last,
		    Hugepool__V1__Code code)
{
	const Hugepool__V1__Resume message = message_of(ranges, n, last);

	peer_refused(peer, TYPE(RESUME), &message.base, code);
}

static uint64_t leased(void)
{
	struct hp_zone_stats stats;

	hp_zone_stats(pool_zone(f.rig->net.pool, 0)->zone, &stats);
	return stats.leased;
}

static struct peer_range part(const struct peer_range *range, uint32_t offset, uint32_t pages)
{
	struct hp_wire_range wire = peer_range(range);
	struct peer_range ret;

	wire.page += offset;
	wire.pages = pages;
	hp_wire_put_range(ret.words, &wire);
	return ret;
}

static void test_all_kept(void **state)
{
	struct peer_range ranges[8];
	struct peer *peer = begin();

	(void)state;
	peer_alloc(peer, "small", 4, 8, ranges);
	peer = break_off(peer);
	assert_int_equal(slots_count(f.rig->net.slots, SLOT_CONDEMNED), 1);
	assert_int_equal(list(peer, ranges, 8, true), 8);
	assert_int_equal(slots_count(f.rig->net.slots, SLOT_CONDEMNED), 0);
	assert_int_equal(slots_count(f.rig->net.slots, SLOT_OPEN), 1);
	assert_int_equal(leased(), 32);
	assert_true(peer->brought >= 1); /* it did not say what it has mapped */
	/* It is a session like any other again. */
	peer_free_ranges(peer, ranges, 8);
	assert_int_equal(leased(), 0);
	refused(peer, NULL, 0, true, CODE(INVALID));
	peer_free(peer);
}

/* Whole ranges, parts, and what it never had or has no more. */
static void test_some_kept(void **state)
{
	struct peer_range ranges[6], keep[6];
	struct peer *peer = begin();

	(void)state;
	peer_alloc(peer, "small", 6, 6, ranges);
	peer = break_off(peer);
	keep[0] = ranges[0];
	keep[1] = part(&ranges[1], 0, 2);
	keep[2] = part(&ranges[1], 3, 1);
	keep[3] = part(&ranges[3], 5, 1);
	keep[4] = ranges[4];
	keep[4].words[1] ^= UINT64_C(1) << 20; /* another generation */
	keep[5] = part(&ranges[5], 5, 2);      /* beyond its end: no part of it */
	assert_int_equal(list(peer, keep, 3, false), 3);
	assert_int_equal(leased(), 36); /* nothing yet */
	assert_int_equal(list(peer, keep + 3, 3, true), 1);
	assert_int_equal(leased(), 6 + 2 + 1 + 1);
	peer_free_ranges(peer, keep, 4);
	peer_free_refused(peer, &ranges[2], 1, CODE(NOT_LEASED));
	assert_int_equal(leased(), 0);
	peer_free(peer);
}

static void test_nothing_kept(void **state)
{
	struct peer_range ranges[4];
	struct peer *peer = begin();

	(void)state;
	peer_alloc(peer, "small", 4, 4, ranges);
	peer = break_off(peer);
	assert_int_equal(list(peer, NULL, 0, true), 0);
	assert_int_equal(leased(), 0);
	peer_free(peer);
}

/* A list that breaks its rules, or breaks off, has changed nothing; another one may follow. */
static void test_lists_that_fail(void **state)
{
	struct peer_range ranges[4], wrong[2];
	const Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	struct peer *peer = begin();

	(void)state;
	peer_alloc(peer, "small", 4, 4, ranges);
	peer = break_off(peer);
	wrong[0] = ranges[1];
	wrong[1] = ranges[0];
	refused(peer, wrong, 2, true, CODE(INVALID)); /* not sorted */
	wrong[1] = part(&ranges[1], 3, 1);
	refused(peer, wrong, 2, true, CODE(INVALID)); /* overlapping */
	assert_int_equal(list(peer, &ranges[1], 1, false), 1);
	refused(peer, &ranges[0], 1, true, CODE(INVALID)); /* over two frames */
	wrong[0].words[1] = 0;
	refused(peer, wrong, 1, true, CODE(MALFORMED));
	assert_int_equal(list(peer, &ranges[0], 1, false), 1);
	peer_refused(peer, TYPE(STATS), &empty.base, CODE(BUSY));
	assert_int_equal(leased(), 16);
	peer = break_off(peer);
	assert_int_equal(list(peer, ranges, 4, true), 4);
	assert_int_equal(leased(), 16);
	peer_free(peer);
}

/* Only with the token, only from the process, only while nobody else has it. */
static void test_who_may(void **state)
{
	struct peer_range range;
	struct peer *peer = begin(), *other;
	struct process process;
	struct slot *slot;
	unsigned worker;
	void *keeper;

	(void)state;
	peer_alloc(peer, "small", 1, 1, &range);
	other = rig_connect_hello(f.rig, SOCKET_DATA);
	refused(other, &range, 1, true, CODE(BUSY));
	peer_free(peer);
	rig_wait_connections(f.rig, 1);
	f.token[SLOT_TOKEN_BYTES - 1] ^= 1;
	refused(other, &range, 1, true, CODE(NO_SESSION));
	f.token[SLOT_TOKEN_BYTES - 1] ^= 1;
	f.token[0] = 0xff; /* a slot that was never in use */
	refused(other, &range, 1, true, CODE(NO_SESSION));
	peer_free(other);
	f.token[0] = 1;
	assert_int_equal(leased(), 1);

	slot = slots_find(f.rig->net.slots, 1);
	process = slot->process;
	process.pidfd_inode = process.pidfd_inode ? process.pidfd_inode + 1 : 0;
	process.start_ticks++;
	assert_int_equal(slots_resume(f.rig->net.slots, f.token, slot->tenant, &process, &slot,
				      &worker, &keeper),
			 SLOT_UNKNOWN);
	process = slot->process;
	process.pid++;
	assert_int_equal(slots_resume(f.rig->net.slots, f.token, slot->tenant, &process, &slot,
				      &worker, &keeper),
			 SLOT_UNKNOWN);
	other = rig_connect_hello(f.rig, SOCKET_DATA);
	assert_int_equal(list(other, &range, 1, true), 1);
	peer_free(other);
}

static void test_too_late(void **state)
{
	struct peer_range range;
	struct peer *peer;

	(void)state;
	f.rig->net.grace_ms = 1;
	peer = begin();
	peer_alloc(peer, "small", 1, 1, &range);
	peer = break_off(peer);
	for (;;) { /* the grace may not be over at once */
		const Hugepool__V1__Resume message = message_of(&range, 1, false);
		const ProtobufCMessage *answer;

		peer_send(peer, TYPE(RESUME), 3, &message.base);
		answer = peer_recv(peer);
		assert_non_null(answer);
		if (peer->frame.type == TYPE(ERROR)) {
			assert_int_equal(((const Hugepool__V1__Error *)answer)->code,
					 CODE(NO_SESSION));
			break;
		}
		peer = break_off(peer);
	}
	assert_int_equal(leased(), 1); /* condemned: charged until the process ends */
	assert_int_equal(slots_count(f.rig->net.slots, SLOT_CONDEMNED), 1);
	peer_free(peer);
}

/* What it has mapped needs no descriptor; what is another life by now, it is told. */
static void test_known_blocks(void **state)
{
	Hugepool__V1__Resume message;
	Hugepool__V1__Blocks blocks = HUGEPOOL__V1__BLOCKS__INIT, *known = &blocks;
	const struct pool_zone *zone = pool_zone(f.rig->net.pool, 0);
	const Hugepool__V1__Blocks *retired;
	struct peer_range ranges[2];
	struct hp_block_word word;
	uint64_t words[2];
	struct peer *peer = begin();
	uint32_t block;

	(void)state;
	peer_alloc(peer, "small", RIG_SMALL_BLOCK_PAGES, 2, ranges);
	peer = break_off(peer);
	message = message_of(ranges, 1, true);
	block = peer_range(&ranges[0]).page / RIG_SMALL_BLOCK_PAGES;
	word = hp_zone_block_word(zone->zone, block);
	words[0] = hp_wire_put_block(
		(struct hp_wire_block){.index = block, .generation = word.generation});
	words[1] = hp_wire_put_block(
		(struct hp_wire_block){.index = RIG_SMALL_BLOCKS - 1, .generation = 12345});
	blocks.blocks = words;
	blocks.n_blocks = 2;
	message.known = &known;
	message.n_known = 1;
	peer_send(peer, TYPE(RESUME), 9, &message.base);
	peer_expect(peer, TYPE(RESUMED), 9);
	assert_int_equal(peer->brought, 0);
	retired = (const Hugepool__V1__Blocks *)peer_recv(peer);
	assert_int_equal(peer->frame.type, TYPE(BLOCK_RETIRED));
	assert_int_equal(retired->n_blocks, 1);
	assert_int_equal(retired->blocks[0], words[1]);
	peer_free(peer);
}

/* Over and over, on two workers: whoever kept a broken session forgets it. */
static void test_again_and_again(void **state)
{
	struct peer_range ranges[3];
	struct peer *peer;
	size_t descriptors;

	(void)state;
	rig_free(f.rig);
	f.rig = rig_new(&(struct rig_options){.workers = 2});
	f.rig->net.grace_ms = 600000;
	peer = begin();
	peer_alloc(peer, "small", 2, 3, ranges);
	descriptors = rig_count_descriptors();
	for (int i = 0; i < 200; i++) {
		peer = break_off(peer);
		assert_int_equal(list(peer, ranges, 3, true), 3);
	}
	for (int ms = 0; rig_count_descriptors() > descriptors + 4 && ms < 10000; ms++)
		usleep(1000);
	assert_true(rig_count_descriptors() <= descriptors + 4);
	assert_int_equal(leased(), 6);
	peer_free_ranges(peer, ranges, 3);
	peer_free(peer);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(test_all_kept),	    test(test_some_kept),	test(test_nothing_kept),
		test(test_lists_that_fail), test(test_who_may),		test(test_too_late),
		test(test_known_blocks),    test(test_again_and_again),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
