/* SPDX-License-Identifier: Apache-2.0 */
/* The library with a daemon that behaves. */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 65536u

static void fill(const struct hugepool_range *range, uint64_t seed)
{
	uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / 8; i++)
		words[i] = seed + i;
}

static bool is_filled(const struct hugepool_range *range, uint64_t seed)
{
	const uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / 8; i++)
		if (words[i] != seed + i)
			return false;
	return true;
}

static bool is_all(const struct hugepool_range *range, uint8_t byte)
{
	const uint8_t *bytes = range->address;

	for (uint64_t i = 0; i < range->bytes; i++)
		if (bytes[i] != byte)
			return false;
	return true;
}

static uint32_t first_page(const struct hugepool_range *range)
{
	struct hp_wire_range wire;

	assert_int_equal(hp_wire_get_range(range->lease, &wire), 0);
	return wire.page;
}

/* --- open and close --------------------------------------------------------------------------- */

static void test_open_and_close(void **state)
{
	struct fixture *f = *state;
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;

	options.socket = f->fake.path;
	options.name = "somebody";
	assert_int_equal(hugepool_open(&f->pool, &options), 0);
	assert_string_equal(f->fake.name, "somebody");
	assert_int_equal(error_of(f->pool).error, 0);
	f->pool = hugepool_close(f->pool);
	assert_null(f->pool);
	assert_int_equal(f->fake.seen[TYPE(GOODBYE)], 1);
	assert_null(hugepool_close(NULL));
}

/* The socket from the environment, the name of the program, cut to what the wire takes. */
static void test_open_defaults(void **state)
{
	struct fixture *f = *state;
	char *old_name = program_invocation_short_name;
	char name[200];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(setenv("HUGEPOOL_SOCKET", f->fake.path, 1), 0);
	program_invocation_short_name = name;
	assert_int_equal(hugepool_open(&f->pool, NULL), 0);
	program_invocation_short_name = old_name;
	unsetenv("HUGEPOOL_SOCKET");
	assert_int_equal(strlen(f->fake.name), HP_NAME_MAX);
}

