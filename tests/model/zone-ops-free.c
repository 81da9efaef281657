/* SPDX-License-Identifier: Apache-2.0 */
/* Giving back, in every way and every wrong way. */
#include "tests/model/zone-ops.h"

#include <stdlib.h>

/* What a call that names a lease exactly must answer. */
static int code_for(const struct model *model, uint32_t slot, const struct hp_range *range)
{
	struct hp_lease_word word;

	if (range->zone != model->box.config.id)
		return HP_WRONG_ZONE;
	if (range->pages == 0 || range->pfn >= model->words.nr_pages ||
	    range->pages > model->words.nr_pages - range->pfn)
		return HP_OUT_OF_RANGE;
	word = model_lease(model, range->pfn);
	if (word.state == HP_LEASE_FREE)
		return HP_NOT_LEASED;
	if (word.state == HP_LEASE_REVOKED)
		return HP_REVOKED;
	if (word.slot != slot)
		return HP_WRONG_HOLDER;
	if (word.generation != range->generation)
		return HP_STALE;
	if (word.pages != range->pages)
		return HP_WRONG_LENGTH;
	return HP_OK;
}

/* One or two faults in what names a lease. */
static void spoil(struct model *model, uint32_t *slot, struct hp_range *range)
{
	for (unsigned n = 1 + roll(model, 2); n > 0; n--) {
		switch (roll(model, 8)) {
		case 0:
			range->zone ^= 1;
			break;
		case 1:
			range->pfn = model->words.nr_pages - 1 + roll(model, 3);
			break;
		case 2:
			range->pages = HP_RANGE_MAX_PAGES + roll(model, 3);
			break;
		case 3:
			range->pages = roll(model, 3);
			break;
		case 4:
			*slot = roll_slot(model, roll_owner(model));
			break;
		case 5:
			range->generation =
				(range->generation + roll(model, 2) - 1) & HP_GENERATION_MAX;
			break;
		case 6:
			range->pfn = roll(model, model->words.nr_pages);
			break;
		default:
			range->pages++;
		}
	}
}

void op_free(struct model *model)
{
	hp_pfn_t pfn = roll_single(model);

	if (pfn != HP_PFN_NONE)
		free_whole(model, roll_free_pcp(model, model_lease(model, pfn).slot), pfn);
}

void op_free_wrong(struct model *model)
{
	hp_pfn_t pfn = roll_head(model);
	struct hp_range range = {.zone = model->box.config.id, .pages = 1};
	struct hp_range kept[2];
	unsigned nr_kept;
	uint32_t slot = roll_slot(model, roll_owner(model));
	struct box_copy copy;
	struct hp_pcp *pcp;
	int code, r;

	if (pfn != HP_PFN_NONE) {
		range = model_range(model, pfn);
		slot = model_lease(model, pfn).slot;
	}
	spoil(model, &slot, &range);
	code = code_for(model, slot, &range);
	pcp = roll_free_pcp(model, slot);
	model_begin_nothing(model, &copy);
	r = hp_zone_lookup(model->box.zone, slot, &range);
	expect_code(model, "lookup", r, code);
	if (code != HP_OK) {
		r = hp_zone_free(model->box.zone, pcp, slot, &range);
		expect_code(model, "free", r, code);
		r = hp_zone_split(model->box.zone, slot, &range);
		expect_code(model, "split", r, code);
		r = hp_zone_keep_parts(model->box.zone, slot, &range, NULL, 0);
		expect_code(model, "keep_parts", r, code);
		r = hp_zone_free_part(model->box.zone, pcp, slot, &range, 0, 1, kept, &nr_kept);
		expect_code(model, "free_part", r, code);
	}
	model_end_nothing(model, &copy);
}

