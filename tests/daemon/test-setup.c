/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup on the machine's huge pages: up, fds, down, a daemon of another user without any
 * right that works on what it is handed, a guard that outlives its daemon, kills at every step. After
 * each test the machine's figures are as before.
 *
 * test-setup SETUP-PROGRAM SHIM, or, run by itself as a daemon: test-setup daemon MODE CONFIG
 */
#include "tests/daemon/pool-fixture.h"

#include "daemon/setup/directories.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE_UID 54321
#define OTHER_UID   54322
#define PAGE_BYTES  (UINT64_C(2) << 20)
#define BLOCK_PAGES 4
#define NR_BLOCKS   4
#define NR_PAGES    (BLOCK_PAGES * NR_BLOCKS)
#define NR_HELD	    24
#define STEPS_MAX   200
#ifdef __SANITIZE_ADDRESS__
#define STEP_STRIDE 3 /* the steps are those of the plain build, but take much longer */
#else
#define STEP_STRIDE 1
#endif
#define ACCEPTS_CONNECTIONS 0x10000 /* in /proc/net/unix: it is listened on */
#define FDS_STEPS	    4	    /* mkdir, bind, chmod, listen */
#define PAGES_LOCK	    "/run/hugepool-2048kB.lock"

static const char *setup_program, *shim;
static char directory[64], config_path[96], socket_path[96];

static const char config_text[] =
	"[daemon]\nnamespace = DIR/run/ns\nsetup-socket = DIR/setup.sock\nidle-delay = 0\n"
	"[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 32M\nmax-size = 64M\ngrow-nr-hugepages = yes\n"
	"clean-low = 0\n[default]\nlimit.small = 4\n";

/* --- processes -------------------------------------------------------------------------------- */

struct process {
	pid_t pid;
	FILE *output; /* its stdout and stderr */
};

/* What a failed test leaves behind must not outlive it: see kill_rest(). */
static pid_t running[16];

static void note_running(pid_t from, pid_t to)
{
	for (size_t i = 0; i < sizeof(running) / sizeof(running[0]); i++) {
		if (running[i] != from)
			continue;
		running[i] = to;
		return;
	}
}

static void kill_rest(void)
{
	for (size_t i = 0; i < sizeof(running) / sizeof(running[0]); i++) {
		if (!running[i])
			continue;
		kill(running[i], SIGKILL);
		waitpid(running[i], NULL, 0);
		running[i] = 0;
	}
}

/* Looking for leaks takes most of the time of a short run: hundreds of the same are not looked at. */
static bool many_runs;

/* env: NAME=VALUE or NULL. uid: whom to become. */
static struct process start(const char *env, uid_t uid, const char *const argv[])
{
	struct process process;
	int pipes[2];

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	process.pid = fork();
	assert_true(process.pid >= 0);
	if (process.pid == 0) {
		dup2(pipes[1], STDOUT_FILENO);
		dup2(pipes[1], STDERR_FILENO);
		if (env) {
			setenv("LD_PRELOAD", shim, 1);
			putenv(strdup(env));
		}
		if (env || many_runs)
			setenv("ASAN_OPTIONS",
			       many_runs ? "verify_asan_link_order=0:detect_leaks=0"
					 : "verify_asan_link_order=0",
			       1);
		if (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
			    setresuid(uid, uid, uid) < 0))
			_exit(99);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], (char *const *)argv);
		_exit(98);
	}
	note_running(0, process.pid);
	close(pipes[1]);
	process.output = fdopen(pipes[0], "r");
	assert_non_null(process.output);
	return process;
}

/* All that it says, until the end; its status as of wait(). */
static int finish(struct process *process, char *said, size_t size)
{
	size_t n = 0;
	int c, status;

	while ((c = getc(process->output)) != EOF)
		if (n + 1 < size)
			said[n++] = (char)c;
	if (size)
		said[n] = '\0';
	fclose(process->output);
	assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
	note_running(process->pid, 0);
	return status;
}

static char said[8192];

/* hugepool-setup WORD... (up to 4). Return: its status as of wait(). */
static int setup_env(const char *env, const char *a, const char *b, const char *c)
{
	const char *argv[] = {setup_program, "--config", config_path, a, b, c, NULL};
	struct process process = start(env, 0, argv);

	return finish(&process, said, sizeof(said));
}

static void expect_setup(int status, const char *a, const char *b, const char *c)
{
	int got = setup_env(NULL, a, b, c);

	if (!WIFEXITED(got) || WEXITSTATUS(got) != status)
		fail_msg("hugepool-setup %s: status %d: %s", a, got, said);
}

static void expect_line(struct process *process, const char *start_of_line)
{
	char line[512];

	while (fgets(line, sizeof(line), process->output)) {
		if (strncmp(line, start_of_line, strlen(start_of_line)) == 0)
			return;
		fputs(line, stderr);
	}
	fail_msg("no line \"%s\"", start_of_line);
}

