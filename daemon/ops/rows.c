/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each list walks what it shows in an order that does not change (zone, block, owner, slot, page),
 * so that the cursor is simply the place in that order, plus one: a list asked for in pieces shows
 * everything that was there all the time, once.
 *
 * A row is filled in place and counts only once its packed size is known to fit.
 */
#include "daemon/ops/rows.h"

#include <stdio.h>
#include <string.h>

#include "daemon/net/reply.h"
#include "daemon/tenancy/clock.h"

/* What surrounds a row in the reply: its field's tag and length. */
#define ROW_FRAMING_BYTES 4

/* Where the next row goes, or NULL if the reply is full. */
static struct row *next_row(struct rows *rows)
{
	return rows->nr < HP_LIST_ROWS_MAX ? &rows->row[rows->nr] : NULL;
}

/* The row at next_row() is filled in. Return: true, or false if it does not fit. */
static bool take_row(struct rows *rows)
{
	struct row *row = &rows->row[rows->nr];
	size_t bytes = protobuf_c_message_get_packed_size(&row->base) + ROW_FRAMING_BYTES;

	if (rows->bytes + bytes > ROWS_BYTES_MAX)
		return false;
	rows->bytes += bytes;
	rows->rows[rows->nr++] = &row->base;
	return true;
}

/* A cursor of 0 means the beginning in a request and the end in a reply: places count from 1. */
static uint64_t first_place(const struct rows *rows)
{
	return rows->cursor ? rows->cursor - 1 : 0;
}

static void go_on_at(struct rows *rows, uint64_t place)
{
	rows->next = place + 1;
}

static bool may_see(const struct rows *rows, const struct tenant *tenant)
{
	return !rows->viewer || rows->viewer == tenant;
}

