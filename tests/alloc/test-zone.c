/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zone from the outside: each function once in its plain case, and seeded random operations on
 * odd geometries with hp_zone_check() after every step. The model and the crash points have tests
 * of their own; this one is quick and says first where something broke.
 */
#include "alloc/zone.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
	struct hp_zone *zone;
	struct hp_zone_config config;
	void *durable, *scratch;
	size_t durable_bytes, scratch_bytes;
	struct hp_pcp *pcp[3];
	void *pcp_memory[3];
};

static void print(void *userdata, const char *message)
{
	(void)userdata;
	print_error("check: %s\n", message);
}

#define check(f) assert_int_equal(hp_zone_check((f)->zone, print, NULL), 0)

static void setup(struct fixture *f, uint32_t pages, unsigned block_order, unsigned max_order,
		  bool online)
{
	memset(f, 0, sizeof(*f));
	f->config = (struct hp_zone_config){.nr_pages = pages,
					    .nr_owners = 5,
					    .id = 3,
					    .pageblock_order = (uint8_t)block_order,
					    .max_order = (uint8_t)max_order,
					    .refcounts = true};
	assert_int_equal(hp_zone_sizes(&f->config, &f->durable_bytes, &f->scratch_bytes), 0);
	f->zone = malloc(hp_zone_struct_size());
	f->durable = aligned_alloc(64, f->durable_bytes);
	f->scratch = aligned_alloc(64, f->scratch_bytes);
	memset(f->durable, 0xa5, f->durable_bytes);
	memset(f->scratch, 0x5a, f->scratch_bytes);
	assert_int_equal(hp_zone_init(f->zone, &f->config, f->durable, f->scratch), 0);
	for (uint32_t b = 0; online && b < hp_zone_nr_blocks(f->zone); b++)
		assert_int_equal(hp_zone_online(f->zone, b, 1), 0);
	check(f);
}

static void add_pcps(struct fixture *f)
{
	for (unsigned i = 0; i < 3; i++) {
		f->pcp_memory[i] = aligned_alloc(64, hp_pcp_size(f->zone));
		assert_int_equal(hp_pcp_init(&f->pcp[i], f->pcp_memory[i], f->zone, i / 2 + 1), 0);
	}
}

static void drop_pcps(struct fixture *f)
{
	for (unsigned i = 0; i < 3; i++) {
		hp_pcp_deinit(f->pcp[i]);
		free(f->pcp_memory[i]);
		f->pcp[i] = NULL;
		f->pcp_memory[i] = NULL;
	}
}

static void teardown(struct fixture *f)
{
	check(f);
	drop_pcps(f);
	check(f);
	hp_zone_deinit(f->zone);
	free(f->zone);
	free(f->durable);
	free(f->scratch);
}

static struct hp_zone_stats stats(struct fixture *f)
{
	struct hp_zone_stats s;

	hp_zone_stats(f->zone, &s);
	assert_int_equal(s.clean + s.free + s.pcp + s.draining + s.leased + s.revoked + s.isolated +
				 s.quarantined + s.lent + s.offline + s.bad,
			 s.nr_pages);
	return s;
}

static struct hp_grant must_alloc(struct fixture *f, struct hp_pcp *pcp, uint32_t owner,
				  uint32_t pages, uint32_t align, uint32_t flags)
{
	struct hp_grant g;

	assert_int_equal(hp_zone_alloc(f->zone, pcp,
				       &(struct hp_request){.owner = owner,
							    .slot = owner,
							    .pages = pages,
							    .align = align,
							    .flags = flags},
				       &g),
			 0);
	assert_int_equal(g.range.pages, pages);
	assert_int_equal(g.range.zone, 3);
	if (align)
		assert_int_equal(g.range.pfn % align, 0);
	return g;
}