/* Bound is not listening; and to find out by connecting would be a request. */
static bool is_listened_on(const char *path)
{
	FILE *file = fopen("/proc/net/unix", "re");
	char line[256], name[128];
	unsigned long flags;
	bool answer = false;

	assert_non_null(file);
	while (!answer && fgets(line, sizeof(line), file))
		answer = sscanf(line, "%*s %*s %*s %lx %*s %*s %*s %127s", &flags, name) == 2 &&
			 strcmp(name, path) == 0 && (flags & ACCEPTS_CONNECTIONS);
	fclose(file);
	return answer;
}

static struct process start_fds(void)
{
	const char *const argv[] = {setup_program, "--config", config_path, "fds", NULL};
	struct process process = start(NULL, 0, argv);

	fixture_wait(is_listened_on(socket_path));
	return process;
}

static void stop(struct process *process, int signal)
{
	assert_int_equal(kill(process->pid, signal), 0);
	finish(process, said, sizeof(said));
}

static struct process start_daemon(uid_t uid, const char *mode)
{
	const char *const argv[] = {"/proc/self/exe", "daemon", mode, config_path, NULL};

	return start(NULL, uid, argv);
}

static void expect_daemon(uid_t uid, const char *mode)
{
	struct process process = start_daemon(uid, mode);
	int status = finish(&process, said, sizeof(said));

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("daemon %s: status %d: %s", mode, status, said);
}

/* --- the machine ------------------------------------------------------------------------------ */

static const char *const numbers[] = {"nr_hugepages", "free_hugepages", "resv_hugepages",
				      "surplus_hugepages"};
static uint64_t before[4];

static bool numbers_are(const uint64_t wanted[4])
{
	for (int i = 0; i < 4; i++)
		if (fixture_hugepages(numbers[i]) != wanted[i])
			return false;
	return true;
}

