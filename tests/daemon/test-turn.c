/* SPDX-License-Identifier: Apache-2.0 */
/* How long a turn of an event loop was: what it did counts, what the machine did to it does not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/net/turn.h"

#define MS UINT64_C(1000000)

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void work(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void test_longest(void **state)
{
	const struct timespec nap = {.tv_nsec = 8 * (long)MS};
	struct turn turn = {0};
	uint64_t longest;

	(void)state;
	turn_init(&turn);
	turn_begin(&turn);
	turn_end(&turn);
	assert_true(turn.longest_ns < MS);

	turn_begin(&turn);
	work(4 * MS);
	turn_end(&turn);
	longest = turn.longest_ns;
	assert_in_range(longest, 3 * MS, 1000 * MS);

	turn_begin(&turn); /* a shorter one changes nothing */
	work(MS / 8);
	turn_end(&turn);
	assert_int_equal(turn.longest_ns, longest);

	work(2 * MS); /* between turns */
	turn.longest_ns = 0;
	turn_begin(&turn);
	nanosleep(&nap, NULL);
	turn_end(&turn);
	assert_in_range(turn.longest_ns, 7 * MS, 1000 * MS);
	turn_deinit(&turn);
}

/* Several processes that want the same processor all the time. */
#define RIVALS 4

static pid_t start_rival(pid_t parent)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			;
		_exit(0);
	}
	return pid;
}

static void test_no_processor(void **state)
{
	uint64_t deadline = clock_ns(CLOCK_MONOTONIC) + 20000 * MS, began, took = 0;
	struct turn turn = {0};
	pid_t rivals[RIVALS];
	cpu_set_t before, one;
	int i = 0;

	(void)state;
	turn_init(&turn);
	if (turn.schedstat < 0)
		skip();
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	while (!CPU_ISSET(i, &before))
		i++;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (i = 0; i < RIVALS; i++)
		rivals[i] = start_rival(getpid());
	/* Until the machine has kept us from working for long enough in one turn. */
	while (took < 40 * MS && clock_ns(CLOCK_MONOTONIC) < deadline) {
		began = clock_ns(CLOCK_MONOTONIC);
		turn_begin(&turn);
		work(10 * MS);
		turn_end(&turn);
		took = clock_ns(CLOCK_MONOTONIC) - began;
	}
	for (i = 0; i < RIVALS; i++) {
		kill(rivals[i], SIGKILL);
		waitpid(rivals[i], NULL, 0);
	}
	sched_setaffinity(0, sizeof(before), &before);
	assert_true(took >= 40 * MS);
	assert_in_range(turn.longest_ns, 8 * MS, 20 * MS);
	turn_deinit(&turn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_no_processor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
