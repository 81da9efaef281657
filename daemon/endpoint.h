/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket at a path, and the right to it.
 *
 * Of hugepoold and of hugepool-setup. Main thread only.
 */
#pragma once

#include <sys/types.h>

struct endpoint;

/*
 * Makes the path's directory if it is missing (mode 0755), locks the path against other processes,
 * takes over what a dead one left there, and listens. type: SOCK_STREAM or SOCK_SEQPACKET.
 * group: NULL for that of the process.
 * Return: 0; -EADDRINUSE if somebody living has it; -errno. The reason is logged, and nothing is
 * left behind.
 */
int endpoint_open(struct endpoint **ret, const char *path, int type, mode_t mode,
		  const char *group);

/*
 * One that somebody else made and listens on, at a path that stays his; fd is consumed, also on
 * failure. Return: 0 or -ENOMEM.
 */
int endpoint_adopt_consume_fd(struct endpoint **ret, int fd);

/* Closes and removes all that was made. NULL is fine; returns NULL. */
struct endpoint *endpoint_close(struct endpoint *endpoint);

/* Another mode, another group (NULL: that of the process). If that cannot be, it is logged. */
void endpoint_set_access(const struct endpoint *endpoint, mode_t mode, const char *group);

/* The listening socket, non-blocking; borrowed. */
int endpoint_fd(const struct endpoint *endpoint);
