/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocation as programs live through it: the real daemon, the real library, hugepoolctl as the
 * operator has it; on huge pages ("hugetlb") or on ordinary memory ("shmem").
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"
#include "tests/integration/client.h"

#define USER 54321

#define MIB	    (UINT64_C(1) << 20)
#define PAGE	    (2 * MIB)
#define BLOCK_PAGES 4

/* Blocks of 4 pages; zone one has a single one, so that what comes is where it was. */
#define ZONES(backing)                                                        \
	"idle-delay = 50ms\n"                                                 \
	"[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 32M\n" backing \
	"[zone one]\npage-size = 2M\nblock-size = 8M\nsize = 8M\n" backing    \
	"[default]\nlimit.small = 4\nlimit.one = 1\n"

#define WAIT_TRIES 4000 /* of 5 ms */

static const char *executable, *ctl;
static bool on_huge_pages;

struct fixture {
	struct program *program;
	struct peer *admin;
	struct client *client;
	char uid[16];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uid_t uid = getuid() == 0 ? USER : getuid();

	assert_non_null(f);
	f->program = program_new(executable, on_huge_pages ? ZONES("grow-nr-hugepages = yes\n")
							   : ZONES("backing = shmem\n"));
	program_start(f->program);
	assert_true(program_log_has(f->program, "READY"));
	f->admin = peer_connect(f->program->admin_socket);
	peer_hello(f->admin);
	f->client = client_new(f->program->socket, uid);
	snprintf(f->uid, sizeof(f->uid), "uid:%u", (unsigned)uid);
	*state = f;
	return 0;
}

static void wait_clean(struct fixture *f, uint32_t zone, uint64_t pages)
{
	uint64_t clean = 0;

	for (int i = 0; i < WAIT_TRIES; i++) {
		clean = peer_zone(f->admin, zone).clean;
		if (clean == pages)
			return;
		poll(NULL, 0, 5);
	}
	fail_msg("zone %u: %llu pages are clean, not %llu", zone, (unsigned long long)clean,
		 (unsigned long long)pages);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->client = client_free(f->client);
	wait_clean(f, 0, 4 * BLOCK_PAGES);
	wait_clean(f, 1, BLOCK_PAGES);
	peer_check(f->admin);
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	program_free(f->program);
	free(f);
	return 0;
}

/* Runs hugepoolctl revoke with these arguments. Return: its exit status; its output in text. */
static int say_revoke(struct fixture *f, const char *arguments, char text[2048])
{
	char command[1024];
	size_t n;
	FILE *out;
	int status;

	snprintf(command, sizeof(command), "'%s' --socket '%s' revoke %s 2>&1", ctl,
		 f->program->admin_socket, arguments);
	out = popen(command, "re");
	assert_non_null(out);
	n = fread(text, 1, 2047, out);
	text[n] = 0;
	status = pclose(out);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in:\n%s", part, text);
}

/* --- in the program --------------------------------------------------------------------------- */

static struct {
	struct hugepool *pool;
	unsigned revoked, wanted;
	struct hugepool_range range; /* the last one told of */
	int forced;
	uint64_t deadline_ms;
} heard;

static void on_revoked(void *userdata, const struct hugepool_range *range)
{
	(void)userdata;
	heard.revoked++;
	heard.range = *range;
}

/* Gives it back, as a program does that can do without. */
static void on_wanted(void *userdata, const struct hugepool_range *range, uint64_t deadline_ms,
		      int force)
{
	(void)userdata;
	heard.wanted++;
	heard.range = *range;
	heard.forced = force;
	heard.deadline_ms = deadline_ms;
	if (hugepool_free(heard.pool, range))
		abort();
}

static int listen_to_all(struct hugepool *pool, struct hugepool_range *range, const char *text)
{
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;

	(void)range;
	(void)text;
	heard.pool = pool;
	callbacks.revoked = on_revoked;
	callbacks.wanted = on_wanted;
	return hugepool_set_callbacks(pool, &callbacks);
}

/* Until something is heard. Return: 0 if it was what text says, of this range. */
static int dispatch_until(struct hugepool *pool, struct hugepool_range *range, const char *text)
{
	for (int i = 0; i < 100 && !heard.revoked && !heard.wanted; i++)
		if (hugepool_dispatch(pool, 200) < 0)
			return -EIO;
	if (heard.range.address != range->address || heard.range.bytes != range->bytes)
		return -EBADMSG;
	if (strcmp(text, "revoked") == 0)
		return heard.revoked == 1 && !heard.wanted ? 0 : -EINVAL;
	return heard.wanted == 1 && !heard.revoked && heard.deadline_ms > 0 &&
			       heard.forced == (strcmp(text, "wanted by force") == 0)
		       ? 0
		       : -EINVAL;
}

