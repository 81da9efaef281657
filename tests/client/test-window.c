/* SPDX-License-Identifier: Apache-2.0 */
/* Address space: none for a window, kernels that cannot populate, and real huge pages elsewhere. */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 65536u

static rlim_t address_space_in_use(void)
{
	FILE *statm = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%lu", &pages), 1);
	fclose(statm);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Opens a pool and takes a first page under a limit that has no room for the zone's window. */
static struct hugepool_range first_without_window(struct fixture *f, unsigned flags)
{
	struct hugepool *pool = open_pool(f, flags, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;
	struct rlimit old, low;
	int r;

	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	low.rlim_cur = address_space_in_use() + FAKE_PAGES * PAGE / 2;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	r = hugepool_alloc(pool, &request, &range);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(r, 0);
	return range;
}

static void fill(const struct hugepool_range *range, uint64_t seed)
{
	for (uint64_t i = 0; i < range->bytes / 8; i++)
		((uint64_t *)range->address)[i] = seed + i;
}

static bool is_filled(const struct hugepool_range *range, uint64_t seed)
{
	for (uint64_t i = 0; i < range->bytes / 8; i++)
		if (((uint64_t *)range->address)[i] != seed + i)
			return false;
	return true;
}

static void test_no_room_for_window(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range a = first_without_window(f, 0), b, c;
	uint64_t word;

	/* One range for itself, not a block. */
	assert_int_equal(count_mapped(), 1);
	b = take(f->pool, 1, 0);
	c = take(f->pool, 2 * FAKE_BLOCK_PAGES, 0);
	fill(&a, 1);
	fill(&b, 1000000);
	fill(&c, 2000000);
	assert_true(is_filled(&a, 1) && is_filled(&b, 1000000) && is_filled(&c, 2000000));
	assert_int_equal(pread(f->fake.files[0], &word, 8, PAGE), 8);
	assert_int_equal(word, 1000000);
	assert_int_equal(pread(f->fake.files[1], &word, 8, 0), 8);
	assert_int_equal(word, 2000000 + (FAKE_BLOCK_PAGES - 2) * PAGE / 8);

	/* A range in a known block: mapped anew, from the descriptor that was kept. */
	assert_int_equal(f->fake.blocks_sent, 3);
	assert_int_equal(hugepool_free(f->pool, &b), 0);
	b = take(f->pool, 1, HUGEPOOL_ZERO);
	assert_int_equal(*(uint64_t *)b.address, 0);
	assert_int_equal(f->fake.blocks_sent, 3);
	assert_int_equal(hugepool_free(f->pool, &a), 0);
	assert_int_equal(hugepool_free(f->pool, &c), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 1);
	assert_int_equal(hugepool_free(f->pool, &b), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 2);
	assert_int_equal(count_mapped(), 0);
}

static void test_alignment_without_window(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range a = first_without_window(f, 0), range;
	struct hugepool_request request = request_of(f, 2, 0);

	for (uint64_t alignment = 4096; alignment <= 64 * PAGE; alignment *= 2) {
		request.alignment = alignment;
		assert_int_equal(hugepool_alloc(f->pool, &request, &range), 0);
		assert_int_equal((uintptr_t)range.address % alignment, 0);
		fill(&range, alignment);
		assert_true(is_filled(&range, alignment));
		assert_int_equal(hugepool_free(f->pool, &range), 0);
	}
	assert_int_equal(hugepool_free(f->pool, &a), 0);
}

/* Not even room for the range: an error, and the grant is given back. */
static void test_no_room_for_range(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range a = first_without_window(f, 0), range = {.address = &range};
	struct hugepool_request request = request_of(f, FAKE_PAGES / 2, 0);
	struct rlimit old, low;
	int r;

	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	low.rlim_cur = address_space_in_use() + FAKE_PAGES * PAGE / 8;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	r = hugepool_alloc(f->pool, &request, &range);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(r, -ENOMEM);
	assert_ptr_equal(range.address, &range);
	assert_int_equal(f->fake.leased_pages, 1);
	assert_int_equal(count_mapped(), 1);
	assert_int_equal(hugepool_alloc(f->pool, &request, &range), 0);
	fill(&range, 5);
	assert_true(is_filled(&range, 5));
	assert_int_equal(hugepool_free(f->pool, &a), 0);
}

/* Closing unmaps ranges that lie anywhere. */
static void test_close_without_window(void **state)
{
	struct fixture *f = *state;

	first_without_window(f, 0);
	take(f->pool, 2 * FAKE_BLOCK_PAGES, 0);
	f->pool = hugepool_close(f->pool);
	assert_int_equal(count_mapped(), 0);
}

/* A part is unmapped at once, and what is left stays where it is. */
static void test_part_without_window(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range a = first_without_window(f, 0), range, rest;
	size_t before = count_mapped();
	unsigned char there;

	range = take(f->pool, 10, 0);
	fill(&range, 4);
	assert_int_equal(hugepool_free_part(f->pool, &range, 3 * PAGE, 4 * PAGE, &rest), 0);
	assert_int_equal(count_mapped(), before + 2);
	for (int page = 0; page < 10; page++) {
		int r = mincore((char *)range.address + page * PAGE, 4096, &there);

		assert_int_equal(r, page < 3 || page >= 7 ? 0 : -1);
	}
	assert_true(is_filled(&range, 4));
	fill(&rest, 8);
	assert_true(is_filled(&rest, 8));
	assert_int_equal(hugepool_free_part(f->pool, &rest, 0, PAGE, NULL), 0);
	assert_int_equal(hugepool_free(f->pool, &rest), 0);
	assert_int_equal(hugepool_free(f->pool, &range), 0);
	assert_int_equal(count_mapped(), before);
	assert_int_equal(hugepool_free(f->pool, &a), 0);
}

/* The window is one piece, and stays ours while blocks come and go. */
static void test_window_stays_reserved(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range a = take(pool, 1, 0), b = take(pool, FAKE_PAGES - 1, 0);
	char *base = a.address;

	assert_int_equal(hugepool_free(pool, &b), 0);
	for (uint64_t at = FAKE_BLOCK_PAGES * PAGE; at < FAKE_PAGES * (uint64_t)PAGE; at += PAGE) {
		void *p = mmap(base + at, PAGE, PROT_READ,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		assert_ptr_equal(p, MAP_FAILED);
		assert_int_equal(errno, EEXIST);
	}
	assert_int_equal((uintptr_t)base % (FAKE_BLOCK_PAGES * PAGE), 0);
}

/* --- a kernel without MADV_POPULATE_WRITE ----------------------------------------------------- */

static int forbid_populate(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a process of its own: a filter is for life. Return: 0, or the line that failed. */
static int run_without_populate(void)
{
	static struct fake fake;
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;
	struct rusage before, after;
	struct hugepool *pool;

	alarm(30);
	if (forbid_populate() || madvise(&fake, 0, 23) == 0)
		return 1;
	if (fake_start(&fake))
		return 2;
	options.socket = fake.path;
	request.bytes = 2 * PAGE;
	if (hugepool_open(&pool, &options) || hugepool_alloc(pool, &request, &range))
		return 3;
	getrusage(RUSAGE_THREAD, &before);
	for (uint64_t at = 0; at < range.bytes; at += 4096)
		((volatile char *)range.address)[at] = 1;
	getrusage(RUSAGE_THREAD, &after);
	if (after.ru_majflt != before.ru_majflt)
		return 4;
	if (hugepool_free(pool, &range))
		return 5;
	fake_await(&fake, TYPE(RELEASE_BLOCK), 1);
	hugepool_close(pool);
	fake_stop(&fake);
	return 0;
}

static void test_old_kernel(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(run_without_populate());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_no_room_for_window),	FIXTURE_TEST(test_alignment_without_window),
		FIXTURE_TEST(test_no_room_for_range),	FIXTURE_TEST(test_close_without_window),
		FIXTURE_TEST(test_part_without_window), FIXTURE_TEST(test_window_stays_reserved),
		cmocka_unit_test(test_old_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
