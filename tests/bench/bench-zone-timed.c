/* SPDX-License-Identifier: Apache-2.0 */
/* bench-zone's case lock-hold, with locks that keep the time they are held. See zone-timed.c. */
#include "tests/bench/zone-cases.h"

static const struct bench_case cases[] = {
	{"lock-hold", case_lock_hold_timed, 2, "ns the zone lock is held per 63 pages drained"},
};

int main(int argc, char **argv)
{
	static const struct bench_program program = {
		.name = "zone",
		.what = "For how long the zone lock is held; bench-zone calls this.",
		.cases = cases,
		.nr_cases = sizeof(cases) / sizeof(*cases),
		.alone = true,
	};

	return bench_main(&program, argc, argv);
}
