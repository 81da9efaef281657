/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: what the protocol says about frames, whatever is in them, and what happens to somebody
 * who does not keep to it - while somebody else works and notices nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

struct fixture {
	struct rig *rig;
	struct peer *bystander; /* takes and gives around every test */
	struct peer *admin;
};

static void bystander_works(struct fixture *f)
{
	struct peer_range range;

	peer_alloc(f->bystander, "small", 3, 1, &range);
	peer_free_ranges(f->bystander, &range, 1);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct rig_options options = {.hello_timeout_ms = 300};

	f->rig = rig_new(&options);
	f->bystander = rig_connect_hello(f->rig, SOCKET_DATA);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	bystander_works(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	bystander_works(f);
	peer_check(f->admin);
	peer_free(f->bystander);
	peer_free(f->admin);
	rig_free(f->rig);
	free(f);
	return 0;
}

static Hugepool__V1__StatsReply stats(struct fixture *f)
{
	peer_send(f->admin, TYPE(STATS), 9, NULL);
	return *(const Hugepool__V1__StatsReply *)peer_expect(f->admin, TYPE(STATS_REPLY), 9);
}

/* --- hello ------------------------------------------------------------------------------------ */

static void test_hello(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect(f->rig, SOCKET_DATA);
	const Hugepool__V1__Welcome *welcome = peer_hello(peer);

	assert_int_equal(welcome->protocol, 1);
	assert_int_equal(welcome->max_ranges, HP_RANGES_MAX);
	assert_int_equal(welcome->max_frame, HP_FRAME_PAYLOAD_MAX);
	assert_true(welcome->session > 0);
	assert_int_equal(welcome->token.len, SLOT_TOKEN_BYTES);
	assert_int_equal(welcome->n_zones, 2);
	assert_memory_equal(welcome->zones[0]->name.data, "small", 5);
	assert_int_equal(welcome->zones[0]->page_size, 4096);
	assert_int_equal(welcome->zones[0]->block_size, 65536);
	assert_int_equal(welcome->zones[0]->blocks, RIG_SMALL_BLOCKS);
	assert_int_equal(welcome->zones[0]->pages, RIG_SMALL_PAGES);
	assert_int_equal(welcome->zones[0]->backing, HUGEPOOL__V1__BACKING__BACKING_SHMEM);
	assert_int_equal(welcome->zones[0]->limit_blocks, RIG_SMALL_BLOCKS);
	assert_int_equal(welcome->zones[0]->leasable, RIG_SMALL_PAGES);
	assert_int_equal(welcome->zones[1]->id, 1);
	peer_free(peer);
}

static void test_hello_once_and_first(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect(f->rig, SOCKET_DATA);
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;

	alloc.pages = 1;
	peer_refused(peer, TYPE(ALLOC), &alloc.base, CODE(HELLO_REQUIRED));
	peer_refused(peer, TYPE(GOODBYE), NULL, CODE(HELLO_REQUIRED));
	peer_refused(peer, TYPE(STATS), NULL, CODE(HELLO_REQUIRED));
	peer_hello(peer);
	hello.protocol = 1;
	peer_refused(peer, TYPE(HELLO), &hello.base, CODE(HELLO_REQUIRED));
	peer_free(peer);
}

static void test_hello_refused_may_be_said_again(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect(f->rig, SOCKET_DATA);
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;
	uint8_t name[HP_NAME_MAX + 1] = {0};

	hello.protocol = 2;
	assert_int_equal(peer_refused(peer, TYPE(HELLO), &hello.base, CODE(VERSION))->limit, 1);
	hello.protocol = 1;
	memset(name, 'x', sizeof(name));
	hello.name = (ProtobufCBinaryData){.len = sizeof(name), .data = name};
	assert_int_equal(peer_refused(peer, TYPE(HELLO), &hello.base, CODE(INVALID))->limit,
			 HP_NAME_MAX);
	peer_hello(peer);
	peer_free(peer);
}

static void test_no_hello_in_time(void **state)
{
	struct fixture *f = *state;
	struct peer *silent = rig_connect(f->rig, SOCKET_DATA);
	struct peer *dribbling = rig_connect(f->rig, SOCKET_DATA);
	uint64_t broken = stats(f).broken;

	/* A byte now and then does not put it off. */
	for (int i = 0; i < 5; i++) {
		peer_send_bytes(dribbling, "\0\0\0\0\1\0\0\0" + i, 1);
		poll(NULL, 0, 40);
	}
	peer_expect_end(silent);
	peer_expect_end(dribbling);
	assert_int_equal(stats(f).broken, broken + 2);
	peer_free(silent);
	peer_free(dribbling);
}

/* --- frames ----------------------------------------------------------------------------------- */

static void test_unknown_types(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);

	for (unsigned type = 0; type < 256; type++) {
		bool admins = type == TYPE(CHECK) || type == TYPE(FLUSH);

		if ((type < TYPE(HELLO) || type > TYPE(LIST)) || admins)
			peer_refused(peer, (uint8_t)type, NULL, CODE(UNKNOWN_TYPE));
	}
	/* What takes memory is not for the admin socket. */
	for (unsigned type = TYPE(RESUME); type <= TYPE(ACK); type++)
		peer_refused(f->admin, (uint8_t)type, NULL, CODE(UNKNOWN_TYPE));
	peer_free(peer);
}

