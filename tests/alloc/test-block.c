/* SPDX-License-Identifier: Apache-2.0 */
/* Pageblocks: every way from one state to another, and every one that there is not. */
#include "tests/alloc/unit.h"

/* A block of Alice's, idle: block 0 of a fresh zone or the next one. */
static uint32_t idle_block(void)
{
	struct hp_range range = grant_flags(ALICE, UNIT_BLOCK_PAGES, UNIT_BLOCK_PAGES, 0).range;

	give_back(ALICE, range);
	return block_of(range.pfn);
}

static void claim(uint32_t block)
{
	struct hp_block_info info;

	/* Whatever is clean below it is claimed as well. */
	do {
		grant_flags(ALICE, UNIT_BLOCK_PAGES, UNIT_BLOCK_PAGES, 0);
		assert_int_equal(hp_zone_block_info(box.zone, block, &info), HP_OK);
	} while (info.word.state == HP_BLOCK_CLEAN);
}

/* --- transitions -------------------------------------------------------------------------------*/

enum verb { ONLINE, ISOLATE, PUT_CLEAN, QUARANTINE, OFFLINE, FAIL, REVOKE, UNLEND, VERBS };

static int do_verb(enum verb verb, uint32_t block)
{
	switch (verb) {
	case ONLINE:
		return hp_zone_online(box.zone, block, 9);
	case ISOLATE:
		return hp_zone_isolate(box.zone, block);
	case PUT_CLEAN:
		return hp_zone_put_clean(box.zone, block, 9);
	case QUARANTINE:
		return hp_zone_quarantine(box.zone, block);
	case OFFLINE:
		return hp_zone_offline(box.zone, block);
	case FAIL:
		return hp_zone_fail(box.zone, block);
	case REVOKE:
		return hp_zone_revoke_block(box.zone, block, false, NULL, NULL);
	default:
		return hp_zone_unlend(box.zone, block);
	}
}

/* A block in each state, by the verbs alone. Return: its number. */
static uint32_t block_in(enum hp_block_state state)
{
	uint32_t block;

	switch (state) {
	case HP_BLOCK_OFFLINE:
		assert_int_equal(hp_zone_offline(box.zone, 7), HP_OK);
		return 7;
	case HP_BLOCK_CLEAN:
		return 7;
	case HP_BLOCK_LENT:
		assert_int_equal(hp_zone_lend(box.zone, ALICE, &block), HP_OK);
		return block;
	case HP_BLOCK_LIVE:
		return idle_block();
	case HP_BLOCK_FAILING:
		block = idle_block();
		assert_int_equal(hp_zone_fail(box.zone, block), HP_OK);
		return block;
	case HP_BLOCK_ISOLATED:
		block = idle_block();
		assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
		return block;
	default:
		block = idle_block();
		assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
		assert_int_equal(hp_zone_quarantine(box.zone, block), HP_OK);
		return block;
	}
}

/* Where each verb leads from each state; -1: refused. */
static const int leads_to[HP_BLOCK_STATES][VERBS] = {
	[HP_BLOCK_OFFLINE] = {HP_BLOCK_CLEAN, -1, -1, -1, -1, -1, -1, -1},
	[HP_BLOCK_CLEAN] = {-1, -1, -1, -1, HP_BLOCK_OFFLINE, -1, -1, -1},
	[HP_BLOCK_LIVE] = {-1, HP_BLOCK_ISOLATED, -1, -1, -1, HP_BLOCK_FAILING, HP_BLOCK_ISOLATED,
			   -1},
	[HP_BLOCK_FAILING] = {-1, -1, -1, -1, HP_BLOCK_OFFLINE, -1, HP_BLOCK_ISOLATED, -1},
	[HP_BLOCK_ISOLATED] = {-1, -1, HP_BLOCK_CLEAN, HP_BLOCK_QUARANTINED, HP_BLOCK_OFFLINE, -1,
			       -1, -1},
	[HP_BLOCK_QUARANTINED] = {-1, HP_BLOCK_ISOLATED, HP_BLOCK_CLEAN, -1, HP_BLOCK_OFFLINE, -1,
				  -1, -1},
	[HP_BLOCK_LENT] = {-1, -1, -1, -1, -1, -1, -1, HP_BLOCK_ISOLATED},
};

