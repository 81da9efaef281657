/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole thing: the real hugepoold with its set-up, the real library in processes of several
 * uids, on huge pages of this machine (argument "hugetlb") or on ordinary memory ("shmem").
 *
 * After each test the zones are checked through the admin socket, everything has come back, and the
 * machine's huge pages are as they were.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"
#include "tests/integration/client.h"

#define UID_A 54321
#define UID_B 54322
#define UID_C 54323

#define MIB (UINT64_C(1) << 20)

/* 16 blocks of 4 pages, and 2 of 16: 192 MiB. */
#define ZONES(backing)                                                         \
	"idle-delay = 100ms\n"                                                 \
	"[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 128M\n" backing \
	"[zone vm]\npage-size = 2M\nblock-size = 32M\nsize = 64M\n" backing    \
	"[default]\nlimit.small = 12\nlimit.vm = 2\n"
#define SMALL_PAGES 64
#define BLOCK_PAGES 4
#define LIMIT_PAGES (12 * BLOCK_PAGES)

#define WAIT_TRIES 2000 /* of 5 ms */

static const char *executable;
static bool on_huge_pages;

static const char *zones(void)
{
	return on_huge_pages ? ZONES("grow-nr-hugepages = yes\n") : ZONES("backing = shmem\n");
}

/* --- the machine ------------------------------------------------------------------------------ */

struct huge_pages {
	long total, free, reserved, surplus;
};

