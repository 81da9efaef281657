/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and descriptors over a UNIX stream socket.
 *
 * The kernel delivers descriptors with the first byte of the message they were sent with, never
 * merges two such messages in one receive, and drops what does not fit silently. Here every control
 * message is walked, every descriptor is either handed to the caller or closed, and all are
 * close-on-exec.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/limits.h"

/*
 * One recvmsg. Descriptors that came are owned by the caller (at most max_fds, the rest is closed);
 * with max_fds 0 every one is closed. ret_truncated: some were lost on the way (our own descriptor
 * table was full, or more came than asked for). Return: bytes read, 0 at the end of the stream,
 * -errno (-EAGAIN, -EINTR are passed on).
 */
ssize_t hp_fds_recv(int socket, void *buffer, size_t size, int *fds, size_t max_fds,
		    size_t *ret_fds, bool *ret_truncated);

/*
 * One sendmsg (MSG_NOSIGNAL), with up to HP_BLOCKS_MAX descriptors, borrowed. Nothing or part of
 * the bytes is sent; if any byte is, all descriptors are. Return: bytes sent, -errno (-EAGAIN;
 * -ETOOMANYREFS: too many descriptors of this user in flight).
 */
ssize_t hp_fds_send(int socket, const void *buffer, size_t size, const int *fds, size_t nr_fds);
