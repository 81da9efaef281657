/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real hugepoold as a child process, with a configuration, a directory and a log of its own.
 * What goes wrong fails the test. The child dies with the test program, however that ends.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct program {
	pid_t pid; /* 0: not running */
	const char *executable;
	char directory[64]; /* readable by everybody */
	char config[96], socket[96], admin_socket[96], log[96];
};

/* Makes the directory and the configuration: sockets, mode 0666, and what is added. */
struct program *program_new(const char *executable, const char *config);

/* Removes what is left, which has to be nothing but configuration and log. */
struct program *program_free(struct program *program);

void program_write_config(struct program *program, const char *config);

/* Starts it, no more. */
void program_spawn(struct program *program);

/* Starts it and, unless it ends first, waits until its configured size is there (or short). */
void program_start(struct program *program);

/* Sends the signal and waits for the end. Return: its exit status, or 128 + signal. */
int program_end(struct program *program, int signal);

/* Waits until it ends by itself. Return: as program_end(). */
int program_wait(struct program *program);

/* Runs it with these arguments (NULL-terminated, without the program) to its end; output is in the
 * log. */
int program_run(struct program *program, const char *const *arguments);

bool program_log_has(const struct program *program, const char *text);
