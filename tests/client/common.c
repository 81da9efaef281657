/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors are counted around every test: a leak fails the test that has it. */
#include "tests/client/common.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

size_t count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

size_t count_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	size_t n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:fake") != NULL;
	fclose(maps);
	return n;
}

struct hugepool *open_pool(struct fixture *fixture, unsigned flags, int timeout_ms)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	int r = -ETIMEDOUT;

	options.socket = fixture->fake.path;
	options.flags = flags;
	options.timeout_ms = timeout_ms;
	assert_null(fixture->pool);
	/* A short time-out is meant for later: a busy machine may be slower than that now. */
	for (int i = 0; i < 100 && r == -ETIMEDOUT; i++)
		r = hugepool_open(&fixture->pool, &options);
	assert_int_equal(r, 0);
	return fixture->pool;
}

struct hugepool_request request_of(const struct fixture *fixture, uint64_t n_pages, unsigned flags)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.zone = FAKE_ZONE_NAME;
	request.bytes = n_pages * fixture->fake.page_bytes;
	request.flags = flags;
	return request;
}

struct hugepool_range take(struct hugepool *pool, uint64_t n_pages, unsigned flags)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;

	request.bytes = n_pages * 65536;
	request.flags = flags;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_non_null(range.address);
	assert_int_equal(range.bytes, request.bytes);
	assert_int_equal(range.page_size, 65536);
	return range;
}

struct hugepool_error error_of(struct hugepool *pool)
{
	struct hugepool_error error = {.size = sizeof(error)};

	assert_int_equal(hugepool_get_error(pool, &error), 0);
	return error;
}

/* Without the sanitizers' eyes: their shadow of the range has faults of its own. */
__attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread"))) long
faults_of_touching(const struct hugepool_range *range)
{
	volatile char *bytes = range->address;
	struct rusage before, after;

	assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
	for (uint64_t at = 0; at < range->bytes; at += 4096)
		bytes[at] = 1;
	assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
	return after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt;
}

int fixture_setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	if (!fixture)
		return -1;
	fixture->open_before = count_open();
	*state = fixture;
	return fake_start(&fixture->fake);
}

int fixture_teardown(void **state)
{
	struct fixture *fixture = *state;
	size_t before = fixture->open_before;

	fixture->pool = hugepool_close(fixture->pool);
	fake_stop(&fixture->fake);
	free(fixture);
	if (count_mapped() != 0) {
		print_error("%zu blocks are still mapped\n", count_mapped());
		return -1;
	}
	if (count_open() != before) {
		print_error("%zu descriptors, were %zu\n", count_open(), before);
		return -1;
	}
	return 0;
}
