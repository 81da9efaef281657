/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool on one kind of memory, named by the first argument: shmem, which every machine has,
 * hugetlb, by a guard of its own, or memfd, of pages that the machine has free. The second argument is the path of hugepool-setup.
 */
#include "tests/daemon/pool-fixture.h"

#include "daemon/pool/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_PAGES    4
#define BLOCK_BYTES    (BLOCK_PAGES * (UINT64_C(2) << 20))
#define NR_BLOCKS      8
#define PACE_TIMES_MAX 64 /* of recycling: slower than that is no excuse */

static const char *backing;
static bool huge; /* hugetlb */
static char config_text[1024];

/* Eight blocks of four pages; without other keys, clean stock is not watched. */
static const char *config(const char *daemon_keys, const char *zone_keys)
{
	snprintf(config_text, sizeof(config_text),
		 "[daemon]\nsetup-socket = DIR/setup.sock\nrecycle-threads = 2\n%s\n"
		 "[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 64M\nbacking = %s\n%s\n"
		 "%s\n"
		 "[default]\nlimit.small = 8\n",
		 daemon_keys, backing, huge ? "grow-nr-hugepages = yes" : "",
		 *zone_keys ? zone_keys : "clean-low = 0");
	return config_text;
}

static char *map_block(struct fixture *fixture, uint32_t block, int *ret_fd)
{
	uint64_t generation;
	int fd = pool_open_block(fixture->zone, block, &generation);
	char *memory;

	assert_true(fd >= 0);
	memory = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	*ret_fd = fd;
	return memory;
}

static uint32_t held_blocks(struct fixture *fixture, uint32_t owner)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(fixture->zone->zone, owner, &stats);
	return stats.held_blocks;
}

static const char *reason(struct fixture *fixture, uint32_t block)
{
	static struct pool_block_info info;

	pool_block_get_info(fixture->zone, block, &info);
	return info.reason;
}

static void test_fill(void **state)
{
	uint64_t before = huge ? fixture_hugepages("nr_hugepages") : 0;
	unsigned descriptors = fixture_open_descriptors();
	struct pool_zone_info info;
	struct hp_zone_stats stats;
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture, config("", ""));
	assert_int_equal(fixture.configured_bytes, NR_BLOCKS * BLOCK_BYTES);
	assert_int_equal(fixture.online_bytes, NR_BLOCKS * BLOCK_BYTES);
	assert_int_equal(fixture.filled, 1);
	assert_int_equal(fixture.clean, NR_BLOCKS);
	hp_zone_stats(fixture.zone->zone, &stats);
	assert_int_equal(stats.clean, NR_BLOCKS * BLOCK_PAGES);
	assert_int_equal(stats.offline, 0);
	pool_zone_get_info(fixture.zone, &info);
	assert_int_equal(info.online_bytes, NR_BLOCKS * BLOCK_BYTES);
	assert_int_equal(info.recycles, 0);
	assert_string_equal(info.held, "");
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"),
				 before + NR_BLOCKS * BLOCK_PAGES);
	fixture_close(&fixture);
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"), before);
	assert_int_equal(fixture_open_descriptors(), descriptors);
}

/* Bound to a node, and each block looked at where its pages are. */
static void test_node(void **state)
{
	uint64_t before = huge ? fixture_hugepages("nr_hugepages") : 0;
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture, config("", "clean-low = 0\nnode = 0"));
	assert_int_equal(fixture.online_bytes, NR_BLOCKS * BLOCK_BYTES);
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"),
				 before + NR_BLOCKS * BLOCK_PAGES);
	fixture_close(&fixture);
	if (huge)
		assert_int_equal(fixture_hugepages("nr_hugepages"), before);
}

static void test_find_zone(void **state)
{
	struct fixture fixture;

	(void)state;
	snprintf(config_text, sizeof(config_text),
		 "[zone a]\nbacking=shmem\npage-size=4K\nblock-size=16K\nsize=64K\n"
		 "[zone b]\nbacking=shmem\npage-size=8K\nblock-size=8K\nsize=64K\n");
	fixture_open(&fixture, config_text);
	assert_int_equal(pool_nr_zones(fixture.pool), 2);
	assert_null(pool_zone(fixture.pool, 2));
	assert_ptr_equal(pool_find_zone(fixture.pool, "b", 1, 0), pool_zone(fixture.pool, 1));
	assert_null(pool_find_zone(fixture.pool, "bb", 2, 0));
	assert_null(pool_find_zone(fixture.pool, "c", 1, 4096));
	assert_ptr_equal(pool_find_zone(fixture.pool, "", 0, 0), pool_zone(fixture.pool, 0));
	assert_ptr_equal(pool_find_zone(fixture.pool, "", 0, 8192), pool_zone(fixture.pool, 1));
	assert_null(pool_find_zone(fixture.pool, "", 0, 1 << 30));
	fixture_close(&fixture);
}

