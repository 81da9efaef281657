/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing, end to end: programs of several users on one range, what a reader can do to it, who dies
 * when, and what the operator sees.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/many.h"

#define SEED 4711

static const char *hugepoolctl;

/* --- what clients do -------------------------------------------------------------------------- */

static int do_publish(struct hugepool *pool, struct hugepool_range *range, const char *name)
{
	return hugepool_share(pool, range, name, NULL);
}

/* For UID_B, to read. */
static int do_publish_for_b(struct hugepool *pool, struct hugepool_range *range, const char *name)
{
	const uint32_t uids[] = {UID_B};
	struct hugepool_share_options options = HUGEPOOL_SHARE_OPTIONS_INIT;

	options.uids = uids;
	options.nr_uids = 1;
	options.flags = HUGEPOOL_READ_ONLY;
	return hugepool_share(pool, range, name, &options);
}

static int do_attach(struct hugepool *pool, struct hugepool_range *range, const char *name)
{
	return hugepool_attach(pool, name, NULL, range);
}

static int do_attach_to_read(struct hugepool *pool, struct hugepool_range *range, const char *name)
{
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;

	options.flags = HUGEPOOL_READ_ONLY;
	return hugepool_attach(pool, name, &options, range);
}

static int do_detach(struct hugepool *pool, struct hugepool_range *range, const char *unused)
{
	(void)unused;
	return hugepool_detach(pool, range);
}

static struct client *publisher(struct many *f, uid_t uid, uint64_t bytes)
{
	struct client *client = many_start(f, uid);

	assert_int_equal(client_take(client, 0, "small", bytes, HUGEPOOL_SHAREABLE, NULL), 0);
	assert_true(client_is_zero(client, 0));
	client_fill(client, 0, SEED);
	return client;
}

/* Waits until the admin's list says that so many are attached; 0: until it is gone. */
static void wait_until_attached(struct many *f, const char *name, unsigned n)
{
	char text[128];
	bool there = !n;

	snprintf(text, sizeof(text), n ? "as %s, %u attached" : "as %s,", name, n);
	for (int i = 0; i < WAIT_TRIES && there == !n; i++) {
		assert_int_equal(many_ctl(f, "--admin leases"), 0);
		there = strstr(f->text, text);
		if (there == !n)
			poll(NULL, 0, 5);
	}
	if (there == !n)
		fail_msg("\"%s\": %s", text, f->text);
}

/* --- readers ---------------------------------------------------------------------------------- */

#define REFUSED(call, error)                                                                  \
	do {                                                                                  \
		errno = 0;                                                                    \
		if ((call) != -1 || ((error) && errno != (error))) {                          \
			fprintf(stderr, "%s: %s\n", #call, errno ? strerror(errno) : "done"); \
			return -1;                                                            \
		}                                                                             \
	} while (0)

#define MAP(prot, flags, fd) (mmap(NULL, 2 * MIB, prot, flags, fd, 0) == MAP_FAILED ? -1 : 0)

static int attack_descriptor(int fd)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	REFUSED(open(path, O_RDWR), EACCES);
	REFUSED(open(path, O_WRONLY), EACCES);
	REFUSED(open(path, O_RDWR | O_TRUNC), EACCES);
	REFUSED(ftruncate(fd, 0), EINVAL);
	REFUSED(truncate(path, 0), EACCES);
	REFUSED(fallocate(fd, 0, 0, (off_t)(16 * MIB)), EBADF);
	REFUSED(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(2 * MIB)),
		EBADF);
	REFUSED(fchmod(fd, 0666), EPERM);
	REFUSED(fchown(fd, UID_B, UID_B), EPERM);
	REFUSED(write(fd, "x", 1), EBADF);
	REFUSED(MAP(PROT_READ | PROT_WRITE, MAP_SHARED, fd), EACCES);
	REFUSED(MAP(PROT_WRITE, MAP_SHARED, fd), EACCES);
	/* Asked for another access, the kernel says yes and does nothing. */
	(void)fcntl(fd, F_SETFL, O_RDWR);
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || fstat(fd, &st) ||
	    st.st_size != (off_t)BLOCK_BYTES)
		return -1;
	return 0;
}

static int attack_mapping(void *address)
{
	int memory = open("/proc/self/mem", O_RDWR);

	REFUSED(mprotect(address, 2 * MIB, PROT_READ | PROT_WRITE), EACCES);
	REFUSED(mprotect(address, 2 * MIB, PROT_WRITE), EACCES);
	REFUSED(madvise(address, 2 * MIB, MADV_POPULATE_WRITE), 0);
	REFUSED(madvise(address, 2 * MIB, MADV_REMOVE), EACCES);
	if (memory >= 0)
		REFUSED(pwrite(memory, "x", 1, (off_t)(uintptr_t)address), 0);
	close(memory);
	return 0;
}

