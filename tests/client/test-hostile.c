/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library with a daemon that is broken, hostile, slow or gone. Whatever it says, nothing is
 * written outside of memory it has really given, no descriptor stays, and the caller gets an error.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PAGE 65536u

static int try_open(struct fixture *f, int timeout_ms)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool = NULL;
	int r;

	options.socket = f->fake.path;
	options.timeout_ms = timeout_ms;
	r = hugepool_open(&pool, &options);
	assert_true(r < 0);
	assert_null(pool);
	return r;
}

/* The answer, and then that the handle is done for. */
static void check_broken(struct fixture *f, struct hugepool *pool, int expected)
{
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range = {.address = &range};

	assert_int_equal(hugepool_alloc(pool, &request, &range), expected);
	assert_int_equal(error_of(pool).error, -expected);
	assert_true(error_of(pool).message[0] != '\0');
	f->fake.hook = NULL;
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ECONNRESET);
	assert_ptr_equal(range.address, &range);
}

/* --- hello ------------------------------------------------------------------------------------ */

enum {
	ZONE_PAGE_0,
	ZONE_PAGE_ODD,
	ZONE_PAGE_TINY,
	ZONE_BLOCK_0,
	ZONE_BLOCK_ODD,
	ZONE_BLOCK_SMALL,
	ZONE_BLOCK_HUGE,
	ZONE_BLOCKS_0,
	ZONE_BLOCKS_MANY,
	ZONE_PAGES_WRONG,
	ZONE_ID,
	ZONE_NO_NAME,
	ZONE_LONG_NAME,
	ZONE_NUL_IN_NAME,
	ZONE_TWICE,
	ZONE_TOO_MANY,
	ZONE_MISCHIEFS,
};

static bool bad_welcome(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Zone zone = fake_zone(fake);
	static uint8_t name[HP_NAME_MAX + 1] = "a";
	size_t copies = 1;

	if (frame->type != TYPE(HELLO))
		return false;
	switch (fake->counter) {
	case ZONE_PAGE_0:
		zone.page_size = 0;
		break;
	case ZONE_PAGE_ODD:
		zone.page_size += 4096;
		break;
	case ZONE_PAGE_TINY:
		zone.page_size = 2048;
		zone.pages = zone.block_size / 2048 * zone.blocks;
		break;
	case ZONE_BLOCK_0:
		zone.block_size = 0;
		break;
	case ZONE_BLOCK_ODD:
		zone.block_size += zone.page_size;
		break;
	case ZONE_BLOCK_SMALL:
		zone.block_size = zone.page_size / 2;
		break;
	case ZONE_BLOCK_HUGE:
		zone.block_size = UINT64_C(1) << 63;
		zone.pages = zone.block_size / zone.page_size * zone.blocks;
		break;
	case ZONE_BLOCKS_0:
		zone.blocks = 0;
		zone.pages = 0;
		break;
	case ZONE_BLOCKS_MANY:
		zone.blocks = HP_ZONE_BLOCKS_MAX + 1;
		zone.pages = (uint64_t)zone.blocks * FAKE_BLOCK_PAGES;
		break;
	case ZONE_PAGES_WRONG:
		zone.pages++;
		break;
	case ZONE_ID:
		zone.id = 256;
		break;
	case ZONE_NO_NAME:
		zone.name.len = 0;
		break;
	case ZONE_LONG_NAME:
		zone.name.data = memset(name, 'n', sizeof(name));
		zone.name.len = HP_NAME_MAX + 1;
		break;
	case ZONE_NUL_IN_NAME:
		zone.name.data = (uint8_t *)"a\0b";
		zone.name.len = 3;
		break;
	case ZONE_TWICE:
		copies = 2;
		break;
	case ZONE_TOO_MANY:
		copies = HP_ZONES_MAX + 1;
		break;
	default:
		break;
	}
	fake_welcome(fake, frame->tag, &zone, copies);
	return true;
}

