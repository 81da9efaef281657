/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: exit statuses, the right to its sockets, running out of descriptors, and that nothing
 * is left when it ends.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"

#define ZONE "[zone small]\npage-size = 64K\nblock-size = 1M\nsize = 4M\nbacking = shmem\n"

static const char *executable;

static int setup(void **state)
{
	*state = program_new(executable, ZONE);
	return 0;
}

static int teardown(void **state)
{
	program_free(*state);
	return 0;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void expect_nothing_left(const struct program *program)
{
	char run[96];

	snprintf(run, sizeof(run), "%s/run", program->directory);
	assert_false(exists(run));
}

/* --- options and configuration ---------------------------------------------------------------- */

static void test_usage(void **state)
{
	struct program *program = *state;

	assert_int_equal(program_run(program, (const char *[]){"--nonsense", NULL}), 2);
	assert_int_equal(program_run(program, (const char *[]){"--config", NULL}), 2);
	assert_int_equal(program_run(program, (const char *[]){"extra", NULL}), 2);
	assert_true(program_log_has(program, "extra"));
	assert_int_equal(program_run(program, (const char *[]){"--help", NULL}), 0);
	assert_true(program_log_has(program, "Usage"));
	assert_int_equal(program_run(program, (const char *[]){"--version", NULL}), 0);
	assert_true(program_log_has(program, HUGEPOOL_VERSION));
}

static void test_configuration_mistakes(void **state)
{
	static const struct {
		const char *config, *place; /* line 7 is the first behind the common ones */
	} cases[] = {
		{"nonsense\n", "conf:7: "},
		{"[nonsense]\n", "conf:7: "},
		{"colour = blue\n", "conf:7: "},
		{"workers = 0\n", "conf:7: "},
		{"workers = many\n", "conf:7: "},
		{"socket-group = nobody-has-this-group\n", "conf:7: "},
		{"", "conf: "}, /* no zone at all */
		{"[zone small]\npage-size = 64K\nblock-size = 96K\nsize = 4M\nbacking = shmem\n",
		 "conf:9: "},
		{"[zone small]\npage-size = 64K\nblock-size = 1M\nbacking = shmem\n", "conf:7: "},
		{"[zone small]\npage-size = 64K\nblock-size = 1M\nsize = 4097K\nbacking = shmem\n",
		 "conf:10: "},
		{"[zone small]\npage-size = 64K\nblock-size = 64K\nsize = 1G\nbacking = shmem\n",
		 "conf:10: "}, /* more than 1024 blocks */
		{ZONE "clean-low = 5\n", "conf:12: "},
		{ZONE "[tenant a]\nuid = 1\nlimit.small = 1\nguarantee.small = 2\n", "conf:15: "},
		{ZONE "[tenant a]\nuid = 1\nlimit.large = 1\n", "conf:14: "},
		{ZONE "[tenant a]\nlimit.small = 1\n", "conf:12: "},
	};
	struct program *program = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *check[] = {"--config", program->config, "--check-config", NULL};
		const char *run[] = {"--config", program->config, NULL};

		program_write_config(program, cases[i].config);
		for (int j = 0; j < 2; j++) {
			int status = program_run(program, j ? run : check);

			if (status != 78 || !program_log_has(program, cases[i].place))
				fail_msg("exit status %d, and %s expected of:\n%s", status,
					 cases[i].place, cases[i].config);
		}
		expect_nothing_left(program);
	}
	assert_int_equal(
		program_run(program, (const char *[]){"--config", "/nonexistent/conf", NULL}), 78);
	program_write_config(program, ZONE);
	assert_int_equal(program_run(program, (const char *[]){"--check-config", "--config",
							       program->config, NULL}),
			 0);
	expect_nothing_left(program);
}

/* --- sockets ---------------------------------------------------------------------------------- */

