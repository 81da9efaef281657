/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attacker that keeps the descriptor and the mapping of every block it gets, live or given back,
 * and tries to have more memory by them: longer files, pages beyond the end, holes filled again. It
 * looks through whatever it gets for what is not its own.
 */
#include "tests/integration/attack/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS_KEPT 6

struct piece {
	struct taken taken;
	bool given_back, dead;
};

/* A file may be longer than its block only in name: no page comes with it. */
static bool make_longer(int fd)
{
	struct stat before;

	return fstat(fd, &before) == 0 && ftruncate(fd, before.st_size + BLOCK_BYTES) == 0;
}

/* The kernel makes a file as long as a shared mapping of it that may be written. */
static bool make_longer_by_map(int fd)
{
	struct stat before, after;
	size_t bytes;
	void *map;

	if (fstat(fd, &before))
		return false;
	bytes = (size_t)before.st_size + BLOCK_BYTES;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return false;
	munmap(map, bytes);
	return fstat(fd, &after) == 0 && after.st_size > before.st_size;
}

static bool punch(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES) == 0;
}

/* The file is the service's: whoever was given a descriptor cannot make another one of it. */
static void open_again(int fd)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again < 0 && errno == EACCES)
		hit(HIT_REOPEN_REFUSED);
	else
		wrong(WRONG_REOPENED);
	if (again >= 0)
		close(again);
}

static void harm_live(struct piece *piece, uint32_t who)
{
	int fd = piece->taken.fd;
	struct stat st;

	switch (random() % 5) {
	case 0:
		if (make_longer(fd))
			hit(HIT_GREW_LIVE_SIZE);
		break;
	case 1:
		if (make_longer_by_map(fd))
			hit(HIT_GREW_LIVE_MAP);
		break;
	case 2: /* more pages than the block has are not to be had, whatever was punched before */
		fallocate(fd, 0, 0, 2 * BLOCK_BYTES);
		if (fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 <= BLOCK_BYTES)
			hit(HIT_GREW_LIVE_PAGES);
		else
			wrong(WRONG_FOREIGN);
		break;
	case 3:
		if (punch(fd))
			hit(HIT_PUNCHED_LIVE);
		/* What is not there is not touched: filled again, or left alone. */
		if (fallocate(fd, 0, 0, PAGE_BYTES) == 0)
			memory_search(piece->taken.map, PAGE_BYTES, who);
		break;
	default:
		open_again(fd);
		break;
	}
}

/* Takes as many pages as it gets and looks at them: by mapping and by read(). */
static void take_pages_back(struct piece *piece, uint32_t who)
{
	static char page[64 * 1024];

	if (fallocate(piece->taken.fd, 0, 0, BLOCK_BYTES))
		return;
	hit(HIT_DEAD_PAGES);
	if (memory_search(piece->taken.map, BLOCK_BYTES, who))
		hit(HIT_DEAD_LOOKED);
	if (pread(piece->taken.fd, page, sizeof(page), PAGE_BYTES) == sizeof(page))
		memory_search(page, sizeof(page), who);
	memory_mark(piece->taken.map, BLOCK_BYTES, who);
}

static void harm_dead(struct piece *piece, uint32_t who)
{
	int fd = piece->taken.fd;
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_size == 0) {
		piece->dead = true;
		if (!memory_is_there(piece->taken.map))
			hit(HIT_SIGBUS_DEAD);
	}
	if (!piece->dead)
		return;
	switch (random() % 5) {
	case 0:
		if (make_longer(fd))
			hit(HIT_DEAD_SIZE);
		break;
	case 1:
		if (make_longer_by_map(fd))
			hit(HIT_DEAD_MAP);
		break;
	case 2:
		take_pages_back(piece, who);
		break;
	case 3:
		if (punch(fd))
			hit(HIT_PUNCHED_DEAD);
		break;
	default:
		open_again(fd);
		break;
	}
}

static void step(struct piece *piece, uint32_t who)
{
	if (piece->taken.fd < 0) {
		*piece = (struct piece){.taken = {.fd = -1}};
		taken_new(&piece->taken, who);
	} else if (!piece->given_back) {
		harm_live(piece, who);
		if (random() % 8 == 0) {
			taken_give_back(&piece->taken);
			piece->given_back = true;
		}
	} else {
		harm_dead(piece, who);
		if (piece->dead && random() % 16 == 0) {
			taken_drop(&piece->taken);
			hit(HIT_DEAD_DROPPED);
		}
	}
}

void attacker_grow(uint32_t who)
{
	struct piece pieces[BLOCKS_KEPT];

	for (size_t i = 0; i < BLOCKS_KEPT; i++)
		pieces[i] = (struct piece){.taken = {.fd = -1}};
	while (attacking()) {
		step(&pieces[random() % BLOCKS_KEPT], who);
		nap_ms(1);
	}
	hold();
}