static void test_bad_zones(void **state)
{
	struct fixture *f = *state;

	f->fake.hook = bad_welcome;
	for (int i = 0; i < ZONE_MISCHIEFS; i++) {
		f->fake.counter = i;
		assert_int_equal(try_open(f, 0), -EPROTO);
	}
	f->fake.counter = ZONE_MISCHIEFS;
	open_pool(f, 0, 0);
}

static bool other_protocol(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Welcome welcome = HUGEPOOL__V1__WELCOME__INIT;

	if (frame->type != TYPE(HELLO))
		return false;
	welcome.protocol = HP_PROTOCOL_VERSION + 1;
	fake_send(fake, TYPE(WELCOME), frame->tag, &welcome.base);
	return true;
}

static bool refuse_hello(struct fake *fake, const struct hp_frame *frame)
{
	fake_error(fake, frame->tag, (Hugepool__V1__Code)fake->counter);
	return true;
}

static bool hang_up(struct fake *fake, const struct hp_frame *frame)
{
	(void)frame;
	shutdown(fake->session, SHUT_RDWR);
	return true;
}

static bool say_nothing(struct fake *fake, const struct hp_frame *frame)
{
	(void)fake;
	(void)frame;
	return true;
}

static void test_refused_hello(void **state)
{
	struct fixture *f = *state;

	f->fake.hook = other_protocol;
	assert_int_equal(try_open(f, 0), -EPROTO);
	f->fake.hook = refuse_hello;
	f->fake.counter = CODE(TOO_MANY);
	assert_int_equal(try_open(f, 0), -EUSERS);
	f->fake.counter = CODE(PERMISSION);
	assert_int_equal(try_open(f, 0), -EACCES);
	f->fake.hook = hang_up;
	assert_int_equal(try_open(f, 0), -ECONNRESET);
	f->fake.hook = say_nothing;
	assert_int_equal(try_open(f, 50), -ETIMEDOUT);
}

/* A daemon that accepts nobody: connecting has its time, too. */
static void test_nobody_accepts(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), waiting[4], n = 0;
	struct hugepool *pool = NULL;

	snprintf(address.sun_path, sizeof(address.sun_path), "%.64s/busy", f->fake.directory);
	assert_true(listener >= 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 0), 0);
	do {
		waiting[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		assert_true(waiting[n] >= 0);
	} while (connect(waiting[n++], (struct sockaddr *)&address, sizeof(address)) == 0 && n < 4);
	assert_int_equal(errno, EAGAIN);

	options.socket = address.sun_path;
	options.timeout_ms = 50;
	assert_int_equal(hugepool_open(&pool, &options), -ETIMEDOUT);
	while (n > 0)
		close(waiting[--n]);
	close(listener);
	unlink(address.sun_path);
}

/* --- streams ---------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_no_reply(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 100);
	uint64_t start = now_ms();

	f->fake.hook = say_nothing;
	check_broken(f, pool, -ETIMEDOUT);
	assert_in_range(now_ms() - start, 90, 30000);
}

/* A byte now and then does not make it wait longer: all of them would take ten seconds. */
static bool dribble(struct fake *fake, const struct hp_frame *frame)
{
	const struct timespec pause = {.tv_nsec = 50000000};
	uint8_t bytes[HP_FRAME_HEADER_BYTES + 200] = {
		200, 0, 0, 0, TYPE(GRANT), 0, (uint8_t)frame->tag, (uint8_t)(frame->tag >> 8)};

	for (size_t i = 0; i < sizeof(bytes) && fake->hook == dribble; i++) {
		fake_send_bytes(fake, bytes + i, 1, NULL, 0);
		nanosleep(&pause, NULL);
	}
	return true;
}

static void test_dribbled_reply(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 200);
	uint64_t start = now_ms();

	f->fake.hook = dribble;
	check_broken(f, pool, -ETIMEDOUT);
	assert_in_range(now_ms() - start, 190, 8000);
}

/* Nor does an endless stream of what nobody asked for. */
static bool flood(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Pressure pressure = HUGEPOOL__V1__PRESSURE__INIT;

	(void)frame;
	while (fake->hook == flood)
		fake_send(fake, TYPE(PRESSURE), 0, &pressure.base);
	return true;
}