static void test_malformed_payload_is_answered(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	/* a field that promises more bytes than there are */
	uint8_t frame[] = {3, 0, 0, 0, TYPE(ALLOC), 0, 7, 0, 0x0a, 0x7f, 'x'};
	const Hugepool__V1__Error *error;

	peer_send_bytes(peer, frame, sizeof(frame));
	error = peer_expect(peer, TYPE(ERROR), 7);
	assert_int_equal(error->code, CODE(MALFORMED));
	bystander_works(f);
	peer_send(peer, TYPE(STATS), 8, NULL);
	peer_expect(peer, TYPE(STATS_REPLY), 8);
	peer_free(peer);
}

/* Rows of nothing are tiny on the wire and large in memory: refused, not paid for. */
static void test_amplifying_payload_is_answered(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	uint8_t frame[HP_FRAME_MAX];

	hp_frame_put_header(frame, TYPE(ALLOC), 7, HP_FRAME_PAYLOAD_MAX);
	for (size_t i = HP_FRAME_HEADER_BYTES; i < sizeof(frame); i += 2) {
		frame[i] = 0x78; /* unknown field 15, a number */
		frame[i + 1] = 0;
	}
	peer_send_bytes(peer, frame, sizeof(frame));
	assert_int_equal(((const Hugepool__V1__Error *)peer_expect(peer, TYPE(ERROR), 7))->code,
			 CODE(MALFORMED));
	peer_send(peer, TYPE(STATS), 8, NULL);
	peer_expect(peer, TYPE(STATS_REPLY), 8);
	peer_free(peer);
}

static void expect_broken(struct fixture *f, const uint8_t *bytes, size_t n)
{
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	uint64_t broken = stats(f).broken;

	/* What came before is answered. */
	peer_send(peer, TYPE(STATS), 8, NULL);
	peer_send_bytes(peer, bytes, n);
	peer_expect(peer, TYPE(STATS_REPLY), 8);
	peer_expect_end(peer);
	bystander_works(f);
	assert_int_equal(stats(f).broken, broken + 1);
	peer_free(peer);
}

static void test_broken_framing_ends_the_session(void **state)
{
	const uint8_t oversized[] = {0x01, 0x20, 0, 0, TYPE(STATS), 0, 0, 0};
	const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, TYPE(STATS), 0, 0, 0};
	const uint8_t flags[] = {0, 0, 0, 0, TYPE(STATS), 1, 0, 0};

	expect_broken(*state, oversized, sizeof(oversized));
	expect_broken(*state, huge, sizeof(huge));
	expect_broken(*state, flags, sizeof(flags));
}

static void test_half_a_frame_and_gone(void **state)
{
	struct fixture *f = *state;

	for (size_t n = 1; n < 12; n++) {
		const uint8_t half[] = {8, 0, 0, 0, TYPE(ALLOC), 0, 0, 0, 0x28, 1, 0x38, 1};
		struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);

		peer_send_bytes(peer, half, n);
		peer_free(peer);
	}
	rig_wait_connections(f->rig, 1);
}

static void test_byte_by_byte(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	uint8_t frame[HP_FRAME_MAX];
	int n;

	alloc.pages = 2;
	n = hp_message_pack(frame, TYPE(ALLOC), 77, &alloc.base);
	assert_true(n > HP_FRAME_HEADER_BYTES);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < n; i++) {
			peer_send_bytes(peer, frame + i, 1);
			if (i < n - 1 && i % 5 == 0)
				peer_expect_silence(peer, 2);
		}
		peer_expect(peer, TYPE(GRANT), 77);
	}
	peer_free(peer);
}