static long counter(const char *name)
{
	char path[128];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s_hugepages",
		 name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

static struct huge_pages look_at_huge_pages(void)
{
	return (struct huge_pages){counter("nr"), counter("free"), counter("resv"),
				   counter("surplus")};
}

/* The kernel gives back what a process held a little after it has ended. */
static void expect_huge_pages(struct huge_pages before)
{
	struct huge_pages now;

	if (!on_huge_pages)
		return; /* they may be others' at that time */
	for (int i = 0; i < WAIT_TRIES; i++) {
		now = look_at_huge_pages();
		if (memcmp(&now, &before, sizeof(now)) == 0)
			return;
		poll(NULL, 0, 5);
	}
	fail_msg("huge pages: total %ld free %ld reserved %ld surplus %ld; before: %ld %ld %ld %ld",
		 now.total, now.free, now.reserved, now.surplus, before.total, before.free,
		 before.reserved, before.surplus);
}

/* --- each test -------------------------------------------------------------------------------- */

struct fixture {
	struct huge_pages before;
	struct program *program;
	struct peer *admin;
};

static void connect_admin(struct fixture *f)
{
	f->admin = peer_connect(f->program->admin_socket);
	peer_hello(f->admin);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->before = look_at_huge_pages();
	f->program = program_new(executable, zones());
	program_start(f->program);
	assert_true(program_log_has(f->program, "READY"));
	connect_admin(f);
	*state = f;
	return 0;
}

/* Waits until a figure of zone small is this. */
static void wait_for_pages(struct fixture *f, const char *what, size_t offset, uint64_t expected)
{
	uint64_t value = 0;

	for (int i = 0; i < WAIT_TRIES; i++) {
		Hugepool__V1__Zone zone = peer_zone(f->admin, 0);

		memcpy(&value, (const char *)&zone + offset, sizeof(value));
		if (value == expected)
			return;
		poll(NULL, 0, 5);
	}
	fail_msg("zone small: %s is %llu, expected %llu", what, (unsigned long long)value,
		 (unsigned long long)expected);
}
#define WAIT_FOR(f, field, expected) \
	wait_for_pages(f, #field, offsetof(Hugepool__V1__Zone, field), expected)

static void expect_all_back(struct fixture *f)
{
	WAIT_FOR(f, clean, SMALL_PAGES);
	peer_check(f->admin);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->program->pid) {
		expect_all_back(f);
		peer_free(f->admin);
		assert_int_equal(program_end(f->program, SIGTERM), 0);
	}
	program_free(f->program);
	expect_huge_pages(f->before);
	free(f);
	return 0;
}

static struct client *start(struct fixture *f, uid_t uid)
{
	return client_new(f->program->socket, getuid() == 0 ? uid : getuid());
}

static void take(struct client *client, size_t number, const char *zone, uint64_t bytes)
{
	struct hugepool_error error;
	int rc = client_take(client, number, zone, bytes, 0, &error);

	if (rc)
		fail_msg("alloc of %llu MiB: %s: %s", (unsigned long long)(bytes / MIB),
			 strerror(-rc), error.message);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static void test_takes_and_gives(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_B);

	take(a, 0, "small", 2 * MIB);
	take(a, 1, "small", 16 * MIB);
	take(b, 0, "small", 10 * MIB);
	take(a, 2, "vm", 32 * MIB);
	for (size_t i = 0; i < 3; i++) {
		assert_true(client_is_zero(a, i));
		client_fill(a, i, 100 + i);
	}
	client_fill(b, 0, 7);
	for (size_t i = 0; i < 3; i++)
		assert_true(client_is_filled(a, i, 100 + i));
	assert_true(client_is_filled(b, 0, 7));
	assert_int_equal(peer_zone(f->admin, 0).leased, 14);
	assert_int_equal(peer_zone(f->admin, 1).leased, 16);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(client_give(a, i), 0);
	assert_true(client_is_filled(b, 0, 7));
	assert_int_equal(peer_zone(f->admin, 0).leased, 5);
	client_free(a);
	client_free(b);
}

/* What one tenant wrote is never seen by another: he gets everything, and all of it is zero. */
static void test_recycled_for_another(void **state)
{
	struct fixture *f = *state;
	struct client *a, *b;

	if (getuid() != 0)
		skip();
	for (int round = 0; round < 4; round++) {
		a = start(f, UID_A);
		b = start(f, UID_B);
		for (size_t i = 0; i < LIMIT_PAGES / BLOCK_PAGES; i++) {
			take(a, i, "small", BLOCK_PAGES * 2 * MIB);
			client_fill(a, i, i);
		}
		for (size_t i = 0; i < LIMIT_PAGES / BLOCK_PAGES; i++)
			assert_int_equal(client_give(a, i), 0);
		client_free(a);
		WAIT_FOR(f, clean, SMALL_PAGES);
		for (size_t i = 0; i < LIMIT_PAGES / BLOCK_PAGES; i++) {
			take(b, i, "small", BLOCK_PAGES * 2 * MIB);
			assert_true(client_is_zero(b, i));
			client_fill(b, i, ~i);
		}
		client_free(b);
		WAIT_FOR(f, clean, SMALL_PAGES);
	}
	assert_true(peer_zone(f->admin, 0).recycles >= 4 * 2 * LIMIT_PAGES / BLOCK_PAGES);
}

static void test_wrong_frees(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_B);
	struct hugepool_range range;

	take(a, 0, "small", 6 * MIB);
	client_fill(a, 0, 1);
	range = client_range(a, 0);
	assert_int_equal(client_give_foreign(b, &range), -EINVAL);
	range.lease[1]++;
	assert_int_equal(client_give_foreign(a, &range), -EINVAL);
	range.lease[1]--;
	range.lease[0]++;
	assert_int_equal(client_give_foreign(a, &range), -EINVAL);
	range.lease[0] += 1 << 20;
	assert_int_equal(client_give_foreign(a, &range), -EINVAL);
	assert_true(client_is_filled(a, 0, 1));
	assert_int_equal(peer_zone(f->admin, 0).leased, 3);
	assert_int_equal(client_give(a, 0), 0);
	assert_int_equal(client_give(a, 0), -EINVAL);
	client_free(a);
	client_free(b);
}