static int note_machine(void **state)
{
	FILE *file;
	const char *place, *text = config_text;
	char path[96];

	(void)state;
	for (int i = 0; i < 4; i++)
		before[i] = fixture_hugepages(numbers[i]);
	strcpy(directory, "/tmp/test-setup-XXXXXX");
	if (!mkdtemp(directory) || chmod(directory, 0755) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/tmp", directory); /* of the daemons that are killed */
	if (mkdir(path, 0700) < 0 || chmod(path, 01777) < 0 || setenv("TMPDIR", path, 1) < 0)
		return -1;
	snprintf(config_path, sizeof(config_path), "%s/hugepool.conf", directory);
	snprintf(socket_path, sizeof(socket_path), "%s/setup.sock", directory);
	file = fopen(config_path, "we");
	if (!file)
		return -1;
	for (; (place = strstr(text, "DIR")); text = place + 3)
		fprintf(file, "%.*s%s", (int)(place - text), text, directory);
	fputs(text, file);
	return fclose(file);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *place)
{
	(void)st;
	(void)type;
	(void)place;
	print_error("left behind: %s\n", path);
	if (remove(path) < 0 && errno == EBUSY) {
		umount2(path, MNT_DETACH); /* a pin that "down" has failed to take off */
		remove(path);
	}
	return 0;
}

static bool wait_for_machine(void)
{
	for (int ms = 0; !numbers_are(before); ms++) {
		if (ms > FIXTURE_TIMEOUT_MS)
			return false;
		fixture_sleep_ms(1);
	}
	return true;
}

/* What a test should have left nothing of is looked for first, and then taken away in any case. */
static int check_machine(void **state)
{
	char path[128];
	bool clean;

	(void)state;
	many_runs = false;
	kill_rest();
	setup_env(NULL, "--force", "down",
		  NULL); /* after a failure; otherwise it has nothing to do */
	snprintf(path, sizeof(path), "%s/run", directory);
	clean = rmdir(path) == 0 || errno == ENOENT;
	snprintf(path, sizeof(path), "%s/tmp", directory);
	clean &= rmdir(path) == 0;
	unsetenv("TMPDIR");
	unlink(config_path);
	clean &= rmdir(directory) == 0;
	if (!clean)
		nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	if (!wait_for_machine())
		fail_msg("the machine has %u huge pages instead of %u",
			 (unsigned)fixture_hugepages("nr_hugepages"), (unsigned)before[0]);
	return clean ? 0 : -1;
}

/*
 * Pages of somebody else, promised to him: nobody may take them off by mistake, and none of them is to
 * be used.
 */
static char *held;

static int hold_pages(void **state)
{
	uint64_t number = fixture_hugepages("nr_hugepages");

	(void)state;
	fixture_set_hugepages(number + NR_HELD);
	if (fixture_hugepages("nr_hugepages") != number + NR_HELD)
		return -1;
	held = mmap(NULL, NR_HELD * PAGE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	return held == MAP_FAILED ? -1 : 0;
}

static int let_go_pages(void **state)
{
	(void)state;
	munmap(held, NR_HELD * PAGE_BYTES);
	fixture_set_hugepages(fixture_hugepages("nr_hugepages") - NR_HELD);
	return 0;
}

static void expect_up(unsigned blocks)
{
	char line[64];

	expect_setup(0, "status", NULL, NULL);
	snprintf(line, sizeof(line), "zone small: %u blocks of 8M, pages of 2M", blocks);
	if (!strstr(said, line))
		fail_msg("no \"%s\" in: %s", line, said);
}

/* --- tests ------------------------------------------------------------------------------------ */

static int count_block(void *userdata, const char *zone, uint32_t block, int fd)
{
	(void)zone;
	(void)block;
	close(fd);
	++*(unsigned *)userdata;
	return 0;
}

static void test_up_down(void **state)
{
	const uint64_t up[4] = {before[0] + NR_PAGES, before[1] + NR_PAGES, before[2] + NR_PAGES,
				before[3]};

	(void)state;
	expect_setup(0, "status", NULL, NULL);
	assert_non_null(strstr(said, "not set up"));
	expect_setup(0, "down", NULL, NULL);
	expect_setup(0, "--user", "54321", "up");
	assert_non_null(strstr(said, "zone small: 4 of 4 blocks of 8M"));
	assert_true(numbers_are(up));
	expect_setup(0, "--user", "54321", "up"); /* nothing is missing: nothing is added */
	assert_true(numbers_are(up));
	expect_up(NR_BLOCKS);
	expect_setup(0, "--json", "status", NULL);
	assert_non_null(strstr(said, "\"added\": 16"));
	assert_non_null(strstr(said, "\"uid\": 54321"));
	expect_setup(1, "up", NULL, NULL);
	assert_non_null(strstr(said, "set up for uid 54321 already"));
	expect_setup(0, "down", NULL, NULL);
	assert_true(numbers_are(before));
	expect_setup(0, "down", NULL, NULL);
}

/*
 * Where all mounts are shared, as systemd makes them: the pin still holds, nothing is seen outside. And
 * in namespaces that were made on each of the processors: that matters to the kernel, see
 * namespace_create().
 */
static void test_shared_mounts(void **state)
{
	static const char script[] = "last=$(($(nproc --all) - 1)); "
				     "for made in 0 $last; do for run in 0 $last; do "
				     "taskset -c $made unshare --mount --propagation shared "
				     "taskset -c $run /bin/sh -ec '"
				     "\"$0\" --config \"$1\" up; \"$0\" --config \"$1\" status; "
				     "! grep hugetlbfs /proc/self/mountinfo; "
				     "\"$0\" --config \"$1\" down; "
				     "! grep \"${1%/*}\" /proc/self/mountinfo' \"$0\" \"$1\" || "
				     "{ echo made on $made, run on $run; exit 1; }; "
				     "done; done";
	const char *const argv[] = {"/bin/sh", "-c", script, setup_program, config_path, NULL};
	struct process process = start(NULL, 0, argv);
	int status = finish(&process, said, sizeof(said));

	(void)state;
	if (status != 0 || !strstr(said, "zone small: 4 blocks of 8M"))
		fail_msg("status %d: %s", status, said);
}

static void test_usage(void **state)
{
	(void)state;
	expect_setup(2, "sideways", NULL, NULL);
	expect_setup(2, NULL, NULL, NULL);
	expect_setup(2, "--nonsense", "up", NULL);
	expect_setup(2, "--user", "no such user", "up");
	expect_setup(0, "--help", NULL, NULL);
	assert_non_null(strstr(said, "Usage: hugepool-setup"));
	expect_setup(78, "--config", "/nonexistent", "up");
}

/* What was set up is not what the configuration says now. */
static void test_other_geometry(void **state)
{
	FILE *file;

	(void)state;
	expect_setup(0, "up", NULL, NULL);
	file = fopen(config_path, "we");
	fprintf(file,
		"[daemon]\nnamespace = %s/run/ns\n[zone small]\nblock-size = 16M\nsize = 32M\n",
		directory);
	fclose(file);
	expect_setup(1, "up", NULL, NULL);
	assert_non_null(strstr(said, "zone small is set up already with 4 pages"));
	expect_setup(0, "down", NULL, NULL);
}

/* The kernel gives fewer pages than it is asked for: both numbers, and no page kept in vain. */
static void test_shortfall(void **state)
{
	char env[64];
	int status;

	(void)state;
	snprintf(env, sizeof(env), "SHIM_CAP=%" PRIu64, before[0] + 2 * BLOCK_PAGES + 3);
	status = setup_env(env, "up", NULL, NULL);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	if (before[1] == before[2]) /* no free pages of somebody else's */
		assert_non_null(
			strstr(said, "asked the kernel for 16 more huge pages of 2M and got 11"));
	assert_non_null(strstr(said, "zone small has 8 of 16 huge pages of 2M"));
	assert_non_null(strstr(said, "zone small: 2 of 4 blocks"));
	assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + 2 * BLOCK_PAGES);
	expect_up(2);
	expect_setup(0, "up", NULL, NULL); /* now there is enough */
	expect_up(NR_BLOCKS);
	assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + NR_PAGES);
	expect_setup(0, "down", NULL, NULL);
}

