/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocation over the wire: who is asked and told, in which order; what is taken and what is left;
 * and that a lease that was taken can be let go of once, whatever was on its way.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

#define BLOCK_PAGES RIG_SMALL_BLOCK_PAGES
#define SOON_MS	    50
#define LATE_MS	    20000

struct fixture {
	struct rig *rig;
	struct peer *peer, *other, *admin;
	uint64_t session, other_session;
};

static int start(void **state, unsigned workers)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.workers = workers};

	assert_non_null(f);
	f->rig = rig_new(&options);
	f->peer = rig_connect(f->rig, SOCKET_DATA);
	f->session = peer_hello(f->peer)->session;
	f->other = rig_connect(f->rig, SOCKET_DATA);
	f->other_session = peer_hello(f->other)->session;
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return start(state, 1);
}

static int setup_workers(void **state)
{
	return start(state, 2);
}

/* Whatever a test left leased is free when its sessions are gone, and nothing is left over. */
static int teardown(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Zone zone;

	peer_send(f->peer, TYPE(GOODBYE), 9, NULL);
	peer_expect(f->peer, TYPE(DONE), 9);
	peer_send(f->other, TYPE(GOODBYE), 9, NULL);
	peer_expect(f->other, TYPE(DONE), 9);
	zone = peer_zone(f->admin, 0);
	assert_int_equal(zone.leased + zone.condemned + zone.revoked, 0);
	peer_check(f->admin);
	peer_free(f->peer);
	peer_free(f->other);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

/* --- words ------------------------------------------------------------------------------------ */

static void say_revoke(struct peer *admin, const Hugepool__V1__Revoke *revoke)
{
	peer_send(admin, TYPE(REVOKE), 7, &revoke->base);
}

static const Hugepool__V1__RevokeReply *revoked(struct fixture *f)
{
	return peer_expect(f->admin, TYPE(REVOKE_REPLY), 7);
}

static Hugepool__V1__Revoke of_range(struct peer_range *range, uint32_t deadline_ms, bool force)
{
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;

	revoke.n_ranges = HP_WIRE_RANGE_WORDS;
	revoke.ranges = range->words;
	revoke.deadline_ms = deadline_ms;
	revoke.force = force;
	return revoke;
}

/* Takes it by force, at once. */
static const Hugepool__V1__RevokeReply *take(struct fixture *f, struct peer_range *range)
{
	Hugepool__V1__Revoke revoke = of_range(range, 0, true);

	say_revoke(f->admin, &revoke);
	return revoked(f);
}

/* The next thing that comes is REVOKED. */
static const Hugepool__V1__Revoked *told(struct peer *peer)
{
	const Hugepool__V1__Revoked *message = (const void *)peer_recv(peer);

	assert_non_null(message);
	assert_int_equal(peer->frame.type, TYPE(REVOKED));
	assert_int_equal(peer->frame.tag, 0);
	return message;
}

static const Hugepool__V1__Revoked *told_but_retired(struct peer *peer)
{
	const void *message;

	do
		message = peer_recv(peer);
	while (message && peer->frame.type == TYPE(BLOCK_RETIRED));
	assert_non_null(message);
	assert_int_equal(peer->frame.type, TYPE(REVOKED));
	return message;
}

static void assert_names(const Hugepool__V1__Revoked *message, const struct peer_range *ranges,
			 size_t n)
{
	assert_int_equal(message->n_ranges, n * HP_WIRE_RANGE_WORDS);
	for (size_t i = 0; i < n; i++) {
		size_t found = 0;

		for (size_t j = 0; j < n; j++)
			found += memcmp(message->ranges + j * HP_WIRE_RANGE_WORDS, ranges[i].words,
					sizeof(ranges[i].words)) == 0;
		assert_int_equal(found, 1);
	}
}

static struct peer_range plain(struct peer_range range)
{
	struct hp_wire_range wire = peer_range(&range);

	wire.zeroed = false;
	hp_wire_put_range(range.words, &wire);
	return range;
}

static void alloc(struct peer *peer, uint32_t pages, uint32_t count, struct peer_range *ret)
{
	peer_alloc(peer, "small", pages, count, ret);
	for (uint32_t i = 0; i < count; i++)
		ret[i] = plain(ret[i]);
}

static uint32_t block_of(const struct peer_range *range)
{
	return peer_range(range).page / BLOCK_PAGES;
}

static void ack(struct peer *peer, struct peer_range *range)
{
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	message.n_ranges = HP_WIRE_RANGE_WORDS;
	message.ranges = range->words;
	peer_send(peer, TYPE(ACK), 8, &message.base);
	peer_expect(peer, TYPE(DONE), 8);
}

/* Until nobody's block is on its way. */
static void wait_recycled(struct fixture *f)
{
	for (int i = 0; i < LATE_MS; i++) {
		Hugepool__V1__Zone zone = peer_zone(f->admin, 0);

		if (zone.isolated + zone.quarantined == 0)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	fail_msg("a block that was taken does not come back");
}

/* A block comes back only when nobody has its file. */
static void close_descriptors(struct peer *peer)
{
	while (peer->nr_fds)
		close(peer->fds[--peer->nr_fds]);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void test_asked_and_given_back(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;
	const Hugepool__V1__RevokeReply *reply;
	const Hugepool__V1__Revoked *message;
	struct peer_range mine[2], others;

	alloc(f->peer, 2, 2, mine);
	alloc(f->other, 1, 1, &others);
	revoke.session = f->session;
	revoke.deadline_ms = LATE_MS;
	say_revoke(f->admin, &revoke);

	message = told(f->peer);
	assert_names(message, mine, 2);
	assert_true(message->deadline_ms > 0 && message->deadline_ms <= LATE_MS);
	assert_false(message->force);
	assert_int_equal(message->block, 0);

	/* Nothing has happened to them. */
	assert_int_equal(peer_zone(f->admin, 0).leased, 5);
	ack(f->peer, &mine[0]);
	peer_free_refused(f->peer, &mine[0], 1, CODE(NOT_LEASED));
	peer_free_ranges(f->peer, &mine[1], 1);

	reply = revoked(f);
	assert_int_equal(reply->acknowledged_pages, 4);
	assert_int_equal(reply->forced_pages + reply->left_pages, 0);
	assert_int_equal(reply->nr_hit + reply->nr_left, 0);
	peer_expect_silence(f->other, SOON_MS);
	peer_free_ranges(f->other, &others, 1);
}

static void test_asked_in_vain(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;
	const Hugepool__V1__RevokeReply *reply;
	struct peer_range mine[2], others;
	char name[HP_NAME_MAX + 1];

	alloc(f->peer, 4, 2, mine);
	alloc(f->other, 3, 1, &others);
	snprintf(name, sizeof(name), "uid:%u", (unsigned)getuid());
	revoke.tenant = peer_text(name);
	revoke.deadline_ms = SOON_MS;
	say_revoke(f->admin, &revoke);
	assert_names(told(f->peer), mine, 2);
	assert_names(told(f->other), &others, 1);
	peer_free_ranges(f->peer, mine, 1);

	reply = revoked(f);
	assert_int_equal(reply->acknowledged_pages, 4);
	assert_int_equal(reply->forced_pages, 0);
	assert_int_equal(reply->left_pages, 7);
	assert_int_equal(reply->nr_left, 2);
	assert_int_equal(reply->n_left, 2);
	assert_memory_equal(reply->left[0]->range, mine[1].words, sizeof(mine[1].words));
	assert_int_equal(reply->left[0]->session, f->session);
	assert_memory_equal(reply->left[1]->range, others.words, sizeof(others.words));
	assert_int_equal(reply->left[1]->session, f->other_session);

	/* They are as good as before. */
	peer_free_ranges(f->peer, &mine[1], 1);
	peer_free_ranges(f->other, &others, 1);
}

/* A part that was given back is not counted as left. */
static void test_part_given_back(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__FreePart part = HUGEPOOL__V1__FREE_PART__INIT;
	Hugepool__V1__Revoke revoke;
	const Hugepool__V1__RevokeReply *reply;
	struct peer_range range;

	alloc(f->peer, 8, 1, &range);
	revoke = of_range(&range, SOON_MS, false);
	say_revoke(f->admin, &revoke);
	told(f->peer);
	part.n_range = HP_WIRE_RANGE_WORDS;
	part.range = range.words;
	part.offset = 2;
	part.pages = 5;
	peer_send(f->peer, TYPE(FREE_PART), 1, &part.base);
	assert_int_equal(
		((const Hugepool__V1__Ranges *)peer_expect(f->peer, TYPE(GRANT), 1))->n_ranges, 4);
	reply = revoked(f);
	assert_int_equal(reply->acknowledged_pages, 5);
	assert_int_equal(reply->left_pages, 3);
}

/* --- taking ----------------------------------------------------------------------------------- */

/*
 * Of one block: what was meant, another lease in it, and one that lies in the next block as well.
 * Those who held them are told before anything else, and what they say late is accepted once.
 */
static void test_taken_by_force(void **state)
{
	struct fixture *f = *state;
	struct peer_range meant, beside, across, fresh[BLOCK_PAGES];
	Hugepool__V1__Zone zone;
	const Hugepool__V1__RevokeReply *reply;
	const Hugepool__V1__Revoked *message;
	struct hp_wire_block block;

	alloc(f->peer, 2, 1, &meant);
	alloc(f->other, 3, 1, &beside);
	alloc(f->other, 2 * BLOCK_PAGES - 5, 1, &across);
	assert_int_equal(block_of(&beside), block_of(&meant));
	assert_int_equal(block_of(&across), block_of(&meant));

	reply = take(f, &meant);
	assert_int_equal(reply->forced_pages, 2);
	assert_int_equal(reply->acknowledged_pages + reply->left_pages, 0);
	assert_int_equal(reply->nr_hit, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(reply->hit[i]->session, f->other_session);
	assert_memory_equal(reply->hit[0]->range, beside.words, sizeof(beside.words));
	assert_memory_equal(reply->hit[1]->range, across.words, sizeof(across.words));

	message = told(f->peer);
	assert_names(message, &meant, 1);
	assert_true(message->force);
	block = hp_wire_get_block(message->block);
	assert_int_equal(block.index, block_of(&meant));
	assert_int_equal(block.generation, 1);
	peer_recv(f->peer);
	assert_int_equal(f->peer->frame.type, TYPE(BLOCK_RETIRED));
	assert_names(told(f->other), (struct peer_range[]){beside, across}, 2);

	/* What lies elsewhere is still the holder's, as revoked, also when the block is back. */
	close_descriptors(f->peer);
	close_descriptors(f->other);
	wait_recycled(f);
	zone = peer_zone(f->admin, 0);
	assert_int_equal(zone.leased, 0);
	assert_true(zone.revoked > 0);
	assert_int_equal(zone.revoked,
			 peer_range(&across).pages -
				 (BLOCK_PAGES - peer_range(&across).page % BLOCK_PAGES));
	alloc(f->peer, 1, BLOCK_PAGES, fresh);

	/* Late, once; and it touches nothing but what was revoked. */
	peer_free_ranges(f->peer, &meant, 1);
	peer_free_refused(f->peer, &meant, 1, CODE(STALE)); /* a later one begins there */
	ack(f->other, &across);
	zone = peer_zone(f->admin, 0);
	assert_int_equal(zone.revoked, 0);
	assert_int_equal(zone.leased, BLOCK_PAGES);
	peer_free_refused(f->other, &across, 1, CODE(WRONG_HOLDER)); /* likewise */
	ack(f->other, &beside);
	assert_int_equal(peer_zone(f->admin, 0).leased, BLOCK_PAGES);
	peer_free_ranges(f->peer, fresh, BLOCK_PAGES);
}

/* A FREE of several, one of which was taken before it arrived: all or none. */
static void test_free_on_its_way(void **state)
{
	struct fixture *f = *state;
	struct peer_range taken, kept, all[3], rest;

	alloc(f->peer, BLOCK_PAGES, 1, &taken);
	alloc(f->peer, BLOCK_PAGES, 1, &kept);
	alloc(f->peer, 1, 1, &rest);
	take(f, &taken);
	all[0] = kept;
	all[1] = taken;
	all[2] = taken;
	peer_free_refused(f->peer, all, 3, CODE(NOT_LEASED));
	assert_int_equal(peer_zone(f->admin, 0).leased, BLOCK_PAGES + 1);
	peer_free_ranges(f->peer, all, 2);
	assert_int_equal(peer_zone(f->admin, 0).leased, 1);
	peer_free_refused(f->peer, all, 2, CODE(NOT_LEASED));
	peer_free_ranges(f->peer, &rest, 1);
}

static void test_part_of_what_was_taken(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__FreePart part = HUGEPOOL__V1__FREE_PART__INIT;
	struct peer_range range;

	alloc(f->peer, 4, 1, &range);
	take(f, &range);
	part.n_range = HP_WIRE_RANGE_WORDS;
	part.range = range.words;
	part.pages = 1;
	peer_refused(f->peer, TYPE(FREE_PART), &part.base, CODE(REVOKED));
	peer_free_ranges(f->peer, &range, 1);
}

static Hugepool__V1__Revoke of_block(uint64_t *word, uint32_t deadline_ms)
{
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;

	revoke.zone = peer_text("small");
	revoke.n_blocks = 1;
	revoke.blocks = word;
	revoke.force = true;
	revoke.deadline_ms = deadline_ms;
	return revoke;
}

/*
 * Blocks of one lease are taken one after the other, from the middle, and nothing but those. It is
 * always named as it was granted, and let go of with one word.
 */
static void test_block_after_block(void **state)
{
	static const uint32_t order[] = {2, 4, 0};
	struct fixture *f = *state;
	struct peer_range range;

	alloc(f->peer, 5 * BLOCK_PAGES, 1, &range);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t block = block_of(&range) + order[i];
		uint64_t word = hp_wire_put_block((struct hp_wire_block){.index = block});
		Hugepool__V1__Revoke revoke = of_block(&word, 0);
		const Hugepool__V1__RevokeReply *reply;
		const Hugepool__V1__Revoked *message;

		say_revoke(f->admin, &revoke);
		reply = revoked(f);
		assert_int_equal(reply->forced_pages, BLOCK_PAGES);
		assert_int_equal(reply->acknowledged_pages + reply->left_pages, 0);
		assert_int_equal(peer_zone(f->admin, 0).revoked, (4 - i) * BLOCK_PAGES);
		message = told_but_retired(f->peer);
		assert_names(message, &range, 1);
		assert_int_equal(hp_wire_get_block(message->block).index, block);
	}
	ack(f->peer, &range);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 0);
	peer_free_refused(f->peer, &range, 1, CODE(NOT_LEASED));
}

/* All blocks of a lease that is meant are taken. */
static void test_lease_of_many_blocks(void **state)
{
	struct fixture *f = *state;
	struct peer_range range;

	alloc(f->peer, 9 * BLOCK_PAGES - 1, 1, &range);
	assert_int_equal(take(f, &range)->forced_pages, 9 * BLOCK_PAGES - 1);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 0);
	for (uint32_t i = 0; i < 9; i++) {
		const Hugepool__V1__Revoked *message = told_but_retired(f->peer);

		assert_names(message, &range, 1);
		assert_int_equal(hp_wire_get_block(message->block).index, block_of(&range) + i);
	}
	ack(f->peer, &range);
}

/* A lease lies across a block from one end to the other; the blocks at its ends are taken. */
static void test_rest_is_taken_as_well(void **state)
{
	struct fixture *f = *state;
	struct peer_range first, across, last;
	const Hugepool__V1__Revoked *message;
	uint32_t block;

	alloc(f->peer, BLOCK_PAGES - 2, 1, &first);
	alloc(f->other, BLOCK_PAGES + 4, 1, &across);
	alloc(f->peer, BLOCK_PAGES - 2, 1, &last);
	block = block_of(&first);
	assert_int_equal(block_of(&across), block);
	assert_int_equal(block_of(&last), block + 2);

	assert_int_equal(take(f, &first)->nr_hit, 1);
	message = told(f->other);
	assert_names(message, &across, 1);
	assert_int_equal(hp_wire_get_block(message->block).index, block);
	assert_int_equal(peer_zone(f->admin, 0).revoked, BLOCK_PAGES + 2);

	/* It is no lease any more, so no other lease is hit; its holder is told all the same. */
	assert_int_equal(take(f, &last)->nr_hit, 0);
	message = told_but_retired(f->other);
	assert_names(message, &across, 1);
	assert_int_equal(hp_wire_get_block(message->block).index, block + 2);
	assert_int_equal(peer_zone(f->admin, 0).revoked, BLOCK_PAGES);
	ack(f->other, &across);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 0);
}

