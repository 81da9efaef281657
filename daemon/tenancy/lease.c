/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that changes what a session holds goes through here, so that the lease words, the ages
 * and the sums of the slot cannot come apart. Sums are written by one thread and only looked at by
 * others: plain loads and stores that are atomic, no read-modify-write.
 *
 * Ages are counted in ticks of the coarse clock, in 4 bytes a page: a grant must not cost more for
 * being looked at, perhaps, later. An age is told modulo 497 days.
 */
#include "daemon/tenancy/lease.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/log.h"

#define TICK_MS 10 /* the clock goes on every 1 to 10 ms */

struct leases {
	struct pool *pool;
	struct slots *slots;
	struct waits *waits;
	struct shares *shares;
	size_t nr_zones;
	_Atomic uint32_t *since[HP_ZONES_MAX]; /* per page: ticks */
};

static uint32_t now_ticks(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)((uint64_t)now.tv_sec * (1000 / TICK_MS) +
			  (uint64_t)now.tv_nsec / (TICK_MS * 1000000));
}

int leases_new(struct leases **ret, struct pool *pool, struct slots *slots, struct waits *waits,
	       struct shares *shares)
{
	struct leases *leases = calloc(1, sizeof(*leases));

	if (!leases)
		return -ENOMEM;
	leases->pool = pool;
	leases->slots = slots;
	leases->waits = waits;
	leases->shares = shares;
	leases->nr_zones = pool_nr_zones(pool);
	for (size_t i = 0; i < leases->nr_zones; i++) {
		const struct hp_zone *zone = pool_zone(pool, i)->zone;

		leases->since[i] =
			calloc(hp_zone_get_config(zone)->nr_pages, sizeof(*leases->since[i]));
		if (!leases->since[i]) {
			leases_free(leases);
			return -ENOMEM;
		}
	}
	*ret = leases;
	return 0;
}

struct leases *leases_free(struct leases *leases)
{
	if (!leases)
		return NULL;
	for (size_t i = 0; i < leases->nr_zones; i++)
		free((void *)leases->since[i]);
	free(leases);
	return NULL;
}

static void add(_Atomic uint64_t *sum, uint64_t n)
{
	uint64_t value = atomic_load_explicit(sum, memory_order_relaxed) + n;

	atomic_store_explicit(sum, value, memory_order_relaxed);
}

static void note_since(struct leases *leases, size_t zone_id, hp_pfn_t pfn, uint32_t ticks)
{
	atomic_store_explicit(&leases->since[zone_id][pfn], ticks, memory_order_relaxed);
}

uint64_t leases_age_ms(const struct leases *leases, size_t zone_id, hp_pfn_t pfn)
{
	uint32_t since = atomic_load_explicit(&leases->since[zone_id][pfn], memory_order_relaxed);

	return (uint64_t)(uint32_t)(now_ticks() - since) * TICK_MS;
}

static int grant(struct pool_zone *zone, struct hp_pcp *pcp, const struct hp_request *request,
		 struct hp_grant *ret, size_t n)
{
	return n == 1 ? hp_zone_alloc(zone->zone, pcp, request, ret)
		      : hp_zone_alloc_bulk(zone->zone, pcp, request, ret, n);
}

/* Only clean blocks will do: what lies in caches is no use. */
static int grant_shared(struct leases *leases, struct slot *slot, struct pool_zone *zone,
			struct hp_request *request, struct hp_grant *ret)
{
	int rc = shares_prepare(leases->shares, slot, zone, request);

	if (rc)
		return rc;
	rc = hp_zone_alloc(zone->zone, NULL, request, ret);
	if (rc)
		shares_abandon(leases->shares, slot, request);
	else
		shares_granted(leases->shares, slot, request, &ret->range);
	return rc;
}

int leases_grant(struct leases *leases, struct caches *caches, struct slot *slot,
		 struct pool_zone *zone, struct hp_request *request, struct hp_grant *ret, size_t n)
{
	uint32_t owner = slot->tenant->owner;
	struct hp_pcp *pcp;
	int rc;