static ProtobufCBinaryData text_of(const char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

static ProtobufCBinaryData copy_text(struct row *row, const char *text)
{
	snprintf(row->text, sizeof(row->text), "%s", text);
	return text_of(row->text);
}

/* --- zones ------------------------------------------------------------------------------------ */

static void fill_zone_identity(Hugepool__V1__Zone *zone, const struct pool_zone *from)
{
	zone->id = from->id;
	zone->name = text_of(from->name);
	zone->page_size = from->page_bytes;
	zone->block_size = from->block_bytes;
	zone->node = from->config->node;
	zone->backing = reply_backing(from);
	zone->blocks = from->nr_blocks;
	zone->clean_min = from->clean_min;
	zone->clean_low = from->clean_low;
	zone->clean_high = from->clean_high;
}

/* The zone knows leases, not the state of their holders: condemned ones are taken out of leased. */
static void fill_zone_pages(Hugepool__V1__Zone *zone, const struct rows *rows,
			    const struct pool_zone *from)
{
	struct hp_zone_stats stats;
	uint64_t condemned = slots_condemned_pages(rows->ops->net->slots, from->id);

	hp_zone_stats(from->zone, &stats);
	zone->pages = stats.nr_pages;
	zone->clean = stats.clean;
	zone->free = stats.free;
	zone->pcp = stats.pcp;
	zone->draining = stats.draining;
	zone->condemned = condemned < stats.leased ? condemned : stats.leased;
	zone->leased = stats.leased - zone->condemned;
	zone->revoked = stats.revoked;
	zone->isolated = stats.isolated;
	zone->quarantined = stats.quarantined;
	zone->lent = stats.lent;
	zone->offline = stats.offline;
	zone->bad = stats.bad;
	zone->clean_blocks = stats.clean_blocks;
	zone->idle_blocks = stats.idle_blocks;
	zone->grants = stats.grants;
	zone->frees = stats.frees;
	zone->claims = stats.claims;
	zone->refills = stats.refills;
	zone->drains = stats.drains;
}

static void fill_zone_viewer(Hugepool__V1__Zone *zone, const struct rows *rows,
			     const struct pool_zone *from)
{
	struct tenant_figures figures;

	if (!rows->viewer)
		return;
	tenant_get_figures(rows->viewer, from, &figures);
	zone->leasable = figures.leasable_pages;
	zone->largest = figures.largest_pages;
	zone->limit_blocks = figures.limit_blocks;
	zone->guarantee_blocks = figures.guarantee_blocks;
	zone->held_blocks = figures.held_blocks;
}

static void fill_zone(const struct rows *rows, struct row *row, struct pool_zone *from)
{
	struct pool_zone_info info;

	hugepool__v1__zone__init(&row->zone);
	fill_zone_identity(&row->zone, from);
	fill_zone_pages(&row->zone, rows, from);
	fill_zone_viewer(&row->zone, rows, from);
	pool_zone_get_info(from, &info);
	row->zone.waiting = waits_count(rows->ops->net->waits, from->id);
	row->zone.recycles = info.recycles;
	row->zone.online_blocks = (uint32_t)(info.online_bytes / from->block_bytes);
	row->zone.zeroed_bytes = info.online_bytes + info.recycles * from->block_bytes;
	row->zone.held = copy_text(row, info.held);
}

void rows_zones(struct rows *rows)
{
	struct pool *pool = rows->ops->net->pool;

	for (uint64_t i = first_place(rows); i < pool_nr_zones(pool); i++) {
		struct row *row = next_row(rows);

		if (row)
			fill_zone(rows, row, pool_zone(pool, i));
		if (!row || !take_row(rows)) {
			go_on_at(rows, i);
			return;
		}
	}
}

/* --- blocks ----------------------------------------------------------------------------------- */

static Hugepool__V1__BlockState block_state(const struct hp_block_info *info)
{
	switch (info->word.state) {
	case HP_BLOCK_OFFLINE:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_OFFLINE;
	case HP_BLOCK_CLEAN:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_CLEAN;
	case HP_BLOCK_LIVE:
		return info->idle ? HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_IDLE
				  : HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_LIVE;
	case HP_BLOCK_FAILING:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_FAILING;
	case HP_BLOCK_ISOLATED:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_ISOLATED;
	case HP_BLOCK_QUARANTINED:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_QUARANTINED;
	case HP_BLOCK_LENT:
		return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_LENT;
	case HP_BLOCK_STATES:
		break;
	}
	return HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_UNSPECIFIED;
}

/* Why a block is in its state may name processes: only its owner's business, and the admin's. */
static bool may_see_reason(const struct rows *rows, const struct hp_block_info *info)
{
	return !rows->viewer || rows->viewer->owner == info->word.owner ||
	       info->word.owner == HP_OWNER_NONE;
}

static void fill_block(struct rows *rows, struct row *row, uint32_t index)
{
	struct hp_block_info info;
	struct pool_block_info life;

	hugepool__v1__block__init(&row->block);
	row->block.index = index;
	pool_block_get_info(rows->zone, index, &life);
	row->block.age_ms = life.age_ms;
	if (hp_zone_block_info(rows->zone->zone, index, &info))
		return;
	row->block.state = block_state(&info);
	row->block.generation = info.word.generation;
	row->block.owner = info.word.owner;
	row->block.pages = info.pages;
	row->block.free_pages = info.free_pages;
	if (may_see_reason(rows, &info))
		row->block.reason = copy_text(row, life.reason);
}

void rows_blocks(struct rows *rows)
{
	for (uint64_t i = first_place(rows); i < rows->zone->nr_blocks; i++) {
		struct row *row = next_row(rows);

		if (row)
			fill_block(rows, row, (uint32_t)i);
		if (!row || !take_row(rows)) {
			go_on_at(rows, i);
			return;
		}
	}
}

/* --- buddyinfo -------------------------------------------------------------------------------- */

/* Tenants without a free chunk have no row. Return: true, or false if it does not fit. */
static bool add_buddy_row(struct rows *rows, uint32_t owner)
{
	struct row *row = next_row(rows);
	unsigned nr_orders = hp_zone_get_config(rows->zone->zone)->max_order + 1u;
	struct hp_owner_stats stats;
	uint32_t any = 0;

	if (!row)
		return false;
	hp_zone_owner_stats(rows->zone->zone, owner, &stats);
	for (unsigned i = 0; i < nr_orders; i++) {
		row->small_numbers[i] = stats.free_chunks[i];
		any |= stats.free_chunks[i];
	}
	if (owner != HP_OWNER_NONE && !any)
		return true;
	hugepool__v1__buddy_row__init(&row->buddy);
	row->buddy.owner = owner;
	row->buddy.n_free_chunks = nr_orders;
	row->buddy.free_chunks = row->small_numbers;
	return take_row(rows);
}

static int add_buddy_row_of(void *userdata, const struct tenant *tenant)
{
	struct rows *rows = userdata;

	if (add_buddy_row(rows, tenant->owner))
		return 0;
	go_on_at(rows, tenant->owner);
	return 1;
}

/* An owner whose tenant is gone has no block, so tenants are all there is to look at. */
void rows_buddyinfo(struct rows *rows)
{
	uint64_t owner = first_place(rows);

	if (owner == HP_OWNER_NONE) {
		add_buddy_row(rows, HP_OWNER_NONE);
		owner++;
	}
	if (owner < HP_TENANTS_MAX)
		tenants_look(rows->ops->net->tenants, (uint32_t)owner, add_buddy_row_of, rows);
}

/* --- tenants ---------------------------------------------------------------------------------- */

static void fill_tenant(struct rows *rows, struct row *row, const struct tenant *tenant)
{
	struct pool *pool = rows->ops->net->pool;
	size_t n = pool_nr_zones(pool);
	uint64_t *held = row->numbers, *leased = held + n, *limit = leased + n,
		 *guarantee = limit + n;
	struct hp_owner_stats stats;
	struct tenant_figures figures;

	for (size_t i = 0; i < n; i++) {
		struct pool_zone *zone = pool_zone(pool, i);

		tenant_get_figures(tenant, zone, &figures);
		hp_zone_owner_stats(zone->zone, tenant->owner, &stats);
		held[i] = figures.held_blocks;
		leased[i] =
			stats.leased_pages + shares_pages(rows->ops->net->shares, tenant->owner, i);
		limit[i] = figures.limit_blocks;
		guarantee[i] = figures.guarantee_blocks;
	}
	hugepool__v1__tenant__init(&row->tenant);
	row->tenant.owner = tenant->owner;
	row->tenant.sessions = tenant->sessions;
	row->tenant.n_held_blocks = row->tenant.n_leased_pages = n;
	row->tenant.n_limit_blocks = row->tenant.n_guarantee_blocks = n;
	row->tenant.held_blocks = held;
	row->tenant.leased_pages = leased;
	row->tenant.limit_blocks = limit;
	row->tenant.guarantee_blocks = guarantee;
	row->tenant.shares = shares_count(rows->ops->net->shares, tenant->owner);
	row->tenant.uid = UINT32_MAX;
	if (may_see(rows, tenant)) {
		row->tenant.name = copy_text(row, tenant->name);
		row->tenant.uid = tenant->uid;
	}
}

static int add_tenant(void *userdata, const struct tenant *tenant)
{
	struct rows *rows = userdata;
	struct row *row = next_row(rows);

	if (row)
		fill_tenant(rows, row, tenant);
	if (row && take_row(rows))
		return 0;
	go_on_at(rows, tenant->owner);
	return 1;
}

void rows_tenants(struct rows *rows)
{
	uint64_t owner = first_place(rows);

	if (owner < HP_TENANTS_MAX)
		tenants_look(rows->ops->net->tenants, owner ? (uint32_t)owner : 1, add_tenant,
			     rows);
}

/* --- sessions --------------------------------------------------------------------------------- */

static Hugepool__V1__SessionState session_state(uint32_t state)
{
	switch (state) {
	case SLOT_CONDEMNED:
		return HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_CONDEMNED;
	case SLOT_ORPHANED:
		return HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_ORPHANED;
	default:
		return HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_OPEN;
	}
}

static uint64_t leased_bytes(const struct rows *rows, const struct slot *slot)
{
	struct pool *pool = rows->ops->net->pool;
	uint64_t bytes = 0;

	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		bytes += slot->pages[i] * pool_zone(pool, i)->page_bytes;
	return bytes;
}

static void fill_session(const struct rows *rows, struct row *row, const struct slot *slot)
{
	char *command = row->text + sizeof(slot->name);

	_Static_assert(ROW_TEXT >= HP_NAME_MAX + 1 + PROCESS_COMMAND_MAX + 1, "both fit");
	hugepool__v1__session__init(&row->session);
	row->session.session = slot->session;
	row->session.owner = slot->tenant->owner;
	row->session.state = session_state(slot->state);
	row->session.pid = (uint32_t)slot->process.pid;
	row->session.uid = slot->process.uid;
	memcpy(row->text, slot->name, sizeof(slot->name));
	memcpy(command, slot->process.command, sizeof(slot->process.command));
	row->session.name = text_of(row->text);
	row->session.command = text_of(command);
	row->session.age_ms = clock_now_ms() - slot->opened_ms;
	row->session.leases = slot->leases;
	row->session.leased_bytes = leased_bytes(rows, slot);
	row->session.attached_bytes = slot->attached_bytes;
}

static int add_session(void *userdata, const struct slot *slot)
{
	struct rows *rows = userdata;
	struct row *row = next_row(rows);

	if (!may_see(rows, slot->tenant) || slot->state == SLOT_CLOSING)
		return 0;
	if (row)
		fill_session(rows, row, slot);
	if (row && take_row(rows))
		return 0;
	go_on_at(rows, slot->number);
	return 1;
}

void rows_sessions(struct rows *rows)
{
	uint64_t number = first_place(rows);

	if (number <= HP_SLOTS_MAX)
		slots_look(rows->ops->net->slots, (uint32_t)number, add_session, rows);
}

/* --- leases ----------------------------------------------------------------------------------- */

#define PLACE_ZONE_SHIFT 32 /* a place in the list of leases: zone, then page */

struct lease_walk {
	struct rows *rows;
	uint64_t from; /* place */
	/* of the holder of the lease at hand */
	bool may_see;
	uint64_t session;
	bool is_shared;
	struct share_info share;
};

static int look_at_holder(void *userdata, const struct slot *slot)
{
	struct lease_walk *walk = userdata;

	walk->may_see = may_see(walk->rows, slot->tenant);
	walk->session = slot->session;
	return 0;
}

static void fill_lease(const struct lease_walk *walk, struct row *row, const struct hp_range *range,
		       enum hp_lease_state state)
{
	struct hp_wire_range wire = {
		.page = range->pfn,
		.pages = range->pages,
		.generation = range->generation,
		.zone = range->zone,
	};

	hugepool__v1__lease__init(&row->lease);
	hp_wire_put_range(row->numbers, &wire);
	row->lease.n_range = HP_WIRE_RANGE_WORDS;
	row->lease.range = row->numbers;
	row->lease.session = walk->session;
	row->lease.age_ms = leases_age_ms(walk->rows->ops->net->leases, range->zone, range->pfn);
	row->lease.revoked = state == HP_LEASE_REVOKED;
}

/* A shared range is its share's; who may see it sees how many hold it, not who they are. */
static void fill_shared(const struct lease_walk *walk, struct row *row)
{
	const struct share_info *share = &walk->share;

	row->lease.age_ms = share->age_ms;
	row->lease.shared = true;
	row->lease.owner = share->tenant;
	row->lease.attachments = share->attachments;
	row->lease.readers = share->readers;
	row->lease.share.len = share->name_bytes;
	row->lease.share.data = (uint8_t *)row->text;
	memcpy(row->text, share->name, share->name_bytes);
}

static bool look_up_holder(struct lease_walk *walk, uint32_t slot)
{
	const struct net *net = walk->rows->ops->net;
	const struct tenant *viewer = walk->rows->viewer;

	walk->may_see = false;
	walk->session = 0;
	walk->is_shared = shares_look(net->shares, slot, viewer ? viewer->owner : HP_OWNER_NONE,
				      &walk->share);
	if (walk->is_shared)
		return !viewer || walk->share.visible;
	slots_look_one(net->slots, slot, look_at_holder, walk);
	return walk->may_see;
}

static int add_lease(void *userdata, uint32_t slot, const struct hp_range *range,
		     enum hp_lease_state state)
{
	struct lease_walk *walk = userdata;
	struct rows *rows = walk->rows;
	uint64_t place = (uint64_t)range->zone << PLACE_ZONE_SHIFT | range->pfn;
	struct row *row = next_row(rows);

	if (place < walk->from)
		return 0;
	if (!look_up_holder(walk, slot))
		return 0;
	if (row)
		fill_lease(walk, row, range, state);
	if (row && walk->is_shared)
		fill_shared(walk, row);
	if (row && take_row(rows))
		return 0;
	go_on_at(rows, place);
	return 1;
}

void rows_leases(struct rows *rows)
{
	struct pool *pool = rows->ops->net->pool;
	struct lease_walk walk = {.rows = rows, .from = first_place(rows)};

	for (uint64_t i = walk.from >> PLACE_ZONE_SHIFT; i < pool_nr_zones(pool); i++)
		if (hp_zone_for_each_lease(pool_zone(pool, i)->zone, add_lease, &walk))
			return;
}

/* --- page caches ------------------------------------------------------------------------------ */

#define PLACE_WORKER_SHIFT 32 /* a place in the list of caches: worker, then owner */

static int add_cache(void *userdata, unsigned worker, uint32_t owner,
		     const struct hp_pcp_stats *stats)
{
	struct rows *rows = userdata;
	struct row *row = next_row(rows);

	if (row) {
		hugepool__v1__cache__init(&row->cache);
		memcpy(row->small_numbers, stats->per_order, sizeof(stats->per_order));
		row->cache.worker = worker;
		row->cache.owner = owner;
		row->cache.pages = stats->count;
		row->cache.batch = stats->batch;
		row->cache.high = stats->high;
		row->cache.n_chunks = sizeof(stats->per_order) / sizeof(stats->per_order[0]);
		row->cache.chunks = row->small_numbers;
		row->cache.hits = stats->hits;
		row->cache.misses = stats->misses;
		row->cache.refills = stats->refills;
		row->cache.drains = stats->drains;
	}
	if (row && take_row(rows))
		return 0;
	go_on_at(rows, (uint64_t)worker << PLACE_WORKER_SHIFT | owner);
	return 1;
}

void rows_caches(struct rows *rows)
{
	const struct ops *ops = rows->ops;
	uint64_t from = first_place(rows);
	uint32_t owner = (uint32_t)from;

	for (uint64_t i = from >> PLACE_WORKER_SHIFT; i < ops->nr_workers; i++, owner = 0)
		if (caches_look(ops->workers[i]->caches, rows->zone->id, owner, add_cache, rows))
			return;
}