static void assert_transition(enum hp_block_state from, enum verb verb)
{
	uint32_t block = block_in(from);
	struct hp_block_word before = box_block(&box, block), after;
	int to = leads_to[from][verb];

	assert_int_equal(before.state, from);
	assert_int_equal(do_verb(verb, block), to < 0 ? HP_BUSY : HP_OK);
	after = box_block(&box, block);
	assert_int_equal(after.state, to < 0 ? (int)from : to);
	switch (to) {
	case -1:
		assert_int_equal(hp_block_encode(after), hp_block_encode(before));
		break;
	case HP_BLOCK_CLEAN:
		assert_int_equal(after.generation, 9);
		assert_int_equal(after.owner, HP_OWNER_NONE);
		break;
	case HP_BLOCK_OFFLINE:
		assert_int_equal(after.owner, HP_OWNER_NONE);
		break;
	default:
		assert_int_equal(after.owner, before.owner);
		assert_int_equal(after.generation, before.generation);
	}
	assert_int_equal(box_check(&box), 0);
}

static void every_transition_is_as_declared(void **state)
{
	(void)state;
	for (int from = 0; from < HP_BLOCK_STATES; from++) {
		for (int verb = 0; verb < VERBS; verb++) {
			box_deinit(&box);
			box_init_online(&box, &unit_config);
			assert_transition((enum hp_block_state)from, (enum verb)verb);
		}
	}
}

static void blocks_outside_the_zone_are_refused(void **state)
{
	struct hp_block_info info;

	(void)state;
	for (int verb = 0; verb < VERBS; verb++) {
		assert_int_equal(do_verb((enum verb)verb, UNIT_BLOCKS), HP_OUT_OF_RANGE);
		assert_int_equal(do_verb((enum verb)verb, UINT32_MAX), HP_OUT_OF_RANGE);
	}
	assert_int_equal(hp_zone_block_info(box.zone, UNIT_BLOCKS, &info), HP_OUT_OF_RANGE);
}

/* --- isolating ---------------------------------------------------------------------------------*/

static void a_block_with_the_middle_of_a_lease_is_not_idle(void **state)
{
	struct hp_range range = grant(ALICE, 3 * UNIT_BLOCK_PAGES);
	struct hp_block_info info;

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(hp_zone_isolate(box.zone, block_of(range.pfn) + i), HP_BUSY);
		assert_int_equal(hp_zone_block_info(box.zone, block_of(range.pfn) + i, &info),
				 HP_OK);
		assert_false(info.idle);
		assert_int_equal(info.free_pages, 0);
	}
}

static void a_block_with_only_a_tail_is_not_idle(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_BLOCK_PAGES + 1);

	(void)state;
	assert_int_equal(hp_zone_isolate(box.zone, block_of(range.pfn) + 1), HP_BUSY);
	assert_block(block_of(range.pfn) + 1, HP_BLOCK_LIVE, ALICE);
}

static void isolating_gets_pages_out_of_every_pcp(void **state)
{
	struct hp_pcp *first = box_pcp_new(&box, ALICE);
	struct hp_pcp *second = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant a, b;
	uint32_t block;

	(void)state;
	assert_int_equal(hp_zone_alloc(box.zone, first, &request, &a), HP_OK);
	assert_int_equal(hp_zone_alloc(box.zone, second, &request, &b), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, first, ALICE, &a.range), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, second, ALICE, &b.range), HP_OK);
	assert_true(zone_stats().pcp > 0);
	block = block_of(a.range.pfn);
	assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
	assert_int_equal(zone_stats().isolated, UNIT_BLOCK_PAGES);
	/* Nobody can get a page of it, through whatever cache. */
	for (unsigned i = 0; i < UNIT_PAGES - UNIT_BLOCK_PAGES; i++) {
		struct hp_grant c;

		assert_int_equal(hp_zone_alloc(box.zone, i % 2 ? first : second, &request, &c),
				 HP_OK);
		assert_int_not_equal(block_of(c.range.pfn), block);
	}
	box_pcp_free(first);
	box_pcp_free(second);
}

