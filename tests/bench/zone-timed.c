/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knowing for how long a lock is held costs time that no other case shall pay. So bench-zone-timed,
 * beside this program, is the same sources with locks that keep the time, and this case is its
 * answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-product.h"

#define CHILD_SECONDS "120"

/* The number that follows a key in a line of our own JSON. */
static double number_of(const char *line, const char *key)
{
	const char *found = strstr(line, key);

	if (!found)
		bench_die("bench-zone-timed says: %s", line);
	return strtod(found + strlen(key), NULL);
}

void case_lock_hold(struct bench *bench)
{
	char self[512], command[1024], line[1024] = "";
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct bench_quality quality;
	FILE *child;

	if (n < 0)
		bench_die("/proc/self/exe cannot be read");
	self[n] = '\0';
	snprintf(command, sizeof(command), "exec timeout " CHILD_SECONDS " '%s-timed' --json %s",
		 self, bench_quick(bench) ? "--quick" : "");
	child = popen(command, "re");
	if (!child || !fgets(line, sizeof(line), child) || pclose(child) != 0)
		bench_die("no answer from %s-timed", self);
	quality = (struct bench_quality){
		.rounds = (unsigned)number_of(line, "\"rounds\":"),
		.discarded = (unsigned)number_of(line, "\"discarded\":"),
		.disturbed = (unsigned)number_of(line, "\"disturbed\":"),
	};
	bench_report(bench, &(struct bench_row){
				    .name = "lock-hold",
				    .variant = "product",
				    .pages = PRODUCT_SMALL,
				    .block_order = PRODUCT_BLOCK_ORDER,
				    .threads = 2,
				    .unit = "ns",
				    .value = number_of(line, "\"value\":"),
				    .baseline = "pick-inside",
				    .baseline_value = number_of(line, "\"baseline_value\":"),
				    .quality = &quality,
			    });
}
