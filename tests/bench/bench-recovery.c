/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon coming back: how long it takes, and what it costs all the time that it can.
 *
 * The cases "restart" and "gap" have a daemon of their own, with hugepool-setup's memory, which is killed
 * and started again by a supervisor that does so at once; "restart" has as large a zone, up to 4 GiB, as
 * there is memory for ("pages" says so). The other two are about the zone and its words alone.
 */
#include "tests/bench/recovery-cases.h"

static const struct bench_case cases[] = {
	{"rebuild-1T", case_rebuild, 1, "a zone of 524,288 pages with 100,000 leases, made anew"},
	{"durable-cost", case_durable_cost, 1, "grant and free with words in the state file"},
	{"restart", case_restart, 1, "from exec to the first request of a resumed client"},
	{"gap", case_gap, 1, "the longest pause that a client sees"},
};

static const struct bench_target targets[] = {
	{.name = "rebuild-1T", .kind = BENCH_TARGET_VALUE, .must = 1000, .aim = 100},
	{.name = "durable-cost", .must = 0.9, .aim = 0.97},
	{.name = "restart", .kind = BENCH_TARGET_VALUE, .must = 100, .aim = 40},
	{.name = "gap", .kind = BENCH_TARGET_VALUE, .aim = 150},
};

int main(int argc, char **argv)
{
	static const struct bench_program program = {
		.name = "recovery",
		.what = "The daemon coming back after a kill: milliseconds, and what durable words cost.",
		.cases = cases,
		.nr_cases = sizeof(cases) / sizeof(*cases),
		.targets = targets,
		.nr_targets = sizeof(targets) / sizeof(*targets),
	};

	return bench_main(&program, argc, argv);
}