/* After the deadline what is left is taken, and only that. */
static void test_deadline_then_force(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;
	const Hugepool__V1__RevokeReply *reply;
	const Hugepool__V1__Revoked *message;
	struct peer_range given, kept;

	alloc(f->peer, BLOCK_PAGES, 1, &given);
	alloc(f->peer, BLOCK_PAGES, 1, &kept);
	revoke.session = f->session;
	revoke.deadline_ms = 10 * SOON_MS;
	revoke.force = true;
	say_revoke(f->admin, &revoke);
	message = told(f->peer);
	assert_true(message->force);
	assert_int_equal(message->block, 0);
	peer_free_ranges(f->peer, &given, 1);
	reply = revoked(f);
	assert_int_equal(reply->acknowledged_pages, BLOCK_PAGES);
	assert_int_equal(reply->forced_pages, BLOCK_PAGES);
	assert_int_equal(reply->left_pages, 0);
	message = told(f->peer);
	assert_names(message, &kept, 1);
	assert_true(message->block != 0);
	ack(f->peer, &kept);
}

/* A session that is gone with its connection cannot be asked; what is left of it ends with it. */
static void test_death_ends_the_rest(void **state)
{
	struct fixture *f = *state;
	struct peer_range meant, across;

	alloc(f->peer, BLOCK_PAGES - 2, 1, &meant);
	alloc(f->other, BLOCK_PAGES + 4, 1, &across);
	assert_int_equal(block_of(&meant), block_of(&across));
	take(f, &meant);
	assert_int_equal(peer_zone(f->admin, 0).revoked, BLOCK_PAGES + 2);
	peer_send(f->other, TYPE(GOODBYE), 1, NULL);
	peer_expect(f->other, TYPE(DONE), 1);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 0);
	peer_free(f->other);
	f->other = rig_connect_hello(f->rig, SOCKET_DATA);
}