	if (request->flags & HP_ALLOC_SHARED)
		return grant_shared(leases, slot, zone, request, ret);
	pcp = caches_get(caches, owner, zone->id);
	request->owner = owner;
	request->slot = slot->number;
	rc = grant(zone, pcp, request, ret, n);
	/* What lies in the caches of other workers is free as well: fetch it before saying no. */
	if ((rc == HP_NO_ROOM || rc == HP_OVER_LIMIT) && hp_zone_drain(zone->zone, owner) > 0)
		rc = grant(zone, pcp, request, ret, n);
	if (!rc)
		leases_adopt(leases, slot, zone, ret, n);
	return rc;
}

void leases_adopt(struct leases *leases, struct slot *slot, const struct pool_zone *zone,
		  struct hp_grant *grants, size_t n)
{
	uint32_t ticks = now_ticks();

	for (size_t i = 0; i < n; i++) {
		note_since(leases, zone->id, grants[i].range.pfn, ticks);
		/* Parts of leases keep its generation, so a page's generations do not always grow. */
		while (slot->revoked && leases_is_revoked(slot, &grants[i].range) &&
		       !hp_zone_rename(zone->zone, slot->number, &grants[i].range))
			;
	}
	add(&slot->leases, n);
	add(&slot->pages[zone->id], (uint64_t)n * grants[0].range.pages);
}

/* A page that failed its check stays out; the lease is over all the same. */
static int ended(int rc, const struct slot *slot)
{
	if (rc != HP_BAD_PAGE)
		return rc;
	log_error("bad pages kept out tenant=%s session=%llu", slot->tenant->name,
		  (unsigned long long)slot->session);
	return 0;
}

int leases_return(struct leases *leases, struct caches *caches, struct slot *slot,
		  const struct hp_range *ranges, size_t n, size_t *ret_bad)
{
	struct pool_zone *zone = pool_zone(leases->pool, ranges[0].zone);
	uint64_t pages = 0;
	struct hp_pcp *pcp;
	int rc;

	*ret_bad = 0;
	if (!zone)
		return HP_OUT_OF_RANGE;
	pcp = caches_get(caches, slot->tenant->owner, zone->id);
	if (n == 1)
		rc = hp_zone_free(zone->zone, pcp, slot->number, ranges);
	else
		rc = hp_zone_free_bulk(zone->zone, pcp, slot->number, ranges, n, ret_bad);
	rc = ended(rc, slot);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		pages += ranges[i].pages;
	add(&slot->leases, -(uint64_t)n);
	add(&slot->pages[zone->id], -pages);
	waits_poke(leases->waits, zone);
	return 0;
}

static int check_one(const struct leases *leases, const struct slot *slot,
		     const struct hp_range *range)
{
	struct pool_zone *zone = pool_zone(leases->pool, range->zone);

	if (leases_is_revoked(slot, range))
		return 0;
	return zone ? hp_zone_lookup(zone->zone, slot->number, range) : HP_OUT_OF_RANGE;
}

int leases_check(const struct leases *leases, const struct slot *slot,
		 const struct hp_range *ranges, size_t n, size_t *ret_bad)
{
	for (size_t i = 0; i < n; i++) {
		int rc = check_one(leases, slot, &ranges[i]);

		for (size_t j = 0; j < i && !rc; j++)
			if (range_equal(&ranges[i], &ranges[j]))
				rc = HP_NOT_LEASED;
		if (rc) {
			*ret_bad = i;
			return rc;
		}
	}
	return 0;
}

int leases_return_part(struct leases *leases, struct caches *caches, struct slot *slot,
		       const struct hp_range *range, uint32_t offset, uint32_t pages,
		       struct hp_range *ret_kept, unsigned *ret_nr_kept)
{
	struct pool_zone *zone = pool_zone(leases->pool, range->zone);
	struct hp_pcp *pcp;
	uint32_t since;
	int rc;

