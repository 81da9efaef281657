/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made with fsopen() and fsmount(): the file system exists before it has a place, so that the same
 * few lines serve the pinned name space (which attaches it) and a guard (which holds the descriptor),
 * and so that nothing of the host's mount table is touched on the way.
 *
 * size = min_size = the block: the kernel reserves all its pages or refuses to make it, and whoever
 * holds a file of it can never get more than that.
 */
#include "daemon/setup/blockfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int set_number(int fs, const char *key, uint64_t value)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, text, 0) < 0 ? -errno : 0;
}

static int configure(int fs, uint64_t page_bytes, uint64_t block_bytes, uid_t uid)
{
	int r;

	r = set_number(fs, "pagesize", page_bytes);
	if (r == 0)
		r = set_number(fs, "size", block_bytes);
	if (r == 0)
		r = set_number(fs, "min_size", block_bytes);
	if (r == 0)
		r = set_number(fs, "uid", uid);
	if (r == 0 && fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0)
		r = -errno;
	if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	return r;
}

int blockfs_new(uint64_t page_bytes, uint64_t block_bytes, uid_t uid)
{
	int fs, r;

	fs = fsopen("hugetlbfs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	r = configure(fs, page_bytes, block_bytes, uid);
	if (r == 0) {
		r = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
		if (r < 0)
			r = -errno;
	}
	close(fs);
	return r;
}

int blockfs_attach(int mount_fd, int dirfd, const char *path)
{
	return move_mount(mount_fd, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int blockfs_open(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int blockfs_info(int fd, struct blockfs_info *ret)
{
	struct statfs fs;
	struct stat root;

	if (fstatfs(fd, &fs) < 0 || fstat(fd, &root) < 0)
		return -errno;
	if ((unsigned long)fs.f_type != HUGETLBFS_SUPER_MAGIC)
		return -ENOTTY;
	ret->page_bytes = (uint64_t)fs.f_bsize;
	ret->pages = fs.f_blocks;
	ret->free_pages = fs.f_bfree;
	ret->uid = root.st_uid;
	return 0;
}

int blockfs_in_use(int fd)
{
	if (flock(fd, LOCK_SH | LOCK_NB) < 0) /* shared: two who look do not see one another */
		return errno == EWOULDBLOCK ? 1 : -errno;
	return flock(fd, LOCK_UN) < 0 ? -errno : 0;
}

int blockfs_keep(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 1 : -errno;
	return 0;
}

/* Calls fn for each file until one does not return 0, which is returned. */
typedef int (*file_fn)(void *userdata, int dirfd, const char *name);

static int for_each_file(int fd, file_fn fn, void *userdata)
{
	struct dirent *entry;
	DIR *files;
	int list, r = 0;

	list = blockfs_open(fd, "."); /* a position of its own */
	if (list < 0)
		return list;
	files = fdopendir(list);
	if (!files) {
		r = -errno;
		close(list);
		return r;
	}
	while (r == 0 && (entry = readdir(files)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = fn(userdata, fd, entry->d_name);
	closedir(files);
	return r;
}

static int find_file(void *userdata, int dirfd, const char *name)
{
	(void)userdata;
	(void)dirfd;
	(void)name;
	return 1;
}

int blockfs_is_spare(int fd)
{
	struct blockfs_info info;
	int r = blockfs_in_use(fd);

	if (r)
		return r < 0 ? r : 0;
	r = blockfs_info(fd, &info);
	if (r < 0 || info.free_pages != info.pages)
		return r < 0 ? r : 0;
	r = for_each_file(fd, find_file, NULL);
	return r < 0 ? r : !r;
}

/* A lease for writing is to be had only where nobody else has the file open or mapped. */
int blockfs_file_held(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN ? 1 : -errno;
	return fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ? -errno : 0;
}

static int file_held(void *userdata, int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), r;

	(void)userdata;
	if (fd < 0)
		return -errno;
	r = blockfs_file_held(fd);
	close(fd);
	return r;
}

int blockfs_held(int fd)
{
	return for_each_file(fd, file_held, NULL);
}

int blockfs_empty_file(int fd)
{
	for (int i = 0; i < 2; i++)
		if (ftruncate(fd, 0) < 0)
			return -errno;
	return 0;
}

/* The others must be, whatever becomes of one. */
static int wipe_file(void *userdata, int dirfd, const char *name)
{
	int *first = userdata, fd, r;

	fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	r = fd < 0 ? -errno : blockfs_empty_file(fd);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && unlinkat(dirfd, name, 0) < 0 && r == 0)
		r = -errno;
	if (r < 0 && *first == 0)
		*first = r;
	return 0;
}

int blockfs_wipe(int fd)
{
	int first = 0, r = for_each_file(fd, wipe_file, &first);

	return r < 0 ? r : first;
}
