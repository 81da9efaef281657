/* SPDX-License-Identifier: Apache-2.0 */
/* The zone alone: what its rebuild takes, and what it costs that its words lie in a state file. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/zone.h"
#include "daemon/pool/state.h"
#include "tests/bench/recovery-cases.h"

#define OWNER 1
#define SLOT  1

struct zone {
	struct hp_zone_config config;
	struct hp_zone *zone;
	void *durable, *scratch;
	struct hp_pcp *pcp;
	void *pcp_memory;
};

static void must(const char *what, int r)
{
	if (r)
		bench_die("%s: %d", what, r);
}

/* durable: NULL: private memory. */
static void zone_make(struct zone *zone, uint32_t pages, uint8_t order, void *durable)
{
	size_t durable_bytes, scratch_bytes;

	zone->config = (struct hp_zone_config){
		.nr_pages = pages,
		.nr_owners = 2,
		.pageblock_order = order,
		.max_order = 10,
		.refcounts = true,
	};
	must("hp_zone_sizes", hp_zone_sizes(&zone->config, &durable_bytes, &scratch_bytes));
	zone->durable = durable ? durable : bench_memory(durable_bytes);
	zone->scratch = bench_memory(scratch_bytes);
	zone->zone = aligned_alloc(64, (hp_zone_struct_size() + 63) / 64 * 64);
	if (!zone->zone)
		bench_die("no memory");
	must("hp_zone_init", hp_zone_init(zone->zone, &zone->config, zone->durable, zone->scratch));
	for (uint32_t b = 0; b < hp_zone_nr_blocks(zone->zone); b++)
		must("hp_zone_online", hp_zone_online(zone->zone, b, 1));
}

static void zone_unmake(struct zone *zone, bool own_durable)
{
	hp_zone_deinit(zone->zone);
	free(zone->zone);
	bench_memory_free(zone->scratch);
	if (own_durable)
		bench_memory_free(zone->durable);
}

/* --- rebuild ---------------------------------------------------------------------------------- */

#define REBUILD_PAGES  524288u
#define REBUILD_LEASES 100000u
#define REBUILD_ORDER  9

static uint32_t owner_of_slot(void *userdata, uint32_t slot)
{
	(void)userdata;
	return slot == SLOT ? OWNER : HP_OWNER_NONE;
}

static bool block_whole(void *userdata, uint32_t block, struct hp_block_word word)
{
	(void)userdata;
	(void)block;
	(void)word;
	return true;
}

static void run_rebuild(struct bench_section *section)
{
	static const struct hp_rebuild_ops ops = {.owner_of_slot = owner_of_slot,
						  .block_whole = block_whole};
	struct zone *zone = section->state;
	struct hp_rebuild_stats stats;

	do {
		hp_zone_deinit(zone->zone);
		bench_begin(section);
		must("hp_zone_rebuild", hp_zone_rebuild(zone->zone, &zone->config, zone->durable,
							zone->scratch, &ops, &stats));
		bench_end(section);
		section->ops++;
		if (stats.leases != REBUILD_LEASES || stats.quarantined_blocks)
			bench_die("rebuilt with %u leases", stats.leases);
	} while (bench_more(section));
}

void case_rebuild(struct bench *bench)
{
	struct zone zone;
	struct hp_request request = {.owner = OWNER, .slot = SLOT};
	uint64_t random = 1;
	struct bench_quality quality;
	struct bench_subject subject = {.variant = "product",
					.kind = BENCH_COST,
					.threads = 1,
					.run = run_rebuild,
					.state = &zone};

	zone_make(&zone, REBUILD_PAGES, REBUILD_ORDER, NULL);
	for (uint32_t i = 0; i < REBUILD_LEASES; i++) {
		struct hp_grant grant;

		request.pages = 1 + bench_random_below(&random, 8);
		must("hp_zone_alloc", hp_zone_alloc(zone.zone, NULL, &request, &grant));
	}
	bench_measure(bench, &subject, 1, &quality);
	bench_report(bench, &(struct bench_row){
				    .name = "rebuild-1T",
				    .variant = "product",
				    .pages = REBUILD_PAGES,
				    .block_order = REBUILD_ORDER,
				    .threads = 1,
				    .unit = "ms",
				    .value = subject.value / 1e6,
				    .kind = BENCH_COST,
				    .quality = &quality,
			    });
	zone_unmake(&zone, true);
}

/* --- what it costs ---------------------------------------------------------------------------- */

#define COST_PAGES 12288u
#define COST_ORDER 5
#define COST_HELD  64u

static void run_pairs(struct bench_section *section)
{
	struct zone *zone = section->state;
	const struct hp_request request = {.owner = OWNER, .slot = SLOT, .pages = 1};
	struct hp_grant grants[COST_HELD];

	zone->pcp_memory = bench_memory(hp_pcp_size(zone->zone));
	must("hp_pcp_init", hp_pcp_init(&zone->pcp, zone->pcp_memory, zone->zone, OWNER));
	do {
		bench_begin(section);
		for (unsigned round = 0; round < 64; round++) {
			for (uint32_t i = 0; i < COST_HELD; i++)
				must("grant",
				     hp_zone_alloc(zone->zone, zone->pcp, &request, &grants[i]));
			for (uint32_t i = 0; i < COST_HELD; i++)
				must("free",
				     hp_zone_free(zone->zone, zone->pcp, SLOT, &grants[i].range));
		}
		bench_end(section);
		section->ops += 64 * COST_HELD;
	} while (bench_more(section));
	hp_pcp_deinit(zone->pcp);
	bench_memory_free(zone->pcp_memory);
}

void case_durable_cost(struct bench *bench)
{
	char path[] = "/dev/shm/bench-recovery-XXXXXX";
	const struct hp_zone_config config = {.nr_pages = COST_PAGES,
					      .nr_owners = 2,
					      .pageblock_order = COST_ORDER,
					      .max_order = 10,
					      .refcounts = true};
	struct state_zone state_zone = {.name = "bench", .nr_pages = COST_PAGES};
	struct state_options options = {
		.path = path, .zones = &state_zone, .nr_zones = 1, .memory_survives = true};
	struct zone private, durable;
	struct bench_quality quality;
	struct bench_subject subjects[] = {
		{.variant = "product",
		 .kind = BENCH_COST,
		 .threads = 1,
		 .run = run_pairs,
		 .state = &durable},
		{.variant = "private",
		 .kind = BENCH_COST,
		 .threads = 1,
		 .run = run_pairs,
		 .state = &private},
	};
	struct state *state;
	size_t scratch_bytes;
	int fd = mkstemp(path);

	if (fd < 0)
		bench_die("no place for a state file");
	close(fd);
	must("hp_zone_sizes", hp_zone_sizes(&config, &state_zone.durable_bytes, &scratch_bytes));
	must("state_open", state_open(&state, &options));
	zone_make(&durable, COST_PAGES, COST_ORDER, state_zone_words(state, 0));
	zone_make(&private, COST_PAGES, COST_ORDER, NULL);
	bench_measure(bench, subjects, 2, &quality);
	bench_report(bench, &(struct bench_row){
				    .name = "durable-cost",
				    .variant = "product",
				    .pages = COST_PAGES,
				    .block_order = COST_ORDER,
				    .threads = 1,
				    .unit = "ns",
				    .value = subjects[0].value,
				    .baseline = "private memory",
				    .baseline_value = subjects[1].value,
				    .kind = BENCH_COST,
				    .quality = &quality,
			    });
	zone_unmake(&private, true);
	zone_unmake(&durable, false);
	state_close(state);
	unlink(path);
}
