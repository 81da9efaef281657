/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking and giving over the wire: what is granted, with which blocks; what is refused, with which
 * figures; and that a refusal changes nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

struct fixture {
	struct rig *rig;
	struct peer *peer, *other, *admin;
};

static int start(void **state, const char *config)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.config = config};

	f->rig = rig_new(&options);
	f->peer = rig_connect_hello(f->rig, SOCKET_DATA);
	f->other = rig_connect_hello(f->rig, SOCKET_DATA);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return start(state, NULL);
}

static int setup_limited(void **state)
{
	return start(state, RIG_CONFIG "[default]\nlimit.small = 4\n");
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	peer_check(f->admin);
	peer_free(f->peer);
	peer_free(f->other);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

static uint64_t leased(struct fixture *f, uint32_t zone)
{
	return peer_zone(f->admin, zone).leased;
}

/* --- taking ----------------------------------------------------------------------------------- */

static void test_blocks_come_before_their_grant(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	const Hugepool__V1__Blocks *blocks;
	const Hugepool__V1__Ranges *grant;
	struct hp_wire_block block;
	struct hp_wire_range range;
	struct stat st;

	alloc.pages = 1;
	alloc.zero = true;
	peer_send(f->peer, TYPE(ALLOC), 9, &alloc.base);
	blocks = (const void *)peer_recv(f->peer);
	assert_int_equal(f->peer->frame.type, TYPE(BLOCKS));
	assert_int_equal(f->peer->frame.tag, 0);
	assert_int_equal(blocks->n_blocks, 1);
	assert_int_equal(f->peer->nr_fds, 1);
	block = hp_wire_get_block(blocks->blocks[0]);
	assert_true(block.generation > 0);
	grant = peer_expect(f->peer, TYPE(GRANT), 9);
	assert_int_equal(hp_wire_get_range(grant->ranges, &range), 0);
	assert_int_equal(range.page / RIG_SMALL_BLOCK_PAGES, block.index);
	assert_true(range.zeroed);

	assert_int_equal(fstat(f->peer->fds[0], &st), 0);
	assert_int_equal(st.st_size, 65536);
	assert_int_equal(fcntl(f->peer->fds[0], F_GETFL) & O_ACCMODE, O_RDWR);
}

static void test_a_block_comes_once_a_session(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[20];

	for (int i = 0; i < 8; i++)
		peer_alloc(f->peer, "small", 1, 1, &ranges[i]);
	assert_int_equal(f->peer->nr_fds, 1);
	peer_free_ranges(f->peer, ranges, 8);
	peer_alloc(f->peer, "small", 1, 1, &ranges[0]);
	assert_int_equal(f->peer->nr_fds, 1);
	/* another session of the same tenant needs its own */
	peer_alloc(f->other, "small", 1, 1, &ranges[1]);
	assert_int_equal(f->other->nr_fds, 1);
}

static void test_many_blocks_in_one_grant(void **state)
{
	struct fixture *f = *state;
	struct peer_range range;

	peer_alloc(f->peer, "small", 10 * RIG_SMALL_BLOCK_PAGES + 1, 1, &range);
	assert_int_equal(f->peer->nr_fds, 11);
	for (size_t i = 0; i < 11; i++) {
		char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, f->peer->fds[i], 0);

		assert_ptr_not_equal(p, MAP_FAILED);
		assert_int_equal(p[4096], 0);
		p[4096] = (char)i;
		munmap(p, 65536);
	}
	peer_free_ranges(f->peer, &range, 1);
	assert_int_equal(leased(f, 0), 0);
}

static void test_zones(void **state)
{
	struct fixture *f = *state;
	struct peer_range small, large;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	peer_alloc(f->peer, "", 1, 1, &small);
	peer_alloc(f->peer, "large", 200, 1, &large);
	assert_int_equal(peer_range(&small).zone, 0);
	assert_int_equal(peer_range(&large).zone, 1);
	alloc.pages = 1;
	alloc.zone = peer_text("nowhere");
	peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NO_ZONE));
	alloc.zone = peer_text("small");
	alloc.page_size = 2 << 20;
	peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NO_ZONE));
	alloc.zone = peer_text("");
	peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NO_ZONE));
	assert_int_equal(leased(f, 0), 1);
}

