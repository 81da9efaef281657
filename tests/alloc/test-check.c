/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check itself: everything else here rests on hp_zone_check() seeing what is wrong. So one field
 * at a time is made wrong, in a zone where every field means something, and each has to be seen and
 * to be gone when it is put back. This looks into the zone (alloc/internal.h); nothing else does.
 */
#include "tests/alloc/unit.h"

#include "alloc/internal.h"
#include "alloc/pcp.h"

/* Areas are blocks here; the runs above them go up to four of them. */
static const struct hp_zone_config check_config = {
	.nr_pages = 252,
	.nr_owners = UNIT_OWNERS,
	.id = UNIT_ZONE,
	.pageblock_order = 3,
	.max_order = 5,
	.refcounts = true,
};

static struct hp_pcp *pcp, *pcp_2;
static struct hp_range small, large, revoked_rest, shared, failing;
static uint32_t lent, clean;
static hp_pfn_t broken;

/* Is a lease of so many pages, from a cache. */
static struct hp_range cached(uint32_t pages)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = pages};
	struct hp_grant g;

	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &g), HP_OK);
	return g.range;
}

static void fill_caches(void)
{
	struct hp_range ranges[6];

	hp_pcp_set_sizes(pcp, 2, 32);
	for (unsigned i = 0; i < 6; i++)
		ranges[i] = cached(i < 3 ? 1 : i < 5 ? 2 : 8);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &ranges[i]), HP_OK);
}

static uint32_t last_clean(void)
{
	uint32_t block = box.nr_blocks - 1;

	while (box_block(&box, block).state != HP_BLOCK_CLEAN)
		block--;
	return block;
}

/* A zone with something of everything. */
static int check_setup(void **state)
{
	struct hp_range whole, idle;

	(void)state;
	alarm(UNIT_SECONDS);
	box_init_online(&box, &check_config);
	pcp = box_pcp_new(&box, ALICE);
	pcp_2 = box_pcp_new(&box, BOB);
	small = grant(ALICE, 3);
	large = grant(ALICE, 20);
	broken = grant(ALICE, 1).pfn;
	assert_int_equal(hp_zone_poison(box.zone, broken), HP_OK);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, broken, 1), HP_BAD_PAGE);
	fill_caches();
	whole = grant(BOB, 24);
	assert_int_equal(hp_zone_revoke_block(box.zone, block_of(whole.pfn), true, NULL, NULL),
			 HP_OK);
	revoked_rest = whole;
	revoked_rest.pfn += UNIT_BLOCK_PAGES;
	revoked_rest.pages -= UNIT_BLOCK_PAGES;
	idle = grant(CAROL, 40);
	give_back(CAROL, idle);
	shared = grant_flags(SHARE, 10, 0, HP_ALLOC_SHARED).range;
	failing = grant_flags(CAROL, 16, 0, HP_ALLOC_EXCLUSIVE).range;
	assert_int_equal(hp_zone_fail(box.zone, block_of(failing.pfn)), HP_OK);
	assert_int_equal(hp_zone_lend(box.zone, BOB, &lent), HP_OK);
	assert_int_equal(hp_zone_account_set_quota(box.zone, BOB, HP_UNLIMITED, 6), HP_OK);
	assert_int_equal(hp_zone_offline(box.zone, last_clean()), HP_OK);
	clean = last_clean();
	assert_int_equal(box_check(&box), 0);
	return 0;
}

static int check_teardown(void **state)
{
	box_pcp_free(pcp);
	box_pcp_free(pcp_2);
	return unit_teardown(state);
}

#define check_test(f) cmocka_unit_test_setup_teardown(f, check_setup, check_teardown)

static void count_report(void *userdata, const char *message)
{
	assert_non_null(message);
	++*(unsigned *)userdata;
}

static void assert_seen(const char *what)
{
	unsigned reports = 0, violations = hp_zone_check(box.zone, count_report, &reports);

	if (violations == 0)
		fail_msg("not seen: %s", what);
	assert_int_equal(reports, violations);
	/* It says so as well when nobody listens. */
	assert_int_equal(hp_zone_check(box.zone, NULL, NULL), violations);
}

