/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zones that grow and shrink, on one kind of memory, named by the first argument: shmem, hugetlb (by a
 * guard of our own) or memfd. The second argument is the path of hugepool-setup.
 */
#include "tests/daemon/pool-fixture.h"

#include "daemon/pool/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_PAGES 4
#define BLOCK_BYTES (BLOCK_PAGES * (UINT64_C(2) << 20))
#define NR_BLOCKS   4
#define MAX_BLOCKS  8

static const char *backing;
static bool huge; /* hugetlb */
static uint64_t before;

static const char *config(const char *zone_keys)
{
	static char text[1024];

	snprintf(text, sizeof(text),
		 "[daemon]\nsetup-socket = DIR/setup.sock\nrecycle-threads = 2\n"
		 "[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 32M\nmax-size = 64M\n"
		 "backing = %s\n%s\n[default]\nlimit.small = 8\n",
		 backing,
		 *zone_keys ? zone_keys
		 : huge	    ? "clean-low = 0\ngrow-nr-hugepages = yes"
			    : "clean-low = 0");
	return text;
}

/* --- what is told at the end ------------------------------------------------------------------ */

static struct pool_resized told;
static atomic_uint nr_told;

static void tell(void *userdata, struct pool_zone *zone, const struct pool_resized *resized)
{
	(void)userdata;
	(void)zone;
	told = *resized;
	nr_told++;
}

static void begin(struct fixture *fixture, enum pool_resize_kind kind, uint32_t blocks)
{
	nr_told = 0;
	assert_int_equal(pool_resize(fixture->zone, kind, blocks, tell, NULL), 0);
}

static void resize(struct fixture *fixture, enum pool_resize_kind kind, uint32_t blocks)
{
	begin(fixture, kind, blocks);
	fixture_wait(nr_told);
	fixture_check_zone(fixture);
}