/* With a handle of its own, that keeps descriptors. text: "SOCKET NAME". */
static int attack_as_reader(struct hugepool *unused, struct hugepool_range *range, const char *text)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_attach_options how = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool *pool = NULL;
	struct hugepool_range again;
	char socket[100], name[32];
	uint64_t offset;
	int fd, r;

	(void)unused;
	if (sscanf(text, "%99s %31s", socket, name) != 2)
		return -1;
	options.socket = socket;
	options.flags = HUGEPOOL_KEEP_FDS;
	how.flags = HUGEPOOL_READ_ONLY;
	r = hugepool_open(&pool, &options);
	if (r == 0)
		r = hugepool_attach(pool, name, &how, &again);
	fd = r ? r : hugepool_range_fd(pool, &again, &offset);
	if (fd < 0)
		return fd;
	r = attack_descriptor(fd);
	if (r == 0)
		r = attack_mapping(range->address);
	hugepool_close(pool);
	return r;
}

static void test_a_reader_reads(void **state)
{
	struct many *f = *state;
	struct client *a = publisher(f, UID_A, 6 * MIB), *b = many_start(f, UID_B);
	struct client *c = many_start(f, UID_C);
	char text[160];

	assert_int_equal(client_run(a, 0, do_publish_for_b, "tables"), 0);
	assert_int_equal(client_run(b, 0, do_attach_to_read, "tables"), 0);
	assert_true(client_is_filled(b, 0, SEED));
	assert_int_equal(client_run(b, 1, do_attach_to_read, "tables"), -EBUSY);
	assert_int_equal(client_run(c, 0, do_attach_to_read, "tables"), -ENOENT);
	snprintf(text, sizeof(text), "%s tables", f->program->socket);
	assert_int_equal(client_run(b, 0, attack_as_reader, text), 0);
	assert_true(client_is_filled(a, 0, SEED));
	assert_true(client_is_filled(b, 0, SEED));
	/* what is written is seen */
	client_fill(a, 0, SEED + 1);
	assert_true(client_is_filled(b, 0, SEED + 1));

	assert_int_equal(client_run(b, 0, do_detach, ""), 0);
	assert_int_equal(client_run(b, 0, do_detach, ""), -EINVAL);
	assert_int_equal(client_run(b, 0, do_attach, "tables"), -EACCES);
	assert_int_equal(client_give(a, 0), -EINVAL); /* by detaching only */
	assert_int_equal(client_run(a, 0, do_detach, ""), 0);
	assert_int_equal(client_run(b, 0, do_attach_to_read, "tables"), -ENOENT);
	many_wait_for_clean(f, PAGES);
	client_free(a);
	client_free(b);
	client_free(c);
}

static void test_writers_write(void **state)
{
	struct many *f = *state;
	struct client *a = publisher(f, UID_A, 20 * MIB), *b = many_start(f, UID_B);

	assert_int_equal(client_run(a, 0, do_publish, "both"), 0);
	assert_int_equal(client_run(b, 0, do_attach, "both"), 0);
	assert_true(client_is_filled(b, 0, SEED));
	client_fill(b, 0, 99);
	assert_true(client_is_filled(a, 0, 99));
	client_free(a); /* a goodbye; the other one goes on */
	assert_true(client_is_filled(b, 0, 99));
	client_fill(b, 0, 98);
	assert_true(client_is_filled(b, 0, 98));
	client_free(b);
}

/* --- who dies --------------------------------------------------------------------------------- */

static void test_the_publisher_is_killed(void **state)
{
	struct many *f = *state;
	struct client *a = publisher(f, UID_A, 10 * MIB), *b = many_start(f, UID_B);
	struct client *c = many_start(f, UID_C), *noise;

	assert_int_equal(client_run(a, 0, do_publish, "heir"), 0);
	assert_int_equal(client_run(b, 0, do_attach_to_read, "heir"), 0);
	client_kill(a);
	client_free(a);
	wait_until_attached(f, "heir", 1);
	/* charged to who has published it, two blocks, though nobody of it is there */
	assert_int_equal(many_tenant(f, "sure").held, 2);
	assert_int_equal(many_tenant(f, "sure").leased, 5);
	/* others take what there is: none of it is in these blocks */
	noise = many_start(f, 54399);
	many_take(noise, 0, 96 * MIB);
	client_fill(noise, 0, 1);
	assert_true(client_is_filled(b, 0, SEED));
	client_free(noise);
	/* still published: whoever comes now gets the same */
	assert_int_equal(client_run(c, 0, do_attach, "heir"), 0);
	assert_true(client_is_filled(c, 0, SEED));
	client_kill(b);
	client_free(b);
	wait_until_attached(f, "heir", 1);
	assert_true(client_is_filled(c, 0, SEED));
	client_kill(c);
	client_free(c);
	many_wait_for_clean(f, PAGES);
	assert_int_equal(many_tenant(f, "sure").held, 0);
}

