/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library is asked for the descriptor as any program may, and then not told what became of it: it
 * lets go of the block in good faith while the attacker has the file open and mapped.
 */
#include "tests/integration/attack/attack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WAIT_FOR_ROOM_MS 500
#define RETRY_MS	 20

void nap_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
		  NULL);
}

pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

void hold(void)
{
	tally->holding++;
	for (;;)
		pause();
}

static bool take(struct taken *taken, uint32_t who)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	uint64_t offset;
	int fd;

	request.bytes = BLOCK_BYTES;
	request.flags = HUGEPOOL_EXCLUSIVE;
	request.deadline_ms = WAIT_FOR_ROOM_MS;
	if (hugepool_alloc(taken->pool, &request, &taken->range))
		return false; /* what he holds is charged to him: no more for now */
	memory_search(taken->range.address, BLOCK_BYTES, who);
	memory_mark(taken->range.address, BLOCK_BYTES, who);
	fd = fcntl(hugepool_range_fd(taken->pool, &taken->range, &offset), F_DUPFD_CLOEXEC, 0);
	taken->map = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || taken->map == MAP_FAILED)
		abort();
	taken->fd = fd;
	return true;
}

bool taken_new(struct taken *taken, uint32_t who)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;

	*taken = (struct taken){.fd = -1};
	options.socket = attack_socket;
	options.flags = HUGEPOOL_KEEP_FDS;
	if (hugepool_open(&taken->pool, &options)) {
		taken->pool = NULL;
		nap_ms(RETRY_MS);
		return false;
	}
	if (take(taken, who))
		return true;
	taken->pool = hugepool_close(taken->pool);
	return false;
}

void taken_give_back(struct taken *taken)
{
	if (taken->pool)
		hugepool_free(taken->pool, &taken->range);
	taken->pool = hugepool_close(taken->pool);
}

void taken_drop(struct taken *taken)
{
	if (taken->map)
		munmap(taken->map, BLOCK_BYTES);
	taken->map = NULL;
	if (taken->fd >= 0)
		close(taken->fd);
	taken->fd = -1;
}

bool taken_wait_dead(const struct taken *taken)
{
	struct stat st;

	while (attacking()) {
		if (fstat(taken->fd, &st) == 0 && st.st_size == 0)
			return true;
		nap_ms(1);
	}
	return false;
}