static void test_open_errors(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = NULL;
	struct {
		struct hugepool_options options;
		unsigned char later[8];
	} newer = {.options = HUGEPOOL_OPTIONS_INIT};
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	char path[300];

	options.socket = "/nonexistent/socket";
	assert_int_equal(hugepool_open(&pool, &options), -ENOENT);
	memset(path, 'p', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	options.socket = path;
	assert_int_equal(hugepool_open(&pool, &options), -ENAMETOOLONG);
	options.socket = f->fake.path;
	options.flags = 1u << 31;
	assert_int_equal(hugepool_open(&pool, &options), -EINVAL);
	options.flags = 0;
	options.size = offsetof(struct hugepool_options, timeout_ms);
	assert_int_equal(hugepool_open(&pool, &options), -EINVAL);
	options.size = (size_t)-1;
	assert_int_equal(hugepool_open(&pool, &options), -EINVAL);

	/* A program built with a later header: fine as long as it asks for nothing new. */
	newer.options.size = sizeof(newer);
	newer.options.socket = f->fake.path;
	newer.later[7] = 1;
	assert_int_equal(hugepool_open(&pool, &newer.options), -E2BIG);
	assert_null(pool);
	newer.later[7] = 0;
	assert_int_equal(hugepool_open(&f->pool, &newer.options), 0);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* What is written to a range is in the block's file, where the protocol says. */
static void test_memory(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range a = take(pool, 1, 0), b = take(pool, 3, 0);
	uint64_t words[2];

	fill(&a, 1000);
	fill(&b, 2000);
	assert_true(is_filled(&a, 1000));
	assert_int_equal((char *)b.address - (char *)a.address, PAGE);
	assert_int_equal(pread(f->fake.files[0], words, 8, 0), 8);
	assert_int_equal(pread(f->fake.files[0], words + 1, 8, PAGE), 8);
	assert_int_equal(words[0], 1000);
	assert_int_equal(words[1], 2000);
	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_true(is_filled(&b, 2000));
	assert_int_equal(f->fake.leased_pages, 3);
	assert_int_equal(hugepool_free(pool, &b), 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

/* Rounded up to pages; the range says what it got. */
static void test_rounding(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;

	request.bytes = PAGE + 1;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	assert_int_equal(range.bytes, 2 * PAGE);
	assert_int_equal(f->fake.leased_pages, 2);
}

static void test_contiguous_over_blocks(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range small = take(pool, 1, 0);
	struct hugepool_range large = take(pool, FAKE_PAGES - 1, 0);
	uint64_t word;

	fill(&large, 77);
	assert_true(is_filled(&large, 77));
	for (int b = 1; b < FAKE_BLOCKS; b++) {
		assert_int_equal(pread(f->fake.files[b], &word, 8, 0), 8);
		assert_int_equal(word, 77 + (uint64_t)(b * FAKE_BLOCK_PAGES - 1) * PAGE / 8);
	}
	assert_int_equal(f->fake.blocks_sent, FAKE_BLOCKS);
	assert_int_equal(hugepool_free(pool, &large), 0);
	assert_int_equal(hugepool_free(pool, &small), 0);
}

/* A known block: no descriptor, no fault, and nothing mapped anew. */
static void test_known_block(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range first = take(pool, 1, 0), range;
	size_t mapped = count_mapped();

	assert_int_equal(f->fake.blocks_sent, 1);
	for (int i = 0; i < 5; i++) {
		range = take(pool, 2, 0);
		assert_int_equal(faults_of_touching(&range), 0);
		assert_int_equal(hugepool_free(pool, &range), 0);
	}
	assert_int_equal(f->fake.blocks_sent, 1);
	assert_int_equal(count_mapped(), mapped);
	assert_int_equal(hugepool_free(pool, &first), 0);
}

static void test_alignment(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 2, 0);
	struct hugepool_range odd = take(pool, 1, 0), range;

	for (uint64_t alignment = 1; alignment <= 64 * PAGE; alignment *= 2) {
		request.alignment = alignment;
		assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
		assert_int_equal((uintptr_t)range.address % alignment, 0);
		assert_int_equal(hugepool_free(pool, &range), 0);
	}
	request.alignment = 3 * PAGE;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
	request.alignment = UINT64_C(1) << 63;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
	assert_int_equal(hugepool_free(pool, &odd), 0);
}

static void test_bulk(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range ranges[FAKE_PAGES + 1], backup;

	assert_int_equal(hugepool_alloc_bulk(pool, &request, ranges, FAKE_PAGES), 0);
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 1);
	for (int i = 0; i < FAKE_PAGES; i++)
		fill(&ranges[i], (uint64_t)i << 32);
	for (int i = 0; i < FAKE_PAGES; i++)
		assert_true(is_filled(&ranges[i], (uint64_t)i << 32));

	/* All or none: one of them twice, one of them wrong. */
	backup = ranges[FAKE_PAGES - 1];
	ranges[FAKE_PAGES - 1] = ranges[3];
	assert_int_equal(hugepool_free_bulk(pool, ranges, FAKE_PAGES), -EINVAL);
	assert_int_equal(error_of(pool).index, FAKE_PAGES - 1);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 0);
	ranges[FAKE_PAGES - 1] = backup;
	assert_int_equal(hugepool_free_bulk(pool, ranges, FAKE_PAGES), 0);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 1);
	assert_int_equal(f->fake.leased_pages, 0);
	/* All blocks in one word. */
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);

	assert_int_equal(hugepool_alloc_bulk(pool, &request, ranges, FAKE_PAGES + 1), -ENOMEM);
	assert_int_equal(f->fake.leased_pages, 0);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 1);
	assert_int_equal(hugepool_alloc_bulk(pool, &request, ranges, 0), -EINVAL);
	assert_int_equal(hugepool_alloc_bulk(pool, &request, ranges, HP_RANGES_MAX + 1), -EINVAL);
	assert_int_equal(hugepool_free_bulk(pool, ranges, 0), -EINVAL);
	assert_int_equal(hugepool_free_bulk(pool, ranges, HP_RANGES_MAX + 1), -EINVAL);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Without a further call: the block is unmapped, and the daemon is told. */
