/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that is killed and started again at once. Beside the benchmark stands a janitor, which waits
 * for the end of it, however it comes, and takes down what it has set up.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/recovery-cases.h"

#define PAGE_BYTES    (UINT64_C(2) << 20)
#define BLOCK_BYTES   (UINT64_C(64) << 20)
#define ZONE_BYTES    (UINT64_C(4) << 30)
#define SPARE_BYTES   (UINT64_C(2) << 30) /* of the machine's memory, left to the others */
#define SESSIONS      1000
#define RESTARTS      7
#define SESSION_PAGES 2
#define WAIT_NS	      UINT64_C(60000000000)

static struct {
	char directory[40], config[56], socket[56], log[56];
	uint64_t zone_bytes;
	pid_t daemon, fds, janitor;
	int janitor_pipe;
} stage;

static void sleep_us(long us)
{
	const struct timespec t = {.tv_nsec = us * 1000};

	nanosleep(&t, NULL);
}

static pid_t spawn(const char *const *argv)
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!freopen(stage.log, "a", stdout) || !freopen(stage.log, "a", stderr))
		_exit(97);
	execv(argv[0], (char *const *)argv);
	_exit(98);
}

static int setup(const char *first, const char *second)
{
	const char *const argv[] = {BENCH_SETUP, "--config", stage.config, first, second, NULL};
	int status;

	waitpid(spawn(argv), &status, 0);
	return status;
}

static void start_daemon(void)
{
	const char *const argv[] = {BENCH_HUGEPOOLD, "--config", stage.config, NULL};

	stage.daemon = spawn(argv);
}

/* The janitor: at the end of the benchmark, and of its children with it. */
static void wait_and_clean(int end_of_pipe)
{
	char command[128], byte;

	setsid();
	while (read(end_of_pipe, &byte, 1) < 0 && errno == EINTR)
		;
	for (int i = 0; i < 100 && setup("--force", "down"); i++)
		sleep_us(50000);
	snprintf(command, sizeof(command), "rm -rf %s", stage.directory);
	_exit(system(command) != 0);
}

static void start_janitor(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		bench_die("pipe: %s", strerror(errno));
	stage.janitor = fork();
	if (stage.janitor == 0) {
		close(ends[1]);
		wait_and_clean(ends[0]);
	}
	close(ends[0]);
	stage.janitor_pipe = ends[1];
}

static void write_config(void)
{
	FILE *file = fopen(stage.config, "w");

	if (!file)
		bench_die("%s: %s", stage.config, strerror(errno));
	fprintf(file,
		"[daemon]\nsocket = %s\nadmin-socket = %s/admin\nsetup-socket = %s/setup\n"
		"namespace = %s/run/ns\nstate = %s/state\n[zone small]\npage-size = 2M\n"
		"block-size = 64M\nsize = %lluM\ngrow-nr-hugepages = yes\nclean-low = 0\n"
		"[default]\nsessions = 1100\nlimit.small = %llu\n",
		stage.socket, stage.directory, stage.directory, stage.directory, stage.directory,
		(unsigned long long)stage.zone_bytes >> 20,
		(unsigned long long)(stage.zone_bytes / BLOCK_BYTES));
	if (fclose(file))
		bench_die("%s: %s", stage.config, strerror(errno));
}

static void wait_for_file(const char *name)
{
	uint64_t until = bench_now_ns() + WAIT_NS;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", stage.directory, name);
	while (access(path, F_OK)) {
		if (bench_now_ns() > until)
			bench_die("no %s", path);
		sleep_us(1000);
	}
}

/* Return: false, with a remark: it cannot be set up here. */
static bool stage_begin(struct bench *bench, uint64_t bytes)
{
	const char *const fds[] = {BENCH_SETUP, "--config", stage.config, "fds", NULL};
	struct rlimit files = {.rlim_cur = 8192, .rlim_max = 8192};
	struct sysinfo info;

	if (geteuid() != 0 || sysinfo(&info)) {
		bench_note(bench, "left out: needs root");
		return false;
	}
	(void)setrlimit(RLIMIT_NOFILE, &files);
	stage.zone_bytes = bytes;
	while (stage.zone_bytes > BLOCK_BYTES &&
	       stage.zone_bytes + SPARE_BYTES > info.freeram * info.mem_unit)
		stage.zone_bytes /= 2;
	snprintf(stage.directory, sizeof(stage.directory), "/tmp/bench-recovery-XXXXXX");
	if (!mkdtemp(stage.directory))
		bench_die("mkdtemp: %s", strerror(errno));
	snprintf(stage.config, sizeof(stage.config), "%s/conf", stage.directory);
	snprintf(stage.socket, sizeof(stage.socket), "%s/sock", stage.directory);
	snprintf(stage.log, sizeof(stage.log), "%s/log", stage.directory);
	write_config();
	start_janitor();
	if (setup("up", NULL)) {
		bench_note(bench, "left out: no huge pages for a set-up of its own");
		return false;
	}
	stage.fds = spawn(fds);
	wait_for_file("setup");
	start_daemon();
	return true;
}

static void end_child(pid_t *pid, int number)
{
	if (*pid <= 0)
		return;
	kill(*pid, number);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

static void stage_end(void)
{
	end_child(&stage.daemon, SIGTERM);
	end_child(&stage.fds, SIGTERM);
	close(stage.janitor_pipe);
	waitpid(stage.janitor, NULL, 0);
	memset(&stage, 0, sizeof(stage));
}

static struct hugepool *open_pool(void)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	uint64_t until = bench_now_ns() + WAIT_NS;
	struct hugepool *pool;
	int r;

	options.socket = stage.socket;
	while ((r = hugepool_open(&pool, &options)) < 0) {
		if (bench_now_ns() > until)
			bench_die("hugepool_open: %s", strerror(-r));
		sleep_us(1000);
	}
	return pool;
}