/* --- many requests ---------------------------------------------------------------------------- */

static void test_pipelined(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	enum { N = 200 };
	struct peer_range ranges[N];
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	uint32_t first_pages = 0;

	alloc.pages = 1;
	for (uint16_t i = 0; i < N; i++)
		peer_send(peer, TYPE(ALLOC), (uint16_t)(1000 + i), &alloc.base);
	for (uint16_t i = 0; i < N; i++) {
		const Hugepool__V1__Ranges *grant =
			peer_expect(peer, TYPE(GRANT), (uint16_t)(1000 + i));

		memcpy(&ranges[i], grant->ranges, sizeof(ranges[i]));
		first_pages |= peer_range(&ranges[i]).page;
	}
	assert_int_not_equal(first_pages, 0);
	/* 200 pages are in at least 13 blocks, each of which came once. */
	assert_true(peer->nr_fds >= N / RIG_SMALL_BLOCK_PAGES + 1);
	assert_true(peer->nr_fds <= RIG_SMALL_BLOCKS);
	peer_free_ranges(peer, ranges, N);
	peer_free(peer);
}

/* Somebody asks and never reads: what the daemon keeps for him has an end, and he can go on. */
static void test_output_cap(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	uint8_t frame[HP_FRAME_MAX];
	struct rusage before, after;
	uint64_t answered;
	unsigned sent = 0;
	int n;

	list.what = WHAT(BLOCKS);
	n = hp_message_pack(frame, TYPE(LIST), 5, &list.base);
	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	while (sent < 200000) {
		struct pollfd p = {.fd = peer->fd, .events = POLLOUT};

		if (poll(&p, 1, 300) == 0)
			break; /* the daemon has stopped reading */
		peer_send_bytes(peer, frame, (size_t)n);
		sent++;
	}
	assert_true(sent < 200000);
	answered = stats(f).requests;
	bystander_works(f);
	poll(NULL, 0, 50);
	assert_true(stats(f).requests - answered < 10); /* only ours */
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	assert_true(after.ru_maxrss - before.ru_maxrss < 4096); /* kB */

	for (unsigned i = 0; i < sent; i++)
		peer_expect(peer, TYPE(LIST_REPLY), 5);
	peer_send(peer, TYPE(STATS), 8, NULL);
	peer_expect(peer, TYPE(STATS_REPLY), 8);
	peer_free(peer);
}

