/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A receiver offers the kernel room for the descriptors it wants and a little more (credentials and
 * the like, which some sockets add, come first and would otherwise push descriptors out). What does
 * not fit is dropped by the kernel and never enters our descriptor table; what fits but was not
 * wanted is closed here. A receiver that wants none offers no room at all.
 */
#include "proto/fds.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RIGHTS_BYTES(n) CMSG_SPACE((n) * sizeof(int))
#define OTHER_BYTES	128 /* of control messages that are not ours to interpret */

union control {
	struct cmsghdr align;
	char bytes[OTHER_BYTES + RIGHTS_BYTES(HP_BLOCKS_MAX)];
};

/* Moves the descriptors of one control message to fds, as far as they are wanted. */
static void take_rights(const struct cmsghdr *cmsg, int *fds, size_t max_fds, size_t *nr_fds,
			bool *truncated)
{
	size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
		if (*nr_fds < max_fds) {
			fds[(*nr_fds)++] = fd;
		} else {
			close(fd);
			*truncated = true;
		}
	}
}

ssize_t hp_fds_recv(int socket, void *buffer, size_t size, int *fds, size_t max_fds,
		    size_t *ret_fds, bool *ret_truncated)
{
	union control control;
	struct iovec iov = {.iov_base = buffer, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	size_t nr_fds = 0;
	bool truncated;
	ssize_t n;

	if (max_fds > HP_BLOCKS_MAX)
		max_fds = HP_BLOCKS_MAX;
	if (max_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = OTHER_BYTES + RIGHTS_BYTES(max_fds);
	}

	n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;

	truncated = msg.msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg))
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS)
			take_rights(cmsg, fds, max_fds, &nr_fds, &truncated);

	*ret_fds = nr_fds;
	*ret_truncated = truncated;
	return n;
}

ssize_t hp_fds_send(int socket, const void *buffer, size_t size, const int *fds, size_t nr_fds)
{
	union control control;
	struct iovec iov = {.iov_base = (void *)buffer, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	/* Without a byte to go with, the kernel would drop the descriptors. */
	assert(nr_fds == 0 || size > 0);
	assert(nr_fds <= HP_BLOCKS_MAX);

	if (nr_fds > 0) {
		struct cmsghdr *cmsg;

		memset(&control, 0, RIGHTS_BYTES(nr_fds));
		msg.msg_control = control.bytes;
		msg.msg_controllen = RIGHTS_BYTES(nr_fds);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, nr_fds * sizeof(int));
	}

	n = sendmsg(socket, &msg, MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}