static void test_no_memory_with_numbers(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b;
	struct hugepool_error error;

	/* over the limit, by one block */
	take(a, 0, "small", (LIMIT_PAGES - BLOCK_PAGES) * 2 * MIB);
	assert_int_equal(client_take(a, 1, "small", (BLOCK_PAGES + 1) * 2 * MIB, 0, &error),
			 -EDQUOT);
	assert_int_equal(error.asked_bytes, (BLOCK_PAGES + 1) * 2 * MIB);
	assert_int_equal(error.limit_bytes, LIMIT_PAGES * 2 * MIB);
	assert_int_equal(error.leasable_bytes, BLOCK_PAGES * 2 * MIB);
	assert_int_equal(error.largest_bytes, BLOCK_PAGES * 2 * MIB);
	assert_int_equal(error.free_bytes, (SMALL_PAGES - LIMIT_PAGES + BLOCK_PAGES) * 2 * MIB);
	assert_string_equal(error.zone, "small");
	assert_true(strlen(error.message) > 20);

	/* within the limit, but the zone has no more */
	if (getuid() == 0) {
		b = start(f, UID_B);
		assert_int_equal(client_take(b, 0, "small", 21 * 2 * MIB, 0, &error), -ENOMEM);
		assert_int_equal(error.asked_bytes, 21 * 2 * MIB);
		assert_int_equal(error.leasable_bytes, 20 * 2 * MIB);
		assert_int_equal(error.largest_bytes, 20 * 2 * MIB);
		assert_int_equal(error.free_bytes, 20 * 2 * MIB);
		take(b, 0, "small", 20 * 2 * MIB);
		client_free(b);
	}
	assert_int_equal(client_take(a, 1, "nowhere", 2 * MIB, 0, &error), -ENODEV);
	client_free(a);
}

/* --- parts ------------------------------------------------------------------------------------ */