/* --- the request ------------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Revoke revoke = HUGEPOOL__V1__REVOKE__INIT;
	struct peer_range range, twice[2];
	uint64_t word = hp_wire_put_block((struct hp_wire_block){.index = RIG_SMALL_BLOCKS});

	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	revoke.session = f->session;
	revoke.tenant = peer_text("x");
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	revoke.session = 0;
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	revoke.tenant.len = 0;
	revoke.session = 4711;
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	revoke.session = f->session;
	revoke.deadline_ms = HP_DEADLINE_MAX_MS + 1;
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	peer_refused(f->peer, TYPE(REVOKE), &revoke.base, CODE(UNKNOWN_TYPE));

	revoke = of_block(&word, 0);
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	word = hp_wire_put_block((struct hp_wire_block){.index = 0, .generation = 77});
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	revoke.zone = peer_text("nowhere");
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));

	alloc(f->peer, 4, 1, &range);
	peer_free_ranges(f->peer, &range, 1);
	revoke = of_range(&range, 0, true);
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	alloc(f->peer, 4, 1, &range);
	twice[0] = twice[1] = range;
	revoke.n_ranges = 2 * HP_WIRE_RANGE_WORDS;
	revoke.ranges = twice[0].words;
	peer_refused(f->admin, TYPE(REVOKE), &revoke.base, CODE(INVALID));
	peer_free_ranges(f->peer, &range, 1);

	/* Nothing to be revoked is nothing left. */
	revoke = (Hugepool__V1__Revoke)HUGEPOOL__V1__REVOKE__INIT;
	revoke.session = f->session;
	say_revoke(f->admin, &revoke);
	assert_int_equal(revoked(f)->left_pages, 0);
}

