/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As in production: hugepool-setup makes a pinned set-up and hands it out, the daemon runs as a user
 * without rights. Everything is below one directory of its own. Nothing here fails by ending the
 * process: what has been put up has to be taken down.
 */
#include "tests/integration/attack/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES 4000 /* of 5 ms */

/* Together the limits are less than the zone: whoever is refused is refused for what others do. */
static const char configuration[] = "[daemon]\n"
				    "socket = %1$s/run/hugepool.sock\n"
				    "socket-mode = 0666\n"
				    "admin-socket = %1$s/run/admin.sock\n"
				    "setup-socket = %1$s/setup/fds.sock\n"
				    "namespace = %1$s/setup/ns\n"
				    "recycle-threads = 1\n" /* every stuck one is missed */
				    "idle-delay = 20ms\n"
				    "[zone blocks]\n"
				    "page-size = 2M\n"
				    "block-size = 8M\n"
				    "size = %2$dM\n"
				    "grow-nr-hugepages = yes\n"
				    "clean-low = %3$d\n" /* idle blocks go at once */
				    "clean-high = %3$d\n"
				    "[default]\nlimit.blocks = 1\n"
				    "[tenant alice]\nuid = %4$d\nlimit.blocks = 8\n"
				    "[tenant bob]\nuid = %5$d\nlimit.blocks = 8\n"
				    "[tenant mallory]\nuid = %6$d\nlimit.blocks = 14\n"
				    "[tenant locker]\nuid = %7$d\nlimit.blocks = 6\n"
				    "[tenant leaver]\nuid = %8$d\nlimit.blocks = 6\n";

/* --- the machine ------------------------------------------------------------------------------ */

static long counter(const char *name)
{
	char path[128];
	long value = -1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s_hugepages",
		       name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

struct huge_pages huge_pages_now(void)
{
	return (struct huge_pages){counter("nr"), counter("free"), counter("resv"),
				   counter("surplus")};
}

/* --- programs --------------------------------------------------------------------------------- */

static int become(uid_t uid)
{
	return uid && (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid));
}

/*
 * What is to be seen is who holds up the daemon by what he does to its memory, not by keeping the
 * machine busy, which is what limits of processor time are for: it comes before everybody else here,
 * among processes as among the groups that the kernel makes of sessions.
 */
static void come_first(void)
{
	int group = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);

	(void)setsid();
	if (group >= 0) {
		(void)!write(group, "-20", 3);
		close(group);
	}
	(void)setpriority(PRIO_PROCESS, 0, -20);
}