static void test_a_broken_reader(void **state)
{
	struct many *f = *state;
	struct client *a = publisher(f, UID_A, 2 * MIB), *b = many_start(f, UID_B);

	assert_int_equal(client_run(a, 0, do_publish, "broken"), 0);
	assert_int_equal(client_run(b, 0, do_attach_to_read, "broken"), 0);
	client_break(b); /* it lives and reads on */
	client_free(a);
	wait_until_attached(f, "broken", 1);
	assert_true(client_is_filled(b, 0, SEED));
	assert_int_equal(many_tenant(f, "sure").held, 1);
	client_kill(b);
	client_free(b);
	wait_until_attached(f, "broken", 0);
	many_wait_for_clean(f, PAGES);
}

/* --- coming and going ------------------------------------------------------------------------- */

#define ROUNDS 60

static void fill(const struct hugepool_range *range, uint64_t seed)
{
	for (uint64_t at = 0; at < range->bytes; at += 4096)
		*(volatile uint64_t *)((char *)range->address + at) = seed + at;
}

static int publish_over_and_over(struct hugepool *pool, struct hugepool_range *range,
				 const char *name)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	int r = 0;

	request.bytes = 2 * MIB;
	request.flags = HUGEPOOL_SHAREABLE;
	request.deadline_ms = 20000;
	for (uint64_t i = 1; i <= ROUNDS && r == 0; i++) {
		r = hugepool_alloc(pool, &request, range);
		if (r)
			break;
		fill(range, i << 32);
		/* The name is in use for as long as anybody has the one before. */
		for (int tries = 0; tries < 20000; tries++) {
			r = hugepool_share(pool, range, name, NULL);
			if (r != -EBUSY)
				break;
			poll(NULL, 0, 1);
		}
		if (i % 4 == 0)
			poll(NULL, 0, 1);
		if (r == 0)
			r = hugepool_detach(pool, range);
	}
	return r;
}

/* Whatever was attached is whole, and of the publisher's. Return: how often, or -errno. */
static int attach_over_and_over(struct hugepool *pool, struct hugepool_range *range,
				const char *name)
{
	int hits = 0;

	for (int misses = 0; misses < 4000;) {
		int r = hugepool_attach(pool, name, NULL, range);

		if (r == -ENOENT) {
			misses++;
			poll(NULL, 0, 1);
			continue;
		}
		if (r)
			return r;
		for (uint64_t at = 0; at < range->bytes; at += 4096) {
			uint64_t first = *(volatile uint64_t *)range->address;
			uint64_t word = *(volatile uint64_t *)((char *)range->address + at);

			if (word != first + at || first >> 32 < 1 || first >> 32 > ROUNDS)
				return -EILSEQ;
		}
		r = hugepool_detach(pool, range);
		if (r)
			return r;
		if (++hits == ROUNDS / 2)
			break;
	}
	return hits;
}

static void test_names_that_go_away(void **state)
{
	struct many *f = *state;
	struct client *a = many_start(f, UID_A), *b = many_start(f, UID_B);
	struct client *c = many_start(f, UID_C);
	int hits, r = -EDQUOT;

	client_begin_run(b, 0, attach_over_and_over, "fleeting");
	client_begin_run(c, 0, attach_over_and_over, "fleeting");
	assert_int_equal(client_run(a, 0, publish_over_and_over, "fleeting"), 0);
	/* the last one stays until they have seen enough; those before may be on their way back */
	for (int i = 0; i < 4000 && r; i++) {
		r = client_take(a, 0, "small", 2 * MIB, HUGEPOOL_SHAREABLE, NULL);
		if (r)
			poll(NULL, 0, 5);
	}
	assert_int_equal(r, 0);
	assert_int_equal(client_run(a, 0, do_publish, "other"), 0);
	client_free(a);
	a = many_start(f, UID_A);
	client_begin_run(a, 0, publish_over_and_over, "fleeting");
	hits = client_end_run(b);
	if (hits < 0)
		fail_msg("%s", strerror(-hits));
	hits = client_end_run(c);
	if (hits < 0)
		fail_msg("%s", strerror(-hits));
	assert_int_equal(client_end_run(a), 0);
	client_free(a);
	client_free(b);
	client_free(c);
}