/* Nothing is taken for an admin who is not there any more. */
static void test_called_off(void **state)
{
	struct fixture *f = *state;
	struct peer *admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	struct peer_range range;
	Hugepool__V1__Revoke revoke;

	alloc(f->peer, 4, 1, &range);
	revoke = of_range(&range, 4 * SOON_MS, true);
	say_revoke(admin, &revoke);
	told(f->peer);
	peer_free(admin);
	peer_expect_silence(f->peer, 8 * SOON_MS);
	assert_int_equal(peer_zone(f->admin, 0).leased, 4);
	peer_free_ranges(f->peer, &range, 1);
}

/* --- all at once ------------------------------------------------------------------------------ */

#define STRESS_HELD 24
#define STRESS_MS   1500

struct stress {
	struct peer *peer;
	unsigned seed;
	uint64_t grants, told, refused; /* what came */
	atomic_bool *stop;
};

struct holding {
	struct peer_range range;
	bool held;
};

/* Reads until the answer with this tag; what it is told of on the way it may free all the same. */
static const ProtobufCMessage *answer(struct stress *stress, uint16_t tag)
{
	const ProtobufCMessage *message;

	do {
		message = peer_recv(stress->peer);
		assert_non_null(message);
		stress->told += stress->peer->frame.type == TYPE(REVOKED);
	} while (stress->peer->frame.tag != tag);
	close_descriptors(stress->peer);
	return message;
}