static void an_isolated_block_is_on_no_list_and_merges_with_nothing(void **state)
{
	struct hp_range all = grant(ALICE, UNIT_PAGES);

	(void)state;
	give_back(ALICE, all);
	assert_int_equal(owner_stats(ALICE).largest_pages, UNIT_PAGES);
	assert_int_equal(hp_zone_isolate(box.zone, 3), HP_OK);
	assert_int_equal(owner_stats(ALICE).largest_pages, 4 * UNIT_BLOCK_PAGES);
	assert_int_equal(owner_stats(ALICE).free_pages, UNIT_PAGES - UNIT_BLOCK_PAGES);
	assert_int_equal(account_stats(ALICE).held_blocks, UNIT_BLOCKS);
	assert_int_equal(zone_stats().isolated, UNIT_BLOCK_PAGES);
	/* Freed beside it, nothing grows into it. */
	all = grant_flags(ALICE, 16, 0, 0).range;
	give_back(ALICE, all);
	assert_int_equal(hp_zone_put_clean(box.zone, 3, 2), HP_OK);
	assert_int_equal(account_stats(ALICE).held_blocks, UNIT_BLOCKS - 1);
	assert_int_equal(owner_stats(BOB).largest_pages, UNIT_BLOCK_PAGES);
	assert_int_equal(grant(BOB, UNIT_BLOCK_PAGES).pfn, 3 * UNIT_BLOCK_PAGES);
}

static void a_refused_isolation_leaves_the_block_in_use(void **state)
{
	struct hp_range range = grant(ALICE, 1);
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);

	(void)state;
	assert_int_equal(hp_zone_isolate(box.zone, block_of(range.pfn)), HP_BUSY);
	assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &range), HP_OK);
	assert_int_equal(block_of(grant(ALICE, UNIT_BLOCK_PAGES / 2).pfn), block_of(range.pfn));
	box_pcp_free(pcp);
}

/* --- clean, online, offline --------------------------------------------------------------------*/

static void offline_pages_are_not_granted(void **state)
{
	(void)state;
	for (uint32_t b = 0; b < UNIT_BLOCKS; b += 2)
		assert_int_equal(hp_zone_offline(box.zone, b), HP_OK);
	assert_int_equal(zone_stats().offline, UNIT_PAGES / 2);
	assert_int_equal(refused(ALICE, UNIT_BLOCK_PAGES + 1, 0, 0), HP_NO_ROOM);
	for (uint32_t i = 0; i < UNIT_BLOCKS / 2; i++)
		assert_int_equal(block_of(grant(ALICE, UNIT_BLOCK_PAGES).pfn) % 2, 1);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	assert_int_equal(hp_zone_online(box.zone, 0, 5), HP_OK);
	assert_int_equal(box_block(&box, 0).generation, 5);
	assert_int_equal(grant(ALICE, 1).pfn / UNIT_BLOCK_PAGES, 0);
}

static void clean_neighbours_form_one_hole(void **state)
{
	struct hp_owner_stats clean = owner_stats(HP_OWNER_NONE);

	(void)state;
	assert_int_equal(clean.free_pages, UNIT_PAGES);
	assert_int_equal(owner_stats(ALICE).largest_pages, UNIT_PAGES);
	assert_int_equal(owner_stats(ALICE).leasable_pages, UNIT_PAGES);
}

/* --- failing -----------------------------------------------------------------------------------*/

static void a_failing_block_gets_no_new_grants(void **state)
{
	struct hp_range range = grant(ALICE, 3);
	uint32_t block = block_of(range.pfn);

	(void)state;
	assert_int_equal(hp_zone_fail(box.zone, block), HP_OK);
	assert_block(block, HP_BLOCK_FAILING, ALICE);
	assert_int_equal(refused(ALICE, 1, 0, HP_ALLOC_NO_CLAIM), HP_NO_ROOM);
	for (uint32_t i = 0; i < UNIT_PAGES - UNIT_BLOCK_PAGES; i++)
		assert_int_not_equal(block_of(grant(ALICE, 1).pfn), block);
	/* What is leased stays, and comes back to nobody. */
	assert_int_equal(hp_zone_lookup(box.zone, ALICE, &range), HP_OK);
	assert_int_equal(hp_zone_offline(box.zone, block), HP_BUSY);
	give_back(ALICE, range);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	assert_int_equal(hp_zone_offline(box.zone, block), HP_OK);
	assert_int_equal(account_stats(ALICE).held_blocks, UNIT_BLOCKS - 1);
}

