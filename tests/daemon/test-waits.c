/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait: who is served when room comes, in which order, how long one waits, and that
 * whoever stops waiting, however, leaves nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

#define UID_A 54321
#define UID_B 54322
#define UID_C 54323

#define LONG_MS 20000 /* nothing may take so long */

/* 16 blocks of 16 pages; nothing is taken back for a stock that nobody asked for. */
#define CONFIG                                                                         \
	"[daemon]\nidle-delay = 50ms\n"                                                \
	"[zone small]\npage-size = 4K\nblock-size = 64K\nsize = 1M\nbacking = shmem\n" \
	"clean-min = 0\nclean-low = 0\nclean-high = 0\n"                               \
	"[tenant c]\nuid = 54323\nlimit.small = 16\nguarantee.small = 4\n"             \
	"[default]\nlimit.small = 12\n"

struct fixture {
	struct rig *rig;
	struct peer *peer, *other, *admin;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.config = CONFIG, .workers = 2};

	f->rig = rig_new(&options);
	f->peer = rig_connect_hello(f->rig, SOCKET_DATA);
	f->other = rig_connect_hello(f->rig, SOCKET_DATA);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	*state = f;
	return 0;
}

static void expect_nobody_waits(struct fixture *f)
{
	assert_int_equal(peer_zone(f->admin, 0).waiting, 0);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	expect_nobody_waits(f);
	peer_check(f->admin);
	peer_free(f->peer);
	peer_free(f->other);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void ask(struct peer *peer, uint16_t tag, uint32_t pages, uint32_t priority,
		uint32_t deadline_ms)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	alloc.pages = pages;
	alloc.priority = priority;
	alloc.deadline_ms = deadline_ms;
	peer_send(peer, TYPE(ALLOC), tag, &alloc.base);
}

static void wait_until_waiting(struct fixture *f, uint32_t n)
{
	for (int i = 0; i < 2000 && peer_zone(f->admin, 0).waiting != n; i++)
		poll(NULL, 0, 2);
	assert_int_equal(peer_zone(f->admin, 0).waiting, n);
}

static struct peer_range expect_grant(struct peer *peer, uint16_t tag)
{
	const Hugepool__V1__Ranges *grant = peer_expect(peer, TYPE(GRANT), tag);
	struct peer_range range;

	memcpy(&range, grant->ranges, sizeof(range));
	return range;
}

static const Hugepool__V1__Error *expect_error(struct peer *peer, uint16_t tag,
					       Hugepool__V1__Code code)
{
	const Hugepool__V1__Error *error = peer_expect(peer, TYPE(ERROR), tag);

	assert_int_equal(error->code, code);
	return error;
}

#define LIMIT_PAGES (12 * 16)

/* Everything that this tenant may have, in ranges of 16 pages. */
static void take_all(struct peer *peer, struct peer_range ranges[12])
{
	peer_alloc(peer, "small", 16, 12, ranges);
}

static void close_fds(struct peer *peer)
{
	while (peer->nr_fds)
		close(peer->fds[--peer->nr_fds]);
}

/* --- being served ----------------------------------------------------------------------------- */

static void test_served_when_somebody_frees(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12], range;

	take_all(f->peer, ranges);
	ask(f->other, 7, 16, 0, LONG_MS);
	wait_until_waiting(f, 1);
	/* a session that waits is served otherwise */
	peer_send(f->other, TYPE(STATS), 8, NULL);
	peer_expect(f->other, TYPE(STATS_REPLY), 8);
	peer_free_ranges(f->peer, &ranges[3], 1);
	range = expect_grant(f->other, 7);
	assert_int_equal(peer_range(&range).page, peer_range(&ranges[3]).page);
	assert_int_equal(f->other->nr_fds, 1);
	peer_free_ranges(f->other, &range, 1);
}

static void test_served_at_once_if_there_is_room(void **state)
{
	struct fixture *f = *state;

	ask(f->peer, 7, 16, 255, 1);
	expect_grant(f->peer, 7);
	ask(f->peer, 8, 16, 0, HP_DEADLINE_MAX_MS);
	expect_grant(f->peer, 8);
}

static void test_served_when_a_client_ends(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	ask(f->other, 7, 100, 0, LONG_MS);
	wait_until_waiting(f, 1);
	peer_send(f->peer, TYPE(GOODBYE), 1, NULL);
	peer_expect_end(f->peer);
	expect_grant(f->other, 7);
}

