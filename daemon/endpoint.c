/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind() does not tell a dead daemon's socket from a living one's, and unlinking before binding
 * takes the path from under whoever has it. So the path belongs to whoever holds the lock of a file
 * beside it, which the kernel lets go of when its holder dies, however it dies: of two daemons that
 * start together one gets it. With the lock held a socket that nobody listens on is a left-over;
 * one that answers all the same belongs to something that does not know the lock, and is left
 * alone.
 */
#include "daemon/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log.h"

#define LOCK_TRIES 16 /* the file may be removed between opening and locking it */

struct endpoint {
	char *path, *lock_path, *directory;
	int type; /* SOCK_... */
	int fd, lock_fd;
	bool made_directory, bound;
};

int endpoint_fd(const struct endpoint *endpoint)
{
	return endpoint->fd;
}

/* --- the path --------------------------------------------------------------------------------- */

static int make_directory(struct endpoint *endpoint)
{
	char *slash = strrchr(endpoint->directory, '/');

	if (!slash || slash == endpoint->directory)
		return 0; /* the working directory, or the root */
	*slash = 0;
	if (mkdir(endpoint->directory, 0755) == 0) {
		endpoint->made_directory = true;
		if (chmod(endpoint->directory, 0755) == 0) /* whatever the umask was */
			return 0;
	} else if (errno == EEXIST) {
		return 0;
	}
	log_error(
		"socket not made: its directory cannot be made path=%s directory=%s reason=\"%s\"",
		endpoint->path, endpoint->directory, strerror(errno));
	return -errno;
}

/* The pid that the holder of the lock wrote there, 0 if none yet. */
static int holder_pid(int lock_fd)
{
	char text[32];
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	return (int)strtol(text, NULL, 10);
}

static bool same_file(int fd, const char *path)
{
	struct stat by_fd, by_path;

	return fstat(fd, &by_fd) == 0 && stat(path, &by_path) == 0 &&
	       by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino;
}

/* Return: 0, 1 if the file was removed meanwhile, -errno. */
static int try_lock(struct endpoint *endpoint)
{
	int fd = open(endpoint->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0) {
		log_error("socket not made: its lock cannot be opened path=%s reason=\"%s\"",
			  endpoint->lock_path, strerror(errno));
		return -errno;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;

		if (rc == -EADDRINUSE)
			log_error("socket in use: another process has it path=%s pid=%d",
				  endpoint->path, holder_pid(fd));
		else
			log_error("socket not made: its lock cannot be had path=%s reason=\"%s\"",
				  endpoint->lock_path, strerror(-rc));
		close(fd);
		return rc;
	}
	if (!same_file(fd, endpoint->lock_path)) {
		close(fd);
		return 1;
	}
	endpoint->lock_fd = fd;
	return 0;
}

static int lock(struct endpoint *endpoint)
{
	char pid[32];
	int rc = 1, n;

	for (int i = 0; i < LOCK_TRIES && rc == 1; i++)
		rc = try_lock(endpoint);
	if (rc)
		return rc < 0 ? rc : -EADDRINUSE;
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(endpoint->lock_fd, 0) < 0 || pwrite(endpoint->lock_fd, pid, (size_t)n, 0) < 0)
		log_warning("lock without a pid path=%s reason=\"%s\"", endpoint->lock_path,
			    strerror(errno));
	return 0;
}

/* --- the socket ------------------------------------------------------------------------------- */

static int set_address(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	strcpy(ret->sun_path, path);
	return 0;
}

/*
 * Does anybody listen there? Return: 0 and whose it is, 0 if that cannot be told; -ECONNREFUSED:
 * nobody; -errno.
 */