/* A range becomes smaller at both ends and gets a hole; every part is somebody else's at once. */
static void test_parts(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *neighbour = start(f, UID_A);

	take(a, 0, "small", LIMIT_PAGES * 2 * MIB);
	client_fill(a, 0, 21);
	assert_int_equal(client_take(neighbour, 0, "small", 2 * MIB, 0, NULL), -EDQUOT);

	assert_int_equal(client_give_part(a, 0, 0, 3 * 2 * MIB, 1), 0);
	assert_true(client_is_filled_from(a, 0, 21, 3 * 2 * MIB));
	assert_int_equal(client_give_part(a, 0, (LIMIT_PAGES - 4) * 2 * MIB, 2 * MIB, 1), 0);
	assert_int_equal(client_give_part(a, 0, 20 * 2 * MIB, 5 * 2 * MIB, 1), 0);
	assert_int_equal(peer_zone(f->admin, 0).leased, LIMIT_PAGES - 9);
	assert_int_equal(client_range(a, 0).bytes, 20 * 2 * MIB);
	assert_int_equal(client_range(a, 1).bytes, (LIMIT_PAGES - 29) * 2 * MIB);
	peer_check(f->admin);

	/* What is not a part of it any more, and halves of pages. */
	assert_int_equal(client_give_part(a, 0, 20 * 2 * MIB, 2 * MIB, 2), -EINVAL);
	assert_int_equal(client_give_part(a, 0, MIB, 2 * MIB, 2), -EINVAL);

	for (size_t i = 0; i < 9; i++) {
		take(neighbour, i, "small", 2 * MIB);
		client_fill(neighbour, i, 100 + i);
	}
	assert_int_equal(client_take(neighbour, 9, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_true(client_is_filled_from(a, 0, 21, 3 * 2 * MIB));
	assert_true(client_is_filled_from(a, 1, 21, (3 + 25) * 2 * MIB));
	assert_int_equal(client_give(a, 0), 0);
	for (size_t i = 0; i < 9; i++)
		assert_true(client_is_filled(neighbour, i, 100 + i));
	assert_int_equal(client_give_part(a, 1, 0, client_range(a, 1).bytes, 2), 0);
	assert_int_equal(client_give(a, 1), -EINVAL);
	assert_int_equal(peer_zone(f->admin, 0).leased, 9);
	client_free(a);
	client_free(neighbour);
}

/* A block of which nothing is held any more can become another tenant's, though the range lives on. */
static void test_part_frees_a_block(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b, *c;
	uint32_t page;

	take(a, 0, "small", 4 * BLOCK_PAGES * 2 * MIB);
	client_fill(a, 0, 3);
	page = (uint32_t)client_range(a, 0).lease[0];
	/* The first whole block that does not hold its first page. */
	page = BLOCK_PAGES - page % BLOCK_PAGES;
	assert_int_equal(client_give_part(a, 0, page * 2 * MIB, BLOCK_PAGES * 2 * MIB, 1), 0);
	assert_int_equal(peer_zone(f->admin, 0).leased, 3 * BLOCK_PAGES);
	assert_int_equal(peer_zone(f->admin, 0).idle_blocks, 1);
	if (getuid() == 0) {
		b = start(f, UID_B);
		c = start(f, UID_C);
		take(b, 0, "small", LIMIT_PAGES * 2 * MIB);
		client_begin_take(c, 0, "small", BLOCK_PAGES * 2 * MIB, 60000);
		assert_int_equal(client_end_take(c, NULL), 0);
		assert_true(client_is_zero(c, 0));
		client_fill(c, 0, 4);
		client_free(b);
		client_free(c);
	}
	assert_true(client_is_filled(a, 0, 3));
	assert_true(client_is_filled_from(a, 1, 3, (page + BLOCK_PAGES) * 2 * MIB));
	client_free(a);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void wait_for_waiting(struct fixture *f, uint32_t expected)
{
	for (int i = 0; i < WAIT_TRIES && peer_zone(f->admin, 0).waiting != expected; i++)
		poll(NULL, 0, 5);
	assert_int_equal(peer_zone(f->admin, 0).waiting, expected);
}

/* Room is made by somebody who gives a part back; he hears of the wait and does not mind. */
static void test_waits_for_room(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_A);

	take(a, 0, "small", LIMIT_PAGES * 2 * MIB);
	client_fill(a, 0, 5);
	client_begin_take(b, 0, "small", 3 * 2 * MIB, 60000);
	wait_for_waiting(f, 1);
	assert_int_equal(client_give_part(a, 0, 8 * 2 * MIB, 4 * 2 * MIB, 1), 0);
	assert_int_equal(client_end_take(b, NULL), 0);
	wait_for_waiting(f, 0);
	client_fill(b, 0, 6);
	assert_true(client_is_filled(a, 0, 5));
	assert_true(client_is_filled_from(a, 1, 5, 12 * 2 * MIB));
	assert_true(client_is_filled(b, 0, 6));
	assert_int_equal(client_give(b, 0), 0);
	client_free(a);
	client_free(b);
}

/* Nobody gives anything: the numbers, and the handle is as good as before. */
static void test_waits_in_vain(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_A);
	struct hugepool_error error;

	take(a, 0, "small", (LIMIT_PAGES - 1) * 2 * MIB);
	client_begin_take(b, 0, "small", 2 * 2 * MIB, 200);
	assert_int_equal(client_end_take(b, &error), -ETIMEDOUT);
	assert_int_equal(error.error, ETIMEDOUT);
	assert_string_equal(error.zone, "small");
	assert_int_equal(error.asked_bytes, 2 * 2 * MIB);
	assert_int_equal(error.leasable_bytes, 2 * MIB);
	assert_int_equal(error.limit_bytes, LIMIT_PAGES * 2 * MIB);
	wait_for_waiting(f, 0);
	take(b, 0, "small", 2 * MIB);
	client_fill(b, 0, 9);
	assert_int_equal(client_give(b, 0), 0);

	/* What can never be had is not waited for, nor longer than a day. */
	client_begin_take(b, 0, "small", (LIMIT_PAGES + 1) * 2 * MIB, 60000);
	assert_int_equal(client_end_take(b, &error), -EDQUOT);
	client_begin_take(b, 0, "small", 2 * 2 * MIB, UINT64_MAX);
	assert_int_equal(client_end_take(b, &error), -EINVAL);
	client_free(a);
	client_free(b);
}

/* --- whatever comes --------------------------------------------------------------------------- */

static void test_hostile_frames_beside_work(void **state)
{
	static const struct {
		uint8_t bytes[16];
		size_t n;
	} hostile[] = {
		{{0x01, 0x20, 0, 0, 4, 0, 0, 0}, 8},	    /* a byte too long */
		{{0xff, 0xff, 0xff, 0xff, 4, 0, 0, 0}, 8},  /* 4 GiB */
		{{0, 0, 0, 0, 4, 0x80, 0, 0}, 8},	    /* flags */
		{{2, 0, 0, 0, 4, 0, 1, 0, 0x0a, 0x7f}, 10}, /* a field longer than the frame */
		{{0, 0, 0, 0, 200, 0, 1, 0}, 8},	    /* no such type */
		{{0, 0, 0, 0, 33, 0, 1, 0}, 8},		    /* the admin's */
		{{0, 0, 0, 0, 67, 0, 1, 0}, 8},		    /* a reply */
		{{8, 0, 0, 0, 4, 0}, 6},		    /* half a header */
		{{8, 0, 0, 0, 5, 0, 1, 0, 1, 2, 3}, 11},    /* half a payload */
		{{3, 0, 0, 0, 5, 0, 1, 0, 0x0a, 1, 9}, 11}, /* a ninth of a number */
	};
	struct fixture *f = *state;
	struct client *a = start(f, UID_A);

	take(a, 0, "small", 8 * MIB);
	client_fill(a, 0, 3);
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
			struct peer *peer = peer_connect(f->program->socket);

			if (round % 2)
				peer_hello(peer);
			peer_send_bytes(peer, hostile[i].bytes, hostile[i].n);
			take(a, 1, "small", 4 * MIB);
			peer_free(peer);
			assert_int_equal(client_give(a, 1), 0);
		}
	}
	assert_true(client_is_filled(a, 0, 3));
	peer_send(f->admin, TYPE(STATS), 1, NULL);
	assert_true(((const Hugepool__V1__StatsReply *)peer_expect(f->admin, TYPE(STATS_REPLY), 1))
			    ->broken >= 15);
	assert_true(program_log_has(f->program, "longer than the protocol allows"));
	client_free(a);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void test_killed_client(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_B);

	take(a, 0, "small", 20 * MIB);
	take(b, 0, "small", 6 * MIB);
	client_fill(a, 0, 1);
	client_fill(b, 0, 2);
	client_kill(a);
	WAIT_FOR(f, leased, 3);
	assert_int_equal(peer_zone(f->admin, 0).condemned, 0);
	assert_true(client_is_filled(b, 0, 2));
	WAIT_FOR(f, clean, SMALL_PAGES - BLOCK_PAGES);
	client_free(a);
	client_free(b);
}

