/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions per page: unlike time they are the same in every run, so they show what a change of
 * the code costs where a 2 % difference in time drowns. This program runs itself under callgrind
 * with a hidden option; counting is on only inside callgrind_watched().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/zone-cases.h"

#define PASSES	      1000
#define CHILD_SECONDS "60"

__attribute__((noinline)) void callgrind_watched(void (*fn)(void *state, unsigned passes),
						 void *state, unsigned passes)
{
	fn(state, passes);
	__asm__ volatile(""); /* a call, not a jump: the end of this function is seen */
}

int callgrind_child(const char *variant)
{
	printf("operations %u\n", page_fault1_alone(variant, PASSES));
	return 0;
}

double callgrind_instructions(const char *variant)
{
	char self[512], command[1024], line[256];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	unsigned long long collected = 0;
	unsigned operations = 0;
	FILE *child;

	if (n < 0)
		return 0;
	self[n] = '\0';
	snprintf(command, sizeof(command),
		 "command -v valgrind >/dev/null && exec timeout " CHILD_SECONDS
		 " valgrind --tool=callgrind --callgrind-out-file=/dev/null"
		 " --toggle-collect=callgrind_watched '%s' --callgrind-child %s 2>&1",
		 self, variant);
	child = popen(command, "re");
	if (!child)
		return 0;
	while (fgets(line, sizeof(line), child)) {
		const char *found = strstr(line, "Collected : ");

		if (found)
			(void)sscanf(found, "Collected : %llu", &collected);
		(void)sscanf(line, "operations %u", &operations);
	}
	if (pclose(child) != 0 || operations == 0)
		return 0;
	return (double)collected / operations;
}