/* Several small ones come in until the large one fits. */
static void test_served_by_many_frees(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[LIMIT_PAGES];

	peer_alloc(f->peer, "small", 1, LIMIT_PAGES, ranges);
	ask(f->other, 7, 64, 0, LONG_MS);
	wait_until_waiting(f, 1);
	for (int i = 0; i < 63; i++)
		peer_free_ranges(f->peer, &ranges[i], 1);
	peer_expect_silence(f->other, 50);
	peer_free_ranges(f->peer, &ranges[63], 1);
	expect_grant(f->other, 7);
}

/* The idle blocks of another tenant are recycled for whoever waits, and everybody is asked. */
static void test_served_by_recycling(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];
	struct peer *b;

	if (getuid() != 0)
		skip();
	b = rig_connect_as(f->rig, UID_B);
	take_all(f->peer, ranges);
	ask(b, 7, 16 * 8, 0, LONG_MS);
	wait_until_waiting(f, 1);
	peer_recv(f->peer);
	assert_int_equal(f->peer->frame.type, TYPE(PRESSURE));
	close_fds(f->peer);
	peer_free_ranges(f->peer, ranges, 12);
	expect_grant(b, 7);
	peer_send(b, TYPE(GOODBYE), 1, NULL);
	peer_expect_end(b);
	peer_free(b);
}

/* Everybody is asked; STATS is answered behind it, by the only worker. */
static void press(struct rig *rig, struct peer *bystander)
{
	rig->workers[0]->pressure |= 1;
	worker_wake(rig->workers[0]);
	for (int i = 0; i < 2; i++) { /* the first may be handled before the wake-up */
		peer_send(bystander, TYPE(STATS), 8, NULL);
		peer_expect(bystander, TYPE(STATS_REPLY), 8);
	}
}

static unsigned count_pressure(struct peer *peer)
{
	unsigned n = 0;

	peer_send(peer, TYPE(STATS), 9, NULL);
	while (peer_recv(peer) && peer->frame.type != TYPE(STATS_REPLY))
		n += peer->frame.type == TYPE(PRESSURE);
	return n;
}

/* Who does not read is asked once, and again when he has read that. */
static void test_asked_once(void **state)
{
	struct rig_options options = {.config = CONFIG};
	struct rig *rig = rig_new(&options);
	struct peer *sleeper = rig_connect_hello(rig, SOCKET_DATA);
	struct peer *bystander = rig_connect_hello(rig, SOCKET_DATA);
	struct peer_range range;

	(void)state;
	peer_alloc(sleeper, "small", 1, 1, &range);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 50; j++)
			press(rig, bystander);
		assert_int_equal(count_pressure(sleeper), 1);
	}
	peer_free_ranges(sleeper, &range, 1);
	peer_free(sleeper);
	peer_free(bystander);
	rig_free(rig);
}

/*
 * Blocks of an exclusive lease are clean ones. A tenant at his limit whose blocks are all idle gets
 * them, made clean: with a deadline always, without one after a while.
 */
static void test_exclusive_at_the_limit(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	struct peer_range range;
	bool granted = false;

	alloc.pages = 16;
	alloc.exclusive = true;
	for (int i = 0; i < 40; i++) { /* the limit is 12 blocks */
		alloc.deadline_ms = LONG_MS;
		peer_send(f->peer, TYPE(ALLOC), 7, &alloc.base);
		range = expect_grant(f->peer, 7);
		close_fds(f->peer);
		peer_free_ranges(f->peer, &range, 1);
	}
	alloc.deadline_ms = 0;
	for (int i = 0; i < 2000 && !granted; i++) {
		peer_send(f->peer, TYPE(ALLOC), 8, &alloc.base);
		do
			peer_recv(f->peer);
		while (f->peer->frame.type >= TYPE(BLOCKS));
		granted = f->peer->frame.type == TYPE(GRANT);
		poll(NULL, 0, granted ? 0 : 2);
	}
	assert_true(granted);
	close_fds(f->peer);
}

static void ask_exclusive(struct peer *peer, uint16_t tag, uint32_t pages)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	alloc.pages = pages;
	alloc.exclusive = true;
	alloc.deadline_ms = LONG_MS;
	peer_send(peer, TYPE(ALLOC), tag, &alloc.base);
}