static void test_sockets_and_their_end(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT};
	struct program *program = *state;
	const Hugepool__V1__Error *error;
	struct stat st;

	for (size_t i = 0; i < 2; i++) {
		struct peer *peer;

		program_start(program);
		assert_int_equal(stat(program->socket, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0666);
		assert_int_equal(stat(program->admin_socket, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		peer = peer_connect(program->socket);
		peer_hello(peer);
		assert_int_equal(program_end(program, signals[i]), 0);
		error = peer_expect(peer, TYPE(ERROR), 0);
		assert_int_equal(error->code, CODE(SHUTTING_DOWN));
		peer_expect_end(peer);
		peer_free(peer);
		expect_nothing_left(program);
	}
}

/* A set-up that takes for ever, and ends when the daemon lets go of it. */
static void test_stopped_while_starting(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT};
	struct program *program = *state;
	char setup_path[96];
	FILE *file;

	if (geteuid() != 0)
		skip(); /* only root may do with a guard of its own */
	snprintf(setup_path, sizeof(setup_path), "%s/setup", program->directory);
	file = fopen(setup_path, "we");
	assert_non_null(file);
	fputs("#!/bin/sh\necho the guard is here\nexec cat >/dev/null\n", file);
	fclose(file);
	assert_int_equal(chmod(setup_path, 0755), 0);
	assert_int_equal(setenv("HUGEPOOL_SETUP", setup_path, true), 0);
	program_write_config(program, "[zone huge]\npage-size = 2M\nblock-size = 2M\n"
				      "size = 4M\n");
	for (size_t i = 0; i < 2; i++) {
		program_spawn(program);
		for (int j = 0; j < 2000 && !program_log_has(program, "the guard is here"); j++)
			usleep(5000);
		assert_true(exists(program->socket));
		assert_int_equal(program_end(program, signals[i]), 0);
		assert_true(program_log_has(program, "stopped"));
		expect_nothing_left(program);
	}
	assert_int_equal(unsetenv("HUGEPOOL_SETUP"), 0);
	assert_int_equal(unlink(setup_path), 0);
}

/* A lease that somebody breaks is told by SIGIO. */
static void test_signals_that_do_not_end_it(void **state)
{
	static const int signals[] = {SIGIO, SIGPIPE, SIGHUP};
	struct program *program = *state;

	program_start(program);
	for (size_t i = 0; i < 3; i++) {
		struct peer *peer;

		assert_int_equal(kill(program->pid, signals[i]), 0);
		peer = peer_connect(program->socket);
		peer_hello(peer);
		peer_free(peer);
	}
	assert_int_equal(program_end(program, SIGTERM), 0);
}

/* Whoever looks at all workers does not notice that some have been stopped already. */
static void test_lists_until_the_end(void **state)
{
	enum { ROUNDS = 5, PEERS = 40, REQUESTS = 100 };
	struct program *program = *state;
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;

	program_write_config(program, "workers = 4\n" ZONE);
	list.what = WHAT(CACHES);
	for (int i = 0; i < ROUNDS; i++) {
		struct peer *peers[PEERS];

		program_start(program);
		for (int j = 0; j < PEERS; j++) {
			peers[j] = peer_connect(program->socket);
			peer_hello(peers[j]);
		}
		for (int j = 0; j < PEERS * REQUESTS; j++)
			peer_send(peers[j % PEERS], TYPE(LIST), 1, &list.base);
		assert_int_equal(program_end(program, SIGTERM), 0);
		for (int j = 0; j < PEERS; j++)
			peer_free(peers[j]);
		expect_nothing_left(program);
	}
}

static void test_socket_in_use(void **state)
{
	struct program *program = *state, *second = program_new(executable, ZONE);
	struct peer *peer;
	char pid[32];

	program_start(program);
	snprintf(pid, sizeof(pid), "pid=%d", (int)program->pid);
	strcpy(second->config, program->config);
	program_start(second);
	assert_int_equal(second->pid, 0);
	assert_true(program_log_has(second, "in use"));
	assert_true(program_log_has(second, program->socket));
	assert_true(program_log_has(second, pid));
	/* the first one notices nothing */
	peer = peer_connect(program->socket);
	peer_hello(peer);
	peer_free(peer);
	assert_int_equal(program_end(program, SIGTERM), 0);
	snprintf(second->config, sizeof(second->config), "%s/conf", second->directory);
	program_free(second);
}

/* Whoever listens there may know nothing of locks. */
static void test_socket_of_a_stranger(void **state)
{
	struct program *program = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char run[96], pid[32];

	snprintf(run, sizeof(run), "%s/run", program->directory);
	assert_int_equal(mkdir(run, 0755), 0);
	strcpy(address.sun_path, program->socket);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	program_start(program);
	assert_int_equal(program->pid, 0);
	snprintf(pid, sizeof(pid), "pid=%d", (int)getpid());
	assert_true(program_log_has(program, "in use"));
	assert_true(program_log_has(program, pid));

	/* dead, it is taken over */
	close(fd);
	assert_true(exists(program->socket));
	program_start(program);
	assert_true(program->pid > 0);
	assert_true(program_log_has(program, "taken over"));
	assert_int_equal(program_end(program, SIGTERM), 0);
	assert_false(exists(program->socket));
	assert_int_equal(rmdir(run), 0); /* we made it, so it was left */
}

static void test_something_else_at_the_path(void **state)
{
	struct program *program = *state;
	char run[96];
	FILE *file;

	snprintf(run, sizeof(run), "%s/run", program->directory);
	assert_int_equal(mkdir(run, 0755), 0);
	file = fopen(program->socket, "we");
	assert_non_null(file);
	fputs("precious", file);
	fclose(file);
	program_start(program);
	assert_int_equal(program->pid, 0);
	assert_true(program_log_has(program, "something else"));
	assert_true(exists(program->socket));
	assert_int_equal(unlink(program->socket), 0);
	assert_int_equal(rmdir(run), 0);
}

static void test_killed_and_started_again(void **state)
{
	struct program *program = *state;
	struct peer *peer;

	program_start(program);
	assert_int_equal(program_end(program, SIGKILL), 128 + SIGKILL);
	assert_true(exists(program->socket));
	program_start(program);
	assert_true(program->pid > 0);
	peer = peer_connect(program->socket);
	peer_hello(peer);
	peer_free(peer);
	assert_int_equal(program_end(program, SIGTERM), 0);
	assert_false(exists(program->socket));
	/* the directory was there already the second time, so it stays */
	assert_int_equal(rmdir(strcat(strcpy((char[96]){0}, program->directory), "/run")), 0);
}

/* Of many that start at once over a stale socket exactly one gets it. */
static void test_start_at_once(void **state)
{
	enum { N = 6 };
	struct program *program = *state, *others[N];
	int running = 0;

	program_start(program);
	program_end(program, SIGKILL);
	for (int i = 0; i < N; i++) {
		others[i] = program_new(executable, ZONE);
		program_write_config(program, ZONE);
		strcpy(others[i]->config, program->config);
	}
	for (int i = 0; i < N; i++) {
		const char *argv[] = {executable, "--config", program->config, NULL};
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			if (!freopen(others[i]->log, "w", stderr))
				_exit(126);
			execv(executable, (char *const *)(uintptr_t)argv);
			_exit(127);
		}
		others[i]->pid = pid;
	}
	/* the losers end at once; the winner is the one that says READY */
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < 2000; j++) {
			if (program_log_has(others[i], "READY") ||
			    program_log_has(others[i], "in use"))
				break;
			usleep(5000);
		}
		running += program_log_has(others[i], "READY");
	}
	assert_int_equal(running, 1);
	for (int i = 0; i < N; i++) {
		if (program_log_has(others[i], "READY"))
			assert_int_equal(program_end(others[i], SIGTERM), 0);
		else
			assert_int_equal(program_wait(others[i]), 1);
		snprintf(others[i]->config, sizeof(others[i]->config), "%s/conf",
			 others[i]->directory);
		program_free(others[i]);
	}
	assert_int_equal(rmdir(strcat(strcpy((char[96]){0}, program->directory), "/run")), 0);
}