static void test_grant_and_free(void **state)
{
	struct fixture f;
	struct hp_grant g, h;

	(void)state;
	setup(&f, 1024, 5, 10, true);
	g = must_alloc(&f, NULL, 1, 1, 0, HP_ALLOC_ZEROED);
	assert_true(g.zeroed);
	assert_int_equal(stats(&f).leased, 1);
	assert_int_equal(stats(&f).free, 31);
	assert_int_equal(hp_zone_lookup(f.zone, 1, &g.range), 0);
	h = must_alloc(&f, NULL, 1, 510, 0, 0);
	check(&f);
	assert_int_equal(hp_zone_free(f.zone, NULL, 1, &h.range), 0);
	assert_int_equal(hp_zone_free(f.zone, NULL, 1, &h.range), HP_NOT_LEASED);
	assert_int_equal(hp_zone_free(f.zone, NULL, 1, &g.range), 0);
	assert_int_equal(stats(&f).leased, 0);
	/* The same page again, dirty now, of the next generation. */
	h = must_alloc(&f, NULL, 1, 1, 0, 0);
	assert_int_equal(h.range.pfn, g.range.pfn);
	assert_int_equal(h.range.generation, g.range.generation + 1);
	assert_false(h.zeroed);
	teardown(&f);
}

static void test_wrong_frees(void **state)
{
	struct fixture f;
	struct hp_range r;
	struct hp_grant g;
	void *durable, *scratch;

	(void)state;
	setup(&f, 256, 5, 10, true);
	add_pcps(&f);
	g = must_alloc(&f, NULL, 1, 8, 0, 0);
	durable = malloc(f.durable_bytes);
	scratch = malloc(f.scratch_bytes);
	memcpy(durable, f.durable, f.durable_bytes);
	memcpy(scratch, f.scratch, f.scratch_bytes);
	for (unsigned with_pcp = 0; with_pcp < 2; with_pcp++) {
		struct hp_pcp *pcp = with_pcp ? f.pcp[0] : NULL;

		r = g.range;
		r.zone++;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_WRONG_ZONE);
		r = g.range;
		r.pages = 0;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_OUT_OF_RANGE);
		r = g.range;
		r.pfn = 256;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_OUT_OF_RANGE);
		r = g.range;
		r.pfn += 8;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_NOT_LEASED);
		assert_int_equal(hp_zone_free(f.zone, pcp, 2, &g.range), HP_WRONG_HOLDER);
		assert_int_equal(hp_zone_free(f.zone, pcp, 1 | 1 << 18, &g.range), HP_WRONG_HOLDER);
		r = g.range;
		r.generation++;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_STALE);
		r.generation = g.range.generation | 1u << 24;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_STALE);
		r = g.range;
		r.pages = 4;
		assert_int_equal(hp_zone_free(f.zone, pcp, 1, &r), HP_WRONG_LENGTH);
		assert_int_equal(hp_zone_free_contig(f.zone, pcp, 1, g.range.pfn, 9),
				 HP_NOT_LEASED);
		assert_int_equal(hp_zone_free_contig(f.zone, pcp, 2, g.range.pfn, 2),
				 HP_WRONG_HOLDER);
	}
	assert_memory_equal(durable, f.durable, f.durable_bytes);
	assert_memory_equal(scratch, f.scratch, f.scratch_bytes);
	free(durable);
	free(scratch);
	teardown(&f);
}

static void test_poison(void **state)
{
	struct fixture f;
	struct hp_grant g;

	(void)state;
	setup(&f, 256, 5, 10, true);
	add_pcps(&f);
	g = must_alloc(&f, f.pcp[0], 1, 4, 0, 0);
	assert_int_equal(hp_zone_poison(f.zone, g.range.pfn + 1), 0);
	assert_int_equal(stats(&f).bad, 0);
	assert_int_equal(hp_zone_free(f.zone, f.pcp[0], 1, &g.range), HP_BAD_PAGE);
	assert_int_equal(stats(&f).bad, 1);
	check(&f);
	assert_int_equal(hp_zone_poison(f.zone, g.range.pfn + 2), 0);
	assert_int_equal(stats(&f).bad, 2);
	assert_int_equal(hp_zone_isolate(f.zone, g.range.pfn / 32), 0);
	assert_int_equal(stats(&f).bad, 0);
	assert_int_equal(hp_zone_put_clean(f.zone, g.range.pfn / 32, 2), 0);
	teardown(&f);
}