static int ask_who_listens(const struct endpoint *endpoint, const struct sockaddr_un *address,
			   pid_t *ret_pid)
{
	struct ucred cred = {0};
	socklen_t size = sizeof(cred);
	int fd = socket(AF_UNIX, endpoint->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		rc = -errno;
	else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		cred.pid = 0;
	close(fd);
	*ret_pid = cred.pid;
	/* its queue is full, or it is of another type: alive in any case */
	return rc == -EAGAIN || rc == -EPROTOTYPE ? 0 : rc;
}

/* Return: 0: the path is free now; -EADDRINUSE, -EEXIST: the reason is logged; -errno: it is not. */
static int take_over(const struct endpoint *endpoint, const struct sockaddr_un *address)
{
	struct stat st;
	pid_t pid = 0;
	int rc;

	if (lstat(endpoint->path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode)) {
		log_error("socket not made: something else is there path=%s", endpoint->path);
		return -EEXIST;
	}
	rc = ask_who_listens(endpoint, address, &pid);
	if (rc == 0) {
		log_error("socket in use: somebody answers there path=%s pid=%d", endpoint->path,
			  (int)pid);
		return -EADDRINUSE;
	}
	if (rc != -ECONNREFUSED)
		return rc;
	log_notice("left-over socket taken over path=%s", endpoint->path);
	return unlink(endpoint->path) < 0 ? -errno : 0;
}

/* The group is looked up by name; a number is taken as it is. */
static int find_group(const char *name, gid_t *ret)
{
	const struct group *group = getgrnam(name);
	char *end;
	unsigned long number;

	if (group) {
		*ret = group->gr_gid;
		return 0;
	}
	number = strtoul(name, &end, 10);
	if (end == name || *end || number >= (gid_t)-1)
		return -ESRCH;
	*ret = (gid_t)number;
	return 0;
}

/* Nobody may connect between bind() and chmod(): it is born without any right for others. */
static int bind_private(struct endpoint *endpoint, const struct sockaddr_un *address)
{
	mode_t old = umask(0177);
	int rc = bind(endpoint->fd, (const struct sockaddr *)address, sizeof(*address));

	umask(old);
	if (rc < 0)
		return -errno;
	endpoint->bound = true;
	return 0;
}

static int listen_at(struct endpoint *endpoint, mode_t mode, const char *group)
{
	struct sockaddr_un address;
	gid_t gid = (gid_t)-1;
	int rc;

	rc = set_address(endpoint->path, &address);
	if (!rc && group)
		rc = find_group(group, &gid);
	if (!rc)
		rc = take_over(endpoint, &address);
	if (rc)
		return rc;
	endpoint->fd = socket(AF_UNIX, endpoint->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (endpoint->fd < 0)
		return -errno;
	rc = bind_private(endpoint, &address);
	if (rc)
		return rc;
	if (group && chown(endpoint->path, (uid_t)-1, gid) < 0)
		return -errno;
	if (chmod(endpoint->path, mode) < 0 || listen(endpoint->fd, SOMAXCONN) < 0)
		return -errno;
	return 0;
}

void endpoint_set_access(const struct endpoint *endpoint, mode_t mode, const char *group)
{
	gid_t gid = getegid();
	int rc = group ? find_group(group, &gid) : 0;

	if (!rc && (chown(endpoint->path, (uid_t)-1, gid) < 0 || chmod(endpoint->path, mode) < 0))
		rc = -errno;
	if (rc)
		log_error(
			"socket: its mode and group cannot be changed path=%s mode=%o group=%s reason=\"%s\"",
			endpoint->path, (unsigned)mode, group ? group : "-", strerror(-rc));
}

/* --- life ------------------------------------------------------------------------------------- */

int endpoint_open(struct endpoint **ret, const char *path, int type, mode_t mode, const char *group)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
	int rc;

	if (!endpoint)
		return -ENOMEM;
	endpoint->type = type;
	endpoint->fd = endpoint->lock_fd = -1;
	endpoint->path = strdup(path);
	endpoint->directory = strdup(path);
	if (!endpoint->path || !endpoint->directory ||
	    asprintf(&endpoint->lock_path, "%s.lock", path) < 0) {
		endpoint->lock_path = NULL;
		endpoint_close(endpoint);
		return -ENOMEM;
	}
	rc = make_directory(endpoint);
	if (!rc)
		rc = lock(endpoint);
	if (!rc) {
		rc = listen_at(endpoint, mode, group);
		if (rc && rc != -EADDRINUSE && rc != -EEXIST)
			log_error("socket not made path=%s reason=\"%s\"", path, strerror(-rc));
	}
	if (rc) {
		endpoint_close(endpoint);
		return rc;
	}
	*ret = endpoint;
	return 0;
}

int endpoint_adopt_consume_fd(struct endpoint **ret, int fd)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (!endpoint) {
		close(fd);
		return -ENOMEM;
	}
	endpoint->fd = fd;
	endpoint->lock_fd = -1;
	*ret = endpoint;
	return 0;
}

struct endpoint *endpoint_close(struct endpoint *endpoint)
{
	if (!endpoint)
		return NULL;
	if (endpoint->bound)
		unlink(endpoint->path);
	if (endpoint->fd >= 0)
		close(endpoint->fd);
	if (endpoint->lock_fd >= 0) {
		unlink(endpoint->lock_path);
		close(endpoint->lock_fd);
	}
	if (endpoint->made_directory)
		rmdir(endpoint->directory); /* stays if somebody else has put something there */
	free(endpoint->path);
	free(endpoint->lock_path);
	free(endpoint->directory);
	free(endpoint);
	return NULL;
}