static struct hugepool_range take(struct hugepool *pool, uint64_t pages)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;
	int r;

	request.bytes = pages * PAGE_BYTES;
	request.deadline_ms = 60000;
	r = hugepool_alloc(pool, &request, &range);
	if (r < 0)
		bench_die("hugepool_alloc: %s", strerror(-r));
	return range;
}

/* --- restart ---------------------------------------------------------------------------------- */

/* Does somebody listen? */
static bool is_served(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	memcpy(address.sun_path, stage.socket, sizeof(stage.socket));
	r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return r == 0;
}

/* The last figure of this name in the daemon's log. */
static double last_in_log(const char *name)
{
	static char line[1024];
	FILE *log = fopen(stage.log, "r");
	double value = 0;
	const char *at;

	while (log && fgets(line, sizeof(line), log)) {
		at = strstr(line, name);
		if (at)
			value = strtod(at + strlen(name), NULL);
	}
	if (log)
		fclose(log);
	return value;
}

/* ms from exec to the first reply to a client that was resumed. */
static double restart_once(struct hugepool *pool)
{
	struct hugepool_stats stats = {.size = sizeof(stats)};
	uint64_t began;
	int r;

	end_child(&stage.daemon, SIGKILL);
	began = bench_now_ns();
	start_daemon();
	while (!is_served())
		sleep_us(200);
	r = hugepool_stats(pool, &stats);
	if (r < 0)
		bench_die("hugepool_stats after the restart: %s", strerror(-r));
	return (double)(bench_now_ns() - began) / 1e6;
}

void case_restart(struct bench *bench)
{
	static struct hugepool *pools[SESSIONS];
	unsigned sessions = bench_quick(bench) ? SESSIONS / 4 : SESSIONS;
	double whole[RESTARTS], opening[RESTARTS];
	struct bench_row row = {.name = "restart",
				.variant = "product",
				.threads = 1,
				.unit = "ms",
				.block_order = 5,
				.kind = BENCH_COST};
	uint64_t left;

	if (!stage_begin(bench, ZONE_BYTES))
		goto end;
	row.pages = (uint32_t)(stage.zone_bytes / PAGE_BYTES);
	if (row.pages < sessions * SESSION_PAGES)
		sessions = row.pages / SESSION_PAGES;
	for (unsigned i = 0; i < sessions; i++) {
		pools[i] = open_pool();
		(void)take(pools[i], SESSION_PAGES);
	}
	for (left = row.pages - sessions * SESSION_PAGES; left; left--)
		(void)take(pools[0], 1);
	for (unsigned i = 0; i < RESTARTS; i++) {
		struct hugepool_stats stats = {.size = sizeof(stats)};

		whole[i] = restart_once(pools[i]);
		opening[i] = last_in_log("opening_us=") / 1e3;
		whole[i] -= opening[i];
		for (unsigned p = 0; p < sessions; p++) /* all are back before the next kill */
			if (hugepool_stats(pools[p], &stats) < 0)
				bench_die("session %u did not come back", p);
	}
	row.value = bench_median(whole, RESTARTS);
	bench_report(bench, &row);
	row.variant = "kernel-opening-files";
	row.value = bench_median(opening, RESTARTS);
	bench_report(bench, &row);
	bench_note(bench, "restart: %u sessions", sessions);
	for (unsigned i = 0; i < sessions; i++)
		pools[i] = hugepool_close(pools[i]);
end:
	stage_end();
}

/* --- gap -------------------------------------------------------------------------------------- */

void case_gap(struct bench *bench)
{
	unsigned kills = bench_quick(bench) ? 5 : 21;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	double longest[64];
	struct hugepool *pool;

	if (!stage_begin(bench, UINT64_C(512) << 20))
		goto end;
	pool = open_pool();
	(void)take(pool, 8);
	request.bytes = PAGE_BYTES;
	request.deadline_ms = 60000;
	for (unsigned i = 0; i < kills; i++) {
		pid_t supervisor;
		uint64_t until;

		longest[i] = 0;
		kill(stage.daemon, SIGKILL);
		supervisor = stage.daemon;
		until = bench_now_ns() + UINT64_C(500000000);
		while (bench_now_ns() < until) {
			uint64_t began;
			struct hugepool_range range;
			int r;

			if (supervisor && waitpid(supervisor, NULL, WNOHANG) == supervisor) {
				supervisor = 0;
				start_daemon();
			}
			if (supervisor)
				continue;
			began = bench_now_ns();
			r = hugepool_alloc(pool, &request, &range);
			if (r == 0)
				r = hugepool_free(pool, &range);
			if (r < 0)
				bench_die("a call failed: %s", strerror(-r));
			if ((double)(bench_now_ns() - began) / 1e6 > longest[i])
				longest[i] = (double)(bench_now_ns() - began) / 1e6;
		}
	}
	bench_report(bench, &(struct bench_row){.name = "gap",
						.variant = "product",
						.pages = (uint32_t)(stage.zone_bytes / PAGE_BYTES),
						.block_order = 5,
						.threads = 1,
						.unit = "ms",
						.value = bench_median(longest, kills),
						.kind = BENCH_COST});
	hugepool_close(pool);
end:
	stage_end();
}