/* The field has this value instead of its own, is seen, and gets its own again. */
#define WRONG(field, value)                                      \
	do {                                                     \
		__typeof__(field) own_ = (field);                \
		assert_true(own_ != (__typeof__(field))(value)); \
		(field) = (__typeof__(field))(value);            \
		assert_seen(#field " = " #value);                \
		(field) = own_;                                  \
		assert_int_equal(box_check(&box), 0);            \
	} while (0)

static struct hp_area *area_at(hp_pfn_t pfn)
{
	return &box.zone->areas[hp_area_of(box.zone, pfn)];
}

static struct hp_area *block_area(uint32_t block)
{
	return area_at(block * UNIT_BLOCK_PAGES);
}

/* A listed area of this owner with part of it free. */
static struct hp_area *partly_free(uint32_t owner)
{
	for (uint32_t a = 0; a < box.zone->nr_areas; a++) {
		struct hp_area *area = &box.zone->areas[a];

		if (area->owner == owner && area->order < box.zone->area_order)
			return area;
	}
	fail_msg("no such area");
	return NULL;
}

/* The head of a run of this owner. */
static struct hp_area *run_of(uint32_t owner)
{
	for (uint32_t a = 0; a < box.zone->nr_areas; a++) {
		struct hp_area *area = &box.zone->areas[a];

		if (area->owner == owner && area->order != HP_ORDER_NONE &&
		    area->order > box.zone->area_order)
			return area;
	}
	fail_msg("no such run");
	return NULL;
}

static void areas(void **state)
{
	struct hp_area *part = partly_free(SHARE), *run = run_of(CAROL);

	(void)state;
	WRONG(part->free, 0);
	WRONG(part->free, part->free | 1u << (shared.pfn % UNIT_BLOCK_PAGES));
	WRONG(part->free, part->free & (part->free - 1));
	WRONG(part->free, part->free | UINT64_C(1) << 60);
	WRONG(part->zero, UINT64_MAX);
	WRONG(part->owner, BOB);
	WRONG(part->order, HP_ORDER_NONE);
	WRONG(part->order, part->order + 1);
	WRONG(part->closed, HP_CLOSED_FAILING);
	WRONG(part->prev, 0);
	WRONG(part->next, box.zone->nr_areas);
	WRONG(run->order, run->order - 1);
	WRONG(run->free, 0x7f);
	WRONG(run[1].free, 0x7f);
	WRONG(run[1].owner, ALICE);
	WRONG(run[1].order, box.zone->area_order);
	WRONG(run[1].closed, HP_CLOSED_EXCLUSIVE);
	WRONG(block_area(clean)->zero, 0);
	WRONG(block_area(clean)->free, 0);
	WRONG(block_area(lent)->free, 1);
	WRONG(block_area(lent)->closed, 0);
	WRONG(block_area(block_of(failing.pfn))->closed, HP_CLOSED_EXCLUSIVE);
	WRONG(block_area(block_of(failing.pfn) + 1)->closed, 0);
	WRONG(area_at(failing.pfn)->order, 0);
	WRONG(area_at(large.pfn + UNIT_BLOCK_PAGES)->cover, HP_PFN_NONE);
	WRONG(area_at(large.pfn + UNIT_BLOCK_PAGES)->cover, large.pfn + 1);
	WRONG(area_at(large.pfn + UNIT_BLOCK_PAGES)->cover, HP_PFN_NONE - 1);
	WRONG(area_at(small.pfn)->cover, small.pfn);
}

static void lists(void **state)
{
	struct hp_owner *carol = hp_owner_get(box.zone, CAROL);
	struct hp_area *run = run_of(CAROL);
	unsigned order = run->order;

	(void)state;
	WRONG(carol->nonempty, 0);
	WRONG(carol->nonempty, carol->nonempty | 1);
	WRONG(carol->heads[order], HP_AREA_NONE);
	WRONG(carol->heads[0], run - box.zone->areas);
	WRONG(carol->heads[order], box.zone->nr_areas);
	/* A list that bites its tail. */
	WRONG(run->next, run - box.zone->areas);
}

static void counters(void **state)
{
	struct hp_zone *zone = box.zone;
	struct hp_owner *bob = hp_owner_get(zone, BOB);

	(void)state;
	WRONG(bob->free_pages, bob->free_pages + 1);
	WRONG(bob->blocks, bob->blocks + 1);
	WRONG(bob->charged, bob->charged - 1);
	WRONG(bob->pages, 0);
	WRONG(bob->revoked_pages, bob->revoked_pages - 1);
	WRONG(bob->held, bob->held + 1);
	WRONG(bob->account, ALICE);
	WRONG(bob->guarantee, 0);
	WRONG(zone->free_pages, zone->free_pages + 1);
	WRONG(zone->revoked_pages, 0);
	WRONG(zone->bad_pages, 0);
	WRONG(zone->nr_broken, 0);
	WRONG(zone->attention, 7);
	WRONG(zone->guaranteed_blocks, 0);
	WRONG(zone->unmet_blocks, 0);
	for (unsigned s = 0; s < HP_BLOCK_STATES; s++) {
		WRONG(zone->blocks_in[s], zone->blocks_in[s] + 1);
		WRONG(zone->pages_in[s], zone->pages_in[s] + 1);
	}
}

static void pages(void **state)
{
	struct hp_zone *zone = box.zone;

	(void)state;
	/* Neither free nor known to be broken, or both. */
	WRONG(zone->bad[broken / 64], 0);
	WRONG(area_at(broken)->free, area_at(broken)->free | 1u << (broken % UNIT_BLOCK_PAGES));
	/* References without a lease, and a lease with references on a part of it. */
	WRONG(zone->refs[shared.pfn + 1], 0);
	WRONG(zone->refs[shared.pfn + shared.pages], 1);
}

static struct hp_lease_word lease(uint32_t pages, uint32_t slot, enum hp_lease_state state)
{
	return (struct hp_lease_word){
		.generation = 1, .slot = slot, .pages = pages, .state = state};
}

static void lease_words(void **state)
{
	hp_word_t *words = box.leases;

	(void)state;
	WRONG(words[small.pfn], 0);
	WRONG(words[small.pfn], hp_lease_encode(lease(2, ALICE, HP_LEASE_LEASED)));
	WRONG(words[small.pfn], hp_lease_encode(lease(4, ALICE, HP_LEASE_LEASED)));
	WRONG(words[small.pfn], hp_lease_encode(lease(0, ALICE, HP_LEASE_LEASED)));
	WRONG(words[small.pfn], hp_lease_encode(lease(3, ALICE, HP_LEASE_REVOKED)));
	WRONG(words[small.pfn],
	      hp_lease_encode(lease(check_config.nr_pages, ALICE, HP_LEASE_LEASED)));
	WRONG(words[small.pfn + 1], hp_lease_encode(lease(1, ALICE, HP_LEASE_LEASED)));
	WRONG(words[revoked_rest.pfn], hp_lease_encode(lease(16, BOB, HP_LEASE_LEASED)));
	WRONG(words[clean * UNIT_BLOCK_PAGES], hp_lease_encode(lease(1, BOB, HP_LEASE_LEASED)));
	WRONG(words[lent * UNIT_BLOCK_PAGES], hp_lease_encode(lease(1, BOB, HP_LEASE_LEASED)));
	/* Of pages in a cache. */
	WRONG(words[hp_entry_pfn(
		      pcp->entries[pcp->list[0].base + (pcp->list[0].cold & pcp->list[0].mask)])],
	      hp_lease_encode(lease(1, ALICE, HP_LEASE_LEASED)));
}

static void block_words(void **state)
{
	hp_word_t *words = box.blocks;
	struct hp_block_word live = box_block(&box, block_of(small.pfn));

	(void)state;
	live.owner = BOB;
	WRONG(words[block_of(small.pfn)], hp_block_encode(live));
	live.owner = ALICE;
	live.exclusive = true;
	WRONG(words[block_of(small.pfn)], hp_block_encode(live));
	live.exclusive = false;
	for (int s = 0; s < HP_BLOCK_STATES; s++) {
		live.state = (enum hp_block_state)s;
		if (s != HP_BLOCK_LIVE)
			WRONG(words[block_of(small.pfn)], hp_block_encode(live));
	}
	live.state = HP_BLOCK_CLEAN;
	WRONG(words[clean], hp_block_encode(live));
	live.owner = UNIT_OWNERS;
	WRONG(words[clean], hp_block_encode(live));
}

static void caches(void **state)
{
	struct hp_pcp_list *singles = &pcp->list[0];
	hp_entry_t *coldest = &pcp->entries[singles->base + (singles->cold & singles->mask)];

	(void)state;
	assert_true(hp_pcp_list_nr(singles) >= 2);
	WRONG(singles->cold, singles->cold + 1);
	WRONG(singles->hot, singles->hot - 1);
	WRONG(singles->hot, singles->cold + 10000);
	WRONG(pcp->draining, 1);
	WRONG(pcp->owner, BOB);
	WRONG(*coldest, hp_entry(hp_entry_pfn(*coldest), 1, false));
	WRONG(*coldest, hp_entry(small.pfn, 0, false));
	WRONG(*coldest, hp_entry(large.pfn + UNIT_BLOCK_PAGES, 0, false));
	WRONG(*coldest, hp_entry(shared.pfn + shared.pages, 0, false));
	WRONG(*coldest, hp_entry(lent * UNIT_BLOCK_PAGES, 0, false));
	WRONG(*coldest, hp_entry(clean * UNIT_BLOCK_PAGES, 0, false));
	WRONG(*coldest, hp_entry(check_config.nr_pages, 0, false));
	WRONG(*coldest, pcp->entries[singles->base + ((singles->cold + 1) & singles->mask)]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(areas),  check_test(lists),	     check_test(counters),
		check_test(pages),  check_test(lease_words), check_test(block_words),
		check_test(caches),
	};

	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