/* Up to BULK_MAX different leases of one slot. */
static uint32_t roll_leases_of_slot(struct model *model, uint32_t *ret_slot, hp_pfn_t *ret_pfns)
{
	uint32_t want = 1 + roll(model, BULK_MAX), n = 0;
	uint32_t first;

	if (model->nr_heads == 0)
		return 0;
	first = roll(model, model->nr_heads);
	*ret_slot = model_lease(model, model->heads[first]).slot;
	for (uint32_t i = 0; i < model->nr_heads && i < 200 && n < want; i++) {
		hp_pfn_t pfn = model->heads[(first + i) % model->nr_heads];
		struct hp_lease_word word = model_lease(model, pfn);

		if (word.slot == *ret_slot && word.state == HP_LEASE_LEASED &&
		    !has_many_refs(model, pfn))
			ret_pfns[n++] = pfn;
	}
	return n;
}

void op_free_bulk(struct model *model)
{
	struct hp_range ranges[BULK_MAX];
	hp_pfn_t pfns[BULK_MAX];
	uint32_t slot;
	uint32_t n = roll_leases_of_slot(model, &slot, pfns);
	size_t bad = SIZE_MAX;
	int r, code = HP_OK;

	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		ranges[i] = model_range(model, pfns[i]);
	model_begin(model);
	r = hp_zone_free_bulk(model->box.zone, roll_free_pcp(model, slot), slot, ranges, n, &bad);
	for (uint32_t i = 0; i < n; i++) {
		if (model_lease_keep(model, pfns[i], NULL, 0, HP_LEASE_LEASED) != HP_OK)
			code = HP_BAD_PAGE;
	}
	expect_code(model, "bulk free", r, code);
	model_end(model);
}

void op_free_bulk_wrong(struct model *model)
{
	struct hp_range ranges[BULK_MAX + 1];
	hp_pfn_t pfns[BULK_MAX];
	uint32_t slot, wrong;
	uint32_t n = roll_leases_of_slot(model, &slot, pfns);
	struct box_copy copy;
	size_t bad = SIZE_MAX;
	int code = HP_OK, r;
	bool twice = one_in(model, 2);

	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		ranges[i] = model_range(model, pfns[i]);
	if (twice) {
		ranges[n] = ranges[roll(model, n)];
		wrong = n++;
	} else {
		uint32_t ignored = slot;

		wrong = roll(model, n);
		spoil(model, &ignored, &ranges[wrong]);
		code = code_for(model, slot, &ranges[wrong]);
		if (code == HP_OK)
			return;
	}
	model_begin_nothing(model, &copy);
	r = hp_zone_free_bulk(model->box.zone, roll_free_pcp(model, slot), slot, ranges, n, &bad);
	if (twice) {
		if (r <= HP_OK || bad >= n)
			model_die(model, "a lease freed twice in bulk gives %d at %zu", r, bad);
	} else if (r != code || bad != wrong) {
		model_die(model, "bulk free gives %d at %zu, should be %d at %u", r, bad, code,
			  wrong);
	}
	model_end_nothing(model, &copy);
}

void op_free_part(struct model *model)
{
	hp_pfn_t pfn = roll_single(model);
	struct hp_range range, kept[2];
	struct model_part parts[2];
	struct hp_lease_word word;
	struct hp_pcp *pcp;
	unsigned nr_kept = 99, n = 0;
	uint32_t offset, pages;
	int r;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	word = model_lease(model, pfn);
	offset = roll(model, range.pages);
	pages = 1 + roll(model, range.pages - offset);
	if (offset > 0)
		parts[n++] = (struct model_part){.offset = 0, .pages = offset};
	if (offset + pages < range.pages)
		parts[n++] = (struct model_part){.offset = offset + pages,
						 .pages = range.pages - offset - pages};
	pcp = roll_free_pcp(model, word.slot);
	model_begin(model);
	r = hp_zone_free_part(model->box.zone, pcp, word.slot, &range, offset, pages, kept,
			      &nr_kept);
	if (r != HP_OK && r != HP_BAD_PAGE)
		model_die(model, "free_part of a good lease gives %d", r);
	if (nr_kept != n)
		model_die(model, "free_part left %u leases, should be %u", nr_kept, n);
	for (unsigned i = 0; i < n; i++) {
		if (kept[i].pfn != pfn + parts[i].offset || kept[i].pages != parts[i].pages ||
		    kept[i].generation != word.generation || kept[i].zone != range.zone)
			model_die(model, "free_part names the wrong rest");
	}
	expect_code(model, "free_part", r, model_lease_keep(model, pfn, parts, n, HP_LEASE_LEASED));
	model_end(model);
}

