/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads on few pages.
 *
 * Each holder writes its mark into a shadow of every page it is granted and takes it away before
 * it frees: a page held twice shows at once. Beside the atomic mark each page has plain content,
 * so that a race detector sees a hand-over that is not ordered by the zone's own locks. Meanwhile a
 * keeper drains everybody's caches, isolates idle blocks, looks whether anybody still has a page
 * of them, and puts them back clean.
 *
 * In a second mode the keeper also takes blocks away with their leases. A holder learns of that when
 * he frees, so there are no marks then; what is left to see is that every call gives a code that
 * can be, that the zone is consistent in the end, and that there was no race.
 */
#include "tests/alloc/box.h"
#include "tests/model/dice.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NR_PAGES   96u
#define NR_WORKERS 6u
#define NR_OWNERS  4u  /* 1 .. 3 */
#define HELD_MAX   12u /* ranges a worker holds at most */
#define STEPS	   64u /* between two looks at the clock */

static struct box box;
static _Atomic uint32_t shadow[NR_PAGES];
static uint32_t content[NR_PAGES];
static _Atomic bool stop;
static _Atomic uint64_t isolations;
static bool revoking; /* the second mode */

struct worker {
	pthread_t thread;
	uint32_t mark, owner, slot;
	struct hp_pcp *pcp;
	bool renews_pcp; /* nobody else names its pcp */
	struct dice dice;
	struct hp_range held[HELD_MAX];
	uint32_t nr_held;
	uint64_t granted, refused;
};

static struct worker workers[NR_WORKERS];

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	abort();
}

static void mark_pages(const struct worker *worker, const struct hp_range *range)
{
	for (hp_pfn_t pfn = range->pfn; !revoking && pfn < range->pfn + range->pages; pfn++) {
		uint32_t other =
			atomic_exchange_explicit(&shadow[pfn], worker->mark, memory_order_relaxed);

		if (other != 0)
			die("page %u granted to %u and held by %u", pfn, worker->mark, other);
		content[pfn] = worker->mark;
	}
}

static void unmark_pages(const struct worker *worker, hp_pfn_t pfn, uint32_t pages)
{
	for (hp_pfn_t end = pfn + pages; !revoking && pfn < end; pfn++) {
		uint32_t mark = atomic_exchange_explicit(&shadow[pfn], 0, memory_order_relaxed);

		if (mark != worker->mark || content[pfn] != worker->mark)
			die("page %u of %u carries the mark of %u", pfn, worker->mark, mark);
		content[pfn] = 0;
	}
}

static void expect_ok(int r, const char *what)
{
	if (r != HP_OK)
		die("%s gives %d", what, r);
}

/* A lease of one's own may have been taken away; anything else is a mistake. */
static bool still_mine(int r, const char *what)
{
	if (!revoking || r == HP_OK) {
		expect_ok(r, what);
		return true;
	}
	if (r != HP_REVOKED && r != HP_NOT_LEASED && r != HP_WRONG_HOLDER && r != HP_STALE &&
	    r != HP_WRONG_LENGTH)
		die("%s of what was taken away gives %d", what, r);
	return false;
}

static struct hp_request roll_request(struct worker *worker)
{
	struct hp_request request = {.owner = worker->owner, .slot = worker->slot};

	request.pages = dice_one_in(&worker->dice, 4) ? 1 + dice_roll(&worker->dice, 20)
						      : 1 + dice_roll(&worker->dice, 3);
	return request;
}

static void worker_alloc(struct worker *worker)
{
	struct hp_request request = roll_request(worker);
	struct hp_grant grant[4];
	uint32_t n = dice_one_in(&worker->dice, 4) ? 1 + dice_roll(&worker->dice, 4) : 1;
	struct hp_pcp *pcp = dice_one_in(&worker->dice, 4) ? NULL : worker->pcp;

	if (worker->nr_held + n > HELD_MAX)
		return;
	if (hp_zone_alloc_bulk(box.zone, pcp, &request, grant, n) != HP_OK) {
		worker->refused++;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		mark_pages(worker, &grant[i].range);
		worker->held[worker->nr_held++] = grant[i].range;
	}
	worker->granted += n;
}