	if (!zone || range->pfn >= hp_zone_get_config(zone->zone)->nr_pages)
		return HP_OUT_OF_RANGE;
	pcp = caches_get(caches, slot->tenant->owner, zone->id);
	since = leases->since[zone->id][range->pfn];
	rc = ended(hp_zone_free_part(zone->zone, pcp, slot->number, range, offset, pages, ret_kept,
				     ret_nr_kept),
		   slot);
	if (rc)
		return rc;
	for (unsigned i = 0; i < *ret_nr_kept; i++)
		note_since(leases, zone->id, ret_kept[i].pfn, since);
	add(&slot->leases, (uint64_t)*ret_nr_kept - 1);
	add(&slot->pages[zone->id], -(uint64_t)pages);
	waits_poke(leases->waits, zone);
	return 0;
}

/* --- what was taken --------------------------------------------------------------------------- */

bool leases_is_revoked(const struct slot *slot, const struct hp_range *name)
{
	for (const struct notice *notice = slot->revoked; notice; notice = notice->next)
		if (range_equal(&notice->name, name))
			return true;
	return false;
}

/*
 * A block was taken from what was left of a lease. The name of that comes from what we remember of
 * it, which this replaces; or from the other part, if this is the second of two.
 */
static void take_over_name(struct slot *slot, struct notice *notice)
{
	struct notice **link = &slot->revoked;

	for (; *link; link = &(*link)->next) {
		struct notice *earlier = *link;

		/* The second of two: the first is the last thing that was remembered of that word. */
		if (!notice->taken_pages && earlier->again &&
		    range_equal(&earlier->range, &notice->range)) {
			notice->name = earlier->name;
			return;
		}
		if (notice->taken_pages && range_equal(&earlier->part, &notice->range)) {
			notice->name = earlier->name;
			*link = earlier->next;
			free(earlier);
			return;
		}
	}
}

static void note_taken(struct slot *slot, struct notice *notice)
{
	const struct hp_range *range = &notice->range;

	notice->name = *range;
	if (notice->again)
		take_over_name(slot, notice);
	if (notice->again) {
		add(&slot->revoked_pages[range->zone], -(uint64_t)notice->taken_pages);
	} else if (notice->taken_pages) {
		add(&slot->leases, -UINT64_C(1));
		add(&slot->pages[range->zone], -(uint64_t)range->pages);
		add(&slot->revoked_pages[range->zone], range->pages - notice->taken_pages);
	}
}

void leases_take_notices(struct leases *leases, struct slot *slot, leases_notice_fn fn,
			 void *userdata)
{
	struct notice *notice = notice_take_all(slot), *next;

	for (; notice; notice = next) {
		next = notice->next;
		if (notice->kind == NOTICE_ASKED) {
			if (fn && !hp_zone_lookup(pool_zone(leases->pool, notice->range.zone)->zone,
						  slot->number, &notice->range))
				fn(userdata, notice);
			free(notice);
			continue;
		}
		note_taken(slot, notice);
		if (fn && notice->taken_pages)
			fn(userdata, notice);
		notice->next = slot->revoked;
		slot->revoked = notice;
	}
}

int leases_ack(struct leases *leases, struct slot *slot, const struct hp_range *name,
	       leases_part_fn fn, void *userdata)
{
	struct notice **link = &slot->revoked, *notice;
	struct pool_zone *zone = pool_zone(leases->pool, name->zone);
	int rc = HP_NOT_LEASED;

	while ((notice = *link)) {
		if (!range_equal(&notice->name, name)) {
			link = &notice->next;
			continue;
		}
		if (notice->part.pages) {
			if (ended(hp_zone_ack(zone->zone, slot->number, &notice->part), slot))
				return HP_BUSY;
			add(&slot->revoked_pages[zone->id], -(uint64_t)notice->part.pages);
			if (fn)
				fn(userdata, &notice->part);
		}
		*link = notice->next;
		free(notice);
		rc = 0;
	}
	if (rc)
		return rc;
	waits_poke(leases->waits, zone);
	pool_poke(leases->pool);
	return 0;
}