/* --- running out ------------------------------------------------------------------------------ */

static unsigned long cpu_ticks(pid_t pid)
{
	char path[64];
	unsigned long user, kernel;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu",
				&user, &kernel),
			 2);
	fclose(file);
	return user + kernel;
}

static void test_out_of_descriptors(void **state)
{
	enum { N = 64 };
	struct program *program = *state;
	const struct rlimit few = {60, 60};
	struct peer *peers[N];
	unsigned welcome = 0, refused = 0;
	unsigned long ticks;
	bool recovered = false;

	program_start(program);
	assert_int_equal(prlimit(program->pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (int i = 0; i < N; i++) {
		Hugepool__V1__Code code = 0;
		uint8_t type;

		peers[i] = peer_connect(program->socket);
		type = peer_try_hello(peers[i], &code);
		welcome += type == TYPE(WELCOME);
		refused += type == TYPE(ERROR) && code == CODE(INTERNAL);
	}
	assert_true(welcome > 5);
	assert_true(refused > 5);
	assert_int_equal(welcome + refused, N);
	/* those who are in are served, and the daemon rests */
	peer_send(peers[0], TYPE(STATS), 2, NULL);
	peer_expect(peers[0], TYPE(STATS_REPLY), 2);
	ticks = cpu_ticks(program->pid);
	usleep(500000);
	assert_true(cpu_ticks(program->pid) - ticks < (unsigned long)sysconf(_SC_CLK_TCK) / 10);
	for (int i = 0; i < N; i++)
		peer_free(peers[i]);
	for (int i = 0; i < 100 && !recovered; i++) { /* until the ends have been noticed */
		Hugepool__V1__Code code;
		struct peer *peer = peer_connect(program->socket);

		recovered = peer_try_hello(peer, &code) == TYPE(WELCOME);
		peer_free(peer);
		usleep(20000);
	}
	assert_true(recovered);
	assert_int_equal(program_end(program, SIGTERM), 0);
}

/* --- the log ---------------------------------------------------------------------------------- */

static unsigned count_lines(const struct program *program, const char *text)
{
	FILE *file = fopen(program->log, "re");
	char line[1024];
	unsigned n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, text) != NULL;
	fclose(file);
	return n;
}

/* What clients do wrong is counted always, and written down only so often. */
static void test_clients_do_not_fill_the_log(void **state)
{
	enum { N = 400 };
	static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 4, 0, 0, 0};
	struct program *program = *state;
	const Hugepool__V1__StatsReply *stats;
	struct peer *peer;
	time_t start = time(NULL), took;

	program_start(program);
	for (int i = 0; i < N; i++) {
		peer = peer_connect(program->socket);
		peer_send_bytes(peer, huge, sizeof(huge));
		peer_expect_end(peer);
		peer_free(peer);
	}
	peer = peer_connect(program->socket);
	peer_hello(peer);
	peer_send(peer, TYPE(STATS), 2, NULL);
	stats = peer_expect(peer, TYPE(STATS_REPLY), 2);
	assert_int_equal(stats->broken, N);
	peer_free(peer);
	took = time(NULL) - start;
	assert_true(count_lines(program, "session ended") >= 20);
	assert_true(count_lines(program, "session ended") <= 20 * (unsigned)(took + 2));
	assert_int_equal(program_end(program, SIGTERM), 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(usage),
		TEST(configuration_mistakes),
		TEST(sockets_and_their_end),
		TEST(stopped_while_starting),
		TEST(signals_that_do_not_end_it),
		TEST(lists_until_the_end),
		TEST(socket_in_use),
		TEST(socket_of_a_stranger),
		TEST(something_else_at_the_path),
		TEST(killed_and_started_again),
		TEST(start_at_once),
		TEST(out_of_descriptors),
		TEST(clients_do_not_fill_the_log),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s HUGEPOOLD\n", argv[0]);
		return 2;
	}
	executable = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
