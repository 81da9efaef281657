/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge memory that a program can use: hugepoold and its library on this machine's huge pages, beside
 * what a program would do without them.
 *
 * Every case has a daemon of its own, with just the zone that it needs; "pages" of a row is the
 * clean stock that it begins with, and "block" the order of its pageblocks in pages of 2 MiB. No
 * cache takes part: every hand-out crosses the socket. Rows "product" have client and daemon on one
 * processor, "product-unpinned" wherever the kernel puts them, which on virtual machines is mostly
 * the time that it takes to wake another processor.
 */
#include "tests/bench/handout-cases.h"

static const struct bench_case cases[] = {
	{"handout-2M", case_handout_2M, 1, "2 MiB, clean, from a block that the session knows"},
	{"handout-64M", case_handout_64M, 1, "the same with 64 MiB"},
	{"handout-1G", case_handout_1G, 1, "the same with 1 GiB"},
	{"handout-64M-new", case_handout_64M_new, 1, "64 MiB, clean, from a block that is new"},
	{"handout-2M-dirty", case_handout_2M_dirty, 1, "2 MiB of the tenant's own, zeroed again"},
	{"handout-64x2M", case_handout_64x2M, 1, "64 clean ranges of 2 MiB in one call"},
	{"steady", case_steady, 1, "CPU time for a GiB that goes round between two tenants"},
	{"first-touch", case_first_touch, 1, "page faults of writing all that was granted"},
	{"zeroing", case_zeroing, 1, "64 MiB of cold memory, the library against the kernel"},
	{"zeroing-hot", case_zeroing_hot, 1, "2 MiB just written, the library against memset"},
};

static const struct bench_target targets[] = {
	{.name = "handout-2M", .must = 8, .aim = 15},
	{.name = "handout-64M", .must = 100, .aim = 300},
	{.name = "handout-1G", .must = 200, .aim = 500},
	{.name = "handout-64M-new", .must = 50, .aim = 120},
	{.name = "handout-2M-dirty", .must = 0.8, .aim = 1.2},
	{.name = "handout-64x2M", .must = 10},
	/* none: 0 would be no target */
	{.name = "first-touch", .kind = BENCH_TARGET_VALUE, .must = 0.5},
	{.name = "zeroing", .must = 2, .aim = 2.5},
	{.name = "zeroing-hot", .must = 1},
};

int main(int argc, char **argv)
{
	static const struct bench_program program = {
		.name = "handout",
		.what = "Huge memory ready to use, from hugepoold and without it; ratios above 1 "
			"are better than the baseline.",
		.cases = cases,
		.nr_cases = sizeof(cases) / sizeof(*cases),
		.targets = targets,
		.nr_targets = sizeof(targets) / sizeof(*targets),
	};

	return bench_main(&program, argc, argv);
}
