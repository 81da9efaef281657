/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared ranges over the wire: who may attach and how, what is charged to whom, how long the memory
 * lives, and that what is refused is refused by name and changes nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

#define UID_A 54321
#define UID_B 54322
#define UID_C 54323

#define PAGE  4096
#define BLOCK 65536
#define TRIES 5000 /* of 2 ms */

/* Nothing is taken back for a stock that nobody asked for, and not soon where a session has gone. */
#define ZONE                                                                           \
	"[zone small]\npage-size = 4K\nblock-size = 64K\nsize = 1M\nbacking = shmem\n" \
	"clean-min = 0\nclean-low = 0\nclean-high = 0\n"
#define CONFIG "[daemon]\nidle-delay = 1h\n" ZONE "[default]\nlimit.small = 12\n"

struct fixture {
	struct rig *rig;
	struct peer *admin, *root, *a, *b, *c; /* root is the uid of the test */
};

static int start(void **state, const char *config)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.config = config, .workers = 2};

	f->rig = rig_new(&options);
	f->rig->net.grace_ms = 600000;
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	f->root = rig_connect_hello(f->rig, SOCKET_DATA);
	if (getuid() == 0) {
		f->a = rig_connect_as(f->rig, UID_A);
		f->b = rig_connect_as(f->rig, UID_B);
		f->c = rig_connect_as(f->rig, UID_C);
	}
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return start(state, CONFIG);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	peer_check(f->admin);
	peer_free(f->a);
	peer_free(f->b);
	peer_free(f->c);
	peer_free(f->root);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

#define NEEDS_UIDS              \
	do {                    \
		if (!f->a)      \
			skip(); \
	} while (0)

/* --- requests --------------------------------------------------------------------------------- */

static Hugepool__V1__Alloc shareable(uint32_t pages)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	alloc.pages = pages;
	alloc.shareable = true;
	return alloc;
}

static struct peer_range expect_grant(struct peer *peer, uint16_t tag)
{
	const Hugepool__V1__Ranges *grant = peer_expect(peer, TYPE(GRANT), tag);
	struct peer_range range;

	assert_int_equal(grant->n_ranges, HP_WIRE_RANGE_WORDS);
	memcpy(&range, grant->ranges, sizeof(range));
	return range;
}

static struct peer_range take(struct peer *peer, uint32_t pages)
{
	Hugepool__V1__Alloc alloc = shareable(pages);

	peer_send(peer, TYPE(ALLOC), 21, &alloc.base);
	return expect_grant(peer, 21);
}

/* Of this range, for the uids up to the first 0. */
static Hugepool__V1__Share share_of(struct peer_range *range, const char *name, uint32_t *uids)
{
	Hugepool__V1__Share share = HUGEPOOL__V1__SHARE__INIT;

	share.n_range = HP_WIRE_RANGE_WORDS;
	share.range = range->words;
	share.name = peer_text(name);
	share.uids = uids;
	while (uids && uids[share.n_uids])
		share.n_uids++;
	return share;
}

static void publish(struct peer *peer, struct peer_range *range, const char *name, uint32_t *uids,
		    bool read_only)
{
	Hugepool__V1__Share share = share_of(range, name, uids);

	share.read_only = read_only;
	peer_send(peer, TYPE(SHARE), 22, &share.base);
	peer_expect(peer, TYPE(DONE), 22);
}

static Hugepool__V1__Attach attach_to(const char *name, bool read_only)
{
	Hugepool__V1__Attach attach = HUGEPOOL__V1__ATTACH__INIT;

	attach.name = peer_text(name);
	attach.read_only = read_only;
	return attach;
}

static struct peer_range attach(struct peer *peer, const char *name, bool read_only)
{
	Hugepool__V1__Attach message = attach_to(name, read_only);

	peer_send(peer, TYPE(ATTACH), 23, &message.base);
	return expect_grant(peer, 23);
}

static void attach_refused(struct peer *peer, const char *name, bool read_only,
			   Hugepool__V1__Code code)
{
	Hugepool__V1__Attach message = attach_to(name, read_only);

	peer_refused(peer, TYPE(ATTACH), &message.base, code);
}

static Hugepool__V1__Ranges message_of(const struct peer_range *ranges, size_t n)
{
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = (uint64_t *)(uintptr_t)ranges;
	return message;
}