static void test_empty_block_is_released(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range a = take(pool, 1, 0), b = take(pool, 1, 0);

	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(count_mapped(), 1);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 0);
	assert_int_equal(hugepool_free(pool, &b), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 0);

	/* Its next life here. */
	a = take(pool, FAKE_BLOCK_PAGES + 1, 0);
	fill(&a, 5);
	assert_true(is_filled(&a, 5));
	assert_int_equal(f->fake.blocks_sent, 3);
	assert_int_equal(hugepool_free(pool, &a), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 2);
}

static void test_kept_blocks(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);

	for (int i = 0; i < 3; i++) {
		struct hugepool_range range = take(pool, 1, 0);

		assert_int_equal(hugepool_free(pool, &range), 0);
	}
	assert_int_equal(f->fake.blocks_sent, 1);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 0);
	assert_int_equal(count_mapped(), 1);
}

static bool retire_first(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type == TYPE(ALLOC) && fake->counter++ == 0)
		fake_blocks(fake, TYPE(BLOCK_RETIRED), 0, fake_generation(0), -1);
	return false;
}

/* A kept block is let go of when the daemon wants it. */
static void test_retired_idle_block(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct hugepool_range a = take(pool, FAKE_BLOCK_PAGES + 1, 0);

	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(count_mapped(), 2);
	f->fake.hook = retire_first;
	f->fake.counter = 0;
	/* Lies in the second block; the first is retired on the way. */
	for (uint32_t i = 0; i < 2; i++) {
		a = take(pool, FAKE_BLOCK_PAGES, 0);
		assert_int_equal(hugepool_free(pool, &a), 0);
	}
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
}

/* One that holds a range stays mapped until the range is freed, even if blocks are kept. */
static void test_retired_block_in_use(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct hugepool_range a = take(pool, 1, 0), b;

	f->fake.hook = retire_first;
	b = take(pool, FAKE_BLOCK_PAGES, 0);
	fill(&a, 9);
	assert_true(is_filled(&a, 9));
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 0);
	assert_int_equal(hugepool_free(pool, &b), 0);
	assert_int_equal(hugepool_free(pool, &a), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 1);
}

static void test_range_fd(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_FDS, 0);
	struct hugepool_range a = take(pool, 3, 0), b = take(pool, 2, 0);
	struct hugepool_range c = take(pool, FAKE_BLOCK_PAGES, 0);
	uint64_t offset = 99, word;
	int fd;

	fill(&b, 4711);
	fd = hugepool_range_fd(pool, &b, &offset);
	assert_true(fd >= 0);
	assert_int_equal(offset, 3 * PAGE);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(pread(fd, &word, 8, (off_t)offset), 8);
	assert_int_equal(word, 4711);
	assert_int_equal(hugepool_range_fd(pool, &c, &offset), -EXDEV);
	assert_int_equal(hugepool_free(pool, &b), 0);
	assert_int_equal(hugepool_range_fd(pool, &b, &offset), -EINVAL);
	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(hugepool_free(pool, &c), 0);
	/* Closed with the block. */
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_range_fd_not_kept(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	size_t before = count_open();
	struct hugepool_range a = take(pool, 1, 0);
	uint64_t offset = 99;

	assert_int_equal(count_open(), before);
	assert_int_equal(hugepool_range_fd(pool, &a, &offset), -EBADF);
	assert_int_equal(offset, 99);
	assert_true(strstr(error_of(pool).message, "HUGEPOOL_KEEP_FDS") != NULL);
}