/* --- random operations --- */

#define LEASES 512

struct lease {
	struct hp_range range;
	uint32_t slot, owner;
	bool shared;
};

static uint64_t rng_state;

static uint32_t rnd(uint32_t n)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (uint32_t)(rng_state >> 32) % n;
}

static uint32_t owner_of_slot(void *userdata, uint32_t slot)
{
	(void)userdata;
	return slot;
}

static unsigned collect_n;

static int collect(void *userdata, uint32_t slot, const struct hp_range *range,
		   enum hp_lease_state state)
{
	struct lease *leases = userdata;

	if (state == HP_LEASE_LEASED && collect_n < LEASES)
		leases[collect_n++] = (struct lease){.range = *range, .slot = slot, .owner = slot};
	return 0;
}

static void random_operations(uint32_t pages, unsigned block_order, unsigned max_order,
			      unsigned steps)
{
	struct lease leases[LEASES];
	struct fixture f;
	unsigned n = 0;

	setup(&f, pages, block_order, max_order, true);
	add_pcps(&f);
	hp_zone_account_set_quota(f.zone, 2, hp_zone_nr_blocks(f.zone) / 2, 0);
	for (unsigned step = 0; step < steps; step++) {
		struct hp_pcp *pcp = rnd(4) ? f.pcp[rnd(3)] : NULL;
		uint32_t owner = rnd(2) + 1, block = rnd(hp_zone_nr_blocks(f.zone));
		struct lease *l = n ? &leases[rnd(n)] : NULL;
		unsigned what = rnd(100), nr_kept;
		struct hp_range kept[2];
		struct hp_grant g[20];
		int r;

		if (what < 35 && n < LEASES - 20) {
			struct hp_request q = {.owner = owner, .slot = owner};

			q.pages = rnd(2) ? 1u << rnd(max_order + 1)
					 : 1 + rnd(pages < 80 ? pages : 80);
			q.align = rnd(3) ? 0 : 1u << rnd(6);
			q.flags = rnd(4) ? 0 : rnd(16);
			r = hp_zone_alloc(f.zone, pcp, &q, g);
			assert_true(r == 0 || r == HP_NO_ROOM || r == HP_OVER_LIMIT);
			if (r == 0)
				leases[n++] = (struct lease){g[0].range, owner, owner,
							     q.flags & HP_ALLOC_SHARED};
		} else if (what < 40 && n < LEASES - 20) {
			struct hp_request q = {.owner = owner, .slot = owner};
			size_t nr = 1 + rnd(20);

			q.pages = rnd(2) ? 1u << rnd(4) : 1 + rnd(9);
			r = hp_zone_alloc_bulk(f.zone, pcp, &q, g, nr);
			assert_true(r == 0 || r == HP_NO_ROOM || r == HP_OVER_LIMIT);
			for (size_t i = 0; r == 0 && i < nr; i++)
				leases[n++] = (struct lease){g[i].range, owner, owner, false};
		} else if (what < 65 && l) {
			assert_int_equal(hp_zone_free(f.zone, pcp, l->slot, &l->range), 0);
			*l = leases[--n];
		} else if (what < 72 && l && n < LEASES - 2) {
			uint32_t offset = rnd(l->range.pages);
			uint32_t len = 1 + rnd(l->range.pages - offset);
			struct lease old = *l;

			assert_int_equal(hp_zone_free_part(f.zone, pcp, l->slot, &l->range, offset,
							   len, kept, &nr_kept),
					 0);
			*l = leases[--n];
			for (unsigned i = 0; i < nr_kept; i++) {
				leases[n] = old;
				leases[n++].range = kept[i];
			}
		} else if (what < 77 && l) {
			struct lease old = *l;

			if (old.range.pages + n < LEASES) {
				assert_int_equal(hp_zone_split(f.zone, l->slot, &l->range), 0);
				check(&f);
			}
			assert_int_equal(hp_zone_free_contig(f.zone, pcp, old.slot, old.range.pfn,
							     old.range.pages),
					 0);
			*l = leases[--n];
		} else if (what < 80 && l) {
			struct lease old = *l;
			uint32_t third = old.range.pages / 3;
			struct hp_range keep[2] = {old.range, old.range};

			if (third) {
				keep[0].pfn += third;
				keep[0].pages = third;
				keep[1].pfn += 2 * third;
				keep[1].pages = old.range.pages - 2 * third;
				assert_int_equal(
					hp_zone_keep_parts(f.zone, old.slot, &old.range, keep, 2),
					0);
				l->range = keep[0];
				leases[n] = old;
				leases[n++].range = keep[1];
			}
		} else if (what < 84) {
			if (hp_zone_isolate(f.zone, block) == 0 && rnd(4))
				assert_int_equal(hp_zone_put_clean(f.zone, block, step), 0);
		} else if (what < 86) {
			hp_zone_drain(f.zone, rnd(3));
		} else if (what < 88) {
			hp_pcp_drain_batch(f.pcp[rnd(3)]);
		} else if (what < 90) {
			(void)!hp_zone_fail(f.zone, block);
		} else if (what < 91) {
			(void)!hp_zone_poison(f.zone, rnd(pages));
			/* Bad pages make frees say so; recycle everything that has one. */
			for (uint32_t b = 0; b < hp_zone_nr_blocks(f.zone); b++)
				if (hp_zone_revoke_block(f.zone, b, rnd(2), NULL, NULL) == 0)
					(void)!hp_zone_put_clean(f.zone, b, step);
			for (uint32_t slot = 1; slot < 3; slot++) {
				uint64_t back;

				assert_int_equal(hp_zone_free_slot(f.zone, pcp, slot, &back), 0);
			}
			n = 0;
		} else if (what < 93) {
			(void)!hp_zone_offline(f.zone, block);
		} else if (what < 97) {
			(void)!hp_zone_online(f.zone, block, step);
			(void)!hp_zone_put_clean(f.zone, block, step);
		} else if (what < 98) {
			if (hp_zone_revoke_block(f.zone, block, rnd(2), NULL, NULL) == 0) {
				collect_n = n = 0;
				hp_zone_for_each_lease(f.zone, collect, leases);
				n = collect_n;
			}
		} else if (what < 99) {
			uint32_t lent;

			if (hp_zone_lend(f.zone, owner, &lent) == 0)
				assert_int_equal(hp_zone_unlend(f.zone, lent), 0);
		} else {
			struct hp_rebuild_ops ops = {.owner_of_slot = owner_of_slot};
			struct hp_rebuild_stats rs;

			drop_pcps(&f);
			assert_int_equal(
				hp_zone_rebuild(f.zone, &f.config, f.durable, f.scratch, &ops, &rs),
				0);
			assert_int_equal(rs.quarantined_blocks, 0);
			assert_int_equal(rs.wiped_words, 0);
			add_pcps(&f);
			collect_n = n = 0;
			hp_zone_for_each_lease(f.zone, collect, leases);
			n = collect_n;
		}
		if (hp_zone_check(f.zone, print, NULL)) {
			print_error("step %u, what %u\n", step, what);
			fail();
		}
		stats(&f);
	}
	teardown(&f);
}

static void test_random(void **state)
{
	static const struct {
		uint32_t pages;
		unsigned block_order, max_order, steps;
	} runs[] = {
		{1, 0, 0, 300},	    {3, 0, 4, 1000},	{3, 2, 2, 1000},
		{100, 3, 3, 3000},  {100, 0, 6, 3000},	{333, 5, 10, 6000},
		{2000, 6, 9, 2000}, {1500, 7, 8, 2000}, {4096, 9, 10, 1000},
	};
	const char *given = getenv("HP_SEED");

	(void)state;
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		uint64_t seed = given ? strtoull(given, NULL, 0) : 20240229 + i;

		rng_state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
		print_message("%u pages, block order %u, seed %llu\n", runs[i].pages,
			      runs[i].block_order, (unsigned long long)seed);
		random_operations(runs[i].pages, runs[i].block_order, runs[i].max_order,
				  runs[i].steps);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grant_and_free),
		cmocka_unit_test(test_wrong_frees),
		cmocka_unit_test(test_poison),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