static void detach(struct peer *peer, const struct peer_range *ranges, size_t n)
{
	Hugepool__V1__Ranges message = message_of(ranges, n);

	peer_send(peer, TYPE(DETACH), 24, &message.base);
	peer_expect(peer, TYPE(DONE), 24);
}

static const Hugepool__V1__Error *detach_refused(struct peer *peer, const struct peer_range *ranges,
						 size_t n, Hugepool__V1__Code code)
{
	Hugepool__V1__Ranges message = message_of(ranges, n);

	return peer_refused(peer, TYPE(DETACH), &message.base, code);
}

/* --- looks ------------------------------------------------------------------------------------ */

static int last_fd(const struct peer *peer)
{
	assert_true(peer->nr_fds > 0);
	return peer->fds[peer->nr_fds - 1];
}

static void drop_fds(struct peer *peer)
{
	while (peer->nr_fds)
		close(peer->fds[--peer->nr_fds]);
}

static char *map(int fd, int prot)
{
	char *p = mmap(NULL, BLOCK, prot, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* The row of this range as `viewer` sees it. False: it does not. */
static bool lease_row(struct peer *viewer, const struct peer_range *range, Hugepool__V1__Lease *ret)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	list.what = WHAT(LEASES);
	do {
		peer_send(viewer, TYPE(LIST), 25, &list.base);
		reply = peer_expect(viewer, TYPE(LIST_REPLY), 25);
		list.cursor = reply->next;
		for (size_t i = 0; i < reply->n_leases; i++) {
			const void *words = reply->leases[i]->range;

			if (peer_range(words).page != peer_range(range).page)
				continue;
			*ret = *reply->leases[i];
			return true;
		}
	} while (list.cursor);
	return false;
}

static void expect_attached(struct fixture *f, const struct peer_range *range, uint32_t attachments,
			    uint32_t readers)
{
	Hugepool__V1__Lease row;

	assert_true(lease_row(f->admin, range, &row));
	assert_true(row.shared);
	assert_int_equal(row.session, 0);
	assert_int_equal(row.attachments, attachments);
	assert_int_equal(row.readers, readers);
}

static void wait_until_attached(struct fixture *f, const struct peer_range *range, uint32_t n)
{
	Hugepool__V1__Lease row = {0};

	for (int i = 0; i < TRIES && (!lease_row(f->admin, range, &row) || row.attachments != n);
	     i++)
		poll(NULL, 0, 2);
	assert_int_equal(row.attachments, n);
}

static void wait_until_clean(struct fixture *f)
{
	uint32_t clean = 0;

	for (int i = 0; i < TRIES && clean != RIG_SMALL_BLOCKS; i++) {
		clean = peer_zone(f->admin, 0).clean_blocks;
		if (clean != RIG_SMALL_BLOCKS)
			poll(NULL, 0, 2);
	}
	assert_int_equal(clean, RIG_SMALL_BLOCKS);
}

static bool find_tenant(struct fixture *f, uint32_t uid, Hugepool__V1__Tenant *ret,
			uint64_t *ret_leased)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	list.what = WHAT(TENANTS);
	peer_send(f->admin, TYPE(LIST), 26, &list.base);
	reply = peer_expect(f->admin, TYPE(LIST_REPLY), 26);
	for (size_t i = 0; i < reply->n_tenants; i++)
		if (reply->tenants[i]->uid == uid) {
			*ret = *reply->tenants[i];
			*ret_leased = reply->tenants[i]->leased_pages[0];
			return true;
		}
	return false;
}

static void expect_held(struct peer *peer, uint32_t blocks)
{
	assert_int_equal(peer_zone(peer, 0).held_blocks, blocks);
}

/* --- what is shared --------------------------------------------------------------------------- */

static void test_the_same_bytes(void **state)
{
	struct fixture *f = *state;
	struct peer *reader = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer *writer = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range = take(f->root, 2), seen;
	char *ours = map(last_fd(f->root), PROT_READ | PROT_WRITE), *theirs;

	strcpy(ours, "written before");
	publish(f->root, &range, "bytes", NULL, false);
	seen = attach(reader, "bytes", true);
	assert_int_equal(peer_range(&seen).page, peer_range(&range).page);
	assert_int_equal(peer_range(&seen).generation, peer_range(&range).generation);
	assert_false(peer_range(&seen).zeroed);
	assert_int_equal(reader->nr_fds, 1);
	assert_int_equal(fcntl(last_fd(reader), F_GETFL) & O_ACCMODE, O_RDONLY);
	theirs = map(last_fd(reader), PROT_READ);
	assert_string_equal(theirs, "written before");
	assert_int_equal(mprotect(theirs, BLOCK, PROT_READ | PROT_WRITE), -1);

	seen = attach(writer, "bytes", false);
	assert_int_equal(fcntl(last_fd(writer), F_GETFL) & O_ACCMODE, O_RDWR);
	strcpy(ours, "written behind");
	assert_string_equal(theirs, "written behind");
	expect_attached(f, &range, 3, 1);
	munmap(ours, BLOCK);
	munmap(theirs, BLOCK);
	peer_free(reader);
	peer_free(writer);
}

