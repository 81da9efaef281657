/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recyclers and keeper against memory that misbehaves: shmem with a gate in front, so that a test
 * decides when emptying goes on and how making ends.
 */
#include "tests/daemon/pool-fixture.h"

#include "daemon/pool/internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_PAGES 4
#define NR_BLOCKS   8

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t closed_owner; /* whose blocks are not emptied; 0: nobody's */
	bool pairs;	       /* emptying waits until two are at it */
	unsigned busy[FIXTURE_OWNERS], busy_most, busy_of_one_most;
	int failures; /* of make(), still to come */
	int failure;  /* what it returns then */
	atomic_uint makes;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint32_t owner_of(const struct pool_block *block)
{
	return hp_zone_block_word(block->zone->public.zone, block->index).owner;
}

static unsigned busy_in_all(void)
{
	unsigned n = 0;

	for (uint32_t owner = 1; owner < FIXTURE_OWNERS; owner++)
		n += gate.busy[owner];
	return n;
}

static void wait_for_pair(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 10;
	while (gate.pairs && gate.busy_most < 2)
		if (pthread_cond_timedwait(&gate.changed, &gate.lock, &end) != 0)
			return; /* the test sees it in busy_most */
}

static int gate_empty(struct pool_block *block)
{
	uint32_t owner = owner_of(block);

	if (owner == HP_OWNER_NONE)
		return backing_shmem.empty(block);
	pthread_mutex_lock(&gate.lock);
	gate.busy[owner]++;
	if (busy_in_all() > gate.busy_most)
		gate.busy_most = busy_in_all();
	if (gate.busy[owner] > gate.busy_of_one_most)
		gate.busy_of_one_most = gate.busy[owner];
	pthread_cond_broadcast(&gate.changed);
	wait_for_pair();
	while (gate.closed_owner == owner)
		pthread_cond_wait(&gate.changed, &gate.lock);
	gate.busy[owner]--;
	pthread_mutex_unlock(&gate.lock);
	return backing_shmem.empty(block);
}

static int gate_make(struct pool_block *block, uint64_t generation, char *reason)
{
	int r = 0;

	pthread_mutex_lock(&gate.lock);
	gate.makes++;
	if (gate.failures) {
		gate.failures--;
		r = gate.failure;
		snprintf(reason, BACKING_REASON_MAX, "as the test wants it");
	}
	pthread_mutex_unlock(&gate.lock);
	return r ? r : backing_shmem.make(block, generation, reason);
}

static void set_gate(uint32_t closed_owner, bool pairs, int failures, int failure)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed_owner = closed_owner;
	gate.pairs = pairs;
	gate.failures = failures;
	gate.failure = failure;
	gate.busy_most = gate.busy_of_one_most = gate.makes = 0;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

/* Between pool_new() and pool_start(), when nobody else looks. */
static void open_gated(struct fixture *fixture, const char *daemon_keys, const char *zone_keys)
{
	static struct backing_ops gated;
	char text[512];

	snprintf(text, sizeof(text),
		 "[daemon]\nidle-delay = 0\n%s\n[zone small]\nbacking = shmem\nblock-size = 8M\n"
		 "size = 64M\n%s\n[default]\nlimit.small = 8\n",
		 daemon_keys, *zone_keys ? zone_keys : "clean-low = 0");
	assert_int_equal(fixture_try(fixture, text), 0);
	gated = backing_shmem;
	gated.empty = gate_empty;
	gated.make = gate_make;
	bound_zone(fixture->zone)->backing = &gated;
	assert_int_equal(pool_start(fixture->pool), 0);
	fixture_wait(fixture_clean_blocks(fixture) == NR_BLOCKS);
}

static void give_back(struct fixture *fixture, uint32_t owner, unsigned blocks)
{
	struct hp_grant grant = fixture_alloc(fixture, owner, blocks * BLOCK_PAGES);

	fixture_free(fixture, owner, &grant);
	pool_owner_idle(fixture->pool, owner, true);
}

static unsigned busy_of(uint32_t owner)
{
	unsigned n;

	pthread_mutex_lock(&gate.lock);
	n = gate.busy[owner];
	pthread_mutex_unlock(&gate.lock);
	return n;
}

static unsigned running_recyclers(struct fixture *fixture)
{
	unsigned n = 0;

	pthread_mutex_lock(&fixture->pool->lock);
	for (unsigned i = 0; i < fixture->pool->nr_recyclers; i++)
		n += fixture->pool->recyclers[i].state != RECYCLER_FREE;
	pthread_mutex_unlock(&fixture->pool->lock);
	return n;
}

