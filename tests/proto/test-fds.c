/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors over a socket: all arrive or are reported, none stays that nobody owns. Each test is
 * run between two counts of the process's descriptors.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/fds.h"

struct pair {
	int ends[2];
	size_t open_before;
};

static size_t count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int setup(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return -1;
	pair->open_before = count_open();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair->ends))
		return -1;
	*state = pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;
	size_t open_before = pair->open_before;

	close(pair->ends[0]);
	close(pair->ends[1]);
	free(pair);
	if (count_open() != open_before) {
		print_error("%zu descriptors, were %zu\n", count_open(), open_before);
		return -1;
	}
	return 0;
}

/* n descriptors that can be told apart: of files whose size is their number. */
static void make_files(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		fds[i] = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		assert_true(fds[i] >= 0);
		assert_int_equal(ftruncate(fds[i], (off_t)i), 0);
	}
}

static void close_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(close(fds[i]), 0);
}

static void check_and_close(const int *fds, size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct stat st;

		assert_int_equal(fstat(fds[i], &st), 0);
		assert_int_equal(st.st_size, first + i);
		assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	}
	close_all(fds, n);
}

static void send_n(int socket, const char *bytes, size_t n)
{
	int fds[HP_BLOCKS_MAX];

	make_files(fds, n);
	assert_int_equal(hp_fds_send(socket, bytes, strlen(bytes), fds, n), strlen(bytes));
	close_all(fds, n);
}

static void test_none(void **state)
{
	struct pair *pair = *state;
	char buffer[16];
	size_t n = 99;
	bool truncated = true;

	assert_int_equal(hp_fds_send(pair->ends[0], "abc", 3, NULL, 0), 3);
	assert_int_equal(
		hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), NULL, 0, &n, &truncated), 3);
	assert_memory_equal(buffer, "abc", 3);
	assert_int_equal(n, 0);
	assert_false(truncated);
}

static void test_all_arrive(void **state)
{
	static const size_t counts[] = {1, 2, 3, 64, HP_BLOCKS_MAX - 1, HP_BLOCKS_MAX};
	struct pair *pair = *state;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		int fds[HP_BLOCKS_MAX];
		char buffer[16];
		size_t n;
		bool truncated;

		send_n(pair->ends[0], "x", counts[i]);
		assert_int_equal(hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), fds,
					     HP_BLOCKS_MAX, &n, &truncated),
				 1);
		assert_int_equal(n, counts[i]);
		assert_false(truncated);
		check_and_close(fds, 0, n);
	}
}

/* Two sends with descriptors are two receives, with plain bytes around them in either. */
static void test_not_merged(void **state)
{
	struct pair *pair = *state;
	int fds[HP_BLOCKS_MAX];
	char buffer[64];
	size_t n, seen = 0, bytes = 0;
	bool truncated;

	assert_int_equal(hp_fds_send(pair->ends[0], "plain", 5, NULL, 0), 5);
	send_n(pair->ends[0], "one", 2);
	send_n(pair->ends[0], "two", 3);
	assert_int_equal(hp_fds_send(pair->ends[0], "plain", 5, NULL, 0), 5);
	while (bytes < 16) {
		ssize_t r = hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), fds, HP_BLOCKS_MAX,
					&n, &truncated);

		assert_true(r > 0);
		assert_false(truncated);
		assert_true(n == 0 || n == (seen == 0 ? 2 : 3));
		seen += n > 0;
		bytes += (size_t)r;
		check_and_close(fds, 0, n);
	}
	assert_int_equal(seen, 2);
}

static void test_more_than_asked(void **state)
{
	struct pair *pair = *state;

	for (size_t wanted = 0; wanted < 8; wanted++) {
		int fds[HP_BLOCKS_MAX];
		char buffer[16];
		size_t n;
		bool truncated = false;

		send_n(pair->ends[0], "x", 9);
		assert_int_equal(hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), fds, wanted, &n,
					     &truncated),
				 1);
		assert_int_equal(n, wanted);
		assert_true(truncated);
		check_and_close(fds, 0, n);
	}
}

