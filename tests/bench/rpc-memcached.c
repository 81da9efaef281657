/* SPDX-License-Identifier: Apache-2.0 */
/* The peer: Debian's memcached, one worker, on a UNIX socket. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/rpc-cases.h"

#define MEMCACHED "/usr/bin/memcached"

pid_t rpc_memcached_start(const char *path)
{
	pid_t pid;

	if (access(MEMCACHED, X_OK) < 0)
		return 0;
	pid = fork();
	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(MEMCACHED, MEMCACHED, "-u", "root", "-s", path, "-t", "1", "-m", "16", (char *)NULL);
	_exit(1);
}

void rpc_memcached_end(pid_t memcached)
{
	kill(memcached, SIGTERM);
	waitpid(memcached, NULL, 0);
}
