/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library on huge pages of this machine: what it is for. The pages are added to the machine's own
 * and taken off again, whatever happens; where there cannot be any, it is skipped.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE	   (2u << 20)
#define NR_PATH	   "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
#define SKIPPED	   77
#define FAKE_BYTES ((uint64_t)FAKE_PAGES * PAGE)

static long read_nr(void)
{
	FILE *file = fopen(NR_PATH, "re");
	long n = -1;

	if (file && fscanf(file, "%ld", &n) != 1)
		n = -1;
	if (file)
		fclose(file);
	return n;
}

static int write_nr(long n)
{
	FILE *file = fopen(NR_PATH, "we");
	int r = file && fprintf(file, "%ld\n", n) > 0 ? 0 : -1;

	if (file && fclose(file))
		r = -1;
	return r;
}

static int huge_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	f->open_before = count_open();
	f->fake.page_bytes = PAGE;
	f->fake.memfd_flags = MFD_HUGETLB | MFD_HUGE_2MB;
	*state = f;
	return fake_start(&f->fake);
}

static struct hugepool_range take_huge(struct fixture *f, uint64_t pages, unsigned flags)
{
	struct hugepool_request request = request_of(f, pages, flags);
	struct hugepool_range range;

	assert_int_equal(hugepool_alloc(f->pool, &request, &range), 0);
	assert_int_equal(range.page_size, PAGE);
	return range;
}

/* Everything of it, from a new block, over several, and in a known one: no fault of any kind. */
static void test_no_faults(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range ranges[4];
	static const uint64_t pages[] = {1, 3, FAKE_BLOCK_PAGES * 2, 1};

	open_pool(f, 0, 0);
	for (int i = 0; i < 4; i++) {
		ranges[i] = take_huge(f, pages[i], 0);
		assert_int_equal((uintptr_t)ranges[i].address % PAGE, 0);
		assert_int_equal(faults_of_touching(&ranges[i]), 0);
		for (uint64_t at = 0; at < ranges[i].bytes; at += 4096)
			((uint64_t *)ranges[i].address)[at / 8] = at + (uint64_t)i;
	}
	for (int i = 0; i < 4; i++) {
		for (uint64_t at = 0; at < ranges[i].bytes; at += 4096)
			assert_int_equal(((uint64_t *)ranges[i].address)[at / 8], at + (uint64_t)i);
		assert_int_equal(hugepool_free(f->pool, &ranges[i]), 0);
	}
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 0);
}

static bool is_zero(const struct hugepool_range *range)
{
	const uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / 8; i++)
		if (words[i])
			return false;
	return true;
}

static void test_zero(void **state)
{
	struct fixture *f = *state;

	open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	for (uint64_t pages = 1; pages <= FAKE_BLOCK_PAGES * 2; pages *= 2) {
		struct hugepool_range range = take_huge(f, pages, 0);

		memset(range.address, 0xa5, range.bytes);
		assert_int_equal(hugepool_free(f->pool, &range), 0);
		range = take_huge(f, pages, HUGEPOOL_ZERO);
		assert_true(is_zero(&range));
		assert_int_equal(hugepool_free(f->pool, &range), 0);
	}
}

/* Without a window the pieces of a range are mapped at their offsets, in whole pages. */
static void test_without_window(void **state)
{
	struct fixture *f = *state;
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range, rest;
	struct rlimit old, low;
	unsigned long in_use;
	unsigned char there;
	uint64_t word;
	FILE *statm = fopen("/proc/self/statm", "re");
	int r;

	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%lu", &in_use), 1);
	fclose(statm);
	open_pool(f, 0, 0);
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)in_use * 4096 + FAKE_BYTES / 2;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	r = hugepool_alloc(f->pool, &request, &range);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(r, 0);
	range = take_huge(f, FAKE_BLOCK_PAGES + 3, 0);
	assert_int_equal((uintptr_t)range.address % PAGE, 0);
	for (uint64_t at = 0; at < range.bytes; at += PAGE)
		*(uint64_t *)((char *)range.address + at) = at + 1;
	for (uint64_t page = 1; page < FAKE_BLOCK_PAGES + 4; page++) {
		/* read() of a hugetlbfs file works; that of its pages through another mapping, too. */
		assert_int_equal(pread(f->fake.files[page / FAKE_BLOCK_PAGES], &word, 8,
				       (off_t)(page % FAKE_BLOCK_PAGES * PAGE)),
				 8);
		assert_int_equal(word, (page - 1) * PAGE + 1);
	}

	/* Single huge pages are cut out of a mapping of them. */
	assert_int_equal(hugepool_free_part(f->pool, &range, 2 * PAGE, PAGE, &rest), 0);
	assert_int_equal(range.bytes, 2 * PAGE);
	assert_int_equal(*(uint64_t *)((char *)range.address + PAGE), PAGE + 1);
	assert_int_equal(*(uint64_t *)rest.address, 3 * PAGE + 1);
	assert_int_equal(mincore((char *)range.address + 2 * PAGE, 4096, &there), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_faults, huge_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(test_zero, huge_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(test_without_window, huge_setup, fixture_teardown),
	};
	long before = read_nr(), there;
	int r;

	if (before < 0 || write_nr(before + FAKE_PAGES)) {
		printf("skipped: no huge pages of 2 MiB here, or no right to reserve them\n");
		return SKIPPED;
	}
	there = read_nr();
	if (there - before < FAKE_PAGES) {
		printf("skipped: %d huge pages wanted, the kernel gave %ld\n", FAKE_PAGES,
		       there - before);
		r = SKIPPED;
	} else {
		r = cmocka_run_group_tests(tests, NULL, NULL);
	}
	/* Only what was added. */
	if (there > before && write_nr(read_nr() - (there - before)))
		return 1;
	return r;
}