/* Several of them at once, who all need clean blocks, of a tenant that has nothing idle yet. */
static void test_exclusive_ones_wait(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12], large;

	take_all(f->peer, ranges);
	ask_exclusive(f->other, 1, 3 * 16);
	wait_until_waiting(f, 1);
	ask_exclusive(f->other, 2, 16);
	wait_until_waiting(f, 2);
	close_fds(f->peer);
	peer_free_ranges(f->peer, ranges, 12);
	large = expect_grant(f->other, 1);
	expect_grant(f->other, 2);
	close_fds(f->other);

	/* and again: what was asked for the first time has been forgotten */
	peer_free_ranges(f->other, &large, 1);
	ask_exclusive(f->other, 3, 3 * 16);
	expect_grant(f->other, 3);
	close_fds(f->other);
}

/* --- order ------------------------------------------------------------------------------------ */

/* Frees one block after the other and notes who is served. */
static void test_priority_then_arrival(void **state)
{
	static const uint32_t priority[] = {1, 0, 5, 1, 5, 0};
	static const uint16_t order[] = {2, 4, 0, 3, 1, 5};
	struct fixture *f = *state;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	for (uint16_t i = 0; i < 6; i++) {
		ask(f->other, i, 16, priority[i], LONG_MS);
		wait_until_waiting(f, i + 1u);
	}
	for (int i = 0; i < 6; i++) {
		peer_free_ranges(f->peer, &ranges[i], 1);
		expect_grant(f->other, order[i]);
	}
}

static void test_a_large_one_is_not_overtaken(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	ask(f->other, 1, 32, 0, LONG_MS);
	wait_until_waiting(f, 1);
	ask(f->other, 2, 16, 0, LONG_MS);
	wait_until_waiting(f, 2);
	peer_free_ranges(f->peer, &ranges[0], 1);
	/* there is room for the second, and it can wait: so it does; who cannot is served */
	peer_expect_silence(f->other, 50);
	ask(f->peer, 3, 4, 0, 0);
	expect_grant(f->peer, 3);
	ask(f->peer, 4, 4, 0, 30);
	expect_error(f->peer, 4, CODE(TIMED_OUT));
	/* with the first gone the second has its turn */
	peer_free_ranges(f->peer, &ranges[1], 1);
	peer_free_ranges(f->peer, &ranges[2], 1);
	expect_grant(f->other, 1);
	peer_free_ranges(f->peer, &ranges[3], 1);
	expect_grant(f->other, 2);
}

/* A has asked ten times before B comes: they are served in turn all the same. */
static void test_round_robin_between_tenants(void **state)
{
	struct fixture *f = *state;
	struct peer *a, *b, *holder;
	struct peer_range ranges[12];
	int of_a = 0, of_b = 0;

	if (getuid() != 0)
		skip();
	a = rig_connect_as(f->rig, UID_A);
	b = rig_connect_as(f->rig, UID_B);
	holder = rig_connect_as(f->rig, UID_C); /* his guarantee is used */
	peer_alloc(holder, "small", 16, 4, ranges);
	peer_alloc(f->peer, "small", 16, 12, ranges);
	for (uint16_t i = 0; i < 5; i++) {
		ask(a, i, 16, 0, LONG_MS);
		wait_until_waiting(f, i + 1u);
	}
	for (uint16_t i = 0; i < 5; i++) {
		ask(b, i, 16, 0, LONG_MS);
		wait_until_waiting(f, i + 6u);
	}
	for (size_t i = 0; i < f->peer->nr_fds; i++)
		close(f->peer->fds[i]);
	f->peer->nr_fds = 0;
	for (int i = 0; i < 10; i++) {
		struct pollfd polled[2] = {{.fd = a->fd, .events = POLLIN},
					   {.fd = b->fd, .events = POLLIN}};

		peer_free_ranges(f->peer, &ranges[i], 1);
		assert_true(poll(polled, 2, 10000) > 0);
		if (polled[0].revents)
			expect_grant(a, (uint16_t)of_a++);
		else
			expect_grant(b, (uint16_t)of_b++);
		assert_true(abs(of_a - of_b) <= 1);
	}
	assert_int_equal(of_a, 5);
	for (int i = 0; i < 3; i++) {
		struct peer *peer = ((struct peer *[]){a, b, holder})[i];

		peer_send(peer, TYPE(GOODBYE), 1, NULL);
		peer_expect_end(peer);
		peer_free(peer);
	}
}