static struct hp_range worker_take(struct worker *worker)
{
	uint32_t i = dice_roll(&worker->dice, worker->nr_held);
	struct hp_range range = worker->held[i];

	worker->held[i] = worker->held[--worker->nr_held];
	return range;
}

static void free_whole(struct worker *worker, const struct hp_range *range)
{
	unmark_pages(worker, range->pfn, range->pages);
	still_mine(hp_zone_free(box.zone, worker->pcp, worker->slot, range), "free");
}

static void free_as_contig(struct worker *worker, const struct hp_range *range)
{
	if (!still_mine(hp_zone_split(box.zone, worker->slot, range), "split"))
		return;
	unmark_pages(worker, range->pfn, range->pages);
	still_mine(
		hp_zone_free_contig(box.zone, worker->pcp, worker->slot, range->pfn, range->pages),
		"free_contig");
}

static void free_a_part(struct worker *worker, const struct hp_range *range)
{
	uint32_t offset = dice_roll(&worker->dice, range->pages);
	uint32_t pages = 1 + dice_roll(&worker->dice, range->pages - offset);
	struct hp_range kept[2];
	unsigned n;

	if (worker->nr_held + 2 > HELD_MAX) {
		free_whole(worker, range);
		return;
	}
	unmark_pages(worker, range->pfn + offset, pages);
	if (!still_mine(hp_zone_free_part(box.zone, worker->pcp, worker->slot, range, offset, pages,
					  kept, &n),
			"free_part"))
		return;
	for (unsigned i = 0; i < n; i++)
		worker->held[worker->nr_held++] = kept[i];
}

static void worker_free(struct worker *worker)
{
	struct hp_range range;

	if (worker->nr_held == 0)
		return;
	range = worker_take(worker);
	switch (dice_roll(&worker->dice, 6)) {
	case 0:
		free_as_contig(worker, &range);
		break;
	case 1:
		free_a_part(worker, &range);
		break;
	default:
		free_whole(worker, &range);
		if (dice_one_in(&worker->dice, 16) &&
		    hp_zone_free(box.zone, worker->pcp, worker->slot, &range) == HP_OK)
			die("freed twice: page %u", range.pfn);
	}
}

/* Lets go of everything, so that blocks fall idle. */
static void worker_free_all(struct worker *worker)
{
	uint64_t pages = 0, held = 0;

	if (!revoking && dice_one_in(&worker->dice, 2)) {
		while (worker->nr_held > 0)
			worker_free(worker);
		return;
	}
	for (uint32_t i = 0; i < worker->nr_held; i++) {
		unmark_pages(worker, worker->held[i].pfn, worker->held[i].pages);
		held += worker->held[i].pages;
	}
	worker->nr_held = 0;
	expect_ok(hp_zone_free_slot(box.zone, worker->pcp, worker->slot, &pages), "free_slot");
	/* A revoked rest that was forgotten is freed as well, what was taken away is not. */
	if (!revoking && pages != held)
		die("free_slot gives back %" PRIu64 " pages of %" PRIu64, pages, held);
}

static void worker_step(struct worker *worker)
{
	uint32_t what = dice_roll(&worker->dice, 100);

	if (what < 48) {
		worker_alloc(worker);
	} else if (what < 94) {
		worker_free(worker);
	} else if (what < 98) {
		worker_free_all(worker);
	} else if (worker->renews_pcp) {
		box_pcp_free(worker->pcp);
		worker->pcp = box_pcp_new(&box, worker->owner);
	}
}

static void *worker_run(void *userdata)
{
	struct worker *worker = userdata;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		for (unsigned i = 0; i < STEPS; i++)
			worker_step(worker);
	}
	worker_free_all(worker);
	return NULL;
}