void leases_ack_all(struct leases *leases, struct slot *slot)
{
	leases_take_notices(leases, slot, NULL, NULL);
	while (slot->revoked) {
		struct hp_range name = slot->revoked->name;

		if (leases_ack(leases, slot, &name, NULL, NULL))
			leases_take_notices(leases, slot, NULL, NULL);
	}
}

/* --- the end ---------------------------------------------------------------------------------- */

void leases_end(struct leases *leases, struct slot *slot)
{
	if (slot->state != SLOT_CLOSING)
		slots_set_state(leases->slots, slot, SLOT_CLOSING);
	for (size_t i = 0; i < leases->nr_zones; i++) {
		struct pool_zone *zone = pool_zone(leases->pool, i);
		uint64_t pages;
		int rc;

		if (!slot->pages[i] && !slot->revoked_pages[i])
			continue;
		rc = ended(hp_zone_free_slot(zone->zone, NULL, slot->number, &pages), slot);
		if (rc)
			log_error("leases not ended zone=%s tenant=%s session=%llu condition=%d",
				  zone->name, slot->tenant->name, (unsigned long long)slot->session,
				  rc);
		add(&slot->pages[i], -slot->pages[i]);
		add(&slot->revoked_pages[i], -slot->revoked_pages[i]);
	}
	shares_end_slot(leases->shares, slot);
	/* No word names the slot any more, so nobody posts to it. */
	notice_free_all(notice_take_all(slot));
	slot->revoked = notice_free_all(slot->revoked);
	slots_close(leases->slots, slot);
	waits_poke(leases->waits, NULL);
	pool_poke(leases->pool);
}

/* --- after another daemon --------------------------------------------------------------------- */

struct restoring {
	struct leases *leases;
	size_t zone_id;
	uint32_t ticks;
};

/* hp_lease_fn */
static int restore_lease(void *userdata, uint32_t number, const struct hp_range *range,
			 enum hp_lease_state state)
{
	const struct restoring *restoring = userdata;
	struct slot *slot = slots_find(restoring->leases->slots, number);

	note_since(restoring->leases, restoring->zone_id, range->pfn, restoring->ticks);
	if (!slot)
		return 0;
	if (state == HP_LEASE_REVOKED) {
		add(&slot->revoked_pages[restoring->zone_id], range->pages);
	} else {
		add(&slot->leases, 1);
		add(&slot->pages[restoring->zone_id], range->pages);
	}
	return 0;
}

void leases_restore(struct leases *leases)
{
	struct restoring restoring = {
		.leases = leases,
		.ticks = now_ticks(),
	};

	for (; restoring.zone_id < leases->nr_zones; restoring.zone_id++)
		hp_zone_for_each_lease(pool_zone(leases->pool, restoring.zone_id)->zone,
				       restore_lease, &restoring);
}

/* --- what a client keeps ---------------------------------------------------------------------- */

/* Leases of one slot, in order: words may not change under a walk, so they are written down first. */
struct listing {
	uint32_t slot;
	enum hp_lease_state state;
	struct hp_range *ranges;
	size_t n, room;
};

/* hp_lease_fn */
static int note_lease(void *userdata, uint32_t slot, const struct hp_range *range,
		      enum hp_lease_state state)
{
	struct listing *listing = userdata;

	if (slot != listing->slot || state != listing->state)
		return 0;
	if (listing->n == listing->room) {
		size_t room = listing->room ? 2 * listing->room : 256;
		struct hp_range *ranges = realloc(listing->ranges, room * sizeof(*ranges));

		if (!ranges)
			return -ENOMEM;
		listing->ranges = ranges;
		listing->room = room;
	}
	listing->ranges[listing->n++] = *range;
	return 0;
}

