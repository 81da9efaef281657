/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zone allocator alone: no daemon, no socket, no memory behind the pages.
 *
 * Every case runs the entry points that the daemon uses, with all checks on and the durable words
 * in a shared file mapping, beside its alternatives: models of other allocators (zone-model.h),
 * other ways of using the product, or other locks.
 */
#include <string.h>

#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-product.h"

static const struct bench_case cases[] = {
	{"pcp-hit", case_pcp_hit, 1, "allocate + free of one page, served by the pcp"},
	{"pcp-hit-order9", case_pcp_hit_order9, 1, "the same with chunks of order 9"},
	{"bulk", case_bulk, 1, "half of the zone taken page by page, all given back"},
	{"random", case_random, 1, "the same, given back in random order"},
	{"churn", case_churn, 2, "steady state, half full, random take and give"},
	{"scale-pcp-hit", case_scale_pcp_hit, 2, "throughput of two threads against one"},
	{"scale-bulk", case_scale_bulk, 2, "throughput of two threads against one"},
	{"drain", case_drain, 1, "63 random pages from a pcp to the zone, four variants"},
	{"lock-hold", case_lock_hold, 2, "ns the zone lock is held per 63 pages drained"},
	{"contig-512", case_contig_512, 1, "free of 512 aligned pages as one range"},
	{"contig-510", case_contig_510, 1, "free of 510 pages from an odd pfn on"},
	{"contig-16", case_contig_16, 1, "free of 16 pages"},
	{"contig-shared", case_contig_shared, 1, "free of 512 pages with reference counts"},
	{"contig-loop", case_contig_loop, 1,
	 "allocate order 9, split, free; one round of the loop"},
	{"page_fault1", case_page_fault1, 2, "64 pages taken and given back, in pairs of rounds"},
	{"metadata", case_metadata, 1, "bytes a page, durable and scratch"},
	{"locks-per-range", case_locks_per_range, 1, "zone lock acquisitions to free 512 pages"},
	{"size-pcp-hit", case_size_pcp_hit, 1, "a zone of 1 TiB against one of 24 GiB"},
	{"size-bulk", case_size_bulk, 1, "a zone of 1 TiB against one of 24 GiB"},
	{"lock", case_lock, 1, "the zone lock against other locks"},
};

static const struct bench_target targets[] = {
	{.name = "pcp-hit", .must = 0.9, .aim = 1.5},
	{.name = "pcp-hit-order9", .threads = 1, .must = 1.3, .aim = 1.6},
	{.name = "pcp-hit-order9", .threads = 2, .must = 1.5, .aim = 3},
	{.name = "bulk", .threads = 1, .must = 1.1, .aim = 2.2},
	{.name = "bulk", .threads = 2, .must = 1.15, .aim = 2.3},
	{.name = "random", .threads = 1, .must = 1.4, .aim = 2.3},
	{.name = "random", .threads = 2, .must = 1.4, .aim = 2.0},
	{.name = "churn", .must = 1.2, .aim = 2.1},
	{.name = "scale-pcp-hit", .must = 1.7, .aim = 1.95},
	{.name = "scale-bulk", .must = 1.2, .aim = 1.7},
	{.name = "drain", .threads = 2, .must = 1.4, .aim = 1.8},
	{.name = "lock-hold", .kind = BENCH_TARGET_VALUE, .must = 2000, .aim = 1500},
	{.name = "contig-512", .must = 15, .aim = 100},
	{.name = "contig-510", .must = 10, .aim = 50},
	{.name = "contig-16", .must = 8, .aim = 15},
	{.name = "contig-shared", .must = 2.5, .aim = 10},
	{.name = "contig-loop", .must = 5.6, .aim = 10},
	{.name = "page_fault1", .kind = BENCH_TARGET_SIGN, .must = 0.05, .aim = 1.10},
	{.name = "metadata", .kind = BENCH_TARGET_VALUE, .must = 16},
	{.name = "size-pcp-hit", .must = 0.5, .aim = 0.77},
	{.name = "size-bulk", .must = 0.5, .aim = 0.77},
};

int main(int argc, char **argv)
{
	static const struct bench_program program = {
		.name = "zone",
		.what = "The zone allocator alone, beside its alternatives; ratios above 1 are "
			"better "
			"than the baseline.",
		.cases = cases,
		.nr_cases = sizeof(cases) / sizeof(*cases),
		.alone = true,
		.targets = targets,
		.nr_targets = sizeof(targets) / sizeof(*targets),
	};

	if (argc == 3 && strcmp(argv[1], "--callgrind-child") == 0)
		return callgrind_child(argv[2]);
	return bench_main(&program, argc, argv);
}
