/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared ranges as the library sees them: what is said to the daemon, what is mapped and how, what is
 * refused without asking, and a daemon that does not give what it was asked for.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	    65536u
#define BLOCK_BYTES (FAKE_BLOCK_PAGES * PAGE)
#define SHARED_PAGE 32 /* block 2 is somebody else's, who has published it */
#define SHARED	    (SHARED_PAGE / FAKE_BLOCK_PAGES)

/* What the last SHARE and ATTACH said. */
static char said_name[HP_NAME_MAX + 1], said_tenant[HP_NAME_MAX + 1];
static uint32_t said_uids[HP_SHARE_UIDS_MAX];
static size_t said_nr_uids;
static bool said_read_only, said_exclusive, said_shareable;

/* How the daemon answers ATTACH. */
static enum lie {
	HONEST,
	OTHER_ACCESS,  /* a descriptor of the other kind */
	NO_DESCRIPTOR, /* BLOCKS without one */
	NO_BLOCKS,
	SHORT_FILE,
	OUT_OF_ZONE,
	OTHER_ZONE,
	TWO_RANGES,
	IN_A_BLOCK_OF_OURS,
} lie;

static void copy(char to[HP_NAME_MAX + 1], ProtobufCBinaryData from)
{
	snprintf(to, HP_NAME_MAX + 1, "%.*s", (int)from.len, from.len ? (char *)from.data : "");
}

static int open_block(struct fake *fake, uint32_t index, bool read_only)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fake->files[index]);
	fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static int short_file(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, PAGE), 0);
	return fd;
}

static void answer_attach(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Attach *attach = fake_unpack(fake, frame);
	struct hp_wire_range range[2] = {
		{.zone = FAKE_ZONE, .page = SHARED_PAGE, .pages = 3, .generation = 9},
		{.zone = FAKE_ZONE, .page = SHARED_PAGE + 8, .pages = 1, .generation = 9},
	};
	bool read_only = attach->read_only;
	uint32_t block = lie == IN_A_BLOCK_OF_OURS ? 0 : SHARED;
	int fd;

	copy(said_name, attach->name);
	copy(said_tenant, attach->tenant);
	said_read_only = read_only;
	fd = lie == SHORT_FILE ? short_file()
			       : open_block(fake, block, read_only != (lie == OTHER_ACCESS));
	if (lie == IN_A_BLOCK_OF_OURS)
		range[0].page = FAKE_BLOCK_PAGES - 3;
	else if (lie != NO_BLOCKS)
		fake_blocks(fake, TYPE(BLOCKS), block, fake_generation(block),
			    lie == NO_DESCRIPTOR ? -1 : fd);
	if (lie == OUT_OF_ZONE)
		range[0].page = FAKE_PAGES - 2;
	if (lie == OTHER_ZONE)
		range[0].zone = FAKE_ZONE + 1;
	fake_grant(fake, frame->tag, range, lie == TWO_RANGES ? 2 : 1);
	close(fd);
}

/* For the one at the other end it is a FREE and a RELEASE_BLOCK. */
static void answer_detach(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Ranges *detach = fake_unpack(fake, frame);
	struct hp_frame as_free = *frame;
	struct hp_wire_range range;

	assert_int_equal(hp_wire_get_range(detach->ranges, &range), 0);
	fake->sent[range.page / FAKE_BLOCK_PAGES] = false;
	as_free.type = TYPE(FREE);
	if (range.page == SHARED_PAGE)
		fake_done(fake, frame->tag);
	else
		fake_answer(fake, &as_free);
}

static void hear_share(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Share *share = fake_unpack(fake, frame);

	copy(said_name, share->name);
	said_nr_uids = share->n_uids;
	for (size_t i = 0; i < share->n_uids && i < HP_SHARE_UIDS_MAX; i++)
		said_uids[i] = share->uids[i];
	said_read_only = share->read_only;
	fake_done(fake, frame->tag);
}

static bool serve_shares(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Alloc *alloc;

	switch (frame->type) {
	case TYPE(ALLOC):
		alloc = fake_unpack(fake, frame);
		said_exclusive = alloc->exclusive;
		said_shareable = alloc->shareable;
		return false;
	case TYPE(SHARE):
		hear_share(fake, frame);
		return true;
	case TYPE(ATTACH):
		answer_attach(fake, frame);
		return true;
	case TYPE(DETACH):
		answer_detach(fake, frame);
		return true;
	default:
		return false;
	}
}

static int setup(void **state)
{
	int r = fixture_setup(state);

	if (r == 0)
		((struct fixture *)*state)->fake.hook = serve_shares;
	lie = HONEST;
	return r;
}

static struct hugepool_range attach(struct hugepool *pool, unsigned flags)
{
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_range range;

	options.flags = flags;
	assert_int_equal(hugepool_attach(pool, "name", &options, &range), 0);
	return range;
}

/* --- what is said ----------------------------------------------------------------------------- */

