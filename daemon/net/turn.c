/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two looks at the clock a turn, which the kernel answers without being entered. A turn that is no
 * longer than the longest one so far ends with a comparison.
 */
#include "daemon/net/turn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_NS UINT64_C(1000000)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* "time on a processor, time waiting for one, times": the second. */
static uint64_t read_waited(const struct turn *turn)
{
	char text[96];
	uint64_t waited;
	ssize_t n;

	if (turn->schedstat < 0)
		return 0;
	n = pread(turn->schedstat, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%*s %" SCNu64, &waited) == 1 ? waited : 0;
}

void turn_init(struct turn *turn)
{
	turn->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	turn->looked_ns = now_ns();
	turn->waited_ns = read_waited(turn);
}

void turn_deinit(struct turn *turn)
{
	if (turn->schedstat >= 0)
		close(turn->schedstat);
	turn->schedstat = -1;
}

void turn_begin(struct turn *turn)
{
	turn->began_ns = now_ns();
	if (turn->began_ns - turn->looked_ns < LOOK_EVERY_NS)
		return;
	turn->waited_ns = read_waited(turn);
	turn->looked_ns = turn->began_ns;
}

void turn_end(struct turn *turn)
{
	uint64_t took_ns = now_ns() - turn->began_ns, waited_ns;

	if (took_ns <= turn->longest_ns)
		return;
	if (took_ns > LOOK_EVERY_NS) {
		waited_ns = read_waited(turn) - turn->waited_ns;
		took_ns -= waited_ns < took_ns ? waited_ns : took_ns;
	}
	if (took_ns > turn->longest_ns)
		turn->longest_ns = took_ns;
}