static void test_flood(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 200);
	uint64_t start = now_ms();

	f->fake.hook = flood;
	check_broken(f, pool, -ETIMEDOUT);
	assert_in_range(now_ms() - start, 190, 30000);
	/* Its thread may be stuck in sending. */
	f->pool = hugepool_close(pool);
}

static bool hang_up_in_the_middle(struct fake *fake, const struct hp_frame *frame)
{
	uint8_t bytes[HP_FRAME_HEADER_BYTES];

	hp_frame_put_header(bytes, TYPE(GRANT), frame->tag, 16);
	fake_send_bytes(fake, bytes, sizeof(bytes), NULL, 0);
	shutdown(fake->session, SHUT_RDWR);
	return true;
}

static void test_gone(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 2, 0);

	memset(range.address, 1, range.bytes);
	f->fake.hook = hang_up_in_the_middle;
	check_broken(f, pool, -ECONNRESET);
	/* What it has stays usable until it is closed. */
	memset(range.address, 2, range.bytes);
	assert_int_equal(hugepool_free(pool, &range), -ECONNRESET);
	memset(range.address, 3, range.bytes);
	f->pool = hugepool_close(pool);
	assert_int_equal(count_mapped(), 0);
}

static const uint8_t garbage[][HP_FRAME_HEADER_BYTES + 4] = {
	{0xff, 0xff, 0xff, 0xff, TYPE(GRANT)},		 /* too long */
	{0, 0, 0, 0, TYPE(GRANT), 1},			 /* flags */
	{0, 0, 0, 0, TYPE(GRANT), 0, 0x33, 0x33},	 /* a reply to nothing */
	{4, 0, 0, 0, TYPE(BLOCKS), 0, 0, 0, 0x12, 0xff}, /* not a message */
};

static bool send_garbage(struct fake *fake, const struct hp_frame *frame)
{
	(void)frame;
	fake_send_bytes(fake, garbage[fake->counter], sizeof(garbage[0]), NULL, 0);
	return true;
}

static bool send_wrong_type(struct fake *fake, const struct hp_frame *frame)
{
	if (fake->counter)
		fake_done(fake, frame->tag);
	else
		fake_welcome(fake, frame->tag, NULL, 0);
	return true;
}

static void test_garbage(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < (int)(sizeof(garbage) / sizeof(garbage[0])); i++) {
		struct hugepool *pool = open_pool(f, 0, 0);

		f->fake.counter = i;
		f->fake.hook = send_garbage;
		check_broken(f, pool, -EPROTO);
		f->pool = hugepool_close(pool);
	}
	for (int i = 0; i < 2; i++) {
		struct hugepool *pool = open_pool(f, 0, 0);

		f->fake.counter = i;
		f->fake.hook = send_wrong_type;
		check_broken(f, pool, -EPROTO);
		f->pool = hugepool_close(pool);
	}
}

static bool turn_away(struct fake *fake, const struct hp_frame *frame)
{
	fake_answer(fake, frame);
	fake_error(fake, 0, CODE(TOO_MANY));
	shutdown(fake->session, SHUT_RDWR);
	fake->counter = 1;
	return true;
}

/* It has hung up before it is asked: nothing can be sent, but why can be read. */
static void test_turned_away(void **state)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;

	f->fake.hook = turn_away;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	for (int i = 0; i < 10000 && !f->fake.counter; i++)
		nanosleep(&pause, NULL);
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EUSERS);
	assert_string_equal(error_of(pool).message, "a reason?with a control character");
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ECONNRESET);
}

/* An error that answers nothing is a daemon's last word. */
static bool last_word(struct fake *fake, const struct hp_frame *frame)
{
	(void)frame;
	fake_error(fake, 0, CODE(SHUTTING_DOWN));
	return true;
}

/* What a later protocol sends unasked is passed over. */
static bool unknown_first(struct fake *fake, const struct hp_frame *frame)
{
	uint8_t bytes[HP_FRAME_HEADER_BYTES + 3] = {3, 0, 0, 0, 200, 0, 0, 0, 'a', 'b', 'c'};

	(void)frame;
	fake_send_bytes(fake, bytes, sizeof(bytes), NULL, 0);
	return false;
}