/* --- the keeper --------------------------------------------------------------------------------*/

/* A block is in the hands of one keeper at a time: a quarantined one may be isolated by anybody. */
static atomic_bool in_hand[NR_PAGES];

static void recycle_block(uint32_t block)
{
	struct hp_block_info info;
	hp_pfn_t first = block << box.config.pageblock_order;

	if (hp_zone_isolate(box.zone, block) != HP_OK)
		return;
	atomic_fetch_add_explicit(&isolations, 1, memory_order_relaxed);
	expect_ok(hp_zone_block_info(box.zone, block, &info), "block_info");
	if (info.word.state != HP_BLOCK_ISOLATED)
		die("block %u was isolated and is in state %d", block, (int)info.word.state);
	for (uint32_t i = 0; i < info.pages; i++) {
		uint32_t mark = atomic_load_explicit(&shadow[first + i], memory_order_relaxed);

		if (mark != 0)
			die("page %u is held by %u in an isolated block", first + i, mark);
		/* As the memory is zeroed now: nobody else may touch it. */
		content[first + i] = 0;
	}
	expect_ok(hp_zone_put_clean(box.zone, block, info.word.generation + 1), "put_clean");
}

static void count_hit(void *userdata, uint32_t slot, const struct hp_range *range,
		      enum hp_lease_state state)
{
	uint32_t *pages = userdata;

	(void)state;
	if (slot == 0 || slot > NR_WORKERS)
		die("a lease of nobody was hit");
	*pages += range->pages;
}

static void take_block(struct dice *dice, uint32_t block)
{
	uint32_t pages = 0;
	struct hp_block_info info;

	if (hp_zone_revoke_block(box.zone, block, dice_one_in(dice, 2), count_hit, &pages) != HP_OK)
		return;
	atomic_fetch_add_explicit(&isolations, 1, memory_order_relaxed);
	expect_ok(hp_zone_block_info(box.zone, block, &info), "block_info");
	expect_ok(hp_zone_put_clean(box.zone, block, info.word.generation + 1), "put_clean");
}

static void handle_block(struct dice *dice, bool take)
{
	uint32_t block = dice_roll(dice, box.nr_blocks);

	if (atomic_exchange(&in_hand[block], true))
		return;
	if (take)
		take_block(dice, block);
	else
		recycle_block(block);
	atomic_store(&in_hand[block], false);
}

/* One thing that anybody may do at any time. */
static void keeper_step(struct dice *dice)
{
	struct worker *worker = &workers[dice_roll(dice, NR_WORKERS)];
	struct hp_zone_stats stats;
	struct hp_owner_stats owner;
	struct hp_account_stats account;
	struct hp_pcp_stats pcp;

	switch (dice_roll(dice, 24)) {
	case 0:
		hp_zone_drain(box.zone, dice_roll(dice, NR_OWNERS));
		break;
	case 1:
		if (!worker->renews_pcp)
			hp_pcp_drain(worker->pcp);
		break;
	case 2:
		if (!worker->renews_pcp)
			hp_pcp_drain_batch(worker->pcp);
		break;
	case 3:
		if (!worker->renews_pcp)
			hp_pcp_set_sizes(worker->pcp, dice_roll(dice, 8), dice_roll(dice, 32));
		break;
	case 4:
		hp_zone_stats(box.zone, &stats);
		break;
	case 5:
		hp_zone_owner_stats(box.zone, 1 + dice_roll(dice, NR_OWNERS - 1), &owner);
		hp_zone_account_stats(box.zone, 1 + dice_roll(dice, NR_OWNERS - 1), &account);
		break;
	case 6:
		if (!worker->renews_pcp)
			hp_pcp_get_stats(worker->pcp, &pcp);
		break;
	case 7:
		if (box_check(&box) != 0)
			die("hp_zone_check() found something while others worked");
		break;
	case 8:
		expect_ok(hp_zone_account_set_quota(box.zone, 1 + dice_roll(dice, NR_OWNERS - 1),
						    4 + dice_roll(dice, 8), dice_roll(dice, 3)),
			  "set_quota");
		break;
	default:
		if (revoking && dice_one_in(dice, 8))
			handle_block(dice, true);
		else
			handle_block(dice, false);
	}
}