/* The only recycler hangs in the block of one owner: another one takes over, and ends later on. */
static void test_stuck(void **state)
{
	struct fixture fixture;

	(void)state;
	open_gated(&fixture, "recycle-threads = 1", "");
	set_gate(1, false, 0, 0);
	give_back(&fixture, 1, 2);
	fixture_wait(busy_of(1) == 1);
	give_back(&fixture, 2, 1);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS - 2);
	fixture_wait(fixture.owner_changed[2] == 1);
	assert_int_equal(running_recyclers(&fixture), 2);
	assert_int_equal(busy_of(1), 1); /* nor did a second one go for his other block */
	set_gate(0, false, 0, 0);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	fixture_wait(running_recyclers(&fixture) == 1);
	fixture_close(&fixture);
}

/* Several at once, but never two for one owner. */
static void test_one_for_each_owner(void **state)
{
	struct fixture fixture;

	(void)state;
	open_gated(&fixture, "recycle-threads = 4", "");
	set_gate(0, true, 0, 0);
	give_back(&fixture, 1, 4);
	give_back(&fixture, 2, 4);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	assert_true(gate.busy_most >= 2);
	assert_int_equal(gate.busy_of_one_most, 1);
	fixture_close(&fixture);
}

/* What does not work is tried again, for the blocks of others in between. */
static void test_error_is_retried(void **state)
{
	struct fixture fixture;

	(void)state;
	open_gated(&fixture, "recycle-threads = 1", "");
	set_gate(0, false, 5, -EIO);
	give_back(&fixture, 1, 1);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	assert_int_equal(gate.makes, 6);
	fixture_close(&fixture);
}

static void test_short_is_quarantined(void **state)
{
	struct pool_block_info info;
	struct hp_account_stats account;
	struct fixture fixture;
	struct hp_grant grant;
	uint32_t block;

	(void)state;
	open_gated(&fixture, "recycle-threads = 1", "");
	grant = fixture_alloc(&fixture, 1, 1);
	block = fixture_block(&fixture, &grant);
	set_gate(0, false, 1000000, BACKING_SHORT);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_QUARANTINED);
	fixture_wait(gate.makes > 3);
	pool_block_get_info(fixture.zone, block, &info);
	assert_string_equal(info.reason, "as the test wants it");
	hp_zone_account_stats(fixture.zone->zone, 1, &account);
	assert_int_equal(account.held_blocks, 1);
	set_gate(0, false, 0, 0);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	pool_block_get_info(fixture.zone, block, &info);
	assert_string_equal(info.reason, "");
	fixture_close(&fixture);
}

static uint64_t recycles(struct fixture *fixture)
{
	struct pool_zone_info info;

	pool_zone_get_info(fixture->zone, &info);
	return info.recycles;
}

/* One byte a second: the first block leaves a debt of hours; below clean-min that does not count. */
static void test_rate(void **state)
{
	struct fixture fixture;

	(void)state;
	open_gated(&fixture, "recycle-rate = 1", "");
	give_back(&fixture, 1, 3);
	fixture_wait(recycles(&fixture) == 1);
	fixture_sleep_ms(200);
	assert_int_equal(recycles(&fixture), 1);
	fixture_close(&fixture);

	open_gated(&fixture, "recycle-rate = 1", "clean-min = 7\nclean-low = 7\nclean-high = 8");
	give_back(&fixture, 1, 3);
	fixture_wait(recycles(&fixture) == 2); /* the last one would make eight */
	fixture_sleep_ms(200);
	assert_int_equal(recycles(&fixture), 2);
	fixture_close(&fixture);
}

static void no_hit(void *userdata, uint32_t slot, const struct hp_range *range,
		   enum hp_lease_state state)
{
	(void)userdata, (void)slot, (void)range, (void)state;
}

/* A block that somebody else took out of the zone is found and recycled. */
static void test_taken_by_others(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	uint32_t block;

	(void)state;
	open_gated(&fixture, "", "");
	grant = fixture_alloc(&fixture, 1, 2);
	block = fixture_block(&fixture, &grant);
	assert_int_equal(hp_zone_revoke_block(fixture.zone->zone, block, false, no_hit, NULL), 0);
	pool_poke(fixture.pool);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	fixture_close(&fixture);
}

static void note_hit(void *userdata, uint32_t slot, const struct hp_range *range,
		     enum hp_lease_state state)
{
	struct hp_range *hit = userdata;