static void test_limits(void **state)
{
	struct many *f = *state;
	struct client *a = many_start(f, UID_A), *b = many_start(f, UID_B);
	size_t n = 0;

	/* eight blocks, of which a page each is enough */
	while (client_take(a, n, "small", 2 * MIB, HUGEPOOL_SHAREABLE, NULL) == 0)
		n++;
	assert_int_equal(n, 8);
	assert_int_equal(client_take(a, n, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(client_run(a, 2, do_publish, "limit"), 0);
	assert_int_equal(client_run(b, 0, do_attach, "limit"), 0);
	/* what the reader has counts for the publisher, and for nobody else */
	assert_int_equal(many_tenant(f, "sure").held, 8);
	assert_int_equal(many_tenant(f, "uid:54322").held, 0);
	assert_int_equal(client_run(a, 2, do_detach, ""), 0);
	assert_int_equal(client_take(a, n, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(many_take_all(b, BLOCK_BYTES, -ENOMEM), 8); /* others have all the rest */
	client_free(a);
	client_free(b);
}

/* --- the operator ----------------------------------------------------------------------------- */

struct tool {
	pid_t pid;
	int output;
};

/* Runs hugepoolctl until it has said what it holds; it is in f->text. */
static struct tool start_tool(struct many *f, const char *const *arguments)
{
	const char *line[12] = {hugepoolctl, "--socket", f->program->socket};
	struct tool tool;
	size_t used = 0;
	int ends[2];

	for (size_t i = 0; arguments[i]; i++)
		line[3 + i] = arguments[i];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	tool.pid = fork();
	if (tool.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execv(hugepoolctl, (char *const *)(uintptr_t)line);
		_exit(127);
	}
	close(ends[1]);
	tool.output = ends[0];
	do {
		ssize_t n = read(ends[0], f->text + used, sizeof(f->text) - 1 - used);

		if (n <= 0)
			break;
		used += (size_t)n;
		f->text[used] = 0;
	} while (!strstr(f->text, "shared as"));
	f->text[used] = 0;
	return tool;
}

static void end_tool(struct tool tool, int expected)
{
	int status;

	kill(tool.pid, SIGINT);
	assert_int_equal(waitpid(tool.pid, &status, 0), tool.pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), expected);
	close(tool.output);
}

static void test_by_hand(void **state)
{
	struct many *f = *state;
	const char *share[] = {"share", "8M", "by-hand", "--read-only", "--for", "54322", NULL};
	const char *attach[] = {"attach", "by-hand", "--read-only", "--tenant", "uid:0", NULL};
	const char *write[] = {"attach", "by-hand", NULL}, *none[] = {"attach", "none", NULL};
	struct client *b = many_start(f, UID_B);
	struct tool first, second, third;

	first = start_tool(f, share);
	assert_non_null(strstr(f->text, "8 MiB at "));
	assert_non_null(strstr(f->text, "shared as by-hand, to read only"));
	assert_int_equal(client_run(b, 0, do_attach_to_read, "by-hand"), 0);
	assert_true(client_is_zero(b, 0));
	second = start_tool(f, attach);
	assert_non_null(strstr(f->text, "shared as by-hand"));
	MANY_CTL(f, 0, "shared", "--admin leases");
	assert_non_null(strstr(f->text, "as by-hand, 3 attached, 2 of them to read only"));
	MANY_CTL(f, 0, "\"share\": \"by-hand\"", "--admin leases --json");
	MANY_CTL(f, 0, "SHARES", "--admin tenants");
	assert_non_null(strstr(f->text, "uid:0"));
	third = start_tool(f, write);
	assert_non_null(strstr(f->text, "to read only"));
	end_tool(third, 1);
	third = start_tool(f, none);
	assert_non_null(strstr(f->text, "nothing of that name"));
	end_tool(third, 1);
	end_tool(first, 0);
	wait_until_attached(f, "by-hand", 2);
	end_tool(second, 0);
	assert_int_equal(client_run(b, 0, do_detach, ""), 0);
	client_free(b);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, many_setup, many_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_a_reader_reads),
		TEST(test_writers_write),
		TEST(test_the_publisher_is_killed),
		TEST(test_a_broken_reader),
		TEST(test_names_that_go_away),
		TEST(test_limits),
		TEST(test_by_hand),
	};
	int rc = many_main(argc, argv);

	if (rc)
		return rc;
	hugepoolctl = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