/* An exclusive range has a descriptor, also where its block was kept without one. */
static void test_exclusive(void **state)
{
	struct fixture *f = *state;

	for (int keep = 0; keep < 2; keep++) {
		struct hugepool *pool = open_pool(f, keep ? HUGEPOOL_KEEP_BLOCKS : 0, 0);
		struct hugepool_range a = take(pool, 1, 0), b;
		uint64_t offset = 99, word;
		int fd;

		assert_int_equal(hugepool_free(pool, &a), 0);
		b = take(pool, 1, HUGEPOOL_EXCLUSIVE);
		fill(&b, 31);
		fd = hugepool_range_fd(pool, &b, &offset);
		assert_true(fd >= 0);
		assert_int_equal(offset, 0);
		assert_int_equal(pread(fd, &word, 8, 0), 8);
		assert_int_equal(word, 31);
		assert_int_equal(hugepool_free(pool, &b), 0);
		f->pool = hugepool_close(pool);
	}
}

/* --- zero ------------------------------------------------------------------------------------- */

static void test_zero(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range before = take(pool, 1, 0), range, after;

	/* Small and large, just used and not. */
	for (uint32_t pages = 1; pages <= FAKE_PAGES / 2; pages = pages * 2 + 1) {
		for (int round = 0; round < 3; round++) {
			range = take(pool, pages, round ? HUGEPOOL_ZERO : 0);
			after = take(pool, 1, 0);
			assert_true(round == 0 || is_all(&range, 0));
			memset(before.address, 0xa5, before.bytes);
			memset(range.address, 0xa5, range.bytes);
			memset(after.address, 0xa5, after.bytes);
			assert_int_equal(hugepool_free(pool, &range), 0);
			range = take(pool, pages, HUGEPOOL_ZERO);
			assert_true(is_all(&range, 0));
			/* Its neighbours are none of its business. */
			assert_true(is_all(&before, 0xa5));
			assert_true(is_all(&after, 0xa5));
			assert_int_equal(hugepool_free(pool, &range), 0);
			assert_int_equal(hugepool_free(pool, &after), 0);
		}
	}
}

/* What the daemon says is zero is not touched again; what nobody asked to be zero, neither. */
static void test_zero_is_not_done_twice(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct hugepool_range range = take(pool, 4, 0);

	memset(range.address, 0xa5, range.bytes);
	assert_int_equal(hugepool_free(pool, &range), 0);
	range = take(pool, 4, 0);
	assert_true(is_all(&range, 0xa5));
	assert_int_equal(hugepool_free(pool, &range), 0);
	f->fake.claim_zeroed = true;
	range = take(pool, 4, HUGEPOOL_ZERO);
	assert_true(is_all(&range, 0xa5));
	assert_int_equal(hugepool_free(pool, &range), 0);
}

/* --- errors ----------------------------------------------------------------------------------- */

static void test_bad_requests(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request;
	struct hugepool_range range = {.address = &range};

	request = request_of(f, 0, 0);
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
	request = request_of(f, 1, 1u << 31);
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
	request = request_of(f, 1, 0);
	request.size = 8;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EINVAL);
	request = request_of(f, 1, 0);
	request.zone = "elsewhere";
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENODEV);
	assert_true(strstr(error_of(pool).message, "elsewhere") != NULL);
	request = request_of(f, 1, 0);
	request.page_size = 4096;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENODEV);
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 0);
	assert_ptr_equal(range.address, &range);
}