static void pages_freed_in_a_failing_block_enter_no_pcp(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_range range = grant(ALICE, 1);
	struct hp_pcp_stats stats;

	(void)state;
	assert_int_equal(hp_zone_fail(box.zone, block_of(range.pfn)), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &range), HP_OK);
	hp_pcp_get_stats(pcp, &stats);
	assert_int_equal(stats.count, 0);
	assert_int_equal(hp_zone_offline(box.zone, block_of(range.pfn)), HP_OK);
	box_pcp_free(pcp);
}

/* --- revoking ----------------------------------------------------------------------------------*/

struct hit {
	uint32_t slot;
	struct hp_range range;
};

struct hit_list {
	struct hit hits[8];
	unsigned n;
};

static void note_hit(void *userdata, uint32_t slot, const struct hp_range *range,
		     enum hp_lease_state state)
{
	struct hit_list *list = userdata;

	assert_true(list->n < 8);
	/* Its words have not changed yet. */
	assert_int_equal(box_lease(&box, range->pfn).pages, range->pages);
	assert_int_equal(box_lease(&box, range->pfn).state, state);
	list->hits[list->n++] = (struct hit){.slot = slot, .range = *range};
}

static void revoking_cuts_leases_down_to_their_other_blocks(void **state)
{
	struct hp_range whole = grant(ALICE, 3 * UNIT_BLOCK_PAGES);
	uint32_t middle = block_of(whole.pfn) + 1;
	struct hit_list list = {.n = 0};
	struct hp_range rest;

	(void)state;
	assert_int_equal(hp_zone_revoke_block(box.zone, middle, false, note_hit, &list), HP_OK);
	assert_int_equal(list.n, 1);
	assert_int_equal(list.hits[0].slot, ALICE);
	assert_memory_equal(&list.hits[0].range.pfn, &whole.pfn, sizeof(whole.pfn));
	assert_int_equal(list.hits[0].range.pages, whole.pages);
	assert_int_equal(list.hits[0].range.generation, whole.generation);
	assert_block(middle, HP_BLOCK_ISOLATED, ALICE);
	assert_lease(whole.pfn, HP_LEASE_REVOKED, ALICE, UNIT_BLOCK_PAGES);
	assert_lease(whole.pfn + 2 * UNIT_BLOCK_PAGES, HP_LEASE_REVOKED, ALICE, UNIT_BLOCK_PAGES);
	assert_int_equal(zone_stats().revoked, 2 * UNIT_BLOCK_PAGES);
	assert_int_equal(zone_stats().leased, 0);
	/* The block can be recycled at once; the rests are nobody else's until acknowledged. */
	assert_int_equal(hp_zone_put_clean(box.zone, middle, 2), HP_OK);
	assert_int_equal(hp_zone_isolate(box.zone, middle - 1), HP_BUSY);
	rest = (struct hp_range){.pfn = whole.pfn,
				 .pages = UNIT_BLOCK_PAGES,
				 .generation = whole.generation,
				 .zone = UNIT_ZONE};
	assert_int_equal(hp_zone_ack(box.zone, BOB, &rest), HP_WRONG_HOLDER);
	assert_int_equal(hp_zone_ack(box.zone, ALICE, &rest), HP_OK);
	assert_int_equal(hp_zone_ack(box.zone, ALICE, &rest), HP_NOT_LEASED);
	assert_int_equal(hp_zone_isolate(box.zone, middle - 1), HP_OK);
}