	assert_int_equal(slot, 1);
	assert_int_equal(state, HP_LEASE_LEASED);
	*hit = *range;
}

/* A block that is taken with its leases: its users are told, and it comes back clean. */
static void test_taken_with_leases(void **state)
{
	struct fixture fixture;
	struct hp_range hit = {0};
	struct hp_grant grant;
	uint32_t block;

	(void)state;
	open_gated(&fixture, "", "");
	grant = fixture_alloc(&fixture, 1, 2);
	block = fixture_block(&fixture, &grant);
	assert_int_equal(pool_take_block(fixture.zone, block, note_hit, &hit), 0);
	assert_int_equal(hit.pfn, grant.range.pfn);
	assert_int_equal(hit.pages, 2);
	assert_int_equal(hit.generation, grant.range.generation);
	assert_int_equal(fixture.retired, 1);
	assert_int_equal(fixture.retired_block, block);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	fixture_wait(recycles(&fixture) == 1);
	assert_int_equal(pool_take_block(fixture.zone, block, note_hit, &hit), HP_BUSY);
	assert_int_equal(pool_take_block(fixture.zone, 1000, note_hit, &hit), HP_OUT_OF_RANGE);
	fixture_check_zone(&fixture);
	fixture_close(&fixture);
}

/* How often all threads but the first have gone to sleep. */
static unsigned long sleeps(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned long sum = 0, n;
	char path[300], line[128];

	assert_non_null(tasks);
	while ((entry = readdir(tasks))) {
		FILE *file;

		if (*entry->d_name == '.' || atol(entry->d_name) == (long)getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		while (fgets(line, sizeof(line), file))
			if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
				sum += n;
		fclose(file);
	}
	closedir(tasks);
	return sum;
}

/* A pool with nothing to do does not wake up, also with idle blocks whose owner is there. */
static void test_sleeps(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	unsigned long before;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* it has a thread of its own, which does not sleep */
#endif
	open_gated(&fixture, "", "");
	grant = fixture_alloc(&fixture, 1, BLOCK_PAGES);
	fixture_free(&fixture, 1, &grant);
	fixture_sleep_ms(300);
	before = sleeps();
	assert_true(before > 0);
	fixture_sleep_ms(500);
	assert_int_equal(sleeps(), before);
	fixture_close(&fixture);
}

/* Ended while recyclers are at work, hang, and wait to try again. */
static void test_free_while_busy(void **state)
{
	struct fixture fixture;
	unsigned descriptors = fixture_open_descriptors();

	(void)state;
	open_gated(&fixture, "recycle-threads = 3", "");
	set_gate(0, false, 1000000, BACKING_SHORT);
	for (uint32_t owner = 1; owner <= 4; owner++)
		give_back(&fixture, owner, 2);
	fixture_wait(gate.makes > 2);
	fixture.pool = pool_free(fixture.pool);
	fixture_close(&fixture);
	assert_int_equal(fixture_open_descriptors(), descriptors);
}

static void test_budget(void **state)
{
	const uint64_t second = 1000000000;
	struct budget budget;
	uint64_t now = 5, wait;

	(void)state;
	budget_init(&budget, 100, 200, now);
	assert_int_equal(budget_wait_ns(&budget, now), 0);
	budget_take(&budget, 500); /* into debt: 300 */
	wait = budget_wait_ns(&budget, now);
	assert_in_range(wait, 3 * second, 3 * second + second / 50);
	assert_true(budget_wait_ns(&budget, now + 2 * second) > 0);
	assert_int_equal(budget_wait_ns(&budget, now + wait), 0);
	assert_int_equal(budget_wait_ns(&budget, now + 1000000 * second), 0); /* full, not more */
	assert_int_equal(budget.tokens, 200);
	budget_init(&budget, 0, 0, now);
	budget_take(&budget, UINT64_C(1) << 40);
	assert_int_equal(budget_wait_ns(&budget, now), 0);
}

static int open_all(void **state)
{
	(void)state;
	set_gate(0, false, 0, 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_stuck, open_all),
		cmocka_unit_test_setup(test_one_for_each_owner, open_all),
		cmocka_unit_test_setup(test_error_is_retried, open_all),
		cmocka_unit_test_setup(test_short_is_quarantined, open_all),
		cmocka_unit_test_setup(test_rate, open_all),
		cmocka_unit_test_setup(test_taken_by_others, open_all),
		cmocka_unit_test_setup(test_taken_with_leases, open_all),
		cmocka_unit_test_setup(test_sleeps, open_all),
		cmocka_unit_test_setup(test_free_while_busy, open_all),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