/* Not even one descriptor is sent while the last one lies unread, and nothing behind it either. */
static void test_descriptors_wait_for_the_reader(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	char bytes[65536];
	ssize_t unread;

	alloc.pages = RIG_SMALL_BLOCK_PAGES;
	alloc.align_pages = RIG_SMALL_BLOCK_PAGES;
	for (uint16_t i = 0; i < 4; i++) {
		peer_send(peer, TYPE(ALLOC), i, &alloc.base);
		bystander_works(f);
		poll(NULL, 0, 20);
	}
	unread = recv(peer->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
	assert_true(unread > 0);
	for (uint16_t i = 0; i < 4; i++) {
		peer_expect(peer, TYPE(GRANT), i);
		assert_int_equal(peer->nr_fds, i + 1);
		if (i == 0) /* one BLOCKS and one GRANT was all there was */
			assert_int_equal(peer->used, unread);
	}
	peer_free(peer);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void test_goodbye(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range;
	uint8_t frames[2 * HP_FRAME_HEADER_BYTES];

	peer_alloc(peer, "small", 5, 1, &range);
	assert_int_equal(peer_zone(f->admin, 0).leased, 5);
	hp_frame_put_header(frames, TYPE(GOODBYE), 6, 0);
	hp_frame_put_header(frames + HP_FRAME_HEADER_BYTES, TYPE(STATS), 7, 0);
	peer_send_bytes(peer, frames, sizeof(frames));
	peer_expect(peer, TYPE(DONE), 6);
	assert_null(peer_recv(peer)); /* nothing is served after the last word */
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
	peer_free(peer);
}

/* This process lives, so what a lost connection held is nobody's to give. */
static void test_condemned(void **state)
{
	struct fixture *f = *state;
	struct peer *peer = rig_connect_hello(f->rig, SOCKET_DATA);
	struct peer_range range;
	Hugepool__V1__Zone zone;

	peer_alloc(peer, "small", 5, 1, &range);
	peer_free(peer);
	rig_wait_connections(f->rig, 1);
	zone = peer_zone(f->admin, 0);
	assert_int_equal(zone.leased, 0);
	assert_int_equal(zone.condemned, 5);
	assert_int_equal(stats(f).condemned_sessions, 1);
	/* Nobody else can free it. */
	peer_free_refused(f->bystander, &range, 1, CODE(WRONG_HOLDER));

	/* Without a lease there is nothing to condemn. */
	peer_free(rig_connect_hello(f->rig, SOCKET_DATA));
	rig_wait_connections(f->rig, 1);
	assert_int_equal(stats(f).condemned_sessions, 1);
}

static void test_too_many_sessions(void **state)
{
	struct fixture *f = *state;
	struct peer *peers[4];
	const Hugepool__V1__Error *error;

	f->rig->acceptor.sessions_max = 3;
	for (size_t i = 0; i < 2; i++)
		peers[i] = rig_connect_hello(f->rig, SOCKET_DATA);
	for (size_t i = 2; i < 4; i++) {
		peers[i] = rig_connect(f->rig, SOCKET_DATA);
		error = peer_expect(peers[i], TYPE(ERROR), 0);
		assert_int_equal(error->code, CODE(TOO_MANY));
		assert_int_equal(error->limit, 3);
		peer_expect_end(peers[i]);
	}
	bystander_works(f);
	peer_free(peers[0]);
	rig_wait_connections(f->rig, 2);
	peers[0] = rig_connect_hello(f->rig, SOCKET_DATA);
	for (size_t i = 0; i < 4; i++)
		peer_free(peers[i]);
}

static void test_too_many_sessions_of_a_tenant(void **state)
{
	struct rig_options options = {.config = RIG_CONFIG "[default]\nsessions = 2\n"};
	struct rig *rig = rig_new(&options);
	struct peer *first = rig_connect_hello(rig, SOCKET_DATA);
	struct peer *second = rig_connect_hello(rig, SOCKET_DATA);
	struct peer *third = rig_connect(rig, SOCKET_DATA);
	struct peer *admin = rig_connect_hello(rig, SOCKET_ADMIN);
	const Hugepool__V1__Error *error = peer_expect(third, TYPE(ERROR), 0);

	(void)state;
	assert_int_equal(error->code, CODE(TOO_MANY));
	assert_int_equal(error->limit, 2);
	peer_expect_end(third);
	peer_free(first);
	rig_wait_connections(rig, 1);
	peer_free(rig_connect_hello(rig, SOCKET_DATA));
	peer_free(second);
	peer_free(third);
	peer_free(admin);
	rig_free(rig);
}

/* Everything at once, and then the daemon is stopped with all of it going on. */
static void test_several_workers(void **state)
{
	struct rig_options options = {.workers = 4};
	struct rig *rig = rig_new(&options);
	struct peer *peers[16];
	struct peer_range ranges[16];

	(void)state;
	for (size_t i = 0; i < 16; i++)
		peers[i] = rig_connect_hello(rig, SOCKET_DATA);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(rig->workers[i]->connections, 4);
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < 16; i++)
			peer_alloc(peers[i], "small", 1 + (uint32_t)i % 7, 1, &ranges[i]);
		for (size_t i = 0; i < 16; i++)
			peer_free_ranges(peers[i], &ranges[i], 1);
	}
	/* One worker's caches do not keep the last page from another's client. */
	peer_alloc(peers[3], "small", RIG_SMALL_PAGES, 1, &ranges[0]);
	for (size_t i = 0; i < 16; i++)
		rig->descriptors += 1 + peers[i]->nr_fds; /* these are still ours */
	rig_free(rig);
	for (size_t i = 0; i < 16; i++)
		peer_free(peers[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(hello),
		TEST(hello_once_and_first),
		TEST(hello_refused_may_be_said_again),
		TEST(no_hello_in_time),
		TEST(unknown_types),
		TEST(malformed_payload_is_answered),
		TEST(amplifying_payload_is_answered),
		TEST(broken_framing_ends_the_session),
		TEST(half_a_frame_and_gone),
		TEST(byte_by_byte),
		TEST(pipelined),
		TEST(output_cap),
		TEST(descriptors_wait_for_the_reader),
		TEST(goodbye),
		TEST(condemned),
		TEST(too_many_sessions),
		cmocka_unit_test(test_too_many_sessions_of_a_tenant),
		cmocka_unit_test(test_several_workers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
