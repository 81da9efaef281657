/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attackers that make the kernel lose count of pages. What is lost is lost until the machine is
 * started again, so these run in a guest that is thrown away and nowhere else (tests/guest).
 */
#include "tests/integration/attack/attack.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS_OF_BLOCK 40

/* --- private faults that are backed out ------------------------------------------------------- */

static int open_uffd(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(__NR_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The page is allocated before it is found that there is nothing to copy from, and given back. */
static void copy_from_nowhere(int uffd, char *to)
{
	char *from = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct uffdio_copy copy = {.dst = (uintptr_t)to, .src = (uintptr_t)from, .len = PAGE_BYTES};

	if (from == MAP_FAILED)
		return;
	(void)ioctl(uffd, UFFDIO_COPY, &copy);
	hit(HIT_BACKED_OUT);
	munmap(from, PAGE_BYTES);
}

static void back_out(const struct taken *taken)
{
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	int uffd = open_uffd();
	char *map;

	if (uffd < 0)
		return;
	for (int i = 0; i < ROUNDS_OF_BLOCK && attacking(); i++) {
		fallocate(taken->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES);
		map = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
			   taken->fd, 0);
		if (map == MAP_FAILED)
			break;
		range.range.start = (uintptr_t)map;
		range.range.len = BLOCK_BYTES;
		if (ioctl(uffd, UFFDIO_REGISTER, &range) == 0)
			copy_from_nowhere(uffd, map);
		munmap(map, BLOCK_BYTES);
	}
	close(uffd);
}

void attacker_back_out(uint32_t who)
{
	while (attacking()) {
		struct taken taken;

		if (!taken_new(&taken, who))
			continue;
		back_out(&taken);
		taken_give_back(&taken);
		taken_drop(&taken);
	}
	hold();
}

/* --- shared faults that race with truncation -------------------------------------------------- */

struct race {
	struct taken taken;
	_Atomic bool stop;
};

static void *fault(void *argument)
{
	struct race *race = argument;

	while (!race->stop)
		for (uint64_t i = 0; i < BLOCK_PAGES; i++)
			if (memory_mark(race->taken.map + i * PAGE_BYTES, 64, UID_MALLORY))
				hit(HIT_RACED);
	return NULL;
}

static void run_race(struct race *race)
{
	pthread_t threads[2];
	size_t n = 0;

	for (size_t i = 0; i < 2; i++)
		n += pthread_create(&threads[n], NULL, fault, race) == 0;
	for (int i = 0; i < ROUNDS_OF_BLOCK && attacking(); i++) {
		(void)!ftruncate(race->taken.fd, 0);
		(void)!ftruncate(race->taken.fd, BLOCK_BYTES);
		nap_ms(1);
	}
	taken_give_back(&race->taken); /* the daemon's truncation is one of them */
	nap_ms(20);
	race->stop = true;
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

void attacker_race(uint32_t who)
{
	while (attacking()) {
		struct race race = {.stop = false};

		if (!taken_new(&race.taken, who))
			continue;
		run_race(&race);
		taken_drop(&race.taken);
	}
	hold();
}
