/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process at the other end of a connection. A pid alone names nobody for long: a process is
 * remembered by pid and start time, and held by a pidfd, which becomes readable when it is gone.
 *
 * May be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_COMMAND_MAX 15 /* the kernel's TASK_COMM_LEN without its end */

struct process {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks; /* since boot; 0: not known */
	uint64_t pidfd_inode; /* names it for this boot, from kernel 6.9; 0: not known */
	char command[PROCESS_COMMAND_MAX + 1];
};

enum process_condition {
	PROCESS_GONE = 1, /* it is not there any more, or its pid is another's by now */
	PROCESS_HIDDEN,	  /* it lives where this daemon cannot see it (another pid namespace) */
};

/* Uid of whoever connected. Return: 0 or -errno. */
int process_peer_uid(int socket, uid_t *ret);

/*
 * Who connected, and a pidfd of it, which is the caller's. Return: 0, a condition, or -errno
 * (-EMFILE, -ENFILE).
 */
int process_of_peer(int socket, struct process *ret, int *ret_pidfd);

/*
 * Fills in what the kernel says of the process with this pid now. Return: as process_find().
 */
int process_look(struct process *process, int *ret_pidfd);

/*
 * The process that was remembered, and a pidfd of it, which is the caller's. Return: 0; PROCESS_GONE;
 * -errno (-EMFILE, -ENFILE).
 */
int process_find(const struct process *process, int *ret_pidfd);

/* Are these the same one, as far as is known? */
bool process_is_same(const struct process *a, const struct process *b);

/* Its last thread has ended, and with it its memory. */
bool process_has_ended(int pidfd);
