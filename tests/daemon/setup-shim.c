/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into hugepool-setup: a kernel that has fewer huge pages than it is asked for
 * (SHIM_CAP=number), and a death before the n-th step that changes anything (SHIM_KILL_AT=n), or a
 * SIGTERM there (SHIM_TERM_AT=n). The steps are the same in every run with the same start, so a test
 * can go through all of them.
 */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHIM __attribute__((visibility("default")))

static long number(const char *name)
{
	const char *text = getenv(name);

	return text ? atol(text) : -1;
}

static void step(void)
{
	static atomic_long steps;
	long now = atomic_fetch_add(&steps, 1) + 1;

	if (now == number("SHIM_KILL_AT"))
		kill(getpid(), SIGKILL);
	if (now == number("SHIM_TERM_AT"))
		kill(getpid(), SIGTERM);
}

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		abort();
	return function;
}

static int is_nr_hugepages(int fd)
{
	char link[64], path[256];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return strstr(path, "/nr_hugepages") != NULL;
}

SHIM ssize_t write(int fd, const void *buffer, size_t size)
{
	ssize_t (*real)(int, const void *, size_t) = next("write");
	char text[32];

	if (!is_nr_hugepages(fd))
		return real(fd, buffer, size);
	step();
	if (number("SHIM_CAP") >= 0 && atol(buffer) > number("SHIM_CAP")) {
		snprintf(text, sizeof(text), "%ld", number("SHIM_CAP"));
		return real(fd, text, strlen(text)) < 0 ? -1 : (ssize_t)size;
	}
	return real(fd, buffer, size);
}

#define STEP(name, parameters, arguments)            \
	SHIM int name parameters                     \
	{                                            \
		int(*real) parameters = next(#name); \
                                                     \
		step();                              \
		return real arguments;               \
	}

STEP(fsmount, (int fd, unsigned flags, unsigned attributes), (fd, flags, attributes))
STEP(move_mount, (int from, const char *a, int to, const char *b, unsigned flags),
     (from, a, to, b, flags))
STEP(mount, (const char *a, const char *b, const char *type, unsigned long flags, const void *data),
     (a, b, type, flags, data))
STEP(umount2, (const char *path, int flags), (path, flags))
STEP(bind, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))
STEP(chmod, (const char *path, mode_t mode), (path, mode))
STEP(listen, (int fd, int queue), (fd, queue))
STEP(mkdir, (const char *path, mode_t mode), (path, mode))
STEP(renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
STEP(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
STEP(unlink, (const char *path), (path))
STEP(ftruncate, (int fd, off_t size), (fd, size))
STEP(unshare, (int flags), (flags))
STEP(setns, (int fd, int type), (fd, type))