/* Each open is a description of its own, of a whole file; only live blocks can be opened. */
static void test_open(void **state)
{
	uint64_t generation, again;
	struct fixture fixture;
	struct hp_grant grant;
	struct stat st;
	uint32_t block;
	int a, b;

	(void)state;
	fixture_open(&fixture, config("", ""));
	assert_int_equal(pool_open_block(fixture.zone, 0, &generation), -ENOENT);
	assert_int_equal(pool_open_block(fixture.zone, NR_BLOCKS, &generation), -ENOENT);
	grant = fixture_alloc(&fixture, 1, 1);
	block = fixture_block(&fixture, &grant);
	a = pool_open_block(fixture.zone, block, &generation);
	b = pool_open_block(fixture.zone, block, &again);
	assert_true(a >= 0 && b >= 0);
	assert_int_equal(generation, again);
	assert_int_equal(fstat(a, &st), 0);
	assert_int_equal(st.st_size, BLOCK_BYTES);
	assert_int_equal(st.st_blocks * 512, BLOCK_BYTES);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(lseek(a, 4096, SEEK_SET), 4096);
	assert_int_equal(lseek(b, 0, SEEK_CUR), 0);
	assert_int_equal(fcntl(a, F_GETFD), FD_CLOEXEC);
	close(a);
	close(b);
	fixture_free(&fixture, 1, &grant);
	fixture_close(&fixture);
}

/*
 * The heart of it: a block given back and reclaimed. Its old mapping is dead at once; it is charged
 * to the old owner and clean for nobody while a descriptor, then while a mapping is left; the new
 * owner finds it zero and of another generation.
 */
static void test_reclaim(void **state)
{
	uint64_t generation, next;
	struct pool_zone_info info;
	struct fixture fixture;
	struct hp_grant grant;
	uint32_t block;
	char *memory;
	int fd;

	(void)state;
	fixture_open(&fixture, config("idle-delay = 0", ""));
	grant = fixture_alloc(&fixture, 1, BLOCK_PAGES);
	assert_true(grant.zeroed);
	block = fixture_block(&fixture, &grant);
	memory = map_block(&fixture, block, &fd);
	generation = hp_zone_block_word(fixture.zone->zone, block).generation;
	fixture_fill(memory, BLOCK_BYTES, 'x');
	assert_false(fixture_is_dead(memory));
	fixture_free(&fixture, 1, &grant);
	fixture_sleep_ms(50); /* with a session, an idle block stays */
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_LIVE);

	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(fixture_is_dead(memory));
	fixture_wait(strstr(reason(&fixture, block), "still open or mapped"));
	assert_int_equal(fixture.retired, 1);
	assert_int_equal(fixture.retired_block, block);
	assert_int_equal(fixture.retired_generation, generation);
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_ISOLATED);
	assert_int_equal(held_blocks(&fixture, 1), 1);

	close(fd); /* the mapping alone holds it as well */
	fixture_sleep_ms(100);
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_ISOLATED);
	assert_int_equal(pool_open_block(fixture.zone, block, &next), -ENOENT);
	munmap(memory, BLOCK_BYTES);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	fixture_wait(fixture.owner_changed[1] == 1);
	assert_int_equal(held_blocks(&fixture, 1), 0);
	pool_zone_get_info(fixture.zone, &info);
	assert_int_equal(info.recycles, 1);

	grant = fixture_alloc(&fixture, 2, NR_BLOCKS * BLOCK_PAGES);
	memory = map_block(&fixture, block, &fd);
	assert_true(hp_zone_block_word(fixture.zone->zone, block).generation > generation);
	assert_true(fixture_is_zero(memory, BLOCK_BYTES));
	munmap(memory, BLOCK_BYTES);
	close(fd);
	fixture_free(&fixture, 2, &grant);
	fixture_close(&fixture);
}