static void test_unasked(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);

	f->fake.hook = unknown_first;
	take(pool, 1, 0);
	f->fake.hook = last_word;
	check_broken(f, pool, -ESHUTDOWN);
}

/* --- grants ----------------------------------------------------------------------------------- */

enum {
	GRANT_OUTSIDE,
	GRANT_OVER_THE_END,
	GRANT_WRAPS,
	GRANT_OTHER_ZONE,
	GRANT_SHORTER,
	GRANT_LONGER,
	GRANT_UNALIGNED,
	GRANT_TWO,
	GRANT_NONE,
	GRANT_HELD,
	GRANT_MISCHIEFS,
};

static bool bad_grant(struct fake *fake, const struct hp_frame *frame)
{
	struct hp_wire_range ranges[2] = {
		{.page = 4, .pages = 2, .generation = 1, .zone = FAKE_ZONE}};
	size_t n = 1;

	if (frame->type != TYPE(ALLOC))
		return false;
	switch (fake->counter) {
	case GRANT_OUTSIDE:
		ranges[0].page = FAKE_PAGES;
		break;
	case GRANT_OVER_THE_END:
		ranges[0].page = FAKE_PAGES - 1;
		break;
	case GRANT_WRAPS:
		ranges[0].page = UINT32_MAX;
		break;
	case GRANT_OTHER_ZONE:
		ranges[0].zone++;
		break;
	case GRANT_SHORTER:
		ranges[0].pages--;
		break;
	case GRANT_LONGER:
		ranges[0].pages++;
		break;
	case GRANT_UNALIGNED:
		ranges[0].page = 3;
		break;
	case GRANT_TWO:
		ranges[n++] = ranges[0];
		break;
	case GRANT_NONE:
		n = 0;
		break;
	default:
		ranges[0].page = 0;
	}
	if (!fake->sent[0])
		fake_blocks(fake, TYPE(BLOCKS), 0, fake_generation(0), fake->files[0]);
	fake->sent[0] = true;
	fake_grant(fake, frame->tag, ranges, n);
	return true;
}

static void test_bad_grants(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < GRANT_MISCHIEFS; i++) {
		struct hugepool *pool = open_pool(f, 0, 0);
		struct hugepool_request request = request_of(f, 2, HUGEPOOL_ZERO);
		struct hugepool_range held = take(pool, 2, 0), range = {.address = &range};

		memset(held.address, 0x5a, held.bytes);
		request.alignment = 2 * PAGE;
		f->fake.counter = i;
		f->fake.hook = bad_grant;
		assert_int_equal(hugepool_alloc(pool, &request, &range), -EPROTO);
		assert_ptr_equal(range.address, &range);
		for (uint64_t at = 0; at < held.bytes; at++)
			assert_int_equal(((uint8_t *)held.address)[at], 0x5a);
		check_broken(f, pool, -ECONNRESET);
		f->pool = hugepool_close(pool);
	}
}

/* Bits of the words that must be 0. */
static bool bad_words(struct fake *fake, const struct hp_frame *frame)
{
	uint64_t words[] = {(uint64_t)FAKE_ZONE << 32 | UINT64_C(1) << (40 + fake->counter), 1};
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;

	if (frame->type != TYPE(ALLOC))
		return false;
	ranges.ranges = words;
	ranges.n_ranges = fake->counter == 1 ? 1 : 2;
	fake_send(fake, TYPE(GRANT), frame->tag, &ranges.base);
	return true;
}

static void test_bad_words(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++) {
		struct hugepool *pool = open_pool(f, 0, 0);

		f->fake.counter = i;
		f->fake.hook = bad_words;
		check_broken(f, pool, -EPROTO);
		f->pool = hugepool_close(pool);
	}
}

/* --- descriptors ------------------------------------------------------------------------------ */

enum {
	FD_BLOCK_OUTSIDE,
	FD_MISSING,
	FD_OTHER_LIFE_IN_USE,
	FD_MISCHIEFS,
};