static void test_alignment(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	struct peer_range range;

	peer_alloc(f->peer, "small", 1, 1, &range);
	alloc.pages = 3;
	alloc.align_pages = 8;
	alloc.count = 4;
	for (int i = 0; i < 4; i++) {
		const Hugepool__V1__Ranges *grant;

		peer_send(f->peer, TYPE(ALLOC), 9, &alloc.base);
		grant = peer_expect(f->peer, TYPE(GRANT), 9);
		for (size_t j = 0; j < 4; j++)
			assert_int_equal((uint32_t)grant->ranges[j * 2] % 8, 0);
	}
}

static void test_exclusive(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	const Hugepool__V1__Ranges *grant;
	struct peer_range range;
	uint32_t block;

	peer_alloc(f->peer, "small", 1, 1, &range);
	alloc.pages = 2;
	alloc.exclusive = true;
	peer_send(f->peer, TYPE(ALLOC), 9, &alloc.base);
	grant = peer_expect(f->peer, TYPE(GRANT), 9);
	block = (uint32_t)grant->ranges[0] / RIG_SMALL_BLOCK_PAGES;
	for (int i = 0; i < 60; i++) {
		peer_alloc(f->peer, "small", 1, 1, &range);
		assert_int_not_equal(peer_range(&range).page / RIG_SMALL_BLOCK_PAGES, block);
	}
}

static void test_impossible_values(void **state)
{
	static const struct {
		uint32_t pages, align, count;
		Hugepool__V1__Code code;
		const char *field;
	} cases[] = {
		{0, 0, 1, CODE(INVALID), "pages"},
		{HP_RANGE_MAX_PAGES + 1, 0, 1, CODE(INVALID), "pages"},
		{UINT32_MAX, 0, 1, CODE(INVALID), "pages"},
		{1, 3, 1, CODE(INVALID), "align_pages"},
		{1, 0, HP_RANGES_MAX + 1, CODE(TOO_MANY), "ranges"},
		{1, 0, UINT32_MAX, CODE(TOO_MANY), "ranges"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
		const Hugepool__V1__Error *error;

		alloc.pages = cases[i].pages;
		alloc.align_pages = cases[i].align;
		alloc.count = cases[i].count;
		error = peer_refused(f->peer, TYPE(ALLOC), &alloc.base, cases[i].code);
		assert_non_null(memmem(error->message.data, error->message.len, cases[i].field,
				       strlen(cases[i].field)));
	}
	assert_int_equal(leased(f, 0), 0);
}

static void test_fields_not_served(void **state)
{
	struct fixture *f = *state;
	uint32_t node = 0;

	for (int i = 0; i < 2; i++) {
		static const char *const names[] = {"node_policy", "nodes"};
		Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
		const Hugepool__V1__Error *error;

		alloc.pages = 1;
		alloc.node_policy = i == 0 ? HUGEPOOL__V1__NODE_POLICY__NODE_POLICY_STRICT : 0;
		alloc.n_nodes = i == 1;
		alloc.nodes = &node;
		error = peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NOT_SUPPORTED));
		assert_non_null(memmem(error->message.data, error->message.len, names[i],
				       strlen(names[i])));
	}
	assert_int_equal(leased(f, 0), 0);
}

static void test_no_memory_with_numbers(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	struct peer_range ranges[RIG_SMALL_PAGES];
	const Hugepool__V1__Error *error;

	/* everything but pages 0, 2, 3 and the last block */
	peer_alloc(f->peer, "small", 1, 240, ranges);
	for (int i = 0; i < 240; i++) {
		uint32_t page = peer_range(&ranges[i]).page;

		if (page == 0 || page == 2 || page == 3)
			peer_free_ranges(f->peer, &ranges[i], 1);
	}
	alloc.pages = 3;
	alloc.count = 7;
	error = peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NO_MEMORY));
	assert_int_equal(error->asked_pages, 21);
	assert_int_equal(error->free_pages, 19);
	assert_int_equal(error->leasable_pages, 19);
	assert_int_equal(error->largest_pages, 16);
	assert_int_equal(error->limit_pages, RIG_SMALL_PAGES);
	assert_int_equal(error->zone.len, 5);
	assert_memory_equal(error->zone.data, "small", 5);
	/* what it says can be had, can */
	peer_alloc(f->peer, "small", 16, 1, ranges);
	peer_alloc(f->peer, "small", 1, 3, ranges);
	alloc.pages = alloc.count = 1;
	error = peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(NO_MEMORY));
	assert_int_equal(error->free_pages, 0);
	assert_int_equal(error->leasable_pages, 0);
	assert_int_equal(error->largest_pages, 0);
}