static void revoking_hits_every_lease_that_touches_the_block(void **state)
{
	struct hp_range whole = grant(ALICE, 2 * UNIT_BLOCK_PAGES);
	struct hp_range keep[3];
	struct hit_list list = {.n = 0};
	uint32_t second = block_of(whole.pfn) + 1;

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		keep[i] = whole;
		keep[i].pfn += 6 + 3 * i;
		keep[i].pages = 3;
	}
	/* One reaches in from the block before, two lie inside; some pages are free. */
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &whole, keep, 3), HP_OK);
	assert_int_equal(hp_zone_revoke_block(box.zone, second, true, note_hit, &list), HP_OK);
	assert_int_equal(list.n, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(list.hits[i].range.pfn, keep[i].pfn);
		assert_int_equal(list.hits[i].range.pages, 3);
	}
	assert_block(second, HP_BLOCK_QUARANTINED, ALICE);
	assert_lease(keep[0].pfn, HP_LEASE_REVOKED, ALICE, 2);
	assert_int_equal(zone_stats().revoked, 2);
	assert_int_equal(zone_stats().quarantined, UNIT_BLOCK_PAGES);
	for (uint32_t i = 0; i < UNIT_BLOCK_PAGES; i++)
		assert_free_page(second * UNIT_BLOCK_PAGES + i);
}

static void revoking_empties_the_pcps_of_the_block(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant a, b;
	uint32_t block;

	(void)state;
	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &a), HP_OK);
	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &b), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &b.range), HP_OK);
	block = block_of(a.range.pfn);
	assert_int_equal(hp_zone_revoke_block(box.zone, block, false, NULL, NULL), HP_OK);
	for (uint32_t i = 0; i < UNIT_PAGES - UNIT_BLOCK_PAGES; i++) {
		assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &b), HP_OK);
		assert_int_not_equal(block_of(b.range.pfn), block);
	}
	box_pcp_free(pcp);
}

/* --- lending -----------------------------------------------------------------------------------*/

static void a_lent_block_is_charged_and_on_no_list(void **state)
{
	uint32_t block = 99;

	(void)state;
	assert_int_equal(hp_zone_lend(box.zone, BOB, &block), HP_OK);
	assert_block(block, HP_BLOCK_LENT, BOB);
	assert_int_equal(account_stats(BOB).held_blocks, 1);
	assert_int_equal(zone_stats().lent, UNIT_BLOCK_PAGES);
	for (uint32_t i = 0; i < UNIT_BLOCKS - 1; i++)
		assert_int_not_equal(block_of(grant(BOB, UNIT_BLOCK_PAGES).pfn), block);
	assert_int_equal(refused(BOB, 1, 0, 0), HP_NO_ROOM);
	assert_int_equal(hp_zone_unlend(box.zone, block), HP_OK);
	assert_block(block, HP_BLOCK_ISOLATED, BOB);
	assert_int_equal(account_stats(BOB).held_blocks, UNIT_BLOCKS);
}

static void lending_obeys_the_limit(void **state)
{
	uint32_t block;

	(void)state;
	assert_int_equal(hp_zone_account_set_quota(box.zone, BOB, 1, 0), HP_OK);
	assert_int_equal(hp_zone_lend(box.zone, BOB, &block), HP_OK);
	assert_int_equal(hp_zone_lend(box.zone, BOB, &block), HP_OVER_LIMIT);
	claim(7);
	assert_int_equal(hp_zone_lend(box.zone, CAROL, &block), HP_NO_ROOM);
}

/* --- broken pages ------------------------------------------------------------------------------*/

static unsigned bad_pages;

static void count_bad(void *userdata, hp_pfn_t pfn, const char *what)
{
	(void)pfn;
	assert_non_null(what);
	assert_ptr_equal(userdata, &bad_pages);
	bad_pages++;
}