static void expect_blocks(struct fixture *fixture, uint32_t blocks)
{
	struct hp_zone_stats stats;

	hp_zone_stats(fixture->zone->zone, &stats);
	assert_int_equal(stats.nr_pages - stats.offline, blocks * BLOCK_PAGES);
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"), before + blocks * BLOCK_PAGES);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_there_and_back(void **state)
{
	unsigned descriptors = fixture_open_descriptors();
	struct fixture fixture;
	struct hp_grant grant;

	(void)state;
	fixture_open(&fixture, config(""));
	expect_blocks(&fixture, NR_BLOCKS);
	assert_int_equal(fixture.zone->nr_blocks, MAX_BLOCKS);
	for (int round = 0; round < 3; round++) {
		resize(&fixture, POOL_ADOPT, 7);
		assert_int_equal(told.before_blocks, round ? 3 : NR_BLOCKS);
		assert_int_equal(told.after_blocks, 7);
		assert_int_equal(told.wanted_blocks, 7);
		assert_false(told.set_up);
		assert_string_equal(told.reason, "");
		expect_blocks(&fixture, 7);
		assert_int_equal(fixture.zone->size_blocks, 7);
		assert_int_equal(fixture.configured_bytes, 7 * BLOCK_BYTES);
		assert_int_equal(fixture.online_bytes, 7 * BLOCK_BYTES);
		grant = fixture_alloc(&fixture, 1, 7 * BLOCK_PAGES);
		assert_true(grant.zeroed || round);
		fixture_free(&fixture, 1, &grant);
		resize(&fixture, POOL_GIVE_UP, 3); /* all are idle: they are made clean first */
		assert_int_equal(told.before_blocks, 7);
		assert_int_equal(told.after_blocks, 3);
		assert_string_equal(told.reason, "");
		expect_blocks(&fixture, 3);
		assert_int_equal(fixture.configured_bytes, 3 * BLOCK_BYTES);
	}
	resize(&fixture, POOL_ADOPT, 2); /* it has them */
	assert_int_equal(told.after_blocks, 3);
	resize(&fixture, POOL_GIVE_UP, 5);
	assert_int_equal(told.after_blocks, 3);
	resize(&fixture, POOL_ADOPT, 0); /* there is no set-up that could have more */
	assert_int_equal(told.after_blocks, 3);
	assert_int_equal(told.wanted_blocks, 3);
	assert_int_equal(pool_resize(fixture.zone, POOL_ADOPT, MAX_BLOCKS + 1, tell, NULL),
			 -EINVAL);
	fixture_close(&fixture);
	assert_int_equal(fixture_open_descriptors(), descriptors);
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"), before);
}

static char *map_block(struct fixture *fixture, uint32_t block)
{
	uint64_t generation;
	int fd = pool_open_block(fixture->zone, block, &generation);
	char *memory;

	assert_true(fd >= 0);
	memory = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	close(fd);
	return memory;
}

/* A page leased in each of three blocks: those stay, and so does what is in them. */
static void test_leased_stay(void **state)
{
	struct fixture fixture;
	struct hp_grant page[3], rest[3];
	char *memory[3];

	(void)state;
	fixture_open(&fixture, config(""));
	for (int i = 0; i < 3; i++) {
		page[i] = fixture_alloc(&fixture, 1, 1);
		rest[i] = fixture_alloc(&fixture, 1, BLOCK_PAGES - 1);
		memory[i] = map_block(&fixture, fixture_block(&fixture, &page[i]));
		fixture_fill(memory[i], BLOCK_BYTES, (char)('a' + i));
	}
	for (int i = 0; i < 3; i++)
		fixture_free(&fixture, 1, &rest[i]);
	resize(&fixture, POOL_GIVE_UP, 1);
	assert_int_equal(told.before_blocks, NR_BLOCKS);
	assert_int_equal(told.after_blocks, 3);
	assert_int_equal(told.wanted_blocks, 1);
	assert_non_null(strstr(told.reason, "leased"));
	assert_int_equal(fixture.zone->size_blocks, 3);
	expect_blocks(&fixture, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hp_zone_lookup(fixture.zone->zone, 1, &page[i].range), 0);
		assert_int_equal(memory[i][0], 'a' + i);
		assert_int_equal(memory[i][BLOCK_BYTES - 4096], 'a' + i);
		munmap(memory[i], BLOCK_BYTES);
	}
	fixture_free(&fixture, 1, &page[0]);
	fixture_free(&fixture, 1, &page[1]);
	resize(&fixture, POOL_GIVE_UP, 1);
	assert_int_equal(told.after_blocks, 1);
	expect_blocks(&fixture, 1);
	resize(&fixture, POOL_ADOPT, NR_BLOCKS);
	assert_int_equal(fixture_clean_blocks(&fixture), NR_BLOCKS - 1);
	fixture_free(&fixture, 1, &page[2]);
	fixture_close(&fixture);
}

static void test_guaranteed_stay(void **state)
{
	struct fixture fixture;
	struct hp_zone *zone;

	(void)state;
	fixture_open(&fixture, config(""));
	zone = fixture.zone->zone;
	assert_int_equal(hp_zone_account_set_quota(zone, 2, 8, 3), 0);
	resize(&fixture, POOL_GIVE_UP, 2);
	assert_int_equal(told.after_blocks, NR_BLOCKS);
	assert_non_null(strstr(told.reason, "3 blocks are guaranteed to tenants, 2 were asked"));
	expect_blocks(&fixture, NR_BLOCKS);
	resize(&fixture, POOL_GIVE_UP, 3);
	assert_int_equal(told.after_blocks, 3);
	assert_int_equal(hp_zone_account_set_quota(zone, 3, 8, 1), HP_BUSY);
	resize(&fixture, POOL_ADOPT, 4);
	assert_int_equal(hp_zone_account_set_quota(zone, 3, 8, 1), 0);
	fixture_close(&fixture);
}

static void test_minimum_stays(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture,
		     config(huge ? "clean-min = 2\ngrow-nr-hugepages = yes" : "clean-min = 2"));
	resize(&fixture, POOL_GIVE_UP, 1);
	assert_int_equal(told.after_blocks, NR_BLOCKS);
	assert_non_null(strstr(told.reason, "2 blocks are to be kept clean"));
	resize(&fixture, POOL_GIVE_UP, 2);
	assert_int_equal(told.after_blocks, 2);
	resize(&fixture, POOL_GIVE_UP, 0);
	assert_int_equal(told.after_blocks, 2);
	fixture_close(&fixture);
}