void op_free_part_outside(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);
	struct hp_range range, kept[2];
	unsigned nr_kept;
	struct box_copy copy;
	uint32_t offset, pages;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	offset = roll(model, range.pages + 2);
	pages = one_in(model, 4) ? 0 : range.pages - offset + 1 + roll(model, 2);
	if (one_in(model, 4))
		pages = UINT32_MAX - roll(model, 3);
	model_begin_nothing(model, &copy);
	if (hp_zone_free_part(model->box.zone, NULL, model_lease(model, pfn).slot, &range, offset,
			      pages, kept, &nr_kept) == HP_OK)
		model_die(model, "free_part of [%u, +%u) of %u pages accepted", offset, pages,
			  range.pages);
	model_end_nothing(model, &copy);
}

/* Rolls up to max sorted parts of a range. */
static uint32_t roll_parts(struct model *model, uint32_t pages, struct model_part *ret,
			   uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t at = roll(model, 3); at < pages && n < max;) {
		uint32_t room = pages - at;

		ret[n].offset = at;
		ret[n].pages = 1 + roll(model, room < 5 ? room : one_in(model, 3) ? room : 5);
		at += ret[n].pages + roll(model, 4);
		n++;
	}
	return n;
}

void op_keep_parts(struct model *model)
{
	hp_pfn_t pfn = roll_single(model);
	struct model_part parts[BULK_MAX];
	struct hp_range range, keep[BULK_MAX];
	uint32_t n;
	int r;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	n = one_in(model, 8) ? 0 : roll_parts(model, range.pages, parts, BULK_MAX);
	for (uint32_t i = 0; i < n; i++) {
		keep[i] = range;
		keep[i].pfn += parts[i].offset;
		keep[i].pages = parts[i].pages;
	}
	model_begin(model);
	r = hp_zone_keep_parts(model->box.zone, model_lease(model, pfn).slot, &range, keep, n);
	expect_code(model, "keep_parts", r,
		    model_lease_keep(model, pfn, parts, n, HP_LEASE_LEASED));
	model_end(model);
}

void op_keep_parts_wrong(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);
	struct hp_range range, keep[2];
	struct box_copy copy;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	keep[0] = keep[1] = range;
	switch (roll(model, 5)) {
	case 0: /* overlapping */
		break;
	case 1: /* not sorted */
		keep[0].pfn += 1;
		keep[0].pages = 1;
		keep[1].pages = 1;
		break;
	case 2: /* reaching out of it */
		keep[0].pages = 1;
		keep[1].pfn += 1;
		break;
	case 3: /* before it */
		keep[0].pfn -= 1;
		keep[0].pages = 1;
		keep[1].pages = 1;
		break;
	default: /* none at all */
		keep[0].pages = 0;
		keep[1].pages = 1;
	}
	model_begin_nothing(model, &copy);
	if (hp_zone_keep_parts(model->box.zone, model_lease(model, pfn).slot, &range, keep, 2) ==
	    HP_OK)
		model_die(model, "keep_parts of parts that do not fit accepted");
	model_end_nothing(model, &copy);
}

void op_split(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);
	struct model_part *parts;
	struct hp_range range;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	parts = calloc(range.pages, sizeof(*parts));
	if (!parts)
		model_die(model, "out of memory");
	for (uint32_t i = 0; i < range.pages; i++)
		parts[i] = (struct model_part){.offset = i, .pages = 1};
	model_begin(model);
	if (hp_zone_split(model->box.zone, model_lease(model, pfn).slot, &range) != HP_OK)
		model_die(model, "split of a good lease refused");
	model_lease_keep(model, pfn, parts, range.pages, HP_LEASE_LEASED);
	model_end(model);
	free(parts);
}