static void test_no_memory(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, FAKE_PAGES + 1, 0);
	struct hugepool_range range = {.address = &range};
	struct hugepool_error error;

	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENOMEM);
	assert_ptr_equal(range.address, &range);
	error = error_of(pool);
	assert_int_equal(error.error, ENOMEM);
	assert_string_equal(error.zone, FAKE_ZONE_NAME);
	assert_string_equal(error.message, "a reason?with a control character");
	assert_int_equal(error.asked_bytes, request.bytes);
	assert_int_equal(error.free_bytes, 2 * PAGE);
	assert_int_equal(error.leasable_bytes, 3 * PAGE);
	assert_int_equal(error.limit_bytes, 4 * PAGE);
	assert_int_equal(error.largest_bytes, 5 * PAGE);
	assert_int_equal(error.index, 6);

	/* More than a range can be, of a zone that is smaller still. */
	request.bytes = UINT64_MAX;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENOMEM);
	assert_int_equal(error_of(pool).asked_bytes, UINT64_MAX);
}

static bool answer_counter_as_code(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(ALLOC))
		return false;
	fake_error(fake, frame->tag, (Hugepool__V1__Code)fake->counter);
	return true;
}

static void test_every_code(void **state)
{
	static const int expected[] = {
		[CODE(UNSPECIFIED)] = -EPROTO,
		[CODE(MALFORMED)] = -EPROTO,
		[CODE(UNKNOWN_TYPE)] = -EOPNOTSUPP,
		[CODE(NOT_SUPPORTED)] = -EOPNOTSUPP,
		[CODE(HELLO_REQUIRED)] = -EPROTO,
		[CODE(VERSION)] = -EPROTO,
		[CODE(NO_ZONE)] = -ENODEV,
		[CODE(NO_MEMORY)] = -ENOMEM,
		[CODE(OVER_LIMIT)] = -EDQUOT,
		[CODE(INVALID)] = -EINVAL,
		[CODE(TOO_MANY)] = -EUSERS,
		[CODE(OUT_OF_RANGE)] = -EINVAL,
		[CODE(NOT_LEASED)] = -EINVAL,
		[CODE(WRONG_HOLDER)] = -EINVAL,
		[CODE(WRONG_LENGTH)] = -EINVAL,
		[CODE(STALE)] = -EINVAL,
		[CODE(REVOKED)] = -EOWNERDEAD,
		[CODE(BUSY)] = -EBUSY,
		[CODE(PERMISSION)] = -EACCES,
		[CODE(TIMED_OUT)] = -ETIMEDOUT,
		[CODE(CANCELLED)] = -ECANCELED,
		[CODE(SHUTTING_DOWN)] = -ESHUTDOWN,
		[CODE(INTERNAL)] = -EIO,
		[CODE(NO_SHARE)] = -ENOENT,
		[CODE(NO_SESSION)] = -ESTALE,
		[CODE(NO_SESSION) + 1] = -EPROTO,
		[CODE(NO_SESSION) + 100] = -EPROTO,
	};
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;

	f->fake.hook = answer_counter_as_code;
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		if (!expected[i])
			continue;
		f->fake.counter = (int)i;
		assert_int_equal(hugepool_alloc(pool, &request, &range), expected[i]);
		assert_int_equal(error_of(pool).error, -expected[i]);
	}
	/* An error is an answer: the handle goes on. */
	f->fake.hook = NULL;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
}

static void test_wrong_frees(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range keep = take(pool, 1, 0), range = take(pool, 2, 0), wrong, again;

	fill(&keep, 1);
	fill(&range, 2);
	for (int i = 0; i < 6; i++) {
		wrong = range;
		if (i == 0)
			wrong.bytes += PAGE;
		else if (i == 1)
			wrong.lease[0]++; /* another page */
		else if (i == 2)
			wrong.lease[1]++; /* another length */
		else if (i == 3)
			wrong.lease[1] += 1 << 20; /* another generation */
		else if (i == 4)
			wrong.lease[0] += UINT64_C(1) << 32; /* another zone */
		else
			wrong.address = keep.address;
		assert_int_equal(hugepool_free(pool, &wrong), -EINVAL);
	}
	memset(&wrong, 0xff, sizeof(wrong));
	assert_int_equal(hugepool_free(pool, &wrong), -EINVAL);
	memset(&wrong, 0, sizeof(wrong));
	assert_int_equal(hugepool_free(pool, &wrong), -EINVAL);
	assert_true(is_filled(&keep, 1));
	assert_true(is_filled(&range, 2));

	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(hugepool_free(pool, &range), -EINVAL);
	/* The same pages again, in another lease: the old name is still no good. */
	again = take(pool, 2, 0);
	assert_int_equal(first_page(&again), first_page(&range));
	assert_int_equal(hugepool_free(pool, &range), -EINVAL);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 1);
	assert_int_equal(hugepool_free(pool, &again), 0);
}