/* A full descriptor table loses some, and says so. */
static void test_table_full(void **state)
{
	struct pair *pair = *state;
	struct rlimit old, low;
	int fds[HP_BLOCKS_MAX], spare, result;
	char buffer[16];
	size_t n;
	bool truncated = false;

	send_n(pair->ends[0], "x", 8);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	spare = dup(0);
	assert_true(spare >= 0);
	close(spare);
	low = old;
	low.rlim_cur = (rlim_t)spare + 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	result = (int)hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), fds, HP_BLOCKS_MAX, &n,
				  &truncated);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(result, 1);
	assert_true(truncated);
	assert_int_equal(n, 3);
	check_and_close(fds, 0, n);
}

/* Several control messages of descriptors, with credentials between them and first in delivery. */
static void test_mixed_control_messages(void **state)
{
	struct pair *pair = *state;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred)) +
			   CMSG_SPACE(3 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct ucred cred = {.pid = getpid(), .uid = getuid(), .gid = getgid()};
	int files[5], fds[HP_BLOCKS_MAX], on = 1;
	char buffer[16];
	size_t n;
	bool truncated;

	make_files(files, 5);
	assert_int_equal(setsockopt(pair->ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);

	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	*cmsg = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(cmsg), files, 2 * sizeof(int));
	cmsg = CMSG_NXTHDR(&msg, cmsg);
	*cmsg = (struct cmsghdr){CMSG_LEN(sizeof(cred)), SOL_SOCKET, SCM_CREDENTIALS};
	memcpy(CMSG_DATA(cmsg), &cred, sizeof(cred));
	cmsg = CMSG_NXTHDR(&msg, cmsg);
	*cmsg = (struct cmsghdr){CMSG_LEN(3 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(cmsg), files + 2, 3 * sizeof(int));

	/* Room for all of them, then for fewer. */
	for (size_t wanted = HP_BLOCKS_MAX; wanted > 0; wanted = wanted > 4 ? 4 : wanted - 1) {
		size_t expected = wanted < 5 ? wanted : 5;

		assert_int_equal(sendmsg(pair->ends[0], &msg, 0), 1);
		assert_int_equal(hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), fds, wanted, &n,
					     &truncated),
				 1);
		assert_int_equal(n, expected);
		assert_int_equal(truncated, expected < 5);
		check_and_close(fds, 0, n);
	}
	close_all(files, 5);
}

static void test_errors(void **state)
{
	struct pair *pair = *state;
	char buffer[16];
	size_t n = 99;
	bool truncated;
	int fd = 1000000;

	assert_int_equal(
		hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), NULL, 0, &n, &truncated),
		-EAGAIN);
	assert_int_equal(n, 99);
	assert_int_equal(hp_fds_send(pair->ends[0], "x", 1, &fd, 1), -EBADF);

	assert_int_equal(shutdown(pair->ends[0], SHUT_WR), 0);
	assert_int_equal(
		hp_fds_recv(pair->ends[1], buffer, sizeof(buffer), NULL, 0, &n, &truncated), 0);
	/* No SIGPIPE. */
	assert_int_equal(hp_fds_send(pair->ends[0], "x", 1, NULL, 0), -EPIPE);
}

/* Until EAGAIN; then everything that was accepted comes out, with its descriptors. */
static void test_full_socket(void **state)
{
	struct pair *pair = *state;
	static char chunk[16384];
	size_t sent = 0, received = 0, fds_sent = 0, fds_received = 0;
	ssize_t r;
	int file;

	make_files(&file, 1);
	while ((r = hp_fds_send(pair->ends[0], chunk, sizeof(chunk), &file, 1)) > 0) {
		sent += (size_t)r;
		fds_sent++;
	}
	assert_int_equal(r, -EAGAIN);
	assert_true(fds_sent > 1);
	close(file);

	while (received < sent) {
		int fds[HP_BLOCKS_MAX];
		size_t n;
		bool truncated;

		r = hp_fds_recv(pair->ends[1], chunk, 1000, fds, HP_BLOCKS_MAX, &n, &truncated);
		assert_true(r > 0);
		assert_false(truncated);
		assert_true(n <= 1);
		received += (size_t)r;
		fds_received += n;
		check_and_close(fds, 0, n);
	}
	assert_int_equal(fds_received, fds_sent);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_none),       TEST(test_all_arrive),
		TEST(test_not_merged), TEST(test_more_than_asked),
		TEST(test_table_full), TEST(test_mixed_control_messages),
		TEST(test_errors),     TEST(test_full_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