/* A descriptor that can only read counts as well, and so does one that was duplicated. */
static void test_held_by_reader(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	char path[64];
	uint32_t block;
	uint64_t generation;
	int fd, reader, copy;

	(void)state;
	fixture_open(&fixture, config("idle-delay = 0", ""));
	grant = fixture_alloc(&fixture, 1, 1);
	block = fixture_block(&fixture, &grant);
	fd = pool_open_block(fixture.zone, block, &generation);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(reader >= 0);
	copy = dup(reader);
	close(fd);
	close(reader);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(strstr(reason(&fixture, block), "still open or mapped"));
	fixture_sleep_ms(100);
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_ISOLATED);
	close(copy);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	fixture_close(&fixture);
}

/* The file was grown again by its last holder after it had been emptied. */
static void test_grown_again(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	uint64_t generation;
	uint32_t block;
	char *memory;
	int fd;

	(void)state;
	fixture_open(&fixture, config("idle-delay = 0", ""));
	grant = fixture_alloc(&fixture, 1, 1);
	block = fixture_block(&fixture, &grant);
	fd = pool_open_block(fixture.zone, block, &generation);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(strstr(reason(&fixture, block), "still open or mapped"));
	assert_int_equal(ftruncate(fd, BLOCK_BYTES), 0);
	assert_int_equal(fallocate(fd, 0, 0, BLOCK_BYTES), 0);
	close(fd);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	grant = fixture_alloc(&fixture, 2, NR_BLOCKS * BLOCK_PAGES);
	memory = map_block(&fixture, block, &fd);
	assert_true(fixture_is_zero(memory, BLOCK_BYTES));
	munmap(memory, BLOCK_BYTES);
	close(fd);
	fixture_free(&fixture, 2, &grant);
	fixture_close(&fixture);
}

/* An owner whose session comes back before the delay keeps his idle blocks. */
static void test_idle_delay(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;

	(void)state;
	fixture_open(&fixture, config("idle-delay = 300ms", ""));
	grant = fixture_alloc(&fixture, 1, 1);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_sleep_ms(100);
	pool_owner_idle(fixture.pool, 1, false);
	fixture_sleep_ms(400);
	assert_int_equal(fixture_clean_blocks(&fixture), NR_BLOCKS - 1);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	fixture_close(&fixture);
}

/* Has the keeper seen that the block is idle? */
static bool is_seen_idle(struct fixture *fixture, uint32_t block)
{
	bool answer;

	pthread_mutex_lock(&fixture->pool->lock);
	answer = bound_zone(fixture->zone)->blocks[block].idle_since_ns;
	pthread_mutex_unlock(&fixture->pool->lock);
	return answer;
}

/* Below clean-low idle blocks go, oldest first, until there are clean-high; never leased ones. */
static void test_watermarks(void **state)
{
	static const int order[] = {2, 0, 1};
	struct hp_grant mine[3], others;
	uint32_t blocks[3];
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture, config("", "clean-low = 2\nclean-high = 3"));
	for (int i = 0; i < 3; i++) {
		mine[i] = fixture_alloc(&fixture, 1, BLOCK_PAGES);
		blocks[i] = fixture_block(&fixture, &mine[i]);
	}
	for (int i = 0; i < 3; i++) {
		fixture_free(&fixture, 1, &mine[order[i]]);
		fixture_wait(is_seen_idle(&fixture, blocks[order[i]]));
	}
	assert_int_equal(fixture.retired, 0); /* five are clean */
	others = fixture_alloc(&fixture, 2, 4 * BLOCK_PAGES);
	fixture_wait(fixture_clean_blocks(&fixture) == 3);
	assert_int_equal(fixture.retired, 2);
	assert_int_equal(fixture_state(&fixture, blocks[2]), HP_BLOCK_CLEAN);
	assert_int_equal(fixture_state(&fixture, blocks[0]), HP_BLOCK_CLEAN);
	assert_int_equal(fixture_state(&fixture, blocks[1]), HP_BLOCK_LIVE);
	fixture_free(&fixture, 2, &others);
	fixture_close(&fixture);
}