static bool bad_blocks(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(ALLOC))
		return false;
	if (fake->counter == FD_BLOCK_OUTSIDE)
		fake_blocks(fake, TYPE(BLOCKS), FAKE_BLOCKS, 1, fake->files[0]);
	else if (fake->counter == FD_MISSING)
		fake_blocks(fake, TYPE(BLOCKS), 1, 1, -1);
	else
		fake_blocks(fake, TYPE(BLOCKS), 0, 1, fake->files[1]);
	return false;
}

static void test_bad_blocks(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < FD_MISCHIEFS; i++) {
		struct hugepool *pool = open_pool(f, 0, 0);
		struct hugepool_range held = take(pool, 1, 0);

		memset(held.address, 0x5a, held.bytes);
		f->fake.counter = i;
		f->fake.hook = bad_blocks;
		check_broken(f, pool, -EPROTO);
		assert_int_equal(*(uint8_t *)held.address, 0x5a);
		f->pool = hugepool_close(pool);
	}
}

/* Files that cannot be a block: mapping them would be a signal later. */
enum { FILE_SHORT, FILE_ENDS_EARLY, FILE_SPARSE, FILE_PIPE, FILE_READ_ONLY, FILE_MISCHIEFS };

static int make_bad_file(const struct fake *fake, int kind)
{
	off_t bytes = (off_t)(fake->page_bytes * FAKE_BLOCK_PAGES);
	int fd, ends[2], r = 0;
	char path[40];

	if (kind == FILE_PIPE) {
		r = pipe2(ends, O_CLOEXEC);
		close(ends[1]);
		return r ? -1 : ends[0];
	}
	fd = memfd_create("bad", MFD_CLOEXEC);
	if (kind == FILE_SPARSE)
		r = ftruncate(fd, bytes);
	else
		r = fallocate(fd, kind == FILE_ENDS_EARLY ? FALLOC_FL_KEEP_SIZE : 0, 0,
			      kind == FILE_SHORT ? bytes - 4096 : bytes);
	if (kind == FILE_READ_ONLY && r == 0) {
		int reopened;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		reopened = open(path, O_RDONLY | O_CLOEXEC);
		close(fd);
		return reopened;
	}
	return r ? -1 : fd;
}

static bool bad_file(struct fake *fake, const struct hp_frame *frame)
{
	int fd;

	if (frame->type != TYPE(ALLOC) || fake->sent[0])
		return false;
	fd = make_bad_file(fake, fake->counter);
	if (fd < 0)
		abort();
	fake_blocks(fake, TYPE(BLOCKS), 0, fake_generation(0), fd);
	close(fd);
	fake->sent[0] = true;
	return false;
}

/* The grant is given back, and with a good file all is well: only that block was. */
static void test_bad_files(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	static const int expected[] = {-EBADMSG, -EBADMSG, -EBADMSG, -EBADMSG, -EACCES};

	for (int i = 0; i < FILE_MISCHIEFS; i++) {
		struct hugepool_range range = {.address = &range};

		f->fake.counter = i;
		f->fake.hook = bad_file;
		assert_int_equal(hugepool_alloc(pool, &request, &range), expected[i]);
		fake_await(&f->fake, TYPE(RELEASE_BLOCK), (unsigned)(2 * i) + 1);
		assert_int_equal(f->fake.leased_pages, 0);
		f->fake.hook = NULL;
		range = take(pool, 1, 0);
		memset(range.address, 1, range.bytes);
		assert_int_equal(hugepool_free(pool, &range), 0);
		fake_await(&f->fake, TYPE(RELEASE_BLOCK), (unsigned)(2 * i) + 2);
	}
}

/* No descriptor left: an error, nothing held, and the next call works. */
static void test_descriptor_table_full(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 3 * FAKE_BLOCK_PAGES, 0);
	struct hugepool_range range = {.address = &range};
	struct rlimit old, low;
	int spare = dup(0), r;

	assert_true(spare >= 0);
	close(spare);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)spare;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = hugepool_alloc(pool, &request, &range);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(r, -EMFILE);
	assert_ptr_equal(range.address, &range);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(f->fake.leased_pages, 0);
	range = take(pool, 3 * FAKE_BLOCK_PAGES, 0);
	memset(range.address, 1, range.bytes);
}

