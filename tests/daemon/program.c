/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/program.h"

#define WAIT_TRIES    6000 /* of 5 ms */
#define ARGUMENTS_MAX 8

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

void program_write_config(struct program *program, const char *config)
{
	FILE *file = fopen(program->config, "we");

	assert_non_null(file);
	fprintf(file,
		"[daemon]\nsocket = %s\nadmin-socket = %s\nsetup-socket = %s/run/setup.sock\n"
		"namespace = %s/run/ns\nsocket-mode = 0666\n%s",
		program->socket, program->admin_socket, program->directory, program->directory,
		config);
	assert_int_equal(fclose(file), 0);
}

struct program *program_new(const char *executable, const char *config)
{
	struct program *program = calloc(1, sizeof(*program));
	const char *directory;

	assert_non_null(program);
	program->executable = executable;
	strcpy(program->directory, "/tmp/hugepool-test-XXXXXX");
	directory = mkdtemp(program->directory);
	assert_non_null(directory);
	assert_int_equal(chmod(directory, 0755), 0);
	snprintf(program->config, sizeof(program->config), "%s/conf", directory);
	snprintf(program->socket, sizeof(program->socket), "%s/run/hugepool.sock", directory);
	snprintf(program->admin_socket, sizeof(program->admin_socket), "%s/run/admin.sock",
		 directory);
	snprintf(program->log, sizeof(program->log), "%s/log", directory);
	program_write_config(program, config);
	return program;
}

struct program *program_free(struct program *program)
{
	if (program->pid)
		program_end(program, SIGKILL);
	unlink(program->config);
	unlink(program->log);
	assert_int_equal(rmdir(program->directory), 0);
	free(program);
	return NULL;
}

static void spawn(struct program *program, const char *const *arguments)
{
	char *argv[ARGUMENTS_MAX + 2] = {(char *)(uintptr_t)program->executable};
	pid_t parent = getpid();
	int log = open(program->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

	assert_true(log >= 0);
	for (size_t i = 0; arguments[i]; i++) {
		assert_true(i < ARGUMENTS_MAX);
		argv[i + 1] = (char *)(uintptr_t)arguments[i];
	}
	assert_int_equal(program->pid, 0);
	program->pid = fork();
	assert_true(program->pid >= 0);
	if (program->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(log, 1) < 0 || dup2(log, 2) < 0 || getppid() != parent)
			_exit(126);
		execv(program->executable, argv);
		_exit(127);
	}
	close(log);
}

/* Return: true once it has ended, which is noted. */
static bool has_ended(struct program *program, int *ret_status)
{
	int status;
	pid_t pid = waitpid(program->pid, &status, WNOHANG);

	assert_true(pid >= 0);
	if (pid == 0)
		return false;
	program->pid = 0;
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return true;
}

int program_wait(struct program *program)
{
	int status = -1;

	for (int i = 0; i < WAIT_TRIES; i++) {
		if (has_ended(program, &status))
			return status;
		nap();
	}
	fail_msg("%s does not end", program->executable);
	return -1;
}

int program_end(struct program *program, int signal)
{
	assert_int_equal(kill(program->pid, signal), 0);
	return program_wait(program);
}

int program_run(struct program *program, const char *const *arguments)
{
	spawn(program, arguments);
	return program_wait(program);
}

void program_spawn(struct program *program)
{
	spawn(program, (const char *[]){"--config", program->config, NULL});
}

void program_start(struct program *program)
{
	int status;

	program_spawn(program);
	for (int i = 0; i < WAIT_TRIES; i++) {
		if (program_log_has(program, "READY") || program_log_has(program, "SHORT") ||
		    has_ended(program, &status))
			return;
		nap();
	}
	fail_msg("%s is not ready", program->executable);
}

bool program_log_has(const struct program *program, const char *text)
{
	FILE *file = fopen(program->log, "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) >= 0)
		found = strstr(line, text);
	free(line);
	fclose(file);
	return found;
}