/* A daemon of another user, without capabilities, on descriptors that it was handed. */
static void test_unprivileged_daemon(void **state)
{
	struct process fds, daemon;

	(void)state;
	expect_setup(0, "--user", "54321", "up");
	fds = start_fds();
	expect_daemon(OTHER_UID, "refused"); /* neither the service's user nor root */

	daemon = start_daemon(SERVICE_UID, "serve");
	expect_line(&daemon, "ready");
	expect_daemon(SERVICE_UID, "busy"); /* a second one on the same blocks */
	expect_setup(1, "down", NULL, NULL);
	assert_non_null(strstr(said, "in use by a daemon"));
	expect_setup(0, "status", NULL, NULL);
	assert_non_null(strstr(said, "4 blocks in use by a daemon"));

	stop(&daemon, SIGKILL); /* its pages stay where they are */
	assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + NR_PAGES);
	assert_int_equal(fixture_hugepages("free_hugepages"), before[1]);
	expect_daemon(SERVICE_UID, "again"); /* and its successor takes them over, clean */
	assert_int_equal(fixture_hugepages("free_hugepages"), before[1] + NR_PAGES);
	stop(&fds, SIGTERM);
	assert_int_equal(access(socket_path, F_OK), -1);
	expect_setup(0, "down", NULL, NULL);
}

/* Locked by a process of this user; stop() lets go. */
static struct process start_locker(uid_t uid, const char *path)
{
	const char *const argv[] = {
		"/usr/bin/flock", "-F", path, "sh", "-c", "echo locked; exec sleep 60", NULL};
	struct process process = start(NULL, uid, argv);

	expect_line(&process, "locked");
	return process;
}