/* Every page of it can be read, is zero, and can be written. */
static int is_ordinary(struct hugepool *pool, struct hugepool_range *range, const char *text)
{
	(void)pool;
	(void)text;
	for (uint64_t at = 0; at < range->bytes; at += 4096) {
		volatile char *p = (char *)range->address + at;

		if (*p)
			return -EBADMSG;
		*p = 1;
	}
	return 0;
}

static void take(struct fixture *f, size_t number, const char *zone, uint64_t pages)
{
	struct hugepool_error error = {.size = sizeof(error)};
	int r = client_take(f->client, number, zone, pages * PAGE, HUGEPOOL_ZERO, &error);

	if (r)
		fail_msg("take: %s: %s", strerror(-r), error.message);
	assert_true(client_is_zero(f->client, number));
	client_fill(f->client, number, number);
}

/* --- the operator ----------------------------------------------------------------------------- */

/* Who is asked and can do without gives it back, and nothing is taken. */
static void test_asked(void **state)
{
	struct fixture *f = *state;
	char text[2048], arguments[128];

	take(f, 1, "small", 3);
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	client_begin_run(f->client, 1, dispatch_until, "wanted");
	snprintf(arguments, sizeof(arguments), "--tenant %s --deadline 20s", f->uid);
	assert_int_equal(say_revoke(f, arguments, text), 0);
	expect(text, "given back          3 pages");
	expect(text, "left                0 pages");
	assert_int_equal(client_end_run(f->client), 0);
	assert_int_equal(client_give(f->client, 1), -EINVAL); /* that was done */
}

/* Who does not hear keeps what it has, and the operator is told who that is. */
static void test_asked_in_vain(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	take(f, 1, "small", 3);
	assert_int_equal(say_revoke(f, "--zone small --block 0 --deadline 100ms", text), 1);
	expect(text, "left                3 pages");
	expect(text, "Not given back:");
	assert_true(client_is_filled(f->client, 1, 1));
	assert_int_equal(client_give(f->client, 1), 0);
}

/* What is taken is ordinary memory to its holder, who hears of it, and frees it once. */
static void test_taken(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	take(f, 1, "small", 2);
	take(f, 2, "small", 1);		  /* in the same block */
	take(f, 3, "small", BLOCK_PAGES); /* in another */
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	assert_int_equal(say_revoke(f, "--zone small --lease 0 --deadline 0 --force", text), 0);
	expect(text, "taken               2 pages");
	expect(text, "Other leases that lost pages:");
	for (int i = 0; i < 100; i++) {
		/* It reads what has come whenever it asks for something, whatever comes of it. */
		if (client_take(f->client, 4, "one", PAGE, 0, NULL) == 0)
			assert_int_equal(client_give(f->client, 4), 0);
		if (peer_zone(f->admin, 0).clean == 3 * BLOCK_PAGES)
			break;
		poll(NULL, 0, 20);
	}
	wait_clean(f, 0, 3 * BLOCK_PAGES);
	assert_int_equal(client_run(f->client, 1, is_ordinary, ""), 0);
	assert_int_equal(client_run(f->client, 2, is_ordinary, ""), 0);
	assert_true(client_is_filled(f->client, 3, 3));
	assert_int_equal(client_give(f->client, 1), 0);
	assert_int_equal(client_give(f->client, 1), -EINVAL);
	assert_int_equal(client_give(f->client, 2), 0);
	assert_int_equal(client_give(f->client, 3), 0);
}

static void test_taken_and_heard(void **state)
{
	struct fixture *f = *state;
	char text[2048], arguments[128];

	take(f, 1, "small", 3);
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	client_begin_run(f->client, 1, dispatch_until, "revoked");
	snprintf(arguments, sizeof(arguments), "--tenant %s --deadline 0 --force", f->uid);
	assert_int_equal(say_revoke(f, arguments, text), 0);
	expect(text, "taken               3 pages");
	assert_int_equal(client_end_run(f->client), 0);
	assert_int_equal(client_run(f->client, 1, is_ordinary, ""), 0);
	assert_int_equal(client_give(f->client, 1), 0);
}