/* Less than what was asked for: both numbers, and why. */
static void test_shortfall(void **state)
{
	struct fixture fixture;
	uint64_t number = fixture_hugepages("nr_hugepages");

	(void)state;
	if (strcmp(backing, "shmem") == 0)
		skip();
	if (huge)
		fixture_set_hugepages(number + (NR_BLOCKS + 1) * BLOCK_PAGES + 3);
	fixture_open(&fixture, config("clean-low = 0"));
	if (!huge) /* all but one of the pages that the others would take */
		fixture_set_hugepages(before + (NR_BLOCKS + 2) * BLOCK_PAGES - 1);
	resize(&fixture, POOL_ADOPT, 7);
	assert_int_equal(told.before_blocks, NR_BLOCKS);
	assert_int_equal(told.after_blocks, NR_BLOCKS + 1);
	assert_int_equal(told.wanted_blocks, 7);
	assert_non_null(
		strstr(told.reason, huge ? "zone small has 20 of 28 huge pages" : "hugepoolctl"));
	fixture_set_hugepages(before + MAX_BLOCKS * BLOCK_PAGES);
	if (!huge) /* they are tried again without being asked for */
		fixture_wait(fixture_clean_blocks(&fixture) == 7);
	resize(&fixture, POOL_ADOPT, 7);
	assert_int_equal(told.after_blocks, 7);
	fixture_close(&fixture);
	fixture_set_hugepages(number);
}

/* Stopped while it waits for a block that was given back and is still mapped. */
static void test_stopped(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	char *memory;

	(void)state;
	fixture_open(&fixture, config(""));
	grant = fixture_alloc(&fixture, 1, NR_BLOCKS * BLOCK_PAGES);
	memory = map_block(&fixture, 1);
	assert_int_equal(hp_zone_free_part(fixture.zone->zone, NULL, 1, &grant.range, BLOCK_PAGES,
					   BLOCK_PAGES, (struct hp_range[2]){{0}},
					   (unsigned[1]){0}),
			 0);
	begin(&fixture, POOL_GIVE_UP, 3);
	fixture_wait(fixture_state(&fixture, 1) == HP_BLOCK_ISOLATED);
	assert_int_equal(pool_resize(fixture.zone, POOL_ADOPT, 5, tell, NULL), -EBUSY);
	assert_int_equal(nr_told, 0);
	fixture_close(&fixture);
	munmap(memory, BLOCK_BYTES);
	assert_int_equal(nr_told, 1);
	assert_int_equal(told.after_blocks, NR_BLOCKS);
	assert_non_null(strstr(told.reason, "stopping"));
}

/* --- machine ---------------------------------------------------------------------------------- */

/* Memfds do not raise the machine's number. */
static int note_machine(void **state)
{
	bool memfd = strcmp(backing, "memfd") == 0;

	(void)state;
	if (strcmp(backing, "shmem") == 0)
		return 0;
	before = fixture_hugepages("nr_hugepages");
	if (memfd)
		fixture_set_hugepages(before + MAX_BLOCKS * BLOCK_PAGES);
	return !memfd || fixture_hugepages("nr_hugepages") == before + MAX_BLOCKS * BLOCK_PAGES
		       ? 0
		       : -1;
}

static int check_machine(void **state)
{
	(void)state;
	if (strcmp(backing, "memfd") == 0)
		fixture_set_hugepages(before);
	return strcmp(backing, "shmem") == 0 || fixture_hugepages("nr_hugepages") == before ? 0
											    : -1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),	cmocka_unit_test(test_leased_stay),
		cmocka_unit_test(test_guaranteed_stay), cmocka_unit_test(test_minimum_stays),
		cmocka_unit_test(test_shortfall),	cmocka_unit_test(test_stopped),
	};

	if (argc != 3)
		return 2;
	backing = argv[1];
	huge = strcmp(backing, "hugetlb") == 0;
	if (strcmp(backing, "shmem") != 0 &&
	    (geteuid() != 0 || access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK) < 0)) {
		puts("skipped: needs root and huge pages of 2 MiB");
		return 77;
	}
	setenv("HUGEPOOL_SETUP", argv[2], 1);
	return cmocka_run_group_tests(tests, note_machine, check_machine);
}
