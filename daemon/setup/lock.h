/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The locks of hugepool-setup: one for each page size of the machine, one for each set-up. Each is let
 * go when its descriptor is closed, and so when its holder dies.
 */
#pragma once

#include <stdint.h>

enum lock_condition {
	LOCK_BUSY = 1, /* somebody else holds it, in a way that excludes ours */
};

/*
 * Keeps other hugepool-setup processes from changing the number of this page size. Waits for them for
 * a bounded time, and names the lock if it is not free at once. Whoever wants several takes the
 * smallest page size first. Return: descriptor; -ETIMEDOUT; -errno.
 */
int lock_page_size(uint64_t page_bytes);
void unlock_page_size_consume_fd(uint64_t page_bytes, int fd);

/*
 * The lock of the set-up whose pin is in the directory dirfd. LOCK_SH: it stays as it is; LOCK_EX: it
 * is being changed. Never waits. Return: 0 with the descriptor, LOCK_BUSY, -ENOENT if LOCK_SH finds
 * that there is no set-up, or -errno.
 */
int lock_setup(int dirfd, int operation, int *ret_fd);

/* When nothing is left of the set-up; LOCK_EX is held. Return: 0 or -errno. */
int lock_setup_remove(int dirfd);
