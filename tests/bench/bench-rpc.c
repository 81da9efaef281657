/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon over its socket.
 *
 * Every case but page_fault1 has a daemon of its own on ordinary memory in pages of 4 KiB: what is
 * measured is the way there, not the memory, and a row's "pages" and "block" count those pages.
 * Client and daemon are on one processor, since waking another one, on a virtual machine, takes longer
 * than all of the rest.
 */
#include "tests/bench/rpc-cases.h"

static const struct bench_case cases[] = {
	{"alloc-1", case_alloc_1, 1, "one range, one request at a time"},
	{"alloc-32", case_alloc_32, 1, "32 ranges, one request at a time"},
	{"pipelined", case_pipelined, 1, "64 connections, 16 requests each; against memcached"},
	{"workers-2", case_workers_2, 1, "the same with two workers, against one"},
	{"batch-64", case_batch_64, 1, "a range, when 64 are taken at a time"},
	{"batch-256", case_batch_256, 1, "a range, when 256 are taken at a time"},
	{"cache-hit", case_cache_hit, 1, "a range out of a thread's cache and back"},
	{"idle", case_idle, 1, "wake-ups of the daemon in 10 s, 100 sessions idle"},
	{"mem-session", case_mem_session, 1, "memory of the daemon for a session"},
	{"mem-range", case_mem_range, 1, "memory of the daemon for a leased range"},
	{"page_fault1", case_page_fault1, 1,
	 "128 MiB taken, touched, given back, on all processors"},
};

static const struct bench_target targets[] = {
	{.name = "alloc-1", .must = 0.62, .aim = 0.8},
	{.name = "alloc-32", .must = 0.5, .aim = 0.71},
	{.name = "pipelined", .must = 1.1, .aim = 1.6},
	{.name = "workers-2", .must = 0.66, .aim = 0.77},
	{.name = "batch-64", .must = 27, .aim = 45},
	{.name = "batch-256", .must = 45, .aim = 120},
	{.name = "cache-hit", .must = 0.4, .aim = 1.2},
	/* none: 0 would be no target */
	{.name = "idle", .kind = BENCH_TARGET_VALUE, .must = 0.5},
	{.name = "mem-session", .kind = BENCH_TARGET_VALUE, .must = 8192},
	{.name = "mem-range", .kind = BENCH_TARGET_VALUE, .must = 64},
};

int main(int argc, char **argv)
{
	static const struct bench_program program = {
		.name = "rpc",
		.what = "hugepoold over its socket; ratios above 1 are better than the baseline.",
		.cases = cases,
		.nr_cases = sizeof(cases) / sizeof(*cases),
		.targets = targets,
		.nr_targets = sizeof(targets) / sizeof(*targets),
	};

	return bench_main(&program, argc, argv);
}
