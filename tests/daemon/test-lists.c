/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists and figures: everything there is, once, however long the list; and of others only what
 * everybody may know.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/pool/internal.h"
#include "tests/daemon/rig.h"

#define UID_A 54321
#define UID_B 54322

#define ROWS_MAX 4096

struct fixture {
	struct rig *rig;
	struct peer *peer, *admin;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.workers = 2};

	f->rig = rig_new(&options);
	f->peer = rig_connect_hello(f->rig, SOCKET_DATA);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	peer_check(f->admin);
	peer_free(f->peer);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

/* One piece of a list. */
static const Hugepool__V1__ListReply *piece(struct peer *peer, Hugepool__V1__ListWhat what,
					    uint32_t zone, uint64_t cursor)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;

	list.what = what;
	list.zone = zone;
	list.cursor = cursor;
	peer_send(peer, TYPE(LIST), 11, &list.base);
	return peer_expect(peer, TYPE(LIST_REPLY), 11);
}

/* --- pieces ----------------------------------------------------------------------------------- */

static void test_sessions_in_pieces(void **state)
{
	enum { N = 150 };
	struct fixture *f = *state;
	struct peer *peers[N];
	uint8_t seen[N + 2] = {0};
	uint64_t cursor = 0;
	unsigned pieces = 0, rows = 0;

	for (int i = 0; i < N; i++)
		peers[i] = rig_connect_hello(f->rig, SOCKET_DATA);
	do {
		const Hugepool__V1__ListReply *reply = piece(f->peer, WHAT(SESSIONS), 0, cursor);

		assert_true(reply->n_sessions <= HP_LIST_ROWS_MAX);
		assert_int_equal(reply->n_leases + reply->n_zones + reply->n_tenants, 0);
		for (size_t i = 0; i < reply->n_sessions; i++) {
			const Hugepool__V1__Session *row = reply->sessions[i];

			assert_true(row->session >= 1 && row->session <= N + 1);
			assert_int_equal(seen[row->session]++, 0);
			assert_int_equal(row->pid, getpid());
			assert_int_equal(row->uid, getuid());
			assert_int_equal(row->state,
					 HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_OPEN);
			assert_int_equal(row->name.len, 4);
			assert_memory_equal(row->name.data, "peer", 4);
		}
		rows += (unsigned)reply->n_sessions;
		cursor = reply->next;
	} while (++pieces < 20 && cursor);
	assert_int_equal(rows, N + 1);
	assert_int_equal(pieces, 3);
	for (int i = 0; i < N; i++)
		peer_free(peers[i]);
}

static void test_leases_in_pieces(void **state)
{
	enum { SMALL = 200, LARGE = 30 };
	struct fixture *f = *state;
	struct peer_range ranges[SMALL], large[LARGE];
	uint64_t cursor = 0, last = 0;
	unsigned rows = 0;

	peer_alloc(f->peer, "small", 1, SMALL, ranges);
	peer_alloc(f->peer, "large", 7, LARGE, large);
	do {
		const Hugepool__V1__ListReply *reply = piece(f->peer, WHAT(LEASES), 0, cursor);

		for (size_t i = 0; i < reply->n_leases; i++) {
			const Hugepool__V1__Lease *row = reply->leases[i];
			struct hp_wire_range range;

			assert_int_equal(row->n_range, 2);
			assert_true(row->range[0] >= last);
			last = row->range[0] + 1;
			assert_int_equal(hp_wire_get_range(row->range, &range), 0);
			assert_int_equal(range.pages, range.zone ? 7 : 1);
			assert_int_equal(row->session, 1);
			assert_true(row->age_ms < 60000);
			assert_false(row->revoked);
		}
		rows += (unsigned)reply->n_leases;
		cursor = reply->next;
	} while (cursor);
	assert_int_equal(rows, SMALL + LARGE);
	/* what a list names can be freed by that name */
	peer_free_ranges(f->peer, ranges, SMALL);
	peer_free_ranges(f->peer, large, LARGE);
	assert_int_equal(piece(f->peer, WHAT(LEASES), 0, 0)->n_leases, 0);
}

/* Ages tell parts of a second: one is seen that is not a whole number of them. */
static void test_age_of_a_lease(void **state)
{
	struct fixture *f = *state;
	struct peer_range range;
	uint64_t age = 0, before = 0;

	peer_alloc(f->peer, "small", 1, 1, &range);
	for (int i = 0; i < 10000 && age % 1000 == 0; i++) {
		age = piece(f->peer, WHAT(LEASES), 0, 0)->leases[0]->age_ms;
		assert_true(age >= before && age < 60000);
		before = age;
		poll(NULL, 0, 1);
	}
	assert_int_not_equal(age % 1000, 0);
	peer_free_ranges(f->peer, &range, 1);
}