static void stress_take(struct stress *stress, struct holding *holding)
{
	Hugepool__V1__Alloc request = HUGEPOOL__V1__ALLOC__INIT;
	const Hugepool__V1__Ranges *grant;

	request.zone = peer_text("small");
	request.pages = 1 + (uint32_t)rand_r(&stress->seed) % (2 * BLOCK_PAGES);
	request.deadline_ms = rand_r(&stress->seed) % 2 ? 0 : 20;
	request.exclusive = rand_r(&stress->seed) % 8 == 0;
	peer_send(stress->peer, TYPE(ALLOC), 1, &request.base);
	grant = (const void *)answer(stress, 1);
	if (stress->peer->frame.type == TYPE(ERROR)) {
		stress->refused++;
		return;
	}
	assert_int_equal(stress->peer->frame.type, TYPE(GRANT));
	memcpy(holding->range.words, grant->ranges, sizeof(holding->range.words));
	holding->range = plain(holding->range);
	holding->held = true;
	stress->grants++;
}

/* Told of or not: what was granted can be given back, once. */
static void stress_give(struct stress *stress, struct holding *holding)
{
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	message.n_ranges = HP_WIRE_RANGE_WORDS;
	message.ranges = holding->range.words;
	peer_send(stress->peer, rand_r(&stress->seed) % 2 ? TYPE(FREE) : TYPE(ACK), 2,
		  &message.base);
	answer(stress, 2);
	assert_int_equal(stress->peer->frame.type, TYPE(DONE));
	holding->held = false;
}

