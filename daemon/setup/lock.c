/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flock() asks for nothing but an open descriptor: whoever may read a file may hold its lock for ever.
 * So the locks are on files of their own that only root can open, in directories where only root can
 * make files: not in /run/lock, where everybody could be there first.
 *
 * Page sizes are the machine's, whatever set-ups there are; their files are in /run itself, which is
 * the same inside and outside of the namespace of a set-up.
 *
 * Whoever holds a lock alone may remove its file; so whoever gets a lock looks whether its file is still
 * the one of that name.
 */
#include "daemon/setup/lock.h"

#include "daemon/setup/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SETUP_LOCK_NAME "setup.lock"
#define PATH_BYTES	64
#define TRY_INTERVAL_MS 20
#define TRY_TIMEOUT_MS	(5 * 60 * 1000) /* the kernel may take long to find pages for another one */
#define OPEN_TRIES	16		/* the file may be removed between opening and locking it */

/* Return: descriptor; -EPERM for a file that others might have open; -errno. */
static int open_lock(int dirfd, const char *name, int flags)
{
	struct stat st;
	int fd, r = 0;

	fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077))
		r = -EPERM;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static bool has_name(int fd, int dirfd, const char *name)
{
	struct stat held, named;

	return fstat(fd, &held) == 0 && fstatat(dirfd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/* Return: 0 with the descriptor, LOCK_BUSY or -errno. */
static int try_lock(int dirfd, const char *name, int flags, int operation, int *ret_fd)
{
	for (int i = 0; i < OPEN_TRIES; i++) {
		int fd = open_lock(dirfd, name, flags), r;

		if (fd < 0)
			return fd;
		if (flock(fd, operation | LOCK_NB) < 0) {
			r = errno == EWOULDBLOCK ? LOCK_BUSY : -errno;
			close(fd);
			return r;
		}
		if (has_name(fd, dirfd, name)) {
			*ret_fd = fd;
			return 0;
		}
		close(fd);
	}
	return LOCK_BUSY;
}

static void page_size_path(uint64_t page_bytes, char path[static PATH_BYTES])
{
	(void)snprintf(path, PATH_BYTES, "/run/hugepool-%" PRIu64 "kB.lock", page_bytes / 1024);
}

int lock_page_size(uint64_t page_bytes)
{
	const struct timespec interval = {.tv_nsec = TRY_INTERVAL_MS * 1000000};
	char path[PATH_BYTES];
	int fd, r;

	page_size_path(page_bytes, path);
	r = try_lock(AT_FDCWD, path, O_CREAT, LOCK_EX, &fd);
	if (r == LOCK_BUSY)
		setup_warn("waiting for %s: another hugepool-setup changes huge pages", path);
	for (int ms = 0; r == LOCK_BUSY && ms < TRY_TIMEOUT_MS; ms += TRY_INTERVAL_MS) {
		nanosleep(&interval, NULL);
		r = try_lock(AT_FDCWD, path, O_CREAT, LOCK_EX, &fd);
	}
	if (r == 0)
		return fd;
	if (r == LOCK_BUSY)
		r = -ETIMEDOUT;
	(void)setup_fail("%s cannot be locked: %s", path, strerror(-r));
	return r;
}

void unlock_page_size_consume_fd(uint64_t page_bytes, int fd)
{
	char path[PATH_BYTES];

	page_size_path(page_bytes, path);
	(void)unlink(path);
	close(fd);
}

int lock_setup(int dirfd, int operation, int *ret_fd)
{
	return try_lock(dirfd, SETUP_LOCK_NAME, operation == LOCK_EX ? O_CREAT : 0, operation,
			ret_fd);
}

int lock_setup_remove(int dirfd)
{
	return unlinkat(dirfd, SETUP_LOCK_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}
