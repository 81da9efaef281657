/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A namespace is pinned by a bind mount of its nsfs file. The kernel refuses to put that on a mount
 * that is shared with the namespace itself, so the pin is first bound onto itself as a private mount
 * and the nsfs file goes on top. Killed between the two, the path is not nsfs and the next "up" goes
 * on from there; unpinning takes off whatever is stacked.
 *
 * The namespace is a slave of the host's: what the host unmounts goes here too, so that nothing of
 * the host's is kept busy, and nothing mounted here is seen there.
 */
#include "daemon/setup/namespace.h"

#include "daemon/setup/blockfs.h"
#include "daemon/setup/lock.h"
#include "proto/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define NSFS_SUPER_MAGIC 0x6e736673
#define PIN_STACK_MAX	 8

int namespace_open(struct setup_namespace *ret, const char *pin, enum namespace_use use)
{
	char copy[PATH_MAX];
	int r = 0;

	if ((size_t)snprintf(ret->pin, sizeof(ret->pin), "%s", pin) >= sizeof(ret->pin))
		return -ENAMETOOLONG;
	memcpy(copy, ret->pin, sizeof(copy));
	(void)snprintf(ret->directory, sizeof(ret->directory), "%s", dirname(copy));
	ret->home = ret->lock = -1;
	if (use == NAMESPACE_CREATE && mkdir(ret->directory, 0755) < 0 && errno != EEXIST)
		return -errno;
	ret->dirfd = open(ret->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dirfd < 0)
		return -errno;
	if (use != NAMESPACE_LOOK)
		r = lock_setup(ret->dirfd, use == NAMESPACE_USE ? LOCK_SH : LOCK_EX, &ret->lock);
	if (r) {
		close(ret->dirfd);
		return r == LOCK_BUSY ? -EBUSY : r;
	}
	return 0;
}

void namespace_close(struct setup_namespace *ns)
{
	close(ns->dirfd);
	if (ns->home >= 0)
		close(ns->home);
	if (ns->lock >= 0)
		close(ns->lock);
}

int namespace_is_pinned(const struct setup_namespace *ns)
{
	struct statfs fs;

	if (statfs(ns->pin, &fs) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fs.f_type == NSFS_SUPER_MAGIC;
}

/* --- making ----------------------------------------------------------------------------------- */

/* In the child: a namespace of its own with an empty place for the blocks. */
static int build(const char *directory, int cpu)
{
	cpu_set_t set;

	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) < 0)
			return -errno;
	}
	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	if (mount("hugepool", directory, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") <
	    0)
		return -errno;
	return 0;
}

/* Tells how it went, then stays until the other end is closed. */
static void child(const char *directory, int cpu, int socket)
{
	int r = build(directory, cpu);
	char byte;

	if (write(socket, &r, sizeof(r)) == sizeof(r))
		(void)!read(socket, &byte, 1);
	_exit(0);
}

static int make_pin_file(const struct setup_namespace *ns)
{
	int fd;

	fd = open(ns->pin, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	if (mount(ns->pin, ns->pin, NULL, MS_BIND, NULL) < 0)
		return -errno;
	return mount(NULL, ns->pin, NULL, MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

static int pin_child(const struct setup_namespace *ns, pid_t pid, int socket)
{
	char path[64];
	int r;

	if (read(socket, &r, sizeof(r)) != sizeof(r))
		return -ECHILD;
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return mount(path, ns->pin, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

/* A new namespace, made on this processor (-1: on any), is mounted at the pin. */
static int make_pinned(const struct setup_namespace *ns, int cpu)
{
	int sockets[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(sockets[0]);
		child(ns->directory, cpu, sockets[1]);
	}
	r = pid < 0 ? -errno : 0;
	close(sockets[1]);
	if (r == 0)
		r = pin_child(ns, pid, sockets[0]);
	close(sockets[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return r;
}

/*
 * The kernel refuses (EINVAL) to mount a namespace in one with a higher number than its own, so that
 * none can hold itself. Numbers come in batches for each processor (seen on 6.18): a new namespace
 * may well have a lower number than ours if that was made on another processor. On the same
 * processor it has not; nobody tells which that was, so all are tried.
 */
int namespace_create(const struct setup_namespace *ns)
{
	long nr_cpus = sysconf(_SC_NPROCESSORS_CONF);
	int r;

	r = make_pin_file(ns);
	if (r < 0)
		return r;
	r = make_pinned(ns, -1);
	for (int cpu = 0; r == -EINVAL && cpu < nr_cpus && cpu < CPU_SETSIZE; cpu++)
		r = make_pinned(ns, cpu);
	if (r < 0)
		namespace_unpin(ns);
	return r;
}

int namespace_unpin(const struct setup_namespace *ns)
{
	for (int i = 0; i < PIN_STACK_MAX; i++) {
		if (umount2(ns->pin, UMOUNT_NOFOLLOW | MNT_DETACH) == 0)
			continue;
		if (errno != EINVAL && errno != ENOENT) /* these: no mount is left */
			return -errno;
		return unlink(ns->pin) < 0 && errno != ENOENT ? -errno : 0;
	}
	return -ELOOP;
}

/* --- being inside ----------------------------------------------------------------------------- */

int namespace_enter(struct setup_namespace *ns)
{
	int inside, r;

	ns->home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (ns->home < 0)
		return -errno;
	inside = open(ns->pin, O_RDONLY | O_CLOEXEC);
	r = inside < 0 || setns(inside, CLONE_NEWNS) < 0 ? -errno : 0;
	if (inside >= 0)
		close(inside);
	if (r < 0) {
		close(ns->home);
		ns->home = -1;
		return r;
	}
	if (chdir(ns->directory) == 0)
		return 0;
	r = -errno;
	(void)namespace_leave(ns);
	return r;
}

int namespace_leave(struct setup_namespace *ns)
{
	int r = setns(ns->home, CLONE_NEWNS) < 0 ? -errno : 0;

	close(ns->home);
	ns->home = -1;
	return r;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_zone(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Blocks are numbered without gaps from 0, except while "up" or "down" is at work. */
static int for_each_block_of(const char *zone, namespace_block_fn fn, void *userdata)
{
	for (unsigned block = 0; block < HP_ZONE_BLOCKS_MAX; block++) {
		struct blockfs_info info;
		char path[NAME_MAX + 32];
		int fd, r;

		(void)snprintf(path, sizeof(path), "%s/%u", zone, block);
		fd = blockfs_open(AT_FDCWD, path);
		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return fd;
		r = blockfs_info(fd, &info);
		if (r == -ENOTTY) { /* the place is there, the mount is not */
			close(fd);
			continue;
		}
		if (r < 0) {
			close(fd);
			return r;
		}
		r = fn(userdata, zone, block, fd);
		if (r)
			return r;
	}
	return 0;
}

int namespace_for_each_block(namespace_block_fn fn, void *userdata)
{
	struct dirent **zones;
	int n, r = 0;

	n = scandir(".", &zones, is_zone, by_name);
	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = for_each_block_of(zones[i]->d_name, fn, userdata);
		free(zones[i]);
	}
	free(zones);
	return r;
}