static Hugepool__V1__SessionState state_of(struct fixture *f, pid_t pid)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	list.what = WHAT(SESSIONS);
	peer_send(f->admin, TYPE(LIST), 1, &list.base);
	reply = peer_expect(f->admin, TYPE(LIST_REPLY), 1);
	for (size_t i = 0; i < reply->n_sessions; i++)
		if (reply->sessions[i]->pid == (uint32_t)pid)
			return reply->sessions[i]->state;
	return HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_UNSPECIFIED;
}

static void wait_for_state(struct fixture *f, pid_t pid, Hugepool__V1__SessionState state)
{
	for (int i = 0; i < WAIT_TRIES && state_of(f, pid) != state; i++)
		poll(NULL, 0, 5);
	assert_int_equal(state_of(f, pid), state);
}

/* The connection breaks and the process lives: its memory is not given to a neighbour of its uid. */
static void test_condemned_while_the_process_lives(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *neighbour = start(f, UID_A);
	pid_t pid = a->pid;
	int taken = 0;

	take(a, 0, "small", 4 * MIB);
	client_fill(a, 0, 11);
	client_break(a);
	wait_for_state(f, pid, HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_CONDEMNED);
	assert_int_equal(peer_zone(f->admin, 0).condemned, 2);
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
	while (client_take(neighbour, taken, "small", 2 * MIB, 0, NULL) == 0) {
		client_fill(neighbour, taken, 1000 + taken);
		taken++;
	}
	assert_int_equal(taken, LIMIT_PAGES - 2);
	assert_true(client_is_filled(a, 0, 11));
	client_kill(a);
	WAIT_FOR(f, condemned, 0);
	take(neighbour, taken, "small", 4 * MIB);
	client_free(a);
	client_free(neighbour);
}

