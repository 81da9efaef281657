/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attacker that maps one block a thousand times, and one whose children keep mappings when the
 * parent has given everything back, closed everything and is gone.
 */
#include "tests/integration/attack/attack.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAPPINGS 1000
#define CHILDREN 3
#define KEEP_MS	 50

static void map_often(uint32_t who)
{
	void *maps[MAPPINGS];
	struct taken taken;
	size_t n = 0;

	if (!taken_new(&taken, who))
		return;
	while (n < MAPPINGS && (maps[n] = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
					       MAP_SHARED, taken.fd, 0)) != MAP_FAILED)
		memory_is_there(maps[n++]);
	taken_give_back(&taken);
	if (n == MAPPINGS && taken_wait_dead(&taken))
		hit(HIT_MAPPED_OFTEN);
	for (size_t i = 0; attacking() && i < n; i++)
		if (!memory_is_there(maps[i]))
			hit(HIT_SIGBUS_DEAD);
	if (!attacking())
		hold();
	for (size_t i = 0; i < n; i++)
		munmap(maps[i], BLOCK_BYTES);
	taken_drop(&taken);
}

/* Has the mapping and nothing else; its parent is dead by then. */
static void keep_mapping(const struct taken *taken, uint32_t who)
{
	close(taken->fd);
	for (unsigned ms = 0; memory_search(taken->map, BLOCK_BYTES, who) && ms < 2000; ms += 5)
		nap_ms(5);
	if (!memory_is_there(taken->map)) {
		hit(HIT_SIGBUS_DEAD);
		hit(HIT_CHILD_KEPT);
	}
	nap_ms(KEEP_MS);
	_exit(0);
}

/* Its children are its parent's when it has ended, who is their reaper. */
static void fork_and_end(uint32_t who)
{
	struct taken taken;

	if (!taken_new(&taken, who))
		_exit(0);
	for (int i = 0; i < CHILDREN; i++)
		if (fork() == 0)
			keep_mapping(&taken, who);
	taken_give_back(&taken);
	_exit(0);
}

static void fork_children(uint32_t who)
{
	pid_t pid = fork_child();

	if (pid == 0)
		fork_and_end(who);
	while (wait(NULL) > 0)
		;
}

void attacker_map(uint32_t who)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (attacking()) {
		map_often(who);
		fork_children(who);
	}
	hold();
}