static bool refuse_free(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(FREE))
		return false;
	fake_error(fake, frame->tag, CODE(STALE));
	return true;
}

/* The daemon does not agree: the range is still there, usable, and can be freed later. */
static void test_refused_free(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 2, 0);

	f->fake.hook = refuse_free;
	fill(&range, 3);
	assert_int_equal(hugepool_free(pool, &range), -EINVAL);
	assert_true(is_filled(&range, 3));
	f->fake.hook = NULL;
	assert_int_equal(hugepool_free(pool, &range), 0);
}

static void test_get_error_sizes(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, FAKE_PAGES + 1, 0);
	struct hugepool_range range;
	struct {
		struct hugepool_error error;
		unsigned char later[16];
	} newer;
	struct hugepool_error older;

	assert_int_equal(hugepool_alloc(pool, &request, &range), -ENOMEM);
	memset(&newer, 0xa5, sizeof(newer));
	newer.error.size = sizeof(newer);
	assert_int_equal(hugepool_get_error(pool, &newer.error), 0);
	assert_int_equal(newer.error.error, ENOMEM);
	assert_int_equal(newer.error.size, sizeof(newer));
	for (size_t i = 0; i < sizeof(newer.later); i++)
		assert_int_equal(newer.later[i], 0);

	memset(&older, 0xa5, sizeof(older));
	older.size = offsetof(struct hugepool_error, message);
	assert_int_equal(hugepool_get_error(pool, &older), 0);
	assert_int_equal(older.error, ENOMEM);
	assert_int_equal((unsigned char)older.message[0], 0xa5);
	older.size = 0;
	assert_int_equal(hugepool_get_error(pool, &older), -EINVAL);
}

/* --- processes and threads -------------------------------------------------------------------- */

static int in_child(int (*run)(struct hugepool *, struct hugepool_range *), struct hugepool *pool,
		    struct hugepool_range *range)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(30);
		_exit(run(pool, range));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int child_calls(struct hugepool *pool, struct hugepool_range *range)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_error error = {.size = sizeof(error)};
	uint64_t offset;

	request.bytes = PAGE;
	return hugepool_alloc(pool, &request, range) == -ECHILD &&
			       hugepool_free(pool, range) == -ECHILD &&
			       hugepool_free_part(pool, range, 0, PAGE, NULL) == -ECHILD &&
			       hugepool_range_fd(pool, range, &offset) == -ECHILD &&
			       hugepool_get_error(pool, &error) == -ECHILD &&
			       hugepool_close(pool) == NULL
		       ? 0
		       : 1;
}

static int child_touches(struct hugepool *pool, struct hugepool_range *range)
{
	(void)pool;
	/* mincore() tells whether an address is mapped without dying of it. */
	unsigned char there;

	return mincore(range->address, 4096, &there) < 0 && errno == ENOMEM ? 0 : 1;
}

static int child_writes(struct hugepool *pool, struct hugepool_range *range)
{
	(void)hugepool_close(pool);
	*(volatile uint64_t *)range->address = 99;
	return 0;
}

