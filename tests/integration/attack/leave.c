/* SPDX-License-Identifier: Apache-2.0 */
/* An attacker that connects, takes, writes and is gone, without a word, again and again. */
#include "tests/integration/attack/attack.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS_MAX 2

static void take_and_go(uint32_t who)
{
	struct taken taken[BLOCKS_MAX];
	size_t n = 0;

	while (n < BLOCKS_MAX && taken_new(&taken[n], who))
		n++;
	if (n)
		hit(HIT_LEFT);
	kill(getpid(), SIGKILL);
}

void attacker_leave(uint32_t who)
{
	while (attacking()) {
		pid_t pid = fork_child();

		if (pid == 0)
			take_and_go(who);
		waitpid(pid, NULL, 0);
	}
	hold();
}