static void test_blocks_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct peer_range range = take(f->root, 1), others[32];
	uint32_t block = peer_range(&range).page / RIG_SMALL_BLOCK_PAGES;

	expect_held(f->root, 1);
	peer_alloc(f->root, "small", 1, 32, others);
	for (int i = 0; i < 32; i++)
		assert_int_not_equal(peer_range(&others[i]).page / RIG_SMALL_BLOCK_PAGES, block);
	expect_held(f->root, 3);
	peer_free_ranges(f->root, others, 32);
}

static void test_who_may_attach(void **state)
{
	struct fixture *f = *state;
	uint32_t only_b[] = {UID_B, 0}, both[] = {UID_C, UID_B, 0};
	struct peer *own;
	struct peer_range range;

	NEEDS_UIDS;
	own = rig_connect_as(f->rig, UID_A);
	range = take(f->a, 1);
	attach_refused(f->b, "who", true, CODE(NO_SHARE)); /* not published yet */
	publish(f->a, &range, "who", only_b, false);
	attach(f->b, "who", false);
	attach(own, "who", true); /* the publisher's uid need not be named */
	attach_refused(f->c, "who", true, CODE(NO_SHARE));
	attach_refused(f->root, "who", true, CODE(NO_SHARE)); /* not even uid 0 */
	attach_refused(f->c, "whoever", true, CODE(NO_SHARE));

	publish(f->a, &range, "who", both, true);
	attach_refused(f->c, "who", false, CODE(PERMISSION));
	attach(f->c, "who", true);
	publish(f->a, &range, "who", NULL, true);
	attach(f->root, "who", true);
	expect_attached(f, &range, 5, 3);
	peer_free(own);
}