static void *keeper_run(void *userdata)
{
	struct dice *dice = userdata;

	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		keeper_step(dice);
	return NULL;
}

/* --- rounds ------------------------------------------------------------------------------------*/

static void wait_seconds(unsigned seconds)
{
	struct timespec left = {.tv_sec = seconds};

	while (nanosleep(&left, &left) != 0)
		continue;
}

static void expect_empty_zone(void)
{
	struct hp_zone_stats stats;

	hp_zone_stats(box.zone, &stats);
	if (stats.leased != 0 || stats.revoked != 0 || stats.pcp != 0 || stats.draining != 0 ||
	    stats.bad != 0)
		die("everything was freed: %" PRIu64 " leased, %" PRIu64 " in pcps, %" PRIu64
		    " draining, %" PRIu64 " bad",
		    stats.leased, stats.pcp, stats.draining, stats.bad);
	if (stats.clean + stats.free + stats.isolated != NR_PAGES)
		die("pages are missing");
	if (box_check(&box) != 0)
		die("hp_zone_check() found something");
}

static void run(const struct hp_zone_config *config, uint64_t seed, unsigned seconds)
{
	struct dice keeper_dice[2] = {dice_seeded(seed), dice_seeded(seed + 1)};
	pthread_t keepers[2];
	uint64_t granted = 0, refused = 0;

	box_init_online(&box, config);
	atomic_store(&stop, false);
	for (uint32_t i = 0; i < NR_WORKERS; i++) {
		workers[i] = (struct worker){.mark = i + 1,
					     .owner = 1 + i % (NR_OWNERS - 1),
					     .slot = i + 1,
					     .renews_pcp = i == 0,
					     .dice = dice_seeded(seed + 100 + i)};
		workers[i].pcp = box_pcp_new(&box, workers[i].owner);
	}
	for (uint32_t i = 0; i < NR_WORKERS; i++)
		expect_ok(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]),
			  "thread");
	for (uint32_t i = 0; i < 2; i++)
		expect_ok(pthread_create(&keepers[i], NULL, keeper_run, &keeper_dice[i]), "thread");
	wait_seconds(seconds);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(keepers[i], NULL);
	for (uint32_t i = 0; i < NR_WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		granted += workers[i].granted;
		refused += workers[i].refused;
	}
	if (box_check(&box) != 0)
		die("hp_zone_check() found something, caches still full");
	for (uint32_t i = 0; i < NR_WORKERS; i++)
		box_pcp_free(workers[i].pcp);
	expect_empty_zone();
	box_deinit(&box);
	printf("blocks of %u%s: %" PRIu64 " grants, %" PRIu64 " refusals, %" PRIu64 " isolations\n",
	       1u << config->pageblock_order, revoking ? ", revoking" : "", granted, refused,
	       atomic_exchange(&isolations, 0));
	if (granted == 0)
		die("nothing was granted");
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
					      {"seconds", required_argument, NULL, 't'},
					      {0}};
	struct hp_zone_config config = {
		.nr_pages = NR_PAGES, .nr_owners = NR_OWNERS, .id = 1, .max_order = 5};
	static const struct {
		uint8_t block_order;
		bool revoking;
	} runs[] = {{3, false}, {0, false}, {4, false}, {3, true}};
	static const unsigned nr_runs = sizeof(runs) / sizeof(runs[0]);
	unsigned seconds = 4;
	uint64_t seed = 1;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 't')
			seconds = (unsigned)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	for (unsigned i = 0; i < nr_runs; i++) {
		config.pageblock_order = runs[i].block_order;
		revoking = runs[i].revoking;
		run(&config, seed, (seconds + nr_runs - 1 - i) / nr_runs);
	}
	return 0;
}