static void test_blocks_in_pieces(void **state)
{
	struct rig_options options = {.config = "[zone many]\npage-size = 4K\nblock-size = 4K\n"
						"size = 4M\nbacking = shmem\n"};
	struct rig *rig = rig_new(&options);
	struct peer *peer = rig_connect_hello(rig, SOCKET_DATA);
	struct peer_range range;
	uint64_t cursor = 0;
	uint32_t next = 0, live = 0;

	(void)state;
	peer_alloc(peer, "many", 5, 1, &range);
	do {
		const Hugepool__V1__ListReply *reply = piece(peer, WHAT(BLOCKS), 0, cursor);

		for (size_t i = 0; i < reply->n_blocks; i++, next++) {
			const Hugepool__V1__Block *row = reply->blocks[i];
			bool is_live = row->state == HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_LIVE;

			assert_int_equal(row->index, next);
			assert_int_equal(row->pages, 1);
			assert_int_equal(row->free_pages, is_live ? 0 : 1);
			assert_int_equal(row->owner, is_live ? 1 : 0);
			live += is_live;
		}
		cursor = reply->next;
	} while (cursor);
	assert_int_equal(next, 1024);
	assert_int_equal(live, 5);
	peer_send(peer, TYPE(GOODBYE), 1, NULL);
	peer_expect(peer, TYPE(DONE), 1);
	peer_free(peer);
	rig_free(rig);
}

/* More zones than a frame has room for: none is lost, and WELCOME has room for all of them. */
static void test_many_zones_and_tenants(void **state)
{
	char config[8192] = "";
	struct rig_options options = {.config = config};
	const Hugepool__V1__Welcome *welcome;
	const Hugepool__V1__ListReply *reply;
	struct peer *peer, *admin;
	struct rig *rig;
	uint64_t cursor = 0;
	unsigned rows = 0;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < HP_ZONES_MAX; i++)
		n += (size_t)snprintf(config + n, sizeof(config) - n,
				      "[zone a-name-as-long-as-allowed-%02d-]\npage-size = 4K\n"
				      "block-size = 4K\nsize = 32K\nbacking = shmem\n",
				      i);
	for (int i = 0; i < 40; i++)
		n += (size_t)snprintf(config + n, sizeof(config) - n,
				      "[tenant tenant-%02d]\nuid = %d\n", i, 100 + i);
	rig = rig_new(&options);
	peer = rig_connect(rig, SOCKET_DATA);
	admin = rig_connect_hello(rig, SOCKET_ADMIN);
	welcome = peer_hello(peer);
	assert_int_equal(welcome->n_zones, HP_ZONES_MAX);
	do {
		reply = piece(peer, WHAT(ZONES), 0, cursor);
		for (size_t i = 0; i < reply->n_zones; i++)
			assert_int_equal(reply->zones[i]->id, rows++);
		cursor = reply->next;
	} while (cursor);
	assert_int_equal(rows, HP_ZONES_MAX);
	rows = 0;
	do {
		reply = piece(admin, WHAT(TENANTS), 0, cursor);
		for (size_t i = 0; i < reply->n_tenants; i++, rows++) {
			assert_int_equal(reply->tenants[i]->n_limit_blocks, HP_ZONES_MAX);
			assert_int_equal(reply->tenants[i]->limit_blocks[5], 4);
		}
		cursor = reply->next;
	} while (cursor);
	assert_int_equal(rows, 41);
	peer_free(peer);
	peer_free(admin);
	rig_free(rig);
}

/* Any cursor is answered, by something or nothing. */
static void test_cursors_of_nonsense(void **state)
{
	static const uint64_t cursors[] = {
		1, 2, 1000, UINT32_MAX, (uint64_t)UINT32_MAX + 1, UINT64_C(1) << 63, UINT64_MAX};
	struct fixture *f = *state;
	struct peer_range range;

	peer_alloc(f->peer, "small", 1, 1, &range);
	for (unsigned what = 1; what <= WHAT(CACHES); what++)
		for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++)
			piece(f->peer, what, 0, cursors[i]);
}

static void test_no_such_list(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;

	peer_refused(f->peer, TYPE(LIST), &list.base, CODE(INVALID));
	list.what = WHAT(CACHES) + 1;
	peer_refused(f->peer, TYPE(LIST), &list.base, CODE(INVALID));
	list.what = WHAT(BLOCKS);
	list.zone = 2;
	peer_refused(f->peer, TYPE(LIST), &list.base, CODE(NO_ZONE));
}

/* --- figures ---------------------------------------------------------------------------------- */

static uint64_t sum(const Hugepool__V1__Zone *z)
{
	return z->clean + z->free + z->pcp + z->draining + z->leased + z->condemned + z->revoked +
	       z->isolated + z->quarantined + z->lent + z->offline + z->bad;
}