/* The stock is not filled from what is guaranteed to an owner, unless he has gone. */
static void test_guaranteed_stay(void **state)
{
	struct hp_grant mine[3], others;
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture, config("", "clean-low = 2\nclean-high = 3"));
	assert_int_equal(hp_zone_account_set_quota(fixture.zone->zone, 1, NR_BLOCKS, 2), 0);
	for (int i = 0; i < 3; i++)
		mine[i] = fixture_alloc(&fixture, 1, BLOCK_PAGES);
	for (int i = 0; i < 3; i++)
		fixture_free(&fixture, 1, &mine[i]);
	others = fixture_alloc(&fixture, 2, 4 * BLOCK_PAGES); /* one is clean, three are wanted */
	fixture_wait(fixture_clean_blocks(&fixture) == 2);
	fixture_free(&fixture, 2, &others);
	others = fixture_alloc(&fixture, 2, 5 * BLOCK_PAGES);
	fixture_sleep_ms(100);
	assert_int_equal(fixture.retired, 1);
	assert_int_equal(held_blocks(&fixture, 1), 2);
	pool_owner_idle(fixture.pool, 1, true); /* long before his idle-delay is over */
	fixture_wait(fixture.retired == 3);
	fixture_free(&fixture, 2, &others);
	fixture_close(&fixture);
}

/* A page pinned for I/O: charged and quarantined until the pin ends, then back. */
static void test_quarantine(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	struct iovec pinned;
	int fd, pipes[2];
	uint32_t block;
	char *memory;

	(void)state;
	if (!huge)
		skip();
	fixture_open(&fixture, config("idle-delay = 0", ""));
	grant = fixture_alloc(&fixture, 1, BLOCK_PAGES);
	block = fixture_block(&fixture, &grant);
	memory = map_block(&fixture, block, &fd);
	fixture_fill(memory, BLOCK_BYTES, 'x');
	assert_int_equal(pipe(pipes), 0);
	pinned = (struct iovec){memory, 4096};
	assert_int_equal(vmsplice(pipes[1], &pinned, 1, 0), 4096);
	munmap(memory, BLOCK_BYTES);
	close(fd);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_QUARANTINED);
	fixture_wait(strstr(reason(&fixture, block), "1 of 4 pages have not come back"));
	assert_int_equal(held_blocks(&fixture, 1), 1);
	fixture_sleep_ms(100);
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_QUARANTINED);
	assert_int_equal(fixture.owner_changed[1], 0);
	close(pipes[0]);
	close(pipes[1]);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	fixture_wait(fixture.owner_changed[1] == 1);
	assert_int_equal(held_blocks(&fixture, 1), 0);
	fixture_close(&fixture);
}