static void test_published(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_share_options options = HUGEPOOL_SHARE_OPTIONS_INIT;
	const uint32_t uids[] = {1000, 0, 4294967294u};
	struct hugepool_range range = take(pool, 2, HUGEPOOL_SHAREABLE);
	uint64_t offset;

	assert_true(said_shareable && said_exclusive);
	assert_true(hugepool_range_fd(pool, &range, &offset) >= 0); /* blocks of its own */
	assert_int_equal(hugepool_share(pool, &range, "first", NULL), 0);
	assert_string_equal(said_name, "first");
	assert_int_equal(said_nr_uids, 0);
	assert_false(said_read_only);
	options.uids = uids;
	options.nr_uids = 3;
	options.flags = HUGEPOOL_READ_ONLY;
	assert_int_equal(hugepool_share(pool, &range, "second", &options), 0);
	assert_string_equal(said_name, "second");
	assert_int_equal(said_nr_uids, 3);
	assert_memory_equal(said_uids, uids, sizeof(uids));
	assert_true(said_read_only);
	assert_int_equal(hugepool_detach(pool, &range), 0);
	take(pool, 1, 0);
	assert_false(said_shareable || said_exclusive);
}

static void test_refused_without_asking(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_share_options options = HUGEPOOL_SHARE_OPTIONS_INIT;
	struct hugepool_attach_options how = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_request request = request_of(f, 1, HUGEPOOL_SHAREABLE);
	struct hugepool_range shared = take(pool, 4, HUGEPOOL_SHAREABLE), plain = take(pool, 1, 0);
	struct hugepool_range both[] = {plain, shared}, part = shared, rest;
	uint32_t uids[HUGEPOOL_SHARE_UIDS_MAX + 1] = {0};
	char name[66];

	memset(name, 'n', 65);
	name[65] = 0;
	assert_int_equal(hugepool_share(pool, &shared, NULL, NULL), -EINVAL);
	assert_int_equal(hugepool_share(pool, &shared, "", NULL), -EINVAL);
	assert_int_equal(hugepool_share(pool, &shared, name, NULL), -EINVAL);
	assert_int_equal(hugepool_share(pool, &plain, "name", NULL), -EINVAL);
	options.uids = uids;
	options.nr_uids = HUGEPOOL_SHARE_UIDS_MAX + 1;
	assert_int_equal(hugepool_share(pool, &shared, "name", &options), -EINVAL);
	options.nr_uids = 0;
	options.flags = 2;
	assert_int_equal(hugepool_share(pool, &shared, "name", &options), -EINVAL);
	options.flags = 0;
	options.size = 3;
	assert_int_equal(hugepool_share(pool, &shared, "name", &options), -EINVAL);

	assert_int_equal(hugepool_attach(pool, NULL, NULL, &rest), -EINVAL);
	assert_int_equal(hugepool_attach(pool, name, NULL, &rest), -EINVAL);
	how.tenant = name;
	assert_int_equal(hugepool_attach(pool, "name", &how, &rest), -EINVAL);
	how.tenant = NULL;
	how.flags = 4;
	assert_int_equal(hugepool_attach(pool, "name", &how, &rest), -EINVAL);

	assert_int_equal(hugepool_detach(pool, &plain), -EINVAL);
	assert_int_equal(hugepool_free(pool, &shared), -EINVAL);
	assert_non_null(strstr(error_of(pool).message, "hugepool_detach"));
	assert_int_equal(hugepool_free_bulk(pool, both, 2), -EINVAL);
	assert_int_equal(error_of(pool).index, 1);
	assert_int_equal(hugepool_free_part(pool, &part, PAGE, PAGE, &rest), -EINVAL);
	assert_int_equal(hugepool_free_async(pool, &shared, NULL, NULL), -EINVAL);
	assert_int_equal(hugepool_alloc_bulk(pool, &request, both, 2), -EINVAL);
	assert_int_equal(f->fake.seen[TYPE(SHARE)] + f->fake.seen[TYPE(ATTACH)] +
				 f->fake.seen[TYPE(DETACH)] + f->fake.seen[TYPE(FREE)] +
				 f->fake.seen[TYPE(FREE_PART)],
			 0);
	/* nothing of that has changed anything */
	assert_int_equal(hugepool_free(pool, &plain), 0);
	assert_int_equal(hugepool_detach(pool, &shared), 0);
	assert_int_equal(hugepool_detach(pool, &shared), -EINVAL);
}

/* --- what is mapped --------------------------------------------------------------------------- */

static void write_as_publisher(struct fixture *f, const char *text)
{
	assert_int_equal(pwrite(f->fake.files[SHARED], text, strlen(text) + 1, 0),
			 (ssize_t)strlen(text) + 1);
}