/* What is kept for somebody's guarantee is his, whoever waits longer and more urgently. */
static void test_guaranteed_first(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];
	struct peer *a, *c;

	if (getuid() != 0)
		skip();
	a = rig_connect_as(f->rig, UID_A);
	c = rig_connect_as(f->rig, UID_C);
	take_all(f->peer, ranges);
	ask(a, 1, 1, 255, LONG_MS);
	wait_until_waiting(f, 1);
	ask(c, 5, 4 * 16, 0, LONG_MS);
	expect_grant(c, 5);
	ask(c, 6, 1, 0, 30); /* beyond it he waits like everybody */
	expect_error(c, 6, CODE(TIMED_OUT));
	wait_until_waiting(f, 1);
	for (int i = 0; i < 2; i++) {
		struct peer *peer = ((struct peer *[]){a, c})[i];

		peer_send(peer, TYPE(GOODBYE), 1, NULL);
		peer_expect_end(peer);
		peer_free(peer);
	}
}

/* --- not being served ------------------------------------------------------------------------- */

static void test_deadline(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];
	const Hugepool__V1__Error *error;
	uint64_t start, waited;

	take_all(f->peer, ranges);
	start = now_ms();
	ask(f->other, 1, 16, 0, 300);
	ask(f->other, 2, 16, 0, 100);
	error = expect_error(f->other, 2, CODE(TIMED_OUT));
	assert_int_equal(error->asked_pages, 16);
	assert_int_equal(error->leasable_pages, 0);
	waited = now_ms() - start;
	assert_true(waited >= 99);
	expect_error(f->other, 1, CODE(TIMED_OUT));
	assert_true(now_ms() - start >= 299);
	peer_free_ranges(f->peer, ranges, 12);
}

static void test_what_can_never_be_is_refused_at_once(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	ask(f->peer, 1, LIMIT_PAGES + 1, 0, LONG_MS);
	expect_error(f->peer, 1, CODE(OVER_LIMIT));
	ask(f->peer, 2, 16 * 16 + 1, 0, LONG_MS);
	expect_error(f->peer, 2, CODE(NO_MEMORY));
	alloc.pages = 17;
	alloc.count = 7;
	alloc.exclusive = true; /* 14 blocks */
	alloc.deadline_ms = LONG_MS;
	peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	alloc.deadline_ms = HP_DEADLINE_MAX_MS + 1;
	assert_int_equal(peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(INVALID))->limit,
			 HP_DEADLINE_MAX_MS);
	alloc.deadline_ms = 1;
	alloc.priority = HP_PRIORITY_MAX + 1;
	assert_int_equal(peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(INVALID))->limit,
			 HP_PRIORITY_MAX);
}

static void test_too_many(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	for (uint16_t i = 0; i < HP_WAITS_PER_SESSION_MAX; i++)
		ask(f->other, i, 16, 0, LONG_MS);
	wait_until_waiting(f, HP_WAITS_PER_SESSION_MAX);
	ask(f->other, 1000, 16, 0, LONG_MS);
	assert_int_equal(expect_error(f->other, 1000, CODE(TOO_MANY))->limit,
			 HP_WAITS_PER_SESSION_MAX);
	/* another session may */
	ask(f->peer, 1, 16, 0, 1);
	expect_error(f->peer, 1, CODE(TIMED_OUT));
	peer_free(f->other);
	f->other = NULL;
	wait_until_waiting(f, 0);
}

static void test_cancel(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Cancel cancel = HUGEPOOL__V1__CANCEL__INIT;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	ask(f->other, 1, 32, 0, LONG_MS);
	ask(f->other, 2, 16, 0, LONG_MS);
	wait_until_waiting(f, 2);
	cancel.request_tag = 3;
	peer_refused(f->other, TYPE(CANCEL), &cancel.base, CODE(INVALID));
	cancel.request_tag = 1;
	peer_free_ranges(f->peer, ranges, 1);
	peer_send(f->other, TYPE(CANCEL), 9, &cancel.base);
	/* with the large one gone the small one fits */
	expect_error(f->other, 1, CODE(CANCELLED));
	peer_expect(f->other, TYPE(DONE), 9);
	expect_grant(f->other, 2);
	peer_refused(f->other, TYPE(CANCEL), &cancel.base, CODE(INVALID));
}