static void *stress_main(void *userdata)
{
	struct stress *stress = userdata;
	struct holding held[STRESS_HELD] = {0};

	while (!*stress->stop) {
		struct holding *holding = &held[rand_r(&stress->seed) % STRESS_HELD];

		if (holding->held)
			stress_give(stress, holding);
		else
			stress_take(stress, holding);
	}
	for (size_t i = 0; i < STRESS_HELD; i++)
		if (held[i].held)
			stress_give(stress, &held[i]);
	return NULL;
}

/*
 * Two sessions on two workers take, wait and give back while blocks are taken from them as fast as
 * an admin can. All they are granted they can give back once; in the end nothing is missing.
 */
static void test_stress(void **state)
{
	struct fixture *f = *state;
	atomic_bool stop = false;
	struct stress stress[2] = {
		{.peer = f->peer, .seed = 1, .stop = &stop},
		{.peer = f->other, .seed = 2, .stop = &stop},
	};
	struct timespec begin, now;
	pthread_t thread[2];
	uint64_t forced = 0;

	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, stress_main, &stress[i]), 0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		uint64_t word = hp_wire_put_block(
			(struct hp_wire_block){.index = (uint32_t)rand() % RIG_SMALL_BLOCKS});
		Hugepool__V1__Revoke revoke = of_block(&word, (uint32_t)rand() % 2);

		say_revoke(f->admin, &revoke);
		forced += revoked(f)->forced_pages;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 <
		 STRESS_MS);
	stop = true;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	for (size_t i = 0; i < 2; i++) {
		print_message("session %zu: %lu grants, %lu notices, %lu refusals\n", i,
			      (unsigned long)stress[i].grants, (unsigned long)stress[i].told,
			      (unsigned long)stress[i].refused);
		assert_true(stress[i].grants > 0);
	}
	assert_true(stress[0].told + stress[1].told > 0);
	assert_true(forced > 0);
	peer_check(f->admin);
	wait_recycled(f);
	assert_int_equal(peer_zone(f->admin, 0).leased + peer_zone(f->admin, 0).revoked, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_asked_and_given_back),
		TEST(test_asked_in_vain),
		TEST(test_part_given_back),
		TEST(test_taken_by_force),
		TEST(test_free_on_its_way),
		TEST(test_part_of_what_was_taken),
		TEST(test_block_after_block),
		TEST(test_lease_of_many_blocks),
		TEST(test_rest_is_taken_as_well),
		TEST(test_deadline_then_force),
		TEST(test_death_ends_the_rest),
		TEST(test_refusals),
		TEST(test_called_off),
		cmocka_unit_test_setup_teardown(test_stress, setup_workers, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