static void a_broken_page_is_never_granted_again(void **state)
{
	struct hp_range range = grant(ALICE, 4);
	uint32_t block = block_of(range.pfn);
	hp_pfn_t leased = range.pfn + 1, free = range.pfn + 6;

	(void)state;
	bad_pages = 0;
	hp_zone_set_bad_page_fn(box.zone, count_bad, &bad_pages);
	assert_int_equal(hp_zone_poison(box.zone, leased), HP_OK);
	assert_int_equal(hp_zone_poison(box.zone, leased), HP_OK);
	assert_int_equal(hp_zone_poison(box.zone, free), HP_OK);
	assert_int_equal(zone_stats().bad, 1);
	assert_int_equal(hp_zone_free(box.zone, NULL, ALICE, &range), HP_BAD_PAGE);
	assert_int_equal(zone_stats().bad, 2);
	/* Both were reported when they were kept out. */
	assert_int_equal(bad_pages, 2);
	assert_int_equal(zone_stats().leased, 0);
	for (uint32_t i = 0; i < UNIT_BLOCK_PAGES - 2; i++) {
		hp_pfn_t pfn = grant_flags(ALICE, 1, 0, HP_ALLOC_NO_CLAIM).range.pfn;

		assert_int_equal(block_of(pfn), block);
		assert_int_not_equal(pfn, leased);
		assert_int_not_equal(pfn, free);
	}
	assert_int_equal(refused(ALICE, 1, 0, HP_ALLOC_NO_CLAIM), HP_NO_ROOM);
}

static void recycling_ends_what_was_known_of_broken_pages(void **state)
{
	uint32_t block = idle_block();

	(void)state;
	assert_int_equal(hp_zone_poison(box.zone, block * UNIT_BLOCK_PAGES), HP_OK);
	assert_int_equal(hp_zone_poison(box.zone, UNIT_PAGES), HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_poison(box.zone, UNIT_PAGES - 1), HP_BUSY);
	assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
	assert_int_equal(hp_zone_put_clean(box.zone, block, 2), HP_OK);
	assert_int_equal(zone_stats().bad, 0);
	assert_int_equal(zone_stats().clean, UNIT_PAGES);
}

static void a_broken_page_splits_a_contiguous_free(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_PAGES);

	(void)state;
	assert_int_equal(hp_zone_poison(box.zone, 20), HP_OK);
	assert_int_equal(hp_zone_split(box.zone, ALICE, &range), HP_OK);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, 0, UNIT_PAGES), HP_BAD_PAGE);
	assert_int_equal(zone_stats().leased, 0);
	assert_int_equal(zone_stats().bad, 1);
	assert_int_equal(owner_stats(ALICE).free_pages, UNIT_PAGES - 1);
	assert_int_equal(owner_stats(ALICE).largest_pages, UNIT_PAGES - 21);
}

static void a_broken_page_in_a_pcp_is_taken_out(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant a;

	(void)state;
	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &a), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &a.range), HP_OK);
	assert_int_equal(hp_zone_poison(box.zone, a.range.pfn), HP_OK);
	for (uint32_t i = 0; i < UNIT_PAGES - 1; i++) {
		struct hp_grant b;

		assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &b), HP_OK);
		assert_int_not_equal(b.range.pfn, a.range.pfn);
	}
	assert_int_equal(zone_stats().bad, 1);
	box_pcp_free(pcp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		zone_test(every_transition_is_as_declared),
		zone_test(blocks_outside_the_zone_are_refused),
		zone_test(a_block_with_the_middle_of_a_lease_is_not_idle),
		zone_test(a_block_with_only_a_tail_is_not_idle),
		zone_test(isolating_gets_pages_out_of_every_pcp),
		zone_test(an_isolated_block_is_on_no_list_and_merges_with_nothing),
		zone_test(a_refused_isolation_leaves_the_block_in_use),
		zone_test(offline_pages_are_not_granted),
		zone_test(clean_neighbours_form_one_hole),
		zone_test(a_failing_block_gets_no_new_grants),
		zone_test(pages_freed_in_a_failing_block_enter_no_pcp),
		zone_test(revoking_cuts_leases_down_to_their_other_blocks),
		zone_test(revoking_hits_every_lease_that_touches_the_block),
		zone_test(revoking_empties_the_pcps_of_the_block),
		zone_test(a_lent_block_is_charged_and_on_no_list),
		zone_test(lending_obeys_the_limit),
		zone_test(a_broken_page_is_never_granted_again),
		zone_test(recycling_ends_what_was_known_of_broken_pages),
		zone_test(a_broken_page_splits_a_contiguous_free),
		zone_test(a_broken_page_in_a_pcp_is_taken_out),
	};

	return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
