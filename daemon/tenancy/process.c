/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel remembers who connected a socket, not only by number: SO_PEERPIDFD (from 6.5) gives a
 * pidfd of that very process, whatever has happened to its pid since. Older kernels give the number
 * only. There the pidfd is opened by number, and kept only if the process behind it had started
 * before this daemon looked at the connection; what is left is a pid used again between connect()
 * and that moment, which takes a whole round of pids.
 */
#include "daemon/tenancy/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* asm-generic; in the headers from 6.5 */
#endif

#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446 /* linux/magic.h, from 6.9 */
#endif

#define STAT_MAX 1024 /* bytes of /proc/PID/stat; it has about 350 */

int process_peer_uid(int socket, uid_t *ret)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	*ret = cred.uid;
	return 0;
}

bool process_has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/*
 * The command (field 2, which may hold anything, even ')') and the start time (field 22). Where
 * /proc does not tell, both stay unknown: the pidfd is what everything rests on.
 */
static void read_stat(struct process *process)
{
	char path[32], text[STAT_MAX], *open_paren, *close_paren;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)process->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;

	open_paren = strchr(text, '(');
	close_paren = strrchr(text, ')');
	if (!open_paren || !close_paren || close_paren < open_paren)
		return;
	*close_paren = 0;
	snprintf(process->command, sizeof(process->command), "%.*s", PROCESS_COMMAND_MAX,
		 open_paren + 1);
	if (sscanf(close_paren + 1,
		   " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
		   &process->start_ticks) != 1)
		process->start_ticks = 0;
}

/* Before 6.9 all pidfds share an inode, which names nothing. */
static void read_inode(struct process *process, int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(pidfd, &fs) == 0 && fs.f_type == PID_FS_MAGIC && fstat(pidfd, &st) == 0)
		process->pidfd_inode = st.st_ino;
}

static uint64_t ticks_since_boot(void)
{
	struct timespec now;
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * hz + (uint64_t)now.tv_nsec * hz / 1000000000u;
}

/* Before 6.5: by number, refusing a process that is younger than this look. */
static int open_by_number(struct process *process, uint64_t now_ticks, int *ret_pidfd)
{
	int pidfd = pidfd_open(process->pid, 0);

	if (pidfd < 0)
		return errno == ESRCH || errno == EINVAL ? PROCESS_GONE : -errno;
	read_stat(process);
	if (process->start_ticks > now_ticks) {
		close(pidfd);
		return PROCESS_GONE;
	}
	*ret_pidfd = pidfd;
	return 0;
}

int process_of_peer(int socket, struct process *ret, int *ret_pidfd)
{
	uint64_t now_ticks = ticks_since_boot();
	struct process process = {0};
	struct ucred cred;
	socklen_t size = sizeof(cred);
	int pidfd, rc;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	if (cred.pid <= 0)
		return PROCESS_HIDDEN;
	process.pid = cred.pid;
	process.uid = cred.uid;

	size = sizeof(pidfd);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
		read_stat(&process);
	} else if (errno == ENOPROTOOPT) {
		rc = open_by_number(&process, now_ticks, &pidfd);
		if (rc)
			return rc;
	} else {
		return errno == ESRCH || errno == EINVAL || errno == ENODATA ? PROCESS_GONE
									     : -errno;
	}
	if (process_has_ended(pidfd)) {
		close(pidfd);
		return PROCESS_GONE;
	}
	read_inode(&process, pidfd);
	*ret = process;
	*ret_pidfd = pidfd;
	return 0;
}

bool process_is_same(const struct process *a, const struct process *b)
{
	if (a->pid != b->pid)
		return false;
	if (a->pidfd_inode && b->pidfd_inode)
		return a->pidfd_inode == b->pidfd_inode;
	return a->start_ticks == b->start_ticks;
}

int process_look(struct process *process, int *ret_pidfd)
{
	int pidfd = pidfd_open(process->pid, 0);

	if (pidfd < 0)
		return errno == ESRCH || errno == EINVAL ? PROCESS_GONE : -errno;
	read_stat(process);
	read_inode(process, pidfd);
	if (process_has_ended(pidfd)) {
		close(pidfd);
		return PROCESS_GONE;
	}
	*ret_pidfd = pidfd;
	return 0;
}

int process_find(const struct process *process, int *ret_pidfd)
{
	struct process now = {.pid = process->pid};
	int rc = process_look(&now, ret_pidfd);

	if (rc || process_is_same(process, &now))
		return rc;
	close(*ret_pidfd);
	return PROCESS_GONE;
}