static void test_goodbye_while_waiting(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[12];

	take_all(f->peer, ranges);
	ask(f->other, 1, 16, 0, LONG_MS);
	wait_until_waiting(f, 1);
	peer_send(f->other, TYPE(GOODBYE), 2, NULL);
	expect_error(f->other, 1, CODE(CANCELLED));
	peer_expect(f->other, TYPE(DONE), 2);
	peer_expect_end(f->other);
	peer_free_ranges(f->peer, ranges, 12);
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
}

/* At whatever moment a waiting client goes: nothing of it is left, and the pages are there. */
static void test_gone_while_waiting(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[LIMIT_PAGES];

	for (int round = 0; round < 100; round++) {
		struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
		uint32_t n = LIMIT_PAGES - (uint32_t)peer_zone(f->admin, 0).condemned;

		peer_alloc(f->peer, "small", 1, n, ranges);
		ask(peer, 1, 1, 0, LONG_MS);
		if (round % 2)
			wait_until_waiting(f, 1);
		if (round % 4 < 2) {
			peer_free(peer);
			peer_free_ranges(f->peer, ranges, n);
		} else { /* granted, perhaps on its way, perhaps read by nobody */
			peer_free_ranges(f->peer, ranges, n);
			peer_free(peer);
		}
		rig_wait_connections(f->rig, 2);
		/* this process lives: what had been granted is condemned, not lost */
		assert_int_equal(peer_zone(f->admin, 0).leased, 0);
		expect_nobody_waits(f);
	}
}

/* Many at once on two workers: each is answered once, and in the end all is back. */
static void test_crowd(void **state)
{
	enum { N = 24, ROUNDS = 40 };
	struct fixture *f = *state;
	struct peer *peers[N];
	struct peer_range range[N];
	bool has[N] = {false};
	unsigned granted = 0, late = 0;

	for (int i = 0; i < N; i++)
		peers[i] = rig_connect_hello(f->rig, SOCKET_DATA);
	srand(4711);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < N; i++)
			if (!has[i])
				ask(peers[i], (uint16_t)round, 1 + (uint32_t)rand() % 48,
				    (uint32_t)rand() % 3, 1 + (uint32_t)rand() % 30);
		for (int i = 0; i < N; i++) {
			if (has[i]) {
				peer_free_ranges(peers[i], &range[i], 1);
				has[i] = false;
				continue;
			}
			do
				assert_non_null(peer_recv(peers[i]));
			while (peers[i]->frame.type >= TYPE(BLOCKS));
			assert_int_equal(peers[i]->frame.tag, round);
			if (peers[i]->frame.type == TYPE(GRANT)) {
				has[i] = true;
				granted++;
				/* the frame's payload is still there */
				const ProtobufCMessage *message;
				assert_int_equal(
					hp_message_unpack(peers[i]->arena,
							  &hugepool__v1__ranges__descriptor,
							  &peers[i]->frame, &message),
					0);
				memcpy(&range[i], ((const Hugepool__V1__Ranges *)message)->ranges,
				       sizeof(range[i]));
			} else {
				assert_int_equal(peers[i]->frame.type, TYPE(ERROR));
				late++;
			}
		}
	}
	assert_true(granted > N);
	assert_true(late > 0);
	for (int i = 0; i < N; i++) {
		peer_send(peers[i], TYPE(GOODBYE), 1, NULL);
		peer_expect_end(peers[i]);
		peer_free(peers[i]);
	}
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(served_when_somebody_frees),
		TEST(served_at_once_if_there_is_room),
		TEST(served_when_a_client_ends),
		TEST(served_by_many_frees),
		TEST(served_by_recycling),
		cmocka_unit_test(test_asked_once),
		TEST(exclusive_at_the_limit),
		TEST(exclusive_ones_wait),
		TEST(priority_then_arrival),
		TEST(a_large_one_is_not_overtaken),
		TEST(round_robin_between_tenants),
		TEST(guaranteed_first),
		TEST(deadline),
		TEST(what_can_never_be_is_refused_at_once),
		TEST(too_many),
		TEST(cancel),
		TEST(goodbye_while_waiting),
		TEST(gone_while_waiting),
		TEST(crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