/* A break of the connection acknowledges: the daemon forgets, and the program need not care. */
static void test_taken_and_broken(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	take(f, 1, "small", 3);
	take(f, 2, "small", BLOCK_PAGES);
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	client_begin_run(f->client, 1, dispatch_until, "revoked");
	assert_int_equal(say_revoke(f, "--zone small --lease 0 --deadline 0 --force", text), 0);
	assert_int_equal(client_end_run(f->client), 0);
	client_break(f->client);
	take(f, 3, "one", 1);
	assert_int_equal(client_run(f->client, 1, is_ordinary, ""), 0);
	assert_true(client_is_filled(f->client, 2, 2));
	assert_int_equal(client_give(f->client, 1), 0);
	assert_int_equal(client_give(f->client, 1), -EINVAL);
	assert_int_equal(client_give(f->client, 2), 0);
	assert_int_equal(client_give(f->client, 3), 0);
}

/* The only block of the zone may just be on its way from one to the next: until it is there. */
static int take_the_block(struct fixture *f, uint64_t bytes)
{
	int r = -ENOMEM;

	for (int i = 0; i < 2000 && r == -ENOMEM; i++) {
		r = client_take(f->client, 2, "one", bytes, HUGEPOOL_ZERO, NULL);
		if (r == -ENOMEM)
			poll(NULL, 0, 5);
	}
	return r;
}

/* Nothing comes where a range that was taken has not been freed; then all is as before. */
static void test_in_its_place(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	take(f, 1, "one", 2);
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	client_begin_run(f->client, 1, dispatch_until, "revoked");
	assert_int_equal(say_revoke(f, "--zone one --block 0 --deadline 0 --force", text), 0);
	assert_int_equal(client_end_run(f->client), 0);
	wait_clean(f, 1, BLOCK_PAGES);

	assert_int_equal(take_the_block(f, PAGE), -EBUSY);
	assert_int_equal(take_the_block(f, 4 * PAGE), -EBUSY);
	assert_int_equal(client_run(f->client, 1, is_ordinary, ""), 0);
	assert_int_equal(client_give(f->client, 1), 0);
	assert_int_equal(take_the_block(f, 2 * PAGE), 0);
	assert_true(client_is_zero(f->client, 2));
	client_fill(f->client, 2, 2);
	assert_true(client_is_filled(f->client, 2, 2));
	assert_int_equal(client_give(f->client, 2), 0);
}

/* Of a range over several blocks one is taken: what is in the others stays. */
static void test_part_of_a_range(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	take(f, 1, "small", 3 * BLOCK_PAGES);
	assert_int_equal(client_run(f->client, 0, listen_to_all, ""), 0);
	client_begin_run(f->client, 1, dispatch_until, "revoked");
	assert_int_equal(say_revoke(f, "--zone small --block 1 --deadline 0 --force", text), 0);
	expect(text, "taken               4 pages");
	assert_int_equal(client_end_run(f->client), 0);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 2 * BLOCK_PAGES);
	assert_int_equal(client_give(f->client, 1), 0);
	assert_int_equal(peer_zone(f->admin, 0).revoked, 0);
}

static void test_usage(void **state)
{
	static const char *const wrong[] = {
		"",
		"--tenant a --session 1",
		"--lease 3",
		"--block 1",
		"--session x",
		"--zone small --block 9999",
		"--tenant a --deadline soon",
		"--zero --tenant a",
	};
	struct fixture *f = *state;
	char text[2048];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (say_revoke(f, wrong[i], text) != 2)
			fail_msg("revoke %s: no usage error, but:\n%s", wrong[i], text);
	assert_int_equal(say_revoke(f, "--tenant nobody", text), 1);
	expect(text, "there is no tenant nobody");
	assert_int_equal(say_revoke(f, "--zone small --lease 7", text), 1);
	expect(text, "no lease begins at page 7");
	assert_int_equal(say_revoke(f, "--session 4711", text), 1);
	expect(text, "there is no session 4711");
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_asked),
		TEST(test_asked_in_vain),
		TEST(test_taken),
		TEST(test_taken_and_heard),
		TEST(test_taken_and_broken),
		TEST(test_in_its_place),
		TEST(test_part_of_a_range),
		TEST(test_usage),
	};

	if (argc != 4) {
		(void)fprintf(stderr, "usage: test-revoke HUGEPOOLD HUGEPOOLCTL shmem|hugetlb\n");
		return 2;
	}
	executable = argv[1];
	ctl = argv[2];
	on_huge_pages = strcmp(argv[3], "hugetlb") == 0;
	if (on_huge_pages && getuid() != 0) {
		(void)fprintf(stderr, "huge pages need root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