static void test_zone_figures(void **state)
{
	struct fixture *f = *state;
	struct peer *lost = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range;
	Hugepool__V1__Zone zone;

	peer_alloc(f->peer, "small", 20, 1, &range);
	peer_alloc(lost, "small", 3, 1, &range);
	peer_free(lost);
	rig_wait_connections(f->rig, 1);
	zone = peer_zone(f->peer, 0);
	assert_int_equal(sum(&zone), RIG_SMALL_PAGES);
	assert_int_equal(zone.pages, RIG_SMALL_PAGES);
	assert_int_equal(zone.leased, 20);
	assert_int_equal(zone.condemned, 3);
	assert_int_equal(zone.held_blocks, 2);
	assert_int_equal(zone.clean_blocks, RIG_SMALL_BLOCKS - 2);
	assert_int_equal(zone.online_blocks, RIG_SMALL_BLOCKS);
	assert_true(zone.zeroed_bytes >= RIG_SMALL_BLOCKS * zone.block_size);
	assert_int_equal(zone.leasable, RIG_SMALL_PAGES - 23);
	assert_int_equal(zone.grants, 2);
	assert_int_equal(zone.limit_blocks, RIG_SMALL_BLOCKS);
	/* the admin is no tenant */
	zone = peer_zone(f->admin, 0);
	assert_int_equal(zone.leasable + zone.limit_blocks + zone.held_blocks, 0);
	assert_int_equal(zone.leased, 20);
}

static void test_buddyinfo_adds_up(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__ListReply *reply;
	struct peer_range range;
	uint64_t pages = 0;

	peer_alloc(f->peer, "large", 300, 1, &range);
	reply = piece(f->peer, WHAT(BUDDYINFO), 1, 0);
	assert_int_equal(reply->n_buddyinfo, 2);
	assert_int_equal(reply->buddyinfo[0]->owner, 0);
	assert_int_equal(reply->buddyinfo[1]->owner, 1);
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < reply->buddyinfo[i]->n_free_chunks; k++)
			pages += (uint64_t)reply->buddyinfo[i]->free_chunks[k] << k;
	assert_int_equal(pages, 1024 - 300);
}

static void test_caches(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__ListReply *reply;
	struct peer_range ranges[8];
	uint64_t pages = 0;

	peer_alloc(f->peer, "small", 1, 8, ranges);
	peer_free_ranges(f->peer, ranges, 8);
	reply = piece(f->peer, WHAT(CACHES), 0, 0);
	assert_int_equal(reply->n_caches, 1);
	assert_int_equal(reply->caches[0]->owner, 1);
	for (size_t i = 0; i < reply->caches[0]->n_chunks; i++)
		pages += reply->caches[0]->chunks[i] << (i < 4 ? i : 4);
	assert_int_equal(pages, reply->caches[0]->pages);
	assert_int_equal(pages, peer_zone(f->admin, 0).pcp);
	assert_true(pages > 0);
	peer_send(f->admin, TYPE(FLUSH), 1, NULL);
	peer_expect(f->admin, TYPE(DONE), 1);
	assert_int_equal(peer_zone(f->admin, 0).pcp, 0);
	/* with the last session the cache is gone */
	peer_send(f->peer, TYPE(GOODBYE), 1, NULL);
	peer_expect_end(f->peer);
	rig_wait_connections(f->rig, 0);
	assert_int_equal(piece(f->admin, WHAT(CACHES), 0, 0)->n_caches, 0);
}

/* Workers are stopped one after another: until the last one is, it may look at the others. */
static void test_caches_of_a_stopped_worker(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__ListReply *reply;
	struct peer_range ranges[8];
	size_t stopped = f->rig->workers[0]->connections ? 0 : 1;
	struct peer *other;

	peer_alloc(f->peer, "small", 1, 8, ranges);
	peer_free_ranges(f->peer, ranges, 8);
	other = rig_connect_hello(f->rig, SOCKET_DATA); /* to the worker that has none yet */
	assert_int_equal(f->rig->workers[!stopped]->connections, 1);
	worker_stop(f->rig->workers[stopped]);
	reply = piece(other, WHAT(CACHES), 0, 0);
	assert_int_equal(reply->n_caches, 1);
	assert_int_equal(reply->caches[0]->worker, stopped);
	peer_free(other);
	/* the admin's session may have ended with it */
	peer_free(f->admin);
	peer_free(f->peer);
	rig_free(f->rig);
	f->rig = rig_new(&(struct rig_options){.workers = 2});
	f->peer = rig_connect_hello(f->rig, SOCKET_DATA);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
}