/* Output goes to the log. Return: pid or -1. */
static pid_t start(const struct stage *stage, uid_t uid, const char *const *arguments)
{
	int log = open(stage->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	pid_t parent = getpid(), pid = log < 0 ? -1 : fork();

	if (pid == 0) {
		if (uid)
			come_first();
		if (become(uid) || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent ||
		    dup2(log, 1) < 0 || dup2(log, 2) < 0)
			_exit(126);
		execv(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(127);
	}
	if (log >= 0)
		close(log);
	return pid;
}

static int wait_for(pid_t pid)
{
	int status;

	if (pid <= 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_setup(const struct stage *stage, const char *verb, const char *option,
		     const char *value)
{
	const char *const arguments[] = {stage->setup, "--config", stage->config, verb,
					 option,       value,	   NULL};

	return wait_for(start(stage, 0, arguments));
}

/* --- up --------------------------------------------------------------------------------------- */

static int make_directory(struct stage *stage)
{
	char path[96];
	FILE *file;

	strcpy(stage->directory, "/tmp/hugepool-test-XXXXXX");
	if (!mkdtemp(stage->directory) || chmod(stage->directory, 0755))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/setup", stage->directory);
	if (mkdir(path, 0755))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/run", stage->directory);
	if (mkdir(path, 0755) || chown(path, UID_SERVICE, UID_SERVICE))
		return -1;
	(void)snprintf(stage->config, sizeof(stage->config), "%s/conf", stage->directory);
	(void)snprintf(stage->log, sizeof(stage->log), "%s/log", stage->directory);
	(void)snprintf(stage->socket, sizeof(stage->socket), "%s/run/hugepool.sock",
		       stage->directory);
	(void)snprintf(stage->admin_socket, sizeof(stage->admin_socket), "%s/run/admin.sock",
		       stage->directory);
	file = fopen(stage->config, "we");
	if (!file)
		return -1;
	(void)fprintf(file, configuration, stage->directory, (int)(NR_BLOCKS * (BLOCK_BYTES >> 20)),
		      NR_BLOCKS, UID_ALICE, UID_BOB, UID_MALLORY, UID_LOCKER, UID_LEAVER);
	return fclose(file);
}

static bool wait_for_log(const struct stage *stage, const char *text, pid_t pid)
{
	for (int i = 0; i < TRIES && waitpid(pid, NULL, WNOHANG) == 0; i++) {
		if (stage_log_count(stage, text))
			return true;
		nap_ms(5);
	}
	return stage_log_count(stage, text);
}

static bool wait_for_path(const char *directory, const char *name, pid_t pid)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	for (int i = 0; i < TRIES && waitpid(pid, NULL, WNOHANG) == 0; i++) {
		if (access(path, F_OK) == 0)
			return true;
		nap_ms(5);
	}
	return false;
}

static int failed(const struct stage *stage, const char *what)
{
	(void)fprintf(stderr, "attack: %s\n", what);
	stage_log_print(stage);
	return -1;
}

int stage_up(struct stage *stage, const char *daemon, const char *setup)
{
	char user[16];

	*stage = (struct stage){.daemon = daemon, .setup = setup};
	(void)snprintf(user, sizeof(user), "%d", UID_SERVICE);
	if (make_directory(stage))
		return failed(stage, "no directory");
	if (run_setup(stage, "up", "--user", user))
		return failed(stage, "hugepool-setup up failed");
	stage->fds_pid =
		start(stage, 0, (const char *[]){setup, "--config", stage->config, "fds", NULL});
	if (!wait_for_path(stage->directory, "setup/fds.sock", stage->fds_pid))
		return failed(stage, "hugepool-setup fds does not listen");
	stage->daemon_pid = start(stage, UID_SERVICE,
				  (const char *[]){daemon, "--config", stage->config, NULL});
	if (!wait_for_log(stage, "READY", stage->daemon_pid))
		return failed(stage, "the daemon is not ready");
	return 0;
}

/* --- down ------------------------------------------------------------------------------------- */

static int stop(pid_t pid)
{
	if (pid > 0)
		kill(pid, SIGTERM);
	return wait_for(pid);
}

static void remove_directory(const struct stage *stage)
{
	static const char *const names[] = {"run/hugepool.sock",
					    "run/admin.sock",
					    "setup/fds.sock",
					    "run",
					    "setup",
					    "conf",
					    "log",
					    "."};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", stage->directory, names[i]);
		if (unlink(path))
			(void)rmdir(path);
	}
	(void)rmdir(stage->directory);
}

int stage_down(struct stage *stage)
{
	int status = stop(stage->daemon_pid);

	stop(stage->fds_pid);
	if (run_setup(stage, "down", "--force", NULL)) {
		(void)failed(stage, "hugepool-setup down failed");
		status = -1;
	}
	if (status)
		stage_log_print(stage);
	remove_directory(stage);
	return status;
}

/* --- the log ---------------------------------------------------------------------------------- */

unsigned stage_log_count(const struct stage *stage, const char *text)
{
	FILE *file = fopen(stage->log, "re");
	unsigned count = 0;
	char *line = NULL;
	size_t room = 0;

	while (file && getline(&line, &room, file) >= 0)
		count += strstr(line, text) != NULL;
	free(line);
	if (file)
		fclose(file);
	return count;
}

#define LINES_SHOWN 60

void stage_log_print(const struct stage *stage)
{
	FILE *file = fopen(stage->log, "re");
	char *line = NULL;
	size_t room = 0;

	for (int n = 0; file && n < LINES_SHOWN && getline(&line, &room, file) >= 0; n++)
		(void)fprintf(stderr, "  %s", line);
	free(line);
	if (file)
		fclose(file);
}