static void test_names_are_of_their_tenant(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Attach whose = attach_to("name", true);
	Hugepool__V1__Share share;
	struct peer_range a, b, second, got;

	NEEDS_UIDS;
	a = take(f->a, 1);
	b = take(f->b, 1);
	second = take(f->a, 1);
	publish(f->a, &a, "name", NULL, true);
	share = share_of(&second, "name", NULL);
	peer_refused(f->a, TYPE(SHARE), &share.base, CODE(BUSY));
	publish(f->a, &second, "name2", NULL, true);
	publish(f->b, &b, "name", NULL, true);

	attach_refused(f->c, "name", true, CODE(INVALID)); /* which? */
	whose.tenant = peer_text("uid:54322");
	peer_send(f->c, TYPE(ATTACH), 9, &whose.base);
	got = expect_grant(f->c, 9);
	assert_int_equal(peer_range(&got).page, peer_range(&b).page);
	whose.tenant = peer_text("uid:5432");
	peer_refused(f->c, TYPE(ATTACH), &whose.base, CODE(NO_SHARE));

	/* one's own tenant's comes first, and another name makes the old one free */
	attach_refused(f->a, "name", true, CODE(BUSY));
	publish(f->b, &b, "other", NULL, true);
	got = attach(f->b, "name", true);
	assert_int_equal(peer_range(&got).page, peer_range(&a).page);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void test_hostile_terms(void **state)
{
	struct fixture *f = *state;
	char name[HP_NAME_MAX + 2];
	uint32_t uids[HP_SHARE_UIDS_MAX + 1];
	struct peer_range range = take(f->root, 1), plain, two[2];
	Hugepool__V1__Share share = share_of(&range, "", NULL);
	Hugepool__V1__Attach message = attach_to("", true);
	Hugepool__V1__Alloc alloc = shareable(1);

	memset(name, 'n', sizeof(name));
	name[HP_NAME_MAX + 1] = 0;
	peer_refused(f->root, TYPE(SHARE), &share.base, CODE(INVALID));
	peer_refused(f->root, TYPE(ATTACH), &message.base, CODE(INVALID));
	share.name = message.name = peer_text(name);
	peer_refused(f->root, TYPE(SHARE), &share.base, CODE(INVALID));
	peer_refused(f->root, TYPE(ATTACH), &message.base, CODE(INVALID));
	share.name = message.name = (ProtobufCBinaryData){.len = 3, .data = (uint8_t *)"a\0b"};
	peer_refused(f->root, TYPE(SHARE), &share.base, CODE(INVALID));
	peer_refused(f->root, TYPE(ATTACH), &message.base, CODE(INVALID));
	message = attach_to("name", true);
	message.tenant = peer_text(name);
	peer_refused(f->root, TYPE(ATTACH), &message.base, CODE(INVALID));

	for (uint32_t i = 0; i <= HP_SHARE_UIDS_MAX; i++)
		uids[i] = i + 1;
	share = share_of(&range, "name", NULL);
	share.uids = uids;
	share.n_uids = HP_SHARE_UIDS_MAX + 1;
	assert_int_equal(peer_refused(f->root, TYPE(SHARE), &share.base, CODE(TOO_MANY))->limit,
			 HP_SHARE_UIDS_MAX);
	uids[7] = UINT32_MAX;
	share.n_uids = HP_SHARE_UIDS_MAX;
	assert_int_equal(peer_refused(f->root, TYPE(SHARE), &share.base, CODE(INVALID))->index, 7);
	uids[7] = 7;
	name[HP_NAME_MAX] = 0;
	share.name = peer_text(name); /* both at their limits */
	peer_send(f->root, TYPE(SHARE), 9, &share.base);
	peer_expect(f->root, TYPE(DONE), 9);

	peer_alloc(f->root, "small", 1, 1, &plain);
	share = share_of(&plain, "plain", NULL);
	peer_refused(f->root, TYPE(SHARE), &share.base, CODE(INVALID));
	two[0] = two[1] = range;
	share.range = two[0].words;
	share.n_range = 2 * HP_WIRE_RANGE_WORDS;
	peer_refused(f->root, TYPE(SHARE), &share.base, CODE(MALFORMED));
	alloc.count = 2;
	peer_refused(f->root, TYPE(ALLOC), &alloc.base, CODE(INVALID));
	expect_attached(f, &range, 1, 0);
	peer_free_ranges(f->root, &plain, 1);
}

static void test_only_detach_gives_it_back(void **state)
{
	struct fixture *f = *state;
	struct peer *other = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range = take(f->root, 3), plain, wrong, twice[2], all[2];
	Hugepool__V1__FreePart part = HUGEPOOL__V1__FREE_PART__INIT;
	Hugepool__V1__Share share = share_of(&range, "mine", NULL);
	const Hugepool__V1__Error *error;

	publish(f->root, &range, "only", NULL, false);
	error = peer_free_refused(f->root, &range, 1, CODE(INVALID));
	assert_non_null(memmem(error->message.data, error->message.len, "DETACH", 6));
	part.n_range = HP_WIRE_RANGE_WORDS;
	part.range = range.words;
	part.pages = 1;
	error = peer_refused(f->root, TYPE(FREE_PART), &part.base, CODE(INVALID));
	assert_non_null(memmem(error->message.data, error->message.len, "DETACH", 6));
	/* the other one is not attached */
	peer_free_refused(other, &range, 1, CODE(WRONG_HOLDER));
	detach_refused(other, &range, 1, CODE(NOT_LEASED));
	peer_refused(other, TYPE(SHARE), &share.base, CODE(NOT_LEASED));
	attach(other, "only", false);
	peer_free_refused(other, &range, 1, CODE(INVALID));
	peer_refused(other, TYPE(SHARE), &share.base, CODE(PERMISSION));

	peer_alloc(other, "small", 1, 1, &plain);
	error = detach_refused(other, &plain, 1, CODE(INVALID));
	assert_non_null(memmem(error->message.data, error->message.len, "FREE", 4));
	wrong = range;
	wrong.words[1] += UINT64_C(1) << 20; /* the generation */
	detach_refused(other, &wrong, 1, CODE(STALE));
	wrong = range;
	wrong.words[1]++; /* the length */
	detach_refused(other, &wrong, 1, CODE(WRONG_LENGTH));
	wrong = range;
	wrong.words[0] |= UINT64_C(9) << 32; /* the zone */
	detach_refused(other, &wrong, 1, CODE(OUT_OF_RANGE));

	/* all or none */
	twice[0] = twice[1] = range;
	assert_int_equal(detach_refused(other, twice, 2, CODE(NOT_LEASED))->index, 1);
	all[0] = range;
	all[1] = plain;
	assert_int_equal(detach_refused(other, all, 2, CODE(INVALID))->index, 1);
	expect_attached(f, &range, 2, 0);
	detach(other, &range, 1);
	detach_refused(other, &range, 1, CODE(NOT_LEASED));
	expect_attached(f, &range, 1, 0);
	peer_free_ranges(other, &plain, 1);
	peer_free(other);
}

static void test_attached_once(void **state)
{
	struct fixture *f = *state;
	struct peer *other = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range = take(f->root, 1);

	publish(f->root, &range, "once", NULL, false);
	attach_refused(f->root, "once", true, CODE(BUSY)); /* who allocated it has it */
	attach(other, "once", true);
	attach_refused(other, "once", true, CODE(BUSY));
	attach_refused(other, "once", false, CODE(BUSY));
	expect_attached(f, &range, 2, 1);

	/* given back and attached again: its blocks come again, of the other kind */
	detach(other, &range, 1);
	attach(other, "once", false);
	assert_int_equal(other->nr_fds, 2);
	assert_int_equal(fcntl(other->fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(other->fds[1], F_GETFL) & O_ACCMODE, O_RDWR);
	peer_free(other);
}

/* --- how long it lives, and who is charged ---------------------------------------------------- */

static void test_it_lives_until_the_last_detach(void **state)
{
	struct fixture *f = *state;
	uint64_t generation = peer_zone(f->admin, 0).recycles, leased;
	struct peer_range range;
	Hugepool__V1__Tenant row;
	char *p;

	NEEDS_UIDS;
	range = take(f->a, 17); /* two blocks */
	p = map(f->a->fds[0], PROT_READ | PROT_WRITE);
	strcpy(p, "left behind");
	munmap(p, BLOCK);
	publish(f->a, &range, "lives", NULL, true);
	attach(f->b, "lives", true);
	drop_fds(f->a);
	peer_send(f->a, TYPE(GOODBYE), 1, NULL);
	peer_expect(f->a, TYPE(DONE), 1);
	expect_attached(f, &range, 1, 1);

	p = map(f->b->fds[0], PROT_READ);
	assert_string_equal(p, "left behind");
	munmap(p, BLOCK);
	/* charged to whom it was from the beginning, who need not be there */
	assert_true(find_tenant(f, UID_A, &row, &leased));
	assert_int_equal(row.shares, 1);
	assert_int_equal(leased, 17);
	expect_held(f->b, 0);
	/* and still there for others by its name */
	attach(f->c, "lives", true);
	detach(f->c, &range, 1);
	drop_fds(f->c);

	detach(f->b, &range, 1);
	attach_refused(f->b, "lives", true, CODE(NO_SHARE));
	/* whoever keeps a descriptor keeps the block from going on, at the publisher's charge */
	poll(NULL, 0, 50);
	assert_true(find_tenant(f, UID_A, &row, &leased));
	assert_int_equal(leased, 0);
	drop_fds(f->b);
	wait_until_clean(f);
	assert_int_equal(peer_zone(f->admin, 0).recycles, generation + 2);
	for (int i = 0; i < TRIES && find_tenant(f, UID_A, &row, &leased); i++)
		poll(NULL, 0, 2);
	assert_false(find_tenant(f, UID_A, &row, &leased));
}

static void test_limits_count_shares(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Alloc alloc = shareable(1);
	struct peer_range range[12], plain;

	NEEDS_UIDS;
	for (int i = 0; i < 12; i++)
		range[i] = take(f->a, 1);
	expect_held(f->a, 12);
	peer_refused(f->a, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	alloc.shareable = false;
	peer_refused(f->a, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	publish(f->a, &range[3], "limit", NULL, false);
	attach(f->b, "limit", false);
	expect_held(f->b, 0);
	/* the publisher gives it back, and stays charged while it is in use */
	detach(f->a, &range[3], 1);
	expect_held(f->a, 12);
	peer_refused(f->a, TYPE(ALLOC), &alloc.base, CODE(OVER_LIMIT));
	drop_fds(f->a);
	drop_fds(f->b);
	detach(f->b, &range[3], 1);
	alloc.deadline_ms = 10000;
	peer_send(f->a, TYPE(ALLOC), 9, &alloc.base);
	plain = expect_grant(f->a, 9);
	peer_free_ranges(f->a, &plain, 1);
}

static void test_a_lost_connection_keeps_what_it_has(void **state)
{
	struct fixture *f = *state;
	struct peer *other = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range = take(f->root, 1);

	publish(f->root, &range, "lost", NULL, false);
	attach(other, "lost", true);
	peer_free(other); /* its process, this one, lives */
	rig_wait_connections(f->rig, f->a ? 4 : 1);
	expect_attached(f, &range, 2, 1);
	drop_fds(f->root);
	detach(f->root, &range, 1);
	expect_attached(f, &range, 1, 1);
	wait_until_attached(f, &range, 1);
}

static void test_waiting_for_a_shareable_range(void **state)
{
	struct fixture *f = *state;
	struct peer *lost = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range taken[12], range;
	Hugepool__V1__Alloc alloc = shareable(16);
	Hugepool__V1__Cancel cancel = HUGEPOOL__V1__CANCEL__INIT;

	peer_alloc(f->root, "small", 16, 12, taken);
	alloc.deadline_ms = 60000;
	peer_send(f->root, TYPE(ALLOC), 31, &alloc.base);
	peer_send(f->root, TYPE(ALLOC), 32, &alloc.base);
	peer_send(lost, TYPE(ALLOC), 33, &alloc.base);
	for (int i = 0; i < TRIES && peer_zone(f->admin, 0).waiting != 3; i++)
		poll(NULL, 0, 2);
	peer_free(lost);
	cancel.request_tag = 32;
	peer_send(f->root, TYPE(CANCEL), 34, &cancel.base);
	assert_int_equal(((const Hugepool__V1__Error *)peer_expect(f->root, TYPE(ERROR), 32))->code,
			 CODE(CANCELLED));
	peer_expect(f->root, TYPE(DONE), 34);
	alloc.deadline_ms = 30;
	peer_send(f->root, TYPE(ALLOC), 35, &alloc.base);
	assert_int_equal(((const Hugepool__V1__Error *)peer_expect(f->root, TYPE(ERROR), 35))->code,
			 CODE(TIMED_OUT));

	drop_fds(f->root);
	peer_free_ranges(f->root, taken, 1);
	range = expect_grant(f->root, 31);
	publish(f->root, &range, "waited", NULL, false);
	expect_attached(f, &range, 1, 0);
	for (int i = 0; i < TRIES && peer_zone(f->admin, 0).waiting; i++)
		poll(NULL, 0, 2);
	assert_int_equal(peer_zone(f->admin, 0).waiting, 0);
	detach(f->root, &range, 1);
	peer_free_ranges(f->root, taken + 1, 11);
}

/* --- over a new connection ---------------------------------------------------------------------- */

static struct peer *connect_for_resume(struct fixture *f, uint8_t token[SLOT_TOKEN_BYTES])
{
	struct peer *peer = rig_connect(f->rig, SOCKET_DATA);
	const Hugepool__V1__Welcome *welcome = peer_hello(peer);

	assert_int_equal(welcome->token.len, SLOT_TOKEN_BYTES);
	memcpy(token, welcome->token.data, SLOT_TOKEN_BYTES);
	return peer;
}

static struct peer *come_back(struct fixture *f, struct peer *peer)
{
	uint32_t left = 0;

	for (size_t i = 0; i < f->rig->acceptor.nr_workers; i++)
		left += f->rig->workers[i]->connections;
	peer_free(peer);
	rig_wait_connections(f->rig, left - 1);
	return rig_connect_hello(f->rig, SOCKET_DATA);
}

/* Return: how many are kept. */
static size_t resume(struct peer *peer, uint8_t token[SLOT_TOKEN_BYTES],
		     struct peer_range *attached, size_t n, Hugepool__V1__Blocks *known)
{
	Hugepool__V1__Resume message = HUGEPOOL__V1__RESUME__INIT;
	const Hugepool__V1__Ranges *kept;

	message.token = (ProtobufCBinaryData){.len = SLOT_TOKEN_BYTES, .data = token};
	message.attachments = attached->words;
	message.n_attachments = n * HP_WIRE_RANGE_WORDS;
	message.known = &known;
	message.n_known = known ? 1 : 0;
	message.last = true;
	peer_send(peer, TYPE(RESUME), 27, &message.base);
	kept = peer_expect(peer, TYPE(RESUMED), 27);
	assert_memory_equal(kept->ranges, attached, kept->n_ranges * sizeof(uint64_t));
	return kept->n_ranges / HP_WIRE_RANGE_WORDS;
}

static void test_attachments_outlive_a_connection(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__Resume twice = HUGEPOOL__V1__RESUME__INIT;
	Hugepool__V1__Blocks known = HUGEPOOL__V1__BLOCKS__INIT;
	uint8_t ours[SLOT_TOKEN_BYTES], theirs[SLOT_TOKEN_BYTES];
	struct peer *publisher = connect_for_resume(f, ours);
	struct peer *reader = connect_for_resume(f, theirs);
	struct peer_range ranges[2], told[2];
	uint64_t block;

	for (int i = 0; i < 2; i++) {
		char name[] = {'n', (char)('0' + i), 0};

		ranges[i] = take(publisher, 1);
		publish(publisher, &ranges[i], name, NULL, false);
		attach(reader, name, true);
	}
	/* What is told stays, and what is not is given back. */
	reader = come_back(f, reader);
	told[0] = told[1] = ranges[1];
	twice.token = (ProtobufCBinaryData){.len = SLOT_TOKEN_BYTES, .data = theirs};
	twice.attachments = told[0].words;
	twice.n_attachments = 2 * HP_WIRE_RANGE_WORDS;
	peer_refused(reader, TYPE(RESUME), &twice.base, CODE(INVALID));
	expect_attached(f, &ranges[0], 2, 1);
	assert_int_equal(resume(reader, theirs, &ranges[1], 1, NULL), 1);
	expect_attached(f, &ranges[0], 1, 0);
	expect_attached(f, &ranges[1], 2, 1);
	/* Its block is not known to this connection: it comes, and it still is for reading. */
	assert_int_equal(reader->nr_fds, 1);
	assert_int_equal(fcntl(last_fd(reader), F_GETFL) & O_ACCMODE, O_RDONLY);
	detach_refused(reader, &ranges[0], 1, CODE(NOT_LEASED));

	/* Whoever has it mapped does not need it again, and who allocated it may still publish. */
	publisher = come_back(f, publisher);
	block = hp_wire_put_block((struct hp_wire_block){
		.index = peer_range(&ranges[0]).page / RIG_SMALL_BLOCK_PAGES, .generation = 1});
	known.n_blocks = 1;
	known.blocks = &block;
	assert_int_equal(resume(publisher, ours, ranges, 2, &known), 2);
	assert_int_equal(publisher->nr_fds, 1);
	assert_int_equal(fcntl(last_fd(publisher), F_GETFL) & O_ACCMODE, O_RDWR);
	publish(publisher, &ranges[0], "again", NULL, false);
	attach(reader, "again", false);
	detach(publisher, ranges, 2);

	/* One that was given back meanwhile is not kept. */
	reader = come_back(f, reader);
	told[0] = ranges[0];
	told[1] = ranges[1];
	told[1].words[1] += UINT64_C(1) << 20; /* another generation */
	assert_int_equal(resume(reader, theirs, told, 2, NULL), 1);
	expect_attached(f, &ranges[0], 1, 0);
	assert_false(lease_row(f->admin, &ranges[1], &(Hugepool__V1__Lease){0}));
	peer_free(reader);
	peer_free(publisher);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void test_who_sees_it(void **state)
{
	struct fixture *f = *state;
	uint32_t only_b[] = {UID_B, 0};
	struct peer_range range;
	Hugepool__V1__Lease row;

	NEEDS_UIDS;
	range = take(f->a, 1);
	assert_true(lease_row(f->a, &range, &row));
	assert_true(row.shared);
	assert_int_equal(row.share.len, 0);
	publish(f->a, &range, "seen", only_b, false);
	assert_true(lease_row(f->a, &range, &row));
	assert_int_equal(row.share.len, 4);
	assert_memory_equal(row.share.data, "seen", 4);
	assert_false(lease_row(f->b, &range, &row));
	attach(f->b, "seen", false);
	assert_true(lease_row(f->b, &range, &row));
	assert_int_equal(row.attachments, 2);
	assert_false(lease_row(f->c, &range, &row));
}

/* --- how many --------------------------------------------------------------------------------- */

#define MANY_CONFIG                                                                   \
	"[daemon]\nidle-delay = 1h\n"                                                 \
	"[zone small]\npage-size = 4K\nblock-size = 4K\nsize = 2M\nbacking = shmem\n" \
	"clean-min = 0\nclean-low = 0\nclean-high = 0\n[default]\nlimit.small = 512\n"

static int setup_many(void **state)
{
	return start(state, MANY_CONFIG);
}

static void test_how_many(void **state)
{
	struct fixture *f = *state;
	struct peer_range range[HP_SHARES_PER_TENANT_MAX];
	Hugepool__V1__Alloc alloc = shareable(1);
	const size_t nr_peers = HP_ATTACHMENTS_PER_TENANT_MAX / HP_SHARES_PER_TENANT_MAX;
	struct peer *peers[HP_ATTACHMENTS_PER_TENANT_MAX / HP_SHARES_PER_TENANT_MAX];
	char name[16];

	NEEDS_UIDS;
	for (size_t i = 0; i < HP_SHARES_PER_TENANT_MAX; i++) {
		range[i] = take(f->a, 1);
		(void)snprintf(name, sizeof(name), "n%zu", i);
		publish(f->a, &range[i], name, NULL, true);
		drop_fds(f->a);
	}
	assert_int_equal(peer_refused(f->a, TYPE(ALLOC), &alloc.base, CODE(TOO_MANY))->limit,
			 HP_SHARES_PER_TENANT_MAX);
	for (size_t p = 0; p < nr_peers; p++) {
		peers[p] = rig_connect_as(f->rig, UID_B);
		for (size_t i = 0; i < HP_SHARES_PER_TENANT_MAX; i++) {
			(void)snprintf(name, sizeof(name), "n%zu", i);
			attach(peers[p], name, true);
			drop_fds(peers[p]);
		}
	}
	/* as many as its sessions may have */
	attach_refused(f->b, "n0", true, CODE(TOO_MANY));
	detach(peers[0], range, 1);
	attach(f->b, "n0", true);
	expect_attached(f, &range[0], 1 + (uint32_t)nr_peers, (uint32_t)nr_peers);
	detach(f->a, range, HP_SHARES_PER_TENANT_MAX);
	for (size_t p = 0; p < nr_peers; p++) {
		peer_send(peers[p], TYPE(GOODBYE), 1, NULL);
		peer_expect(peers[p], TYPE(DONE), 1);
		peer_free(peers[p]);
	}
}

/* Many at once, on several workers: the daemon's threads meet in the table. */
static void test_crowds(void **state)
{
	enum { PEERS = 12, ROUNDS = 200 };
	struct fixture *f = *state;
	Hugepool__V1__Attach message = attach_to("crowd", true);
	struct peer *peers[PEERS];
	struct peer_range range;

	for (int i = 0; i < PEERS; i++)
		peers[i] = rig_connect_hello(f->rig, SOCKET_DATA);
	for (int round = 0; round < ROUNDS; round++) {
		Hugepool__V1__Ranges detached;

		range = take(f->root, 1 + (uint32_t)round % 40);
		publish(f->root, &range, "crowd", NULL, round % 2);
		for (int i = 0; i < PEERS; i++)
			peer_send(peers[i], TYPE(ATTACH), 1, &message.base);
		for (int i = 0; i < PEERS; i++)
			expect_grant(peers[i], 1);
		expect_attached(f, &range, 1 + PEERS, PEERS);
		for (int i = 0; i < PEERS; i++)
			drop_fds(peers[i]);
		drop_fds(f->root);
		/* whoever is last ends it */
		detached = message_of(&range, 1);
		for (int i = 0; i < PEERS; i++)
			peer_send(peers[i], TYPE(DETACH), 2, &detached.base);
		detach(f->root, &range, 1);
		for (int i = 0; i < PEERS; i++)
			peer_expect(peers[i], TYPE(DONE), 2);
		if (round % 3 == 2) /* up to three blocks each, of twelve */
			wait_until_clean(f);
	}
	wait_until_clean(f);
	for (int i = 0; i < PEERS; i++)
		peer_free(peers[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_the_same_bytes),
		TEST(test_blocks_of_its_own),
		TEST(test_who_may_attach),
		TEST(test_names_are_of_their_tenant),
		TEST(test_hostile_terms),
		TEST(test_only_detach_gives_it_back),
		TEST(test_attached_once),
		TEST(test_it_lives_until_the_last_detach),
		TEST(test_limits_count_shares),
		TEST(test_a_lost_connection_keeps_what_it_has),
		TEST(test_waiting_for_a_shareable_range),
		TEST(test_attachments_outlive_a_connection),
		TEST(test_who_sees_it),
		cmocka_unit_test_setup_teardown(test_how_many, setup_many, teardown),
		TEST(test_crowds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