/* Whoever may read sysfs and the directory of the pin may lock them: that is to hold up nobody. */
static void test_locks_of_others(void **state)
{
	static const char number[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
	struct process of_number, of_directory;
	char path[96];

	(void)state;
	expect_setup(0, "up", NULL, NULL);
	snprintf(path, sizeof(path), "%s/run", directory);
	of_number = start_locker(OTHER_UID, number);
	of_directory = start_locker(OTHER_UID, path);
	expect_setup(0, "down", NULL, NULL);
	expect_setup(0, "up", NULL, NULL);
	expect_setup(0, "down", NULL, NULL);
	stop(&of_directory, SIGKILL);
	stop(&of_number, SIGKILL);
}

/* Another set-up of ours at work: the lock is named, and "up" goes on when it is free. */
static void test_locks_of_ours(void **state)
{
	const char *const argv[] = {setup_program, "--config", config_path, "up", NULL};
	struct process locker, up;
	char path[96];
	int fd;

	(void)state;
	fd = open(PAGES_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	locker = start_locker(0, PAGES_LOCK);
	up = start(NULL, 0, argv);
	expect_line(&up, "hugepool-setup: warning: waiting for " PAGES_LOCK);
	stop(&locker, SIGKILL);
	assert_int_equal(finish(&up, said, sizeof(said)), 0);

	snprintf(path, sizeof(path), "%s/run/setup.lock", directory);
	locker = start_locker(0, path);
	expect_setup(1, "down", NULL, NULL);
	assert_non_null(strstr(said, "another hugepool-setup is at work"));
	stop(&locker, SIGKILL);
	expect_setup(0, "down", NULL, NULL);
	assert_int_equal(access(PAGES_LOCK, F_OK), -1);
}

/* Page sizes are locked in their order, whatever that of the zones: of two, none waits for the other. */
static void test_lock_order(void **state)
{
	const char *const argv[] = {setup_program, "guard", NULL};
	struct setup_plan plan = {.nr_zones = 2,
				  .zones = {{.name = "large",
					     .page_bytes = 512 * PAGE_BYTES,
					     .node = -1,
					     .block_bytes = 512 * PAGE_BYTES,
					     .nr_blocks = 1,
					     .max_blocks = 1},
					    {.name = "small",
					     .page_bytes = PAGE_BYTES,
					     .node = -1,
					     .block_bytes = PAGE_BYTES,
					     .nr_blocks = 1,
					     .max_blocks = 1}}};
	struct process locker, guard;
	int fd, sockets[2], saved;

	(void)state;
	fd = open(PAGES_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	locker = start_locker(0, PAGES_LOCK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
	dup2(sockets[1], STDIN_FILENO);
	guard = start(NULL, 0, argv);
	dup2(saved, STDIN_FILENO);
	close(saved);
	close(sockets[1]);
	assert_int_equal(directories_send_plan(sockets[0], &plan), 0);
	expect_line(&guard, "hugepool-setup: warning: waiting for " PAGES_LOCK);
	assert_int_equal(access("/run/hugepool-1048576kB.lock", F_OK), -1);
	close(sockets[0]);
	stop(&locker, SIGKILL);
	finish(&guard, said, sizeof(said));
}

/* Blocks that were handed out are safe from "down" until the daemon has locked them, and hung up. */
static void test_handed_out(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char text[DIRECTORIES_TEXT_MAX], path[96];
	struct process fds, locker;
	unsigned blocks = 0;
	int socket_fd;

	(void)state;
	expect_setup(0, "up", NULL, NULL);
	fds = start_fds();
	strcpy(address.sun_path, socket_path);
	socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(socket_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(directories_receive(socket_fd, count_block, &blocks, text), 0);
	assert_int_equal(blocks, NR_BLOCKS);
	expect_setup(1, "down", NULL, NULL);
	assert_non_null(strstr(said, "another hugepool-setup is at work"));
	close(socket_fd);

	snprintf(path, sizeof(path), "%s/run/setup.lock", directory);
	locker = start_locker(0, path); /* waits for the end of the one before */
	expect_daemon(0, "changing");
	stop(&locker, SIGKILL);
	stop(&fds, SIGTERM);
	expect_setup(0, "down", NULL, NULL);
}

/* Somebody looks at a block, for a moment, just when a daemon wants it. */
static void test_status_and_daemon(void **state)
{
	const char *const argv[] = {"/bin/sh",
				    "-c",
				    "\"$0\" --config \"$1\" status; echo looking; while "
				    "\"$0\" --config \"$1\" status >/dev/null; do :; done",
				    setup_program,
				    config_path,
				    NULL};
	struct process fds, status;

	(void)state;
	expect_setup(0, "up", NULL, NULL);
	fds = start_fds();
	status = start(NULL, 0, argv);
	expect_line(&status, "looking");
	for (int i = 0; i < 10; i++)
		expect_daemon(0, "again");
	stop(&status, SIGKILL);
	stop(&fds, SIGTERM);
	expect_setup(0, "down", NULL, NULL);
}

/* down --force under a daemon: its clients' mappings die, the pages come back. */
static void test_force(void **state)
{
	struct process fds, daemon;

	(void)state;
	expect_setup(0, "--user", "54321", "up");
	fds = start_fds();
	daemon = start_daemon(SERVICE_UID, "serve");
	expect_line(&daemon, "ready");
	expect_setup(0, "--force", "down", NULL);
	assert_int_equal(fixture_hugepages("free_hugepages"), fixture_hugepages("nr_hugepages"));
	stop(&daemon, SIGKILL);
	stop(&fds, SIGTERM);
}

/* Numbers of the boot before: the pages that it tells of are somebody else's by now. */
static void test_record_of_another_boot(void **state)
{
	char run[80], path[96];
	uint64_t pages;
	int up_status = 0, down_status;
	FILE *file;

	(void)state;
	snprintf(run, sizeof(run), "%s/run", directory);
	snprintf(path, sizeof(path), "%s/run/setup.json", directory);
	for (int up = 0; up < 2; up++) {
		assert_true(mkdir(run, 0755) == 0 || errno == EEXIST);
		file = fopen(path, "we");
		assert_non_null(file);
		fprintf(file,
			"{\"version\": 1, \"boot_id\": \"00000000-0000-0000-0000-000000000000\", "
			"\"uid\": 0, \"pages\": [{\"page_bytes\": %" PRIu64
			", \"node\": -1, \"added\": %d}]}",
			PAGE_BYTES, BLOCK_PAGES);
		assert_int_equal(fclose(file), 0);
		fixture_set_hugepages(before[0] + BLOCK_PAGES); /* free, and not ours */
		if (up)
			up_status = setup_env(NULL, "up", NULL, NULL);
		down_status = setup_env(NULL, "down", NULL, NULL);
		pages = fixture_hugepages("nr_hugepages");
		fixture_set_hugepages(before[0]);
		assert_int_equal(up_status, 0);
		assert_int_equal(down_status, 0);
		assert_int_equal(pages, before[0] + BLOCK_PAGES);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* The path belongs to whoever has its lock, also before he listens there. */
static void test_fds_of_another(void **state)
{
	struct process process;
	char path[128];
	int fd;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s.lock", socket_path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	expect_setup(1, "fds", NULL, NULL);
	assert_non_null(strstr(said, "in use"));
	assert_int_equal(access(socket_path, F_OK), -1);
	close(fd); /* its holder is dead: the file does not matter */
	process = start_fds();
	stop(&process, SIGTERM);
	assert_int_equal(access(socket_path, F_OK), -1);
	assert_int_equal(access(path, F_OK), -1);
}

/* At each step that makes its socket: the path and the lock are taken away again. */
static void test_fds_terminated(void **state)
{
	char env[64], path[128];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s.lock", socket_path);
	for (int at = 1; at <= FDS_STEPS; at++) {
		snprintf(env, sizeof(env), "SHIM_TERM_AT=%d", at);
		assert_int_equal(setup_env(env, "fds", NULL, NULL), 0);
		assert_int_equal(access(socket_path, F_OK), -1);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* fds without a set-up says so, and comes back with one. */
static void test_fds_before_up(void **state)
{
	struct process fds = start_fds();

	(void)state;
	expect_daemon(0, "not-up");
	expect_setup(0, "up", NULL, NULL);
	expect_daemon(0, "again");
	stop(&fds, SIGTERM);
	expect_setup(0, "down", NULL, NULL);
}

/*
 * Killed before every single step of "up", and of "down": the next run puts it right, be it "up" or
 * "down".
 */
static void go_through_kills(const char *command, bool prepare, bool up_again)
{
	char env[64];
	int status, kills = 0;

	many_runs = true;
	for (int at = 1; at < STEPS_MAX; at += STEP_STRIDE) {
		if (prepare)
			expect_setup(0, "up", NULL, NULL);
		snprintf(env, sizeof(env), "SHIM_KILL_AT=%d", at);
		status = setup_env(env, command, NULL, NULL);
		if (WIFSIGNALED(status))
			kills++;
		if (up_again) {
			expect_setup(0, "up", NULL, NULL);
			expect_up(NR_BLOCKS);
			assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + NR_PAGES);
		}
		expect_setup(0, "down", NULL, NULL);
		if (!numbers_are(before))
			fail_msg("%s killed at step %d: %" PRIu64 " pages instead of %" PRIu64,
				 command, at, fixture_hugepages("nr_hugepages"), before[0]);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			break;
	}
	assert_true(WIFEXITED(status));
	assert_true(kills * STEP_STRIDE > 5);
}

static void test_killed_up(void **state)
{
	(void)state;
	go_through_kills("up", false, true);
	go_through_kills("up", false, false);
}

static void test_killed_down(void **state)
{
	(void)state;
	go_through_kills("down", true, false);
}

static void expect_blocks(unsigned blocks)
{
	expect_up(blocks);
	assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + blocks * BLOCK_PAGES);
	assert_int_equal(fixture_hugepages("free_hugepages"), before[1] + blocks * BLOCK_PAGES);
	assert_int_equal(fixture_hugepages("resv_hugepages"), before[2] + blocks * BLOCK_PAGES);
}

static void test_resize(void **state)
{
	char env[64], path[96];

	(void)state;
	expect_setup(1, "grow", "small", "48M");
	assert_non_null(strstr(said, "nothing is set up"));
	expect_setup(0, "up", NULL, NULL);
	expect_setup(0, "grow", "small", "48M");
	assert_non_null(strstr(said, "zone small: 6 of 6 blocks of 8M"));
	expect_blocks(6);
	expect_setup(0, "grow", "small", "32M"); /* it has that, and more */
	assert_non_null(strstr(said, "zone small: 6 of 4 blocks of 8M"));
	expect_setup(0, "shrink", "small", "16M");
	assert_non_null(strstr(said, "zone small: 2 of 2 blocks of 8M"));
	expect_blocks(2);
	expect_setup(0, "shrink", "small", "64M");
	expect_blocks(2);
	snprintf(path, sizeof(path), "%s/run/setup.json", directory);
	assert_int_equal(access(path, F_OK), 0);

	/* less than what was asked for, and no page kept in vain */
	snprintf(env, sizeof(env), "SHIM_CAP=%" PRIu64, before[0] + 4 * BLOCK_PAGES + 3);
	assert_int_equal(setup_env(env, "grow", "small", "64M"), 0);
	assert_non_null(strstr(said, "zone small has 16 of 32 huge pages of 2M"));
	assert_non_null(strstr(said, "zone small: 4 of 8 blocks"));
	expect_blocks(4);
	expect_setup(0, "shrink", "small", "0");
	assert_true(numbers_are(before));
	expect_setup(0, "up", NULL, NULL); /* back to what is configured */
	expect_blocks(NR_BLOCKS);
	expect_setup(0, "down", NULL, NULL);
}

static void test_resize_refused(void **state)
{
	(void)state;
	expect_setup(0, "up", NULL, NULL);
	expect_setup(1, "grow", "small", "72M");
	assert_non_null(strstr(said, "max-size, which is 8 blocks"));
	expect_setup(1, "shrink", "small", "9M");
	assert_non_null(strstr(said, "block size of 8M"));
	expect_setup(1, "grow", "large", "48M");
	assert_non_null(strstr(said, "no zone large"));
	expect_setup(2, "grow", "small", NULL);
	expect_setup(2, "shrink", "small", "much");
	expect_setup(2, "up", "small", NULL);
	expect_blocks(NR_BLOCKS);
	expect_setup(0, "down", NULL, NULL);
}

/* What a daemon works with, or has left its leases in, stays. */
static void test_shrink_in_use(void **state)
{
	struct process fds, daemon;

	(void)state;
	expect_setup(0, "--user", "54321", "up");
	fds = start_fds();
	daemon = start_daemon(SERVICE_UID, "serve");
	expect_line(&daemon, "ready");
	expect_setup(0, "shrink", "small", "8M");
	assert_non_null(strstr(said, "zone small has 4 blocks, not 1"));
	stop(&daemon, SIGKILL);
	expect_setup(0, "shrink", "small", "8M");
	assert_non_null(strstr(said, "zone small has 4 blocks, not 1"));
	assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + NR_PAGES);
	expect_daemon(SERVICE_UID, "again"); /* its successor empties them and ends */
	expect_setup(0, "shrink", "small", "8M");
	expect_blocks(1);
	stop(&fds, SIGTERM);
	expect_setup(0, "down", NULL, NULL);
}

/* Killed before every step of a resize: whatever comes next puts it right. */
static void kill_resize(const char *command, const char *size, const char *next,
			const char *next_size, unsigned blocks)
{
	char env[64];
	int status, kills = 0;

	many_runs = true;
	for (int at = 1; at < STEPS_MAX; at += STEP_STRIDE) {
		if (at == 1 || !next)
			expect_setup(0, "up", NULL, NULL);
		snprintf(env, sizeof(env), "SHIM_KILL_AT=%d", at);
		status = setup_env(env, command, "small", size);
		kills += WIFSIGNALED(status);
		if (next) {
			expect_setup(0, next, next_size ? "small" : NULL, next_size);
			expect_blocks(blocks);
			if (blocks != NR_BLOCKS)
				expect_setup(0, blocks < NR_BLOCKS ? "grow" : "shrink", "small",
					     "32M");
			expect_blocks(NR_BLOCKS);
		}
		if (!next || WIFEXITED(status))
			expect_setup(0, "down", NULL, NULL);
		if (!next && !numbers_are(before))
			fail_msg("%s killed at step %d: %u pages instead of %u", command, at,
				 (unsigned)fixture_hugepages("nr_hugepages"), (unsigned)before[0]);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			break;
	}
	assert_true(WIFEXITED(status));
	assert_true(kills * STEP_STRIDE > 5);
}

static void test_killed_grow(void **state)
{
	(void)state;
	kill_resize("grow", "40M", "grow", "40M", 5);
	kill_resize("grow", "40M", "shrink", "32M", 4);
	kill_resize("grow", "40M", NULL, NULL, 0);
}

static void test_killed_shrink(void **state)
{
	(void)state;
	kill_resize("shrink", "24M", "shrink", "24M", 3);
	kill_resize("shrink", "24M", "grow", "32M", 4);
	kill_resize("shrink", "24M", NULL, NULL, 0);
}

/* Without a set-up, as root: what the guard made vanishes with the daemon, however that ends. */
static void test_guard(void **state)
{
	static const int ends[] = {SIGKILL, SIGSEGV, SIGTERM};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct process daemon = start_daemon(0, "serve");

		expect_line(&daemon, "ready");
		assert_int_equal(fixture_hugepages("nr_hugepages"), before[0] + NR_PAGES);
		assert_int_equal(fixture_hugepages("free_hugepages"), before[1]);
		stop(&daemon, ends[i]); /* also waits for the guard, which holds the pipe */
		fixture_wait(numbers_are(before));
	}
}

/* A client that outlives the daemon: his mapping is dead, and what he holds goes when he lets go. */
static void test_guard_and_client(void **state)
{
	struct process daemon = start_daemon(0, "serve");
	char path[64];
	char *memory;
	int fd;

	(void)state;
	expect_line(&daemon, "ready");
	snprintf(path, sizeof(path), "/proc/%d/fd/100", (int)daemon.pid); /* see serve() */
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	memory = mmap(NULL, 4 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(*memory, 'x');
	stop(&daemon, SIGKILL);
	assert_true(fixture_is_dead(memory));
	munmap(memory, 4 * PAGE_BYTES);
	close(fd);
}

/* --- the daemon's side ------------------------------------------------------------------------ */

static char *daemon_config;

static void has_no_capabilities(void)
{
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long effective = 1;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "CapEff: %llx", &effective);
	fclose(file);
	assert_int_equal(effective, 0);
}

/* Fills, leases and writes to everything, says so, and stays until it is killed. */
static void serve(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	uint64_t generation;

	(void)state;
	if (geteuid() != 0)
		has_no_capabilities();
	fixture_open(&fixture, daemon_config);
	assert_int_equal(fixture.online_bytes, NR_PAGES * PAGE_BYTES);
	grant = fixture_alloc(&fixture, 1, NR_PAGES);
	assert_int_equal(grant.range.pages, NR_PAGES);
	for (uint32_t block = 0; block < NR_BLOCKS; block++) {
		int fd = pool_open_block(fixture.zone, block, &generation);
		char *memory = mmap(NULL, BLOCK_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
				    MAP_SHARED, fd, 0);

		assert_ptr_not_equal(memory, MAP_FAILED);
		assert_true(fixture_is_zero(memory, BLOCK_PAGES * PAGE_BYTES));
		fixture_fill(memory, BLOCK_PAGES * PAGE_BYTES, 'x');
		dup2(fd, 100 + (int)block);
	}
	rmdir(fixture.directory);
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* All blocks, of a later life than any file that was lying there, zero; and a proper end. */
static void again(void **state)
{
	struct fixture fixture;
	struct hp_grant grant;
	uint64_t generation;

	(void)state;
	fixture_open(&fixture, daemon_config);
	fixture_wait(fixture_clean_blocks(&fixture) == NR_BLOCKS);
	grant = fixture_alloc(&fixture, 1, NR_PAGES);
	for (uint32_t block = 0; block < NR_BLOCKS; block++) {
		int fd = pool_open_block(fixture.zone, block, &generation);
		char *memory = mmap(NULL, BLOCK_PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

		assert_ptr_not_equal(memory, MAP_FAILED);
		assert_true(fixture_is_zero(memory, BLOCK_PAGES * PAGE_BYTES));
		assert_true(generation >= (geteuid() ? 2 : 1));
		munmap(memory, BLOCK_PAGES * PAGE_BYTES);
		close(fd);
	}
	fixture_free(&fixture, 1, &grant);
	fixture_close(&fixture);
}

static void expect_error(int error)
{
	struct fixture fixture;

	assert_int_equal(fixture_try(&fixture, daemon_config), error);
	fixture_close(&fixture);
}

static void refused(void **state)
{
	(void)state;
	expect_error(-ECONNRESET);
}

static void busy(void **state)
{
	(void)state;
	expect_error(-EBUSY);
}

static void changing(void **state)
{
	(void)state;
	expect_error(-EBUSY);
}

static void not_up(void **state)
{
	(void)state;
	expect_error(-ENOENT);
}

static int run_daemon(const char *mode, const char *path)
{
	const struct CMUnitTest modes[] = {
		cmocka_unit_test(serve),    cmocka_unit_test(again),
		cmocka_unit_test(refused),  cmocka_unit_test(busy),
		cmocka_unit_test(changing), {"not-up", not_up, NULL, NULL, NULL},
	};
	static char text[2048];
	FILE *file = fopen(path, "re");

	if (!file)
		return 2;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	daemon_config = text;
	setenv("HUGEPOOL_SETUP", setup_program, 1);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		const struct CMUnitTest one[] = {modes[i]};

		if (strcmp(modes[i].name, mode) == 0)
			return cmocka_run_group_tests(one, NULL, NULL);
	}
	return 2;
}

int main(int argc, char **argv)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, note_machine, check_machine)
	const struct CMUnitTest tests[] = {
		TEST(test_up_down),
		TEST(test_shared_mounts),
		TEST(test_usage),
		TEST(test_other_geometry),
		TEST(test_shortfall),
		TEST(test_unprivileged_daemon),
		TEST(test_force),
		TEST(test_fds_of_another),
		TEST(test_fds_terminated),
		TEST(test_fds_before_up),
		TEST(test_killed_up),
		TEST(test_locks_of_others),
		TEST(test_locks_of_ours),
		TEST(test_lock_order),
		TEST(test_handed_out),
		TEST(test_status_and_daemon),
		TEST(test_killed_down),
		TEST(test_resize),
		TEST(test_resize_refused),
		TEST(test_shrink_in_use),
		TEST(test_killed_grow),
		TEST(test_killed_shrink),
		TEST(test_guard),
		TEST(test_guard_and_client),
		TEST(test_record_of_another_boot),
	};

	if (argc == 4 && strcmp(argv[1], "daemon") == 0) {
		setup_program = getenv("HUGEPOOL_SETUP");
		return run_daemon(argv[2], argv[3]);
	}
	if (argc != 3)
		return 2;
	if (geteuid() != 0 || access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK) < 0) {
		puts("skipped: needs root and huge pages of 2 MiB");
		return 77;
	}
	setup_program = argv[1];
	shim = argv[2];
	setenv("HUGEPOOL_SETUP", setup_program, 1);
	return cmocka_run_group_tests(tests, hold_pages, let_go_pages);
}