/* Takes [pfn, end) off the lease at head, page by page: those with one reference are free. */
static int contig_from_lease(struct model *model, hp_pfn_t head, hp_pfn_t pfn, hp_pfn_t end)
{
	struct hp_lease_word word = model_lease(model, head);
	struct model_part *parts = calloc(word.pages, sizeof(*parts));
	bool changed = false, open = false;
	int result = HP_OK;
	size_t n = 0;

	if (!parts)
		model_die(model, "out of memory");
	for (uint32_t i = 0; i < word.pages; i++) {
		hp_pfn_t page = head + i;
		bool named = page >= pfn && page < end;

		if (named && model->refs[page] <= 1) {
			changed = true;
			open = false;
			continue;
		}
		if (named)
			model->refs[page]--;
		if (!open)
			parts[n++] = (struct model_part){.offset = i};
		parts[n - 1].pages++;
		open = true;
	}
	if (changed)
		result = model_lease_keep(model, head, parts, n, HP_LEASE_LEASED);
	free(parts);
	return result;
}

/* Return: the code that the whole of it has to give. */
static int contig_apply(struct model *model, hp_pfn_t pfn, hp_pfn_t end)
{
	int result = HP_OK;

	while (pfn < end) {
		hp_pfn_t head = model->head[pfn];
		hp_pfn_t lease_end = head + model_lease(model, head).pages;
		hp_pfn_t part_end = lease_end < end ? lease_end : end;

		if (contig_from_lease(model, head, pfn, part_end) != HP_OK)
			result = HP_BAD_PAGE;
		pfn = part_end;
	}
	return result;
}

/* Is this the code of one of the pages? */
static bool contig_code_fits(const struct model *model, uint32_t slot, hp_pfn_t pfn, uint32_t pages,
			     int code)
{
	bool good = true;

	if (pages == 0 || pfn >= model->words.nr_pages || pages > model->words.nr_pages - pfn)
		return code == HP_OUT_OF_RANGE;
	for (uint32_t i = 0; i < pages; i++) {
		struct hp_lease_word word;
		int page_code = HP_OK;

		if (model->head[pfn + i] == HP_PFN_NONE) {
			page_code = HP_NOT_LEASED;
		} else {
			word = model_lease(model, model->head[pfn + i]);
			if (word.state == HP_LEASE_REVOKED)
				page_code = HP_REVOKED;
			else if (word.slot != slot)
				page_code = HP_WRONG_HOLDER;
		}
		if (page_code != HP_OK && page_code == code)
			return true;
		good = good && page_code == HP_OK;
	}
	return good && code == HP_OK;
}

static void free_contig(struct model *model, uint32_t slot, hp_pfn_t pfn, uint32_t pages)
{
	struct hp_pcp *pcp = roll_free_pcp(model, slot);
	struct box_copy copy = {0};
	bool good = contig_code_fits(model, slot, pfn, pages, HP_OK);
	int r;

	if (!good)
		model_begin_nothing(model, &copy);
	else
		model_begin(model);
	r = hp_zone_free_contig(model->box.zone, pcp, slot, pfn, pages);
	if (good) {
		expect_code(model, "free_contig", r, contig_apply(model, pfn, pfn + pages));
		model_end(model);
		return;
	}
	if (!contig_code_fits(model, slot, pfn, pages, r))
		model_die(model, "free_contig of %u pages from %u gives %d", pages, pfn, r);
	model_end_nothing(model, &copy);
}