/* The process that connected ends, and a child has its connection: the session goes on. */
static void test_orphaned(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A);
	pid_t pid = a->pid, heir;

	take(a, 0, "small", 4 * MIB);
	heir = client_fork(a);
	client_kill(a);
	wait_for_state(f, pid, HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_ORPHANED);
	poll(NULL, 0, 300);
	assert_int_equal(peer_zone(f->admin, 0).leased, 2);
	assert_int_equal(kill(heir, SIGKILL), 0);
	WAIT_FOR(f, leased, 0);
	client_free(a);
}

static void test_sigterm_cleans_up(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A);
	struct stat st;

	take(a, 0, "small", 16 * MIB);
	if (on_huge_pages)
		assert_true(counter("nr") >= f->before.total - f->before.free + 96);
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	assert_int_equal(stat(f->program->socket, &st), -1);
	client_kill(a);
	client_free(a);
}

/* Nobody is left who could clean up, and yet: the set-up notices, and the next one starts. */
static void test_killed_daemon_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A);

	take(a, 0, "small", 16 * MIB);
	client_fill(a, 0, 5);
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGKILL), 128 + SIGKILL);
	assert_true(client_take(a, 1, "small", 2 * MIB, 0, NULL) < 0);
	client_free(a);
	expect_huge_pages(f->before);

	program_start(f->program);
	assert_true(program_log_has(f->program, "READY"));
	assert_true(program_log_has(f->program, "taken over"));
	connect_admin(f);
	a = start(f, UID_A);
	take(a, 0, "small", 16 * MIB);
	assert_true(client_is_zero(a, 0));
	client_free(a);
	expect_all_back(f);
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	/* the second one found the directory there, so it stayed */
	char run[96];

	snprintf(run, sizeof(run), "%s/run", f->program->directory);
	assert_int_equal(rmdir(run), 0);
}

/* More than the machine has: what there is is served, and both numbers are told. */
static void test_short_of_memory(void **state)
{
	struct fixture *f = *state;
	struct client *a;

	if (!on_huge_pages)
		skip();
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	expect_huge_pages(f->before);
	/* nothing may be added, and there is not enough */
	program_write_config(f->program,
			     "[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 8G\n");
	program_start(f->program);
	assert_true(f->program->pid);
	assert_true(program_log_has(f->program, "SHORT"));
	assert_true(program_log_has(f->program, "configured=8192MiB"));
	if (f->before.free >= BLOCK_PAGES) {
		a = start(f, UID_A);
		take(a, 0, "small", 2 * MIB);
		client_free(a);
	}
	assert_int_equal(program_end(f->program, SIGTERM), 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(takes_and_gives),
		TEST(recycled_for_another),
		TEST(wrong_frees),
		TEST(no_memory_with_numbers),
		TEST(parts),
		TEST(part_frees_a_block),
		TEST(waits_for_room),
		TEST(waits_in_vain),
		TEST(hostile_frames_beside_work),
		TEST(killed_client),
		TEST(condemned_while_the_process_lives),
		TEST(orphaned),
		TEST(sigterm_cleans_up),
		TEST(killed_daemon_leaves_nothing),
		TEST(short_of_memory),
	};

	if (argc != 3 || (strcmp(argv[2], "hugetlb") && strcmp(argv[2], "shmem"))) {
		fprintf(stderr, "usage: %s HUGEPOOLD hugetlb|shmem\n", argv[0]);
		return 2;
	}
	executable = argv[1];
	on_huge_pages = strcmp(argv[2], "hugetlb") == 0;
	if (on_huge_pages && getuid() != 0) {
		puts("skipped: only root can set up huge pages");
		return 77;
	}
	if (on_huge_pages && counter("nr") < 0) {
		puts("skipped: this kernel has no huge pages of 2 MiB");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