/* A word that is wrong is found, and named, however often one looks. */
static void test_check_finds(void **state)
{
	struct fixture *f = *state;
	struct bound_zone *zone = bound_zone(pool_zone(f->rig->net.pool, 0));
	hp_word_t *words = state_zone_words(zone->pool->state, zone->public.id),
		  *lease = &words[RIG_SMALL_BLOCKS + RIG_SMALL_PAGES - 1];
	const Hugepool__V1__CheckReply *reply;
	uint64_t right = hp_durable_load(lease);

	peer_check(f->admin);
	hp_durable_store(lease, hp_lease_encode((struct hp_lease_word){
					.slot = 9, .pages = 1, .state = HP_LEASE_LEASED}));
	peer_send(f->admin, TYPE(CHECK), 1, NULL);
	reply = peer_expect(f->admin, TYPE(CHECK_REPLY), 1);
	assert_true(reply->violations > 0);
	assert_true(reply->n_messages > 0);
	assert_non_null(memmem(reply->messages[0].data, reply->messages[0].len, "small", 5));
	hp_durable_store(lease, right);
	peer_check(f->admin);
}

static void test_stats(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__StatsReply *stats;
	struct peer *other = rig_connect_hello(f->rig, SOCKET_DATA);

	peer_refused(other, TYPE(ACK), NULL, CODE(MALFORMED));
	peer_send(f->admin, TYPE(STATS), 1, NULL);
	stats = peer_expect(f->admin, TYPE(STATS_REPLY), 1);
	assert_int_equal(stats->pid, getpid());
	assert_int_equal(stats->workers, 2);
	assert_int_equal(stats->sessions, 2);
	assert_int_equal(stats->tenants, 1);
	assert_int_equal(stats->requests, 5); /* 3 HELLO, ACK, STATS */
	assert_int_equal(stats->errors, 1);
	assert_true(stats->ready);
	assert_int_equal(stats->tenant.len, 0);
	assert_int_equal(stats->online_bytes, 5 << 20);
	peer_free(other);
}

/* --- of others -------------------------------------------------------------------------------- */

static void test_what_tenants_see_of_each_other(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__ListReply *reply;
	struct peer *a, *b;
	struct peer_range range;

	if (getuid() != 0)
		skip();
	a = rig_connect_as(f->rig, UID_A);
	b = rig_connect_as(f->rig, UID_B);
	peer_alloc(a, "small", 7, 1, &range);
	peer_alloc(b, "small", 9, 1, &range);

	reply = piece(a, WHAT(SESSIONS), 0, 0);
	assert_int_equal(reply->n_sessions, 1);
	assert_int_equal(reply->sessions[0]->uid, UID_A);
	assert_int_equal(reply->sessions[0]->leased_bytes, 7 * 4096);
	reply = piece(a, WHAT(LEASES), 0, 0);
	assert_int_equal(reply->n_leases, 1);
	reply = piece(a, WHAT(TENANTS), 0, 0);
	assert_int_equal(reply->n_tenants, 3);
	for (size_t i = 0; i < 3; i++) {
		const Hugepool__V1__Tenant *row = reply->tenants[i];
		bool own = row->owner == 2;

		assert_int_equal(row->leased_pages[0], row->owner == 1 ? 0 : own ? 7 : 9);
		assert_int_equal(row->uid, own ? UID_A : UINT32_MAX);
		assert_int_equal(row->name.len, own ? strlen("uid:54321") : 0);
	}
	/* each block is one tenant's */
	reply = piece(a, WHAT(BLOCKS), 0, 0);
	assert_int_equal(reply->blocks[0]->owner, 2);
	assert_int_equal(reply->blocks[1]->owner, 3);

	/* nor can one touch what is the other's */
	peer_free_refused(a, &range, 1, CODE(WRONG_HOLDER));

	assert_int_equal(piece(f->admin, WHAT(SESSIONS), 0, 0)->n_sessions, 3);
	assert_int_equal(piece(f->admin, WHAT(LEASES), 0, 0)->n_leases, 2);
	reply = piece(f->admin, WHAT(TENANTS), 0, 0);
	assert_int_equal(reply->tenants[1]->uid, UID_A);
	assert_int_equal(reply->tenants[2]->uid, UID_B);
	peer_free(a);
	peer_free(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(sessions_in_pieces),
		TEST(leases_in_pieces),
		TEST(age_of_a_lease),
		cmocka_unit_test(test_blocks_in_pieces),
		cmocka_unit_test(test_many_zones_and_tenants),
		TEST(cursors_of_nonsense),
		TEST(no_such_list),
		TEST(zone_figures),
		TEST(buddyinfo_adds_up),
		TEST(caches),
		TEST(caches_of_a_stopped_worker),
		TEST(check_finds),
		TEST(stats),
		TEST(what_tenants_see_of_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
