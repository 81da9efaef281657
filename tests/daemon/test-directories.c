/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory descriptors over a socket: batches, several zones, an end with an error, what is not a
 * message of ours, and no descriptor lost or leaked on any of these ways.
 */
#include "daemon/setup/directories.h"

#include "tests/daemon/pool-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANY 300 /* more than one message takes */

static int ends[2];
static unsigned descriptors;

struct seen {
	unsigned nr[2], stop_at;
	ino_t inode;
};

static int open_ends(void **state)
{
	(void)state;
	descriptors = fixture_open_descriptors();
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_ends(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(fixture_open_descriptors(), descriptors);
	return 0;
}

static int open_root(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* directories_fn: zones "a" and "b", blocks in order, each descriptor that of "/". */
static int see(void *userdata, const char *zone, uint32_t block, int fd)
{
	struct seen *seen = userdata;
	unsigned *nr = &seen->nr[zone[0] == 'b'];
	struct stat st;

	assert_true(strcmp(zone, "a") == 0 || strcmp(zone, "b") == 0);
	assert_int_equal(block, *nr);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_ino, seen->inode);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	(*nr)++;
	return seen->stop_at && *nr == seen->stop_at ? -EBADSLT : 0;
}

static struct seen seen_nothing(void)
{
	struct seen seen = {0};
	struct stat st;

	assert_int_equal(stat("/", &st), 0);
	seen.inode = st.st_ino;
	return seen;
}

/* The name is gone before what it names is sent. */
static void send_zone(struct directories_sender *sender, const char *zone, unsigned blocks)
{
	char name[4];

	strcpy(name, zone);
	for (unsigned i = 0; i < blocks; i++)
		assert_int_equal(directories_send_consume_fd(sender, name, i, open_root()), 0);
	strcpy(name, "?");
}

static void test_batches(void **state)
{
	struct seen seen = seen_nothing();
	struct directories_sender sender;
	char text[DIRECTORIES_TEXT_MAX];

	(void)state;
	directories_sender_init(&sender, ends[0]);
	send_zone(&sender, "a", MANY);
	send_zone(&sender, "b", 2);
	assert_int_equal(directories_send_end(&sender, 0, "hello"), 0);
	directories_sender_deinit(&sender);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), 0);
	assert_int_equal(seen.nr[0], MANY);
	assert_int_equal(seen.nr[1], 2);
	assert_string_equal(text, "hello");
}

static void test_error(void **state)
{
	struct seen seen = seen_nothing();
	struct directories_sender sender;
	char text[DIRECTORIES_TEXT_MAX];

	(void)state;
	directories_sender_init(&sender, ends[0]);
	assert_int_equal(directories_send_end(&sender, ENOENT, "nothing there"), 0);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -ENOENT);
	assert_string_equal(text, "nothing there");
}

/* The receiver has seen enough: the rest of the batch is closed. */
static void test_callee_stops(void **state)
{
	struct seen seen = seen_nothing();
	struct directories_sender sender;
	char text[DIRECTORIES_TEXT_MAX];

	(void)state;
	seen.stop_at = 3;
	directories_sender_init(&sender, ends[0]);
	send_zone(&sender, "a", 10);
	assert_int_equal(directories_send_end(&sender, 0, ""), 0);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -EBADSLT);
	assert_int_equal(seen.nr[0], 3);
}

static void test_no_room(void **state)
{
	struct seen seen = seen_nothing();
	struct directories_sender sender;
	char text[DIRECTORIES_TEXT_MAX];
	struct rlimit limit, low;

	(void)state;
	directories_sender_init(&sender, ends[0]);
	send_zone(&sender, "a", 20);
	assert_int_equal(directories_send_end(&sender, 0, ""), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)ends[1] + 8;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(seen.nr[0], 0);
}

static void test_gone(void **state)
{
	struct seen seen = seen_nothing();
	struct directories_sender sender;
	char text[DIRECTORIES_TEXT_MAX];

	(void)state;
	shutdown(ends[0], SHUT_WR);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -ECONNRESET);
	shutdown(ends[1], SHUT_RD);
	directories_sender_init(&sender, ends[0]);
	assert_int_equal(directories_send_consume_fd(&sender, "a", 0, open_root()), 0);
	assert_int_equal(directories_send_end(&sender, 0, ""), -EPIPE);
	directories_sender_deinit(&sender);
}

static void test_nonsense(void **state)
{
	static const char nonsense[4096] = "no message of ours";
	struct seen seen = seen_nothing();
	struct setup_plan plan = {.nr_zones = 1};
	char text[DIRECTORIES_TEXT_MAX];

	(void)state;
	assert_int_equal(send(ends[0], nonsense, 10, 0), 10);
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -EPROTO);
	assert_int_equal(send(ends[0], nonsense, sizeof(nonsense), 0), sizeof(nonsense));
	assert_int_equal(directories_receive(ends[1], see, &seen, text), -EPROTO);
	assert_int_equal(send(ends[0], nonsense, 10, 0), 10);
	assert_int_equal(directories_receive_plan(ends[1], &plan), -EPROTO);
	strcpy(plan.zones[0].name, "../etc");
	assert_int_equal(directories_send_plan(ends[0], &plan), 0);
	assert_int_equal(directories_receive_plan(ends[1], &plan), -EPROTO);
	assert_int_equal(
		directories_send_consume_fd(&(struct directories_sender){.socket = ends[0]},
					    "a name that is much longer than any zone's can be", 0,
					    open_root()),
		-ENAMETOOLONG);
}

static void test_plan(void **state)
{
	struct setup_plan plan = {.nr_zones = 1}, got;

	(void)state;
	plan.zones[0] = (struct setup_zone){.name = "small",
					    .node = -1,
					    .nr_blocks = 4,
					    .max_blocks = 4,
					    .page_bytes = 2 << 20,
					    .block_bytes = 8 << 20};
	assert_int_equal(directories_send_plan(ends[0], &plan), 0);
	assert_int_equal(directories_receive_plan(ends[1], &got), 0);
	assert_memory_equal(&got, &plan, sizeof(plan));
	plan.zones[0].nr_blocks = HP_ZONE_BLOCKS_MAX + 1;
	assert_int_equal(directories_send_plan(ends[0], &plan), 0);
	assert_int_equal(directories_receive_plan(ends[1], &got), -EPROTO);
	shutdown(ends[0], SHUT_WR);
	assert_int_equal(directories_receive_plan(ends[1], &got), -ECONNRESET);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_ends, close_ends)
	const struct CMUnitTest tests[] = {
		TEST(test_batches), TEST(test_error), TEST(test_callee_stops),
		TEST(test_no_room), TEST(test_gone),  TEST(test_nonsense),
		TEST(test_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