static void test_over_limit_with_numbers(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	struct peer_range range;
	const Hugepool__V1__Error *error;

	/* though nobody holds anything: more than there is would be another matter */
	alloc.pages = 4 * RIG_SMALL_BLOCK_PAGES + 1;
	peer_refused(f->other, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	alloc.pages = RIG_SMALL_PAGES + 1;
	peer_refused(f->other, TYPE(ALLOC), &alloc.base, CODE(NO_MEMORY));

	peer_alloc(f->peer, "small", 3 * RIG_SMALL_BLOCK_PAGES, 1, &range);
	alloc.pages = RIG_SMALL_BLOCK_PAGES + 1;
	error = peer_refused(f->other, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	assert_int_equal(error->asked_pages, RIG_SMALL_BLOCK_PAGES + 1);
	assert_int_equal(error->limit_pages, 4 * RIG_SMALL_BLOCK_PAGES);
	assert_int_equal(error->leasable_pages, RIG_SMALL_BLOCK_PAGES);
	assert_int_equal(error->largest_pages, RIG_SMALL_BLOCK_PAGES);
	assert_int_equal(error->free_pages, RIG_SMALL_PAGES - 3 * RIG_SMALL_BLOCK_PAGES);
	peer_alloc(f->other, "small", RIG_SMALL_BLOCK_PAGES, 1, &range);
	alloc.pages = 1;
	peer_refused(f->other, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
}

/* The grant is there, but no descriptor for it: as if it had not been. */
static void test_out_of_descriptors(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	struct rlimit limit, none;
	struct peer_range range;
	int next = dup(0);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = (rlim_t)next + 2; /* room for two */
	close(next);
	alloc.pages = 5 * RIG_SMALL_BLOCK_PAGES;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	peer_refused(f->peer, TYPE(ALLOC), &alloc.base, CODE(INTERNAL));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(leased(f, 0), 0);

	peer_alloc(f->peer, "small", alloc.pages, 1, &range);
	assert_int_equal(f->peer->nr_fds, 5);
}

/* --- giving ----------------------------------------------------------------------------------- */

static void test_wrong_frees(void **state)
{
	struct fixture *f = *state;
	struct peer_range range, wrong;

	peer_alloc(f->peer, "small", 4, 1, &range);
	peer_free_refused(f->other, &range, 1, CODE(WRONG_HOLDER));

	wrong = range;
	wrong.words[1] -= 1; /* 3 pages */
	peer_free_refused(f->peer, &wrong, 1, CODE(WRONG_LENGTH));
	wrong = range;
	wrong.words[1] += 1 << 20; /* next generation */
	peer_free_refused(f->peer, &wrong, 1, CODE(STALE));
	wrong = range;
	wrong.words[0] += 1; /* its second page */
	peer_free_refused(f->peer, &wrong, 1, CODE(NOT_LEASED));
	wrong = range;
	wrong.words[0] = RIG_SMALL_PAGES;
	peer_free_refused(f->peer, &wrong, 1, CODE(OUT_OF_RANGE));
	wrong.words[0] = UINT32_MAX;
	peer_free_refused(f->peer, &wrong, 1, CODE(OUT_OF_RANGE));
	wrong = range;
	wrong.words[0] |= UINT64_C(7) << 32; /* no such zone */
	peer_free_refused(f->peer, &wrong, 1, CODE(OUT_OF_RANGE));
	wrong.words[0] = range.words[0] | UINT64_C(1) << 32; /* the other zone */
	peer_free_refused(f->peer, &wrong, 1, CODE(NOT_LEASED));
	wrong = range;
	wrong.words[0] |= UINT64_C(1) << 63;
	peer_free_refused(f->peer, &wrong, 1, CODE(MALFORMED));
	wrong = range;
	wrong.words[1] &= ~UINT64_C(0xfffff);
	peer_free_refused(f->peer, &wrong, 1, CODE(MALFORMED));
	peer_free_refused(f->peer, NULL, 0, CODE(MALFORMED));

	assert_int_equal(leased(f, 0), 4);
	peer_free_ranges(f->peer, &range, 1);
	peer_free_refused(f->peer, &range, 1, CODE(NOT_LEASED));
	assert_int_equal(leased(f, 0), 0);
}

static void test_free_all_or_none(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[4];

	peer_alloc(f->peer, "small", 2, 2, ranges);
	peer_alloc(f->peer, "large", 2, 1, &ranges[2]);
	peer_alloc(f->other, "small", 2, 1, &ranges[3]);
	assert_int_equal(peer_free_refused(f->peer, ranges, 4, CODE(WRONG_HOLDER))->index, 3);
	ranges[3] = ranges[0];
	assert_int_equal(peer_free_refused(f->peer, ranges, 4, CODE(NOT_LEASED))->index, 3);
	ranges[2] = ranges[0]; /* named twice, within one zone */
	peer_free_refused(f->peer, ranges, 3, CODE(NOT_LEASED));
	assert_int_equal(leased(f, 0), 6);
	assert_int_equal(leased(f, 1), 2);
	peer_free_ranges(f->peer, ranges, 2);
	assert_int_equal(leased(f, 0), 2);
}

static void test_free_of_several_zones(void **state)
{
	struct fixture *f = *state;
	struct peer_range ranges[3];

	peer_alloc(f->peer, "small", 2, 1, &ranges[0]);
	peer_alloc(f->peer, "large", 3, 1, &ranges[1]);
	peer_alloc(f->peer, "small", 4, 1, &ranges[2]);
	peer_free_ranges(f->peer, ranges, 3);
	assert_int_equal(leased(f, 0), 0);
	assert_int_equal(leased(f, 1), 0);
}

static const Hugepool__V1__FreePart *part(const struct peer_range *range, uint32_t offset,
					  uint32_t pages)
{
	static Hugepool__V1__FreePart message;

	hugepool__v1__free_part__init(&message);
	message.n_range = HP_WIRE_RANGE_WORDS;
	message.range = (uint64_t *)(uintptr_t)range->words;
	message.offset = offset;
	message.pages = pages;
	return &message;
}

static size_t free_part(struct peer *peer, const struct peer_range *range, uint32_t offset,
			uint32_t pages, struct peer_range ret[2])
{
	const Hugepool__V1__Ranges *kept;

	peer_send(peer, TYPE(FREE_PART), 9, &part(range, offset, pages)->base);
	kept = peer_expect(peer, TYPE(GRANT), 9);
	assert_true(kept->n_ranges <= 4);
	if (kept->n_ranges)
		memcpy(ret, kept->ranges, kept->n_ranges * sizeof(uint64_t));
	return kept->n_ranges / HP_WIRE_RANGE_WORDS;
}

static void test_free_part(void **state)
{
	struct fixture *f = *state;
	struct peer_range range, kept[2], more[2];
	uint32_t page;

	peer_alloc(f->peer, "small", 40, 1, &range); /* three blocks */
	page = peer_range(&range).page;
	assert_int_equal(free_part(f->peer, &range, 10, 15, kept), 2);
	assert_int_equal(peer_range(&kept[0]).page, page);
	assert_int_equal(peer_range(&kept[0]).pages, 10);
	assert_int_equal(peer_range(&kept[1]).page, page + 25);
	assert_int_equal(peer_range(&kept[1]).pages, 15);
	assert_int_equal(leased(f, 0), 25);

	assert_int_equal(free_part(f->peer, &kept[0], 0, 4, more), 1);
	assert_int_equal(peer_range(&more[0]).page, page + 4);
	assert_int_equal(free_part(f->peer, &more[0], 0, 6, more), 0);
	peer_free_refused(f->peer, &range, 1, CODE(NOT_LEASED));
	peer_free_ranges(f->peer, &kept[1], 1);
	assert_int_equal(leased(f, 0), 0);
}

static void test_wrong_parts(void **state)
{
	struct fixture *f = *state;
	struct peer_range range;
	static const struct {
		uint32_t offset, pages;
	} cases[] = {{0, 0}, {8, 1}, {0, 9}, {7, 2}, {UINT32_MAX, 2}, {2, UINT32_MAX}};

	peer_alloc(f->peer, "small", 8, 1, &range);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		peer_refused(f->peer, TYPE(FREE_PART),
			     &part(&range, cases[i].offset, cases[i].pages)->base, CODE(INVALID));
	peer_refused(f->other, TYPE(FREE_PART), &part(&range, 0, 1)->base, CODE(WRONG_HOLDER));
	assert_int_equal(leased(f, 0), 8);
	peer_free_ranges(f->peer, &range, 1);
}

/* --- blocks ----------------------------------------------------------------------------------- */

static const ProtobufCMessage *block_message(uint32_t zone, uint32_t index, uint64_t generation)
{
	static Hugepool__V1__Blocks message;
	static uint64_t word;

	hugepool__v1__blocks__init(&message);
	word = hp_wire_put_block((struct hp_wire_block){.index = index, .generation = generation});
	message.zone = zone;
	message.n_blocks = 1;
	message.blocks = &word;
	return &message.base;
}

static void test_release_block(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	const Hugepool__V1__Blocks *blocks;
	const Hugepool__V1__Ranges *grant;
	struct hp_wire_block block;
	struct peer_range range;

	alloc.pages = 1;
	peer_send(f->peer, TYPE(ALLOC), 9, &alloc.base);
	blocks = (const void *)peer_recv(f->peer);
	assert_int_equal(f->peer->frame.type, TYPE(BLOCKS));
	block = hp_wire_get_block(blocks->blocks[0]);
	grant = peer_expect(f->peer, TYPE(GRANT), 9);
	memcpy(&range, grant->ranges, sizeof(range));

	peer_refused(f->peer, TYPE(RELEASE_BLOCK), block_message(0, block.index, block.generation),
		     CODE(BUSY));
	peer_refused(f->other, TYPE(RELEASE_BLOCK), block_message(0, block.index, block.generation),
		     CODE(STALE));
	peer_refused(f->peer, TYPE(RELEASE_BLOCK),
		     block_message(0, block.index, block.generation + 1), CODE(STALE));
	peer_refused(f->peer, TYPE(RELEASE_BLOCK), block_message(0, RIG_SMALL_BLOCKS, 1),
		     CODE(OUT_OF_RANGE));
	peer_refused(f->peer, TYPE(RELEASE_BLOCK), block_message(9, 0, 1), CODE(OUT_OF_RANGE));

	peer_free_ranges(f->peer, &range, 1);
	peer_send(f->peer, TYPE(RELEASE_BLOCK), 9, block_message(0, block.index, block.generation));
	peer_expect(f->peer, TYPE(DONE), 9);
	peer_refused(f->peer, TYPE(RELEASE_BLOCK), block_message(0, block.index, block.generation),
		     CODE(STALE));
	/* forgotten: it is sent again */
	peer_alloc(f->peer, "small", 1, 1, &range);
	assert_int_equal(f->peer->nr_fds, 2);
}

/* Whoever was sent a block that is taken back is told, and only he; when he lets go, it is recycled. */
static void test_block_retired(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Zone zone;
	const Hugepool__V1__Blocks *blocks;
	struct hp_wire_block block;
	struct peer_range ranges[RIG_SMALL_BLOCKS];

	/* every block is this tenant's and, but for one, idle: clean stock is below its mark */
	peer_alloc(f->peer, "small", RIG_SMALL_BLOCK_PAGES, RIG_SMALL_BLOCKS, ranges);
	assert_int_equal(f->peer->nr_fds, RIG_SMALL_BLOCKS);
	peer_free_ranges(f->peer, ranges + 1, RIG_SMALL_BLOCKS - 1);
	blocks = (const void *)peer_recv(f->peer);
	assert_int_equal(f->peer->frame.type, TYPE(BLOCK_RETIRED));
	assert_int_equal(f->peer->frame.tag, 0);
	assert_int_equal(blocks->n_blocks, 1);
	block = hp_wire_get_block(blocks->blocks[0]);
	assert_int_equal(block.generation, 1);
	assert_int_not_equal(block.index, peer_range(&ranges[0]).page / RIG_SMALL_BLOCK_PAGES);
	peer_expect_silence(f->other, 50);

	/* as long as its file is held it is not clean */
	peer_send(f->peer, TYPE(RELEASE_BLOCK), 9, block_message(0, block.index, 1));
	peer_expect(f->peer, TYPE(DONE), 9);
	assert_int_equal(peer_zone(f->admin, 0).clean, 0);
	for (size_t i = 0; i < f->peer->nr_fds; i++)
		close(f->peer->fds[i]);
	f->peer->nr_fds = 0;
	for (int i = 0; i < 2000; i++) {
		zone = peer_zone(f->admin, 0);
		if (zone.clean_blocks >= 1)
			break;
		poll(NULL, 0, 5);
	}
	assert_true(zone.clean_blocks >= 1);
	assert_true(zone.recycles >= 1);
	/* the next life of it comes with a new descriptor */
	peer_alloc(f->other, "small", 1, 1, &ranges[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(blocks_come_before_their_grant),
		TEST(a_block_comes_once_a_session),
		TEST(many_blocks_in_one_grant),
		TEST(zones),
		TEST(alignment),
		TEST(exclusive),
		TEST(impossible_values),
		TEST(fields_not_served),
		TEST(no_memory_with_numbers),
		cmocka_unit_test_setup_teardown(test_over_limit_with_numbers, setup_limited,
						teardown),
		TEST(out_of_descriptors),
		TEST(wrong_frees),
		TEST(free_all_or_none),
		TEST(free_of_several_zones),
		TEST(free_part),
		TEST(wrong_parts),
		TEST(release_block),
		TEST(block_retired),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