/* A child has neither handle nor memory, and takes nothing from its parent. */
static void test_fork(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 2, 0), more;

	fill(&range, 8);
	assert_int_equal(in_child(child_calls, pool, &range), 0);
	assert_int_equal(in_child(child_touches, pool, &range), 0);
	assert_int_equal(f->fake.seen[TYPE(GOODBYE)], 0);
	assert_true(is_filled(&range, 8));
	more = take(pool, 1, 0);
	assert_int_equal(hugepool_free(pool, &more), 0);
	assert_int_equal(hugepool_free(pool, &range), 0);
}

static void test_inherit(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_INHERIT, 0);
	struct hugepool_range range = take(pool, 2, 0);

	fill(&range, 8);
	assert_int_equal(in_child(child_writes, pool, &range), 0);
	assert_int_equal(*(uint64_t *)range.address, 99);
}

struct worker {
	struct hugepool *pool;
	uint64_t seed;
	int failed;
};

static void *take_and_give(void *userdata)
{
	struct worker *worker = userdata;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range ranges[4];

	for (int round = 0; round < 200; round++) {
		size_t n = (size_t)(round % 4) + 1;

		request.bytes = ((uint64_t)round % 3 + 1) * PAGE;
		if (hugepool_alloc_bulk(worker->pool, &request, ranges, n))
			return worker->failed = 1, NULL;
		for (size_t i = 0; i < n; i++)
			fill(&ranges[i], worker->seed + i);
		for (size_t i = 0; i < n; i++)
			if (!is_filled(&ranges[i], worker->seed + i))
				return worker->failed = 2, NULL;
		if (hugepool_free_bulk(worker->pool, ranges, n))
			return worker->failed = 3, NULL;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct worker workers[6];
	pthread_t threads[6];

	for (size_t i = 0; i < 6; i++) {
		workers[i] = (struct worker){.pool = pool, .seed = i << 40};
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &workers[i]), 0);
	}
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].failed, 0);
	}
	assert_int_equal(f->fake.leased_pages, 0);
}

/* Freed by the daemon and unmapped by us, whatever is held. */
static void test_close_gives_everything_back(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_FDS | HUGEPOOL_KEEP_BLOCKS, 0);

	take(pool, 1, 0);
	take(pool, FAKE_BLOCK_PAGES * 3, 0);
	take(pool, 1, HUGEPOOL_EXCLUSIVE);
	f->pool = hugepool_close(pool);
	assert_int_equal(count_mapped(), 0);
	assert_int_equal(f->fake.seen[TYPE(GOODBYE)], 1);
}

static void test_version(void **state)
{
	(void)state;
	assert_string_equal(hugepool_version(), HUGEPOOL_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_open_and_close),
		FIXTURE_TEST(test_open_defaults),
		FIXTURE_TEST(test_open_errors),
		FIXTURE_TEST(test_memory),
		FIXTURE_TEST(test_rounding),
		FIXTURE_TEST(test_contiguous_over_blocks),
		FIXTURE_TEST(test_known_block),
		FIXTURE_TEST(test_alignment),
		FIXTURE_TEST(test_bulk),
		FIXTURE_TEST(test_empty_block_is_released),
		FIXTURE_TEST(test_kept_blocks),
		FIXTURE_TEST(test_retired_idle_block),
		FIXTURE_TEST(test_retired_block_in_use),
		FIXTURE_TEST(test_range_fd),
		FIXTURE_TEST(test_range_fd_not_kept),
		FIXTURE_TEST(test_exclusive),
		FIXTURE_TEST(test_zero),
		FIXTURE_TEST(test_zero_is_not_done_twice),
		FIXTURE_TEST(test_bad_requests),
		FIXTURE_TEST(test_no_memory),
		FIXTURE_TEST(test_every_code),
		FIXTURE_TEST(test_wrong_frees),
		FIXTURE_TEST(test_refused_free),
		FIXTURE_TEST(test_get_error_sizes),
		FIXTURE_TEST(test_fork),
		FIXTURE_TEST(test_inherit),
		FIXTURE_TEST(test_threads),
		FIXTURE_TEST(test_close_gives_everything_back),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