/* Descriptors with frames that name no block do not pile up. */
static bool surplus_fds(struct fake *fake, const struct hp_frame *frame)
{
	uint8_t buffer[HP_FRAME_MAX];
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	int fds[HP_BLOCKS_MAX], n;

	if (frame->type != TYPE(FREE))
		return false;
	for (size_t i = 0; i < HP_BLOCKS_MAX; i++)
		fds[i] = fake->files[0];
	n = hp_message_pack(buffer, TYPE(DONE), frame->tag, &empty.base);
	if (n < 0)
		abort();
	fake_send_bytes(fake, buffer, (size_t)n, fds, HP_BLOCKS_MAX);
	return true;
}

static void test_surplus_descriptors(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	size_t before = count_open();
	struct hugepool_range range;

	for (int i = 0; i < 3; i++) {
		struct hugepool_range other;

		range = take(pool, 1, 0);
		f->fake.hook = surplus_fds;
		assert_int_equal(hugepool_free(pool, &range), 0);
		f->fake.hook = NULL;
		other = take(pool, 1, 0);
		assert_int_equal(count_open(), before);
		assert_int_equal(hugepool_free(pool, &other), 0);
	}
}

/* --- releasing and granting at the same time -------------------------------------------------- */

/* Grants in a block that was let go of, as if it had not been: BUSY, and no descriptor. */
static bool forget_releases(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type == TYPE(RELEASE_BLOCK) && fake->counter-- > 0) {
		fake_error(fake, frame->tag, CODE(BUSY));
		return true;
	}
	return false;
}

/* The grant is given back, the block released once more, and the request made again. */
static void test_busy_release(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 1, 0);

	f->fake.counter = 1;
	f->fake.hook = forget_releases;
	assert_int_equal(hugepool_free(pool, &range), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	range = take(pool, 1, 0);
	memset(range.address, 1, range.bytes);
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 3);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 2);
	assert_int_equal(f->fake.leased_pages, 1);
	assert_int_equal(f->fake.blocks_sent, 2);
	assert_int_equal(hugepool_free(pool, &range), 0);
}

/* A daemon that never sends it again is broken. */
static void test_never_sent_again(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 1, 0);
	struct hugepool_request request = request_of(f, 1, 0);

	f->fake.counter = 1000;
	f->fake.hook = forget_releases;
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(hugepool_alloc(pool, &request, &range), -EPROTO);
	assert_int_equal(hugepool_alloc(pool, &request, &range), -ECONNRESET);
}

/* The same block sent twice keeps its first mapping, and no descriptor. */
static bool send_twice(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type == TYPE(ALLOC))
		fake_blocks(fake, TYPE(BLOCKS), 0, fake_generation(0), fake->files[0]);
	return false;
}

static void test_sent_twice(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	size_t before = count_open();
	struct hugepool_range a, b;

	f->fake.hook = send_twice;
	a = take(pool, 1, 0);
	memset(a.address, 7, a.bytes);
	b = take(pool, 1, 0);
	memset(b.address, 8, b.bytes);
	assert_int_equal(*(char *)a.address, 7);
	assert_int_equal(count_open(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_turned_away),
		FIXTURE_TEST(test_bad_zones),
		FIXTURE_TEST(test_refused_hello),
		FIXTURE_TEST(test_nobody_accepts),
		FIXTURE_TEST(test_no_reply),
		FIXTURE_TEST(test_dribbled_reply),
		FIXTURE_TEST(test_flood),
		FIXTURE_TEST(test_gone),
		FIXTURE_TEST(test_garbage),
		FIXTURE_TEST(test_unasked),
		FIXTURE_TEST(test_bad_grants),
		FIXTURE_TEST(test_bad_words),
		FIXTURE_TEST(test_bad_blocks),
		FIXTURE_TEST(test_bad_files),
		FIXTURE_TEST(test_descriptor_table_full),
		FIXTURE_TEST(test_surplus_descriptors),
		FIXTURE_TEST(test_busy_release),
		FIXTURE_TEST(test_never_sent_again),
		FIXTURE_TEST(test_sent_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