int leases_list(struct leases *leases, const struct slot *slot, struct hp_range **ret,
		size_t *ret_n)
{
	struct listing listing = {.slot = slot->number, .state = HP_LEASE_LEASED};
	int rc = 0;

	for (size_t i = 0; i < leases->nr_zones && !rc; i++)
		if (slot->pages[i])
			rc = hp_zone_for_each_lease(pool_zone(leases->pool, i)->zone, note_lease,
						    &listing);
	if (rc) {
		free(listing.ranges);
		return rc;
	}
	*ret = listing.ranges;
	*ret_n = listing.n;
	return 0;
}

/* What the client is to keep; at: the first that may lie in the next lease. */
struct keeping {
	struct leases *leases;
	struct slot *slot;
	const struct hp_range *ranges;
	size_t n, at;
	uint64_t leases_found, leases_kept, pages_kept;
};

static bool is_part(const struct hp_range *part, const struct hp_range *lease)
{
	return part->zone == lease->zone && part->generation == lease->generation &&
	       part->pfn >= lease->pfn && part->pages <= lease->pages &&
	       part->pfn - lease->pfn <= lease->pages - part->pages;
}

static bool is_before_end(const struct hp_range *range, const struct hp_range *lease)
{
	return range->zone != lease->zone ? range->zone < lease->zone
					  : range->pfn < lease->pfn + lease->pages;
}

/* One commit for each lease: the parts that are listed stay. */
static int keep_of_lease(struct keeping *keeping, struct pool_zone *zone,
			 const struct hp_range *lease)
{
	struct leases *leases = keeping->leases;
	const struct hp_range *parts;
	size_t n = 0;
	int rc;

	while (keeping->at < keeping->n && is_before_end(&keeping->ranges[keeping->at], lease) &&
	       !is_part(&keeping->ranges[keeping->at], lease))
		keeping->at++;
	parts = keeping->ranges + keeping->at;
	while (keeping->at + n < keeping->n && is_part(&parts[n], lease))
		keeping->pages_kept += parts[n++].pages;
	keeping->at += n;
	keeping->leases_kept += n;
	if (n == 1 && parts->pages == lease->pages)
		return 0;
	rc = ended(hp_zone_keep_parts(zone->zone, keeping->slot->number, lease, parts, n),
		   keeping->slot);
	for (size_t i = 0; i < n && !rc; i++)
		note_since(leases, zone->id, parts[i].pfn, leases->since[zone->id][lease->pfn]);
	return rc;
}

static int keep_in_zone(struct keeping *keeping, struct pool_zone *zone)
{
	struct listing listing = {.slot = keeping->slot->number, .state = HP_LEASE_LEASED};
	int rc = hp_zone_for_each_lease(zone->zone, note_lease, &listing);

	keeping->pages_kept = 0;
	keeping->leases_found += listing.n;
	for (size_t i = 0; i < listing.n && !rc; i++)
		rc = keep_of_lease(keeping, zone, &listing.ranges[i]);
	listing.n = 0;
	listing.state = HP_LEASE_REVOKED; /* whoever tells what he keeps has let go of these */
	if (!rc)
		rc = hp_zone_for_each_lease(zone->zone, note_lease, &listing);
	for (size_t i = 0; i < listing.n && !rc; i++)
		rc = ended(hp_zone_ack(zone->zone, keeping->slot->number, &listing.ranges[i]),
			   keeping->slot);
	free(listing.ranges);
	if (!rc) {
		keeping->slot->pages[zone->id] = keeping->pages_kept;
		keeping->slot->revoked_pages[zone->id] = 0;
	}
	return rc;
}

int leases_keep(struct leases *leases, struct slot *slot, const struct hp_range *ranges, size_t n)
{
	struct keeping keeping = {.leases = leases, .slot = slot, .ranges = ranges, .n = n};
	int rc = 0;

	for (size_t i = 0; i < leases->nr_zones && !rc; i++)
		if (slot->pages[i] || slot->revoked_pages[i])
			rc = keep_in_zone(&keeping, pool_zone(leases->pool, i));
	if (!rc) /* there may be others than those: attachments */
		add(&slot->leases, keeping.leases_kept - keeping.leases_found);
	waits_poke(leases->waits, NULL);
	pool_poke(leases->pool);
	return rc;
}