/* The run of pages around a page that one slot holds, clipped at random. */
void op_free_contig(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);
	hp_pfn_t start, end;
	uint32_t slot;

	if (pfn == HP_PFN_NONE)
		return;
	slot = model_lease(model, pfn).slot;
	end = pfn + model_lease(model, pfn).pages;
	start = pfn + roll(model, end - pfn);
	while (end < model->words.nr_pages && model->head[end] == end && !one_in(model, 12)) {
		struct hp_lease_word word = model_lease(model, end);

		if (word.slot != slot || word.state != HP_LEASE_LEASED)
			break;
		end += word.pages;
	}
	end = one_in(model, 2) ? end : start + 1 + roll(model, end - start);
	free_contig(model, slot, start, end - start);
}

void op_free_contig_any(struct model *model)
{
	hp_pfn_t pfn = roll(model, model->words.nr_pages + 2);
	uint32_t slot = roll_slot(model, roll_owner(model));

	if (pfn < model->words.nr_pages && model->head[pfn] != HP_PFN_NONE && one_in(model, 2))
		slot = model_lease(model, model->head[pfn]).slot;
	free_contig(model, slot, pfn,
		    one_in(model, 16) ? UINT32_MAX - roll(model, 9) : roll(model, 9));
}

void op_share_get(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);
	struct hp_range range;
	uint32_t slot;

	if (pfn == HP_PFN_NONE)
		return;
	slot = model_lease(model, pfn).slot;
	range = model_range(model, pfn);
	if (!model_shares(model, model_owner_of_slot(slot)))
		return;
	for (uint32_t i = 0; i < range.pages; i++) {
		if (model->refs[pfn + i] >= MODEL_REFS)
			return;
	}
	if (hp_zone_share_get(model->box.zone, slot, &range) != HP_OK)
		model_die(model, "share_get of a shared lease refused");
	for (uint32_t i = 0; i < range.pages; i++)
		model->refs[pfn + i]++;
}

void op_free_slot(struct model *model)
{
	uint32_t slot = roll_slot(model, roll_owner(model));
	struct hp_pcp *pcp = roll_free_pcp(model, slot);
	uint64_t pages = UINT64_MAX, expected = 0;
	int r, code = HP_OK;

	for (uint32_t i = 0; i < model->nr_heads; i++) {
		if (model_lease(model, model->heads[i]).slot == slot &&
		    has_many_refs(model, model->heads[i]))
			return;
	}
	model_begin(model);
	r = hp_zone_free_slot(model->box.zone, pcp, slot, &pages);
	for (uint32_t i = 0; i < model->nr_heads;) {
		struct hp_lease_word word = model_lease(model, model->heads[i]);

		if (word.slot != slot) {
			i++;
			continue;
		}
		expected += word.pages;
		if (model_lease_keep(model, model->heads[i], NULL, 0, word.state) != HP_OK)
			code = HP_BAD_PAGE;
	}
	expect_code(model, "free_slot", r, code);
	if (pages != expected)
		model_die(model, "free_slot frees %llu pages, should be %llu",
			  (unsigned long long)pages, (unsigned long long)expected);
	model_end(model);
}

void op_ack(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_REVOKED);
	struct hp_range range;
	uint32_t slot;
	int r;

	if (pfn == HP_PFN_NONE)
		return;
	range = model_range(model, pfn);
	slot = model_lease(model, pfn).slot;
	if (one_in(model, 4)) {
		struct box_copy copy;

		spoil(model, &slot, &range);
		if (code_for(model, slot, &range) == HP_REVOKED &&
		    model_lease(model, range.pfn).slot == slot &&
		    model_lease(model, range.pfn).generation == range.generation &&
		    model_lease(model, range.pfn).pages == range.pages)
			return;
		model_begin_nothing(model, &copy);
		if (hp_zone_ack(model->box.zone, slot, &range) == HP_OK)
			model_die(model, "ack of something else accepted");
		model_end_nothing(model, &copy);
		return;
	}
	model_begin(model);
	r = hp_zone_ack(model->box.zone, slot, &range);
	expect_code(model, "ack", r, model_lease_keep(model, pfn, NULL, 0, HP_LEASE_REVOKED));
	model_end(model);
}