static const char *held(struct fixture *fixture)
{
	static struct pool_zone_info info;

	pool_zone_get_info(fixture->zone, &info);
	return info.held;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The shortest time in which a block that was given back is clean again. */
static uint64_t measure_recycling(void)
{
	uint64_t shortest = UINT64_MAX;
	struct fixture fixture;

	fixture_open(&fixture, config("idle-delay = 0", ""));
	pool_owner_idle(fixture.pool, 1, true);
	for (int i = 0; i < 8; i++) {
		struct hp_grant grant = fixture_alloc(&fixture, 1, BLOCK_PAGES);
		uint64_t start = now_ns(), took;

		fixture_free(&fixture, 1, &grant);
		fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
		took = now_ns() - start;
		shortest = took < shortest ? took : shortest;
	}
	fixture_close(&fixture);
	return shortest;
}

/*
 * Tenants come one after the other at this pace, whatever the stock is, take a block and leave it. Is
 * there always a clean one? Only they take any, so that it is at its lowest when one has.
 */
static bool stock_lasts(uint64_t pace_ns)
{
	struct hp_grant last = {0};
	uint32_t owner = 0, before;
	struct fixture fixture;
	bool lasts = true;

	fixture_open(&fixture, config("", "clean-low = 2\nclean-high = 3"));
	for (uint32_t i = 0; lasts && i < 3 * NR_BLOCKS; i++) {
		const uint64_t next = now_ns() + pace_ns;
		struct hp_grant grant;

		before = owner;
		owner = 1 + i % (FIXTURE_OWNERS - 1);
		grant = fixture_alloc(&fixture, owner, BLOCK_PAGES);
		if (before)
			fixture_free(&fixture, before, &last);
		last = grant;
		do {
			lasts = fixture_clean_blocks(&fixture) > 0;
			fixture_sleep_ms(1);
		} while (lasts && now_ns() < next);
	}
	if (lasts)
		assert_true(fixture.retired > NR_BLOCKS);
	fixture_free(&fixture, owner, &last);
	fixture_close(&fixture);
	return lasts;
}

/*
 * A steady load below the rate of recycling never finds the stock empty. On a machine that is busy with
 * something else a block takes longer than it was measured to: then the load was none below that rate,
 * and a slower one has to do.
 */
static void test_steady_stock(void **state)
{
	uint64_t recycling = measure_recycling();
	unsigned times = 4;

	(void)state;
	while (!stock_lasts(times * recycling)) {
		if (times >= PACE_TIMES_MAX)
			fail_msg("no clean block left at one taken each %u times of recycling, "
				 "which is %u us",
				 times, (unsigned)(recycling / 1000));
		times *= 4;
	}
}

/* Somebody lowers nr_hugepages under us: nothing is truncated until it is raised again. */
static void test_surplus(void **state)
{
	struct fixture fixture;
	struct hp_grant grant, others, more;
	uint32_t block;
	uint64_t number;
	char *memory, *data;
	int fd, data_fd;

	(void)state;
	if (!huge)
		skip();
	fixture_open(&fixture, config("idle-delay = 0", ""));
	number = fixture_hugepages("nr_hugepages");
	grant = fixture_alloc(&fixture, 1, BLOCK_PAGES);
	block = fixture_block(&fixture, &grant);
	memory = map_block(&fixture, block, &fd);
	others = fixture_alloc(&fixture, 2, 1);
	data = map_block(&fixture, fixture_block(&fixture, &others), &data_fd);
	fixture_fill(data, BLOCK_BYTES, 42);
	fixture_set_hugepages(number - 1);
	fixture_free(&fixture, 1, &grant);
	pool_owner_idle(fixture.pool, 1, true);
	fixture_wait(strstr(held(&fixture), "1 surplus huge pages"));
	assert_int_equal(fixture_state(&fixture, block), HP_BLOCK_ISOLATED);
	assert_false(fixture_is_dead(memory));
	for (int i = 0; i < 100; i++) { /* the others go on, with what is clean and their own */
		more = fixture_alloc(&fixture, 2, 1 + (uint32_t)i % BLOCK_PAGES);
		fixture_free(&fixture, 2, &more);
	}
	fixture_set_hugepages(number);
	fixture_wait(fixture_is_dead(memory));
	for (uint64_t at = 0; at < BLOCK_BYTES; at += 2 << 20)
		assert_int_equal(data[at], 42);
	munmap(data, BLOCK_BYTES);
	close(data_fd);
	fixture_free(&fixture, 2, &others);
	munmap(memory, BLOCK_BYTES);
	close(fd);
	fixture_wait(fixture_state(&fixture, block) == HP_BLOCK_CLEAN);
	assert_string_equal(held(&fixture), "");
	assert_int_equal(fixture_hugepages("nr_hugepages"), number);
	fixture_close(&fixture);
}

/* Another program overcommits: blocks that come up have no pages to lose, so it does not matter. */
static void test_overcommit(void **state)
{
	const size_t page_bytes = BLOCK_BYTES / BLOCK_PAGES;
	struct fixture fixture;
	uint64_t overcommit, pages;
	char *memory;

	(void)state;
	if (!huge)
		skip();
	assert_int_equal(fixture_try(&fixture, config("", "clean-low = 0\nnode = 0")), 0);
	overcommit = fixture_hugepages("nr_overcommit_hugepages");
	pages = fixture_hugepages("free_hugepages") - fixture_hugepages("resv_hugepages") + 1;
	fixture_set_number("nr_overcommit_hugepages", overcommit + 1);
	memory = mmap(NULL, pages * page_bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	fixture_set_number("nr_overcommit_hugepages", overcommit);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(fixture_hugepages("surplus_hugepages"), 1);
	assert_int_equal(pool_start(fixture.pool), 0);
	fixture_wait(fixture.filled && fixture_clean_blocks(&fixture) == NR_BLOCKS);
	assert_string_equal(held(&fixture), "");
	munmap(memory, pages * page_bytes);
	assert_int_equal(fixture_hugepages("surplus_hugepages"), 0);
	fixture_close(&fixture);
}

/* Fewer pages than configured, and no leave to add any: what there is, and both numbers. */
static void test_shortfall(void **state)
{
	struct fixture fixture;
	uint64_t before;

	(void)state;
	if (!huge)
		skip();
	before = fixture_hugepages("nr_hugepages");
	fixture_set_hugepages(before + 3 * BLOCK_PAGES + 1);
	assert_int_equal(fixture_hugepages("nr_hugepages"), before + 3 * BLOCK_PAGES + 1);
	fixture_open(&fixture, "[daemon]\nsetup-socket = DIR/setup.sock\n"
			       "[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 64M\n");
	assert_int_equal(fixture.configured_bytes, NR_BLOCKS * BLOCK_BYTES);
	assert_int_equal(fixture.online_bytes, 3 * BLOCK_BYTES);
	assert_int_equal(fixture_clean_blocks(&fixture), 3);
	assert_int_equal(fixture_state(&fixture, 3), HP_BLOCK_OFFLINE);
	assert_string_equal(reason(&fixture, 3), "no huge pages for it");
	fixture_close(&fixture);
	assert_int_equal(fixture_hugepages("nr_hugepages"), before + 3 * BLOCK_PAGES + 1);
	assert_int_equal(fixture_hugepages("free_hugepages"), before + 3 * BLOCK_PAGES + 1);
	assert_int_equal(fixture_hugepages("resv_hugepages"), 0);
	fixture_set_hugepages(before);
}

/* Blocks of many owners at once: takes, writes, gives back; nobody finds anything but zero. */
static void test_many_lives(void **state)
{
	struct fixture fixture;
	struct pool_zone_info info;

	(void)state;
	fixture_open(&fixture, config("idle-delay = 0", ""));
	for (uint32_t owner = 1; owner < FIXTURE_OWNERS; owner++)
		pool_owner_idle(fixture.pool, owner, true);
	for (unsigned round = 0; round < 40; round++) {
		uint32_t owner = 1 + round % (FIXTURE_OWNERS - 1), block;
		struct hp_grant grant;
		char *memory;
		int fd;

		fixture_wait(fixture_clean_blocks(&fixture) > 0);
		grant = fixture_alloc(&fixture, owner, BLOCK_PAGES);
		block = fixture_block(&fixture, &grant);
		memory = map_block(&fixture, block, &fd);
		assert_int_equal(fixture_is_zero(memory, BLOCK_BYTES), grant.zeroed);
		fixture_fill(memory, BLOCK_BYTES, 'x');
		munmap(memory, BLOCK_BYTES);
		close(fd);
		fixture_free(&fixture, owner, &grant);
	}
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	pool_zone_get_info(fixture.zone, &info);
	assert_int_equal(fixture.retired, info.recycles);
	assert_true(info.recycles >= NR_BLOCKS);
	fixture_close(&fixture);
}

static void test_no_set_up(void **state)
{
	struct fixture fixture;

	(void)state;
	if (!huge)
		skip();
	setenv("HUGEPOOL_SETUP", "/nonexistent/hugepool-setup", 1);
	assert_int_equal(fixture_try(&fixture, config("", "")), -ENOENT);
	fixture_close(&fixture);
}

static bool has_huge_pages(void)
{
	return access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK) == 0 && geteuid() == 0;
}

/* What memfds take: they do not raise the machine's number. */
static int add_pages(void **state)
{
	uint64_t number = fixture_hugepages("nr_hugepages") + NR_BLOCKS * BLOCK_PAGES;

	(void)state;
	fixture_set_hugepages(number);
	return fixture_hugepages("nr_hugepages") == number ? 0 : -1;
}

static int take_off_pages(void **state)
{
	(void)state;
	fixture_set_hugepages(fixture_hugepages("nr_hugepages") - NR_BLOCKS * BLOCK_PAGES);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill),	    cmocka_unit_test(test_node),
		cmocka_unit_test(test_find_zone),   cmocka_unit_test(test_open),
		cmocka_unit_test(test_reclaim),	    cmocka_unit_test(test_held_by_reader),
		cmocka_unit_test(test_grown_again), cmocka_unit_test(test_idle_delay),
		cmocka_unit_test(test_watermarks),  cmocka_unit_test(test_guaranteed_stay),
		cmocka_unit_test(test_quarantine),  cmocka_unit_test(test_steady_stock),
		cmocka_unit_test(test_surplus),	    cmocka_unit_test(test_overcommit),
		cmocka_unit_test(test_shortfall),   cmocka_unit_test(test_many_lives),
		cmocka_unit_test(test_no_set_up),
	};

	if (argc != 3)
		return 2;
	backing = argv[1];
	huge = strcmp(backing, "hugetlb") == 0;
	if (strcmp(backing, "shmem") != 0 && !has_huge_pages()) {
		puts("skipped: needs root and huge pages of 2 MiB");
		return 77;
	}
	setenv("HUGEPOOL_SETUP", argv[2], 1);
	if (strcmp(backing, "memfd") == 0)
		return cmocka_run_group_tests(tests, add_pages, take_off_pages);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