static void test_attached_to_read(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct hugepool_range range;

	write_as_publisher(f, "theirs");
	range = attach(pool, HUGEPOOL_READ_ONLY);
	assert_string_equal(said_name, "name");
	assert_string_equal(said_tenant, "");
	assert_true(said_read_only);
	assert_int_equal(range.bytes, 3 * PAGE);
	assert_string_equal(range.address, "theirs");
	assert_int_equal(mprotect(range.address, range.bytes, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	write_as_publisher(f, "at once");
	assert_string_equal(range.address, "at once");

	/* Blocks go with it, whatever is kept otherwise, and need not be spoken of. */
	assert_int_equal(count_mapped(), 1);
	assert_int_equal(hugepool_detach(pool, &range), 0);
	assert_int_equal(count_mapped(), 0);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 0);
}

static void test_attached_to_write(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_range range = attach(pool, HUGEPOOL_READ_ONLY);
	char seen[8] = "";

	/* Given back and attached again, it may be of the other kind. */
	assert_int_equal(hugepool_detach(pool, &range), 0);
	options.tenant = "uid:7";
	assert_int_equal(hugepool_attach(pool, "other", &options, &range), 0);
	assert_string_equal(said_tenant, "uid:7");
	assert_false(said_read_only);
	strcpy(range.address, "ours");
	assert_int_equal(pread(f->fake.files[SHARED], seen, sizeof(seen), 0), sizeof(seen));
	assert_string_equal(seen, "ours");
	/* What is still held goes with the handle. */
}

/* --- daemons that lie ------------------------------------------------------------------------- */

static void expect_broken(struct fixture *f, enum lie which, unsigned flags)
{
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_range range;

	take(pool, 1, 0); /* in block 0 */
	lie = which;
	options.flags = flags;
	assert_int_equal(hugepool_attach(pool, "name", &options, &range), -EPROTO);
	assert_int_equal(hugepool_attach(pool, "name", &options, &range), -ECONNRESET);
	f->pool = hugepool_close(pool);
	lie = HONEST;
}

static void test_lies(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 2; i++) {
		unsigned flags = i ? HUGEPOOL_READ_ONLY : 0;

		expect_broken(f, OTHER_ACCESS, flags);
		expect_broken(f, NO_DESCRIPTOR, flags);
		expect_broken(f, NO_BLOCKS, flags);
		expect_broken(f, OUT_OF_ZONE, flags);
		expect_broken(f, OTHER_ZONE, flags);
		expect_broken(f, TWO_RANGES, flags);
		expect_broken(f, IN_A_BLOCK_OF_OURS, flags);
	}
}

/* It is given back, and the handle goes on. */
static void test_cannot_be_mapped(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range;

	lie = SHORT_FILE;
	assert_int_equal(hugepool_attach(pool, "name", NULL, &range), -EBADMSG);
	assert_int_equal(f->fake.seen[TYPE(DETACH)], 1);
	lie = HONEST;
	range = attach(pool, 0);
	assert_int_equal(hugepool_detach(pool, &range), 0);
}

static bool grant_read_only(struct fake *fake, const struct hp_frame *frame)
{
	const struct hp_wire_range range = {
		.zone = FAKE_ZONE, .page = 0, .pages = 1, .generation = 1};
	int fd;

	if (frame->type != TYPE(ALLOC))
		return serve_shares(fake, frame);
	fd = open_block(fake, 0, true);
	fake_blocks(fake, TYPE(BLOCKS), 0, fake_generation(0), fd);
	fake_grant(fake, frame->tag, &range, 1);
	close(fd);
	return true;
}

/* Memory that was asked for and cannot be written is an error at once, not a fault later. */
static void test_granted_read_only(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_request request = request_of(f, 1, 0);
	struct hugepool_range range;

	f->fake.hook = grant_read_only;
	assert_true(hugepool_alloc(pool, &request, &range) < 0);
}

static bool refuse(struct fake *fake, const struct hp_frame *frame)
{
	static const Hugepool__V1__Code codes[] = {CODE(NO_SHARE), CODE(PERMISSION), CODE(BUSY)};

	if (frame->type != TYPE(ATTACH) && frame->type != TYPE(SHARE))
		return false;
	fake_error(fake, frame->tag, codes[fake->counter++]);
	return true;
}

static void test_refusals(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range, shared = take(pool, 1, HUGEPOOL_SHAREABLE);

	f->fake.hook = refuse;
	assert_int_equal(hugepool_attach(pool, "name", NULL, &range), -ENOENT);
	assert_int_equal(hugepool_attach(pool, "name", NULL, &range), -EACCES);
	assert_int_equal(hugepool_attach(pool, "name", NULL, &range), -EBUSY);
	f->fake.counter = 2;
	assert_int_equal(hugepool_share(pool, &shared, "name", NULL), -EBUSY);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_published),
		TEST(test_refused_without_asking),
		TEST(test_attached_to_read),
		TEST(test_attached_to_write),
		TEST(test_lies),
		TEST(test_cannot_be_mapped),
		TEST(test_granted_read_only),
		TEST(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
