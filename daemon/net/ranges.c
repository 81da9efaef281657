/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking and giving. The one path that has to be fast: in the usual case (blocks known) nothing is
 * allocated, opened or logged, and no system call is made.
 *
 * A grant whose blocks the session does not know yet needs their descriptors first. They are all
 * opened before anything is said, so that a grant that cannot be delivered is taken back as if it
 * had not been.
 */
#include "daemon/net/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "daemon/net/reply.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

/* --- what went wrong with a range ---------------------------------------------------------------
 */

struct range_error {
	Hugepool__V1__Code code;
	const char *text;
};

static struct range_error range_error(int condition)
{
	switch (condition) {
	case HP_OUT_OF_RANGE:
	case HP_WRONG_ZONE:
		return (struct range_error){CODE(OUT_OF_RANGE), "it lies outside of the zone"};
	case HP_NOT_LEASED:
		return (struct range_error){CODE(NOT_LEASED), "no lease begins there: it was freed "
							      "before, or never granted"};
	case HP_WRONG_HOLDER:
		return (struct range_error){CODE(WRONG_HOLDER), "it is another session's"};
	case HP_WRONG_LENGTH:
		return (struct range_error){CODE(WRONG_LENGTH), "the lease has another length"};
	case HP_STALE:
		return (struct range_error){CODE(STALE), "the lease there is a later one"};
	case HP_REVOKED:
		return (struct range_error){CODE(REVOKED), "it has been revoked"};
	case -EINVAL:
		return (struct range_error){CODE(INVALID), "the part is not inside of the lease"};
	default:
		return (struct range_error){CODE(INTERNAL), "the zone refused it"};
	}
}

static void refuse_range(struct session *session, uint16_t tag, int condition,
			 const struct hp_range *range, uint32_t index)
{
	struct range_error error = range_error(condition);
	const struct pool_zone *zone = pool_zone(session->worker->net->pool, range->zone);

	refuse(session, tag,
	       &(struct refusal){.code = error.code,
				 .zone = zone,
				 .asked_pages = range->pages,
				 .index = index},
	       "range %u (zone %u, page %u, %u pages, generation %u): %s; nothing was changed",
	       index, range->zone, range->pfn, range->pages, range->generation,
	       zone ? error.text : "there is no such zone");
}

/* --- taking -------------------------------------------------------------------------------------
 */

/* What the protocol has and this daemon does not serve is named, never ignored. */
static const char *not_served(const Hugepool__V1__Alloc *alloc)
{
	if (alloc->node_policy != HUGEPOOL__V1__NODE_POLICY__NODE_POLICY_UNSPECIFIED)
		return "node_policy";
	if (alloc->n_nodes)
		return "nodes";
	if (alloc->shareable)
		return "shareable";
	if (alloc->deadline_ms)
		return "deadline_ms";
	if (alloc->priority)
		return "priority";
	return NULL;
}

/* Return: 0, or -1: refused. */
static int check_alloc(struct session *session, uint16_t tag, const Hugepool__V1__Alloc *alloc)
{
	const char *field = not_served(alloc);

	if (field) {
		refuse(session, tag, &(struct refusal){.code = CODE(NOT_SUPPORTED)},
		       "%s is in the protocol, but not served by this daemon", field);
		return -1;
	}
	if (alloc->count > HP_RANGES_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_RANGES_MAX},
		       "count: ranges of one request; %u were asked for", alloc->count);
		return -1;
	}
	if (alloc->pages == 0 || alloc->pages > HP_RANGE_MAX_PAGES) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(INVALID), .limit = HP_RANGE_MAX_PAGES},
		       "pages: %u, but a range has 1 to %u", alloc->pages, HP_RANGE_MAX_PAGES);
		return -1;
	}
	if (alloc->align_pages & (alloc->align_pages - 1)) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "align_pages: %u is no power of two", alloc->align_pages);
		return -1;
	}
	return 0;
}

static struct pool_zone *find_zone(struct session *session, uint16_t tag,
				   const Hugepool__V1__Alloc *alloc)
{
	const char *name = alloc->zone.len ? (const char *)alloc->zone.data : "";
	struct pool_zone *zone =
		pool_find_zone(session->worker->net->pool, name, alloc->zone.len, alloc->page_size);

	if (zone && (!alloc->page_size || zone->page_bytes == alloc->page_size))
		return zone;
	refuse(session, tag, &(struct refusal){.code = CODE(NO_ZONE), .asked_pages = alloc->pages},
	       "there is no zone \"%.*s\" with pages of %llu bytes; hugepoolctl zones lists them",
	       alloc->zone.len < HP_NAME_MAX ? (int)alloc->zone.len : HP_NAME_MAX, name,
	       (unsigned long long)alloc->page_size);
	return NULL;
}

static void refuse_grant(struct session *session, uint16_t tag, int condition,
			 const struct pool_zone *zone, const struct hp_request *request, size_t n)
{
	struct refusal refusal = {
		.zone = zone,
		.asked_pages = (uint64_t)n * request->pages,
	};
	struct tenant_figures have;

	tenant_get_figures(session->tenant, zone, &have);
	if (condition == HP_NO_ROOM) {
		refusal.code = CODE(NO_MEMORY);
		refuse(session, tag, &refusal,
		       "%zu x %u pages of %llu kB were asked for in zone %s, aligned to %u%s; %llu "
		       "pages can be had now, the longest range is %llu; free some, or ask for "
		       "less",
		       n, request->pages, (unsigned long long)zone->page_bytes / 1024, zone->name,
		       request->align ? request->align : 1,
		       request->flags & HP_ALLOC_EXCLUSIVE ? ", in blocks of its own" : "",
		       (unsigned long long)have.leasable_pages,
		       (unsigned long long)have.largest_pages);
	} else if (condition == HP_OVER_LIMIT) {
		refusal.code = CODE(OVER_LIMIT);
		refuse(session, tag, &refusal,
		       "%zu x %u pages of %llu kB were asked for in zone %s; tenant %s may hold %u "
		       "blocks of %u pages and holds %u, %llu pages can be had in those; free "
		       "some, "
		       "or have its limit raised",
		       n, request->pages, (unsigned long long)zone->page_bytes / 1024, zone->name,
		       session->tenant->name, have.limit_blocks, zone->block_pages,
		       have.held_blocks, (unsigned long long)have.leasable_pages);
	} else {
		refusal.code = condition == -EINVAL ? CODE(INVALID) : CODE(INTERNAL);
		refuse(session, tag, &refusal,
		       "%zu x %u pages, aligned to %u: not possible in zone %s", n, request->pages,
		       request->align, zone->name);
	}
}

static void forget_fresh(struct session *session, const struct pool_zone *zone, size_t nr_fresh)
{
	for (size_t i = 0; i < nr_fresh; i++)
		known_set(&session->known, zone, session->worker->scratch.fresh[i], 0);
}

/* The grants in scratch are taken back. */
static void take_back(struct session *session, const struct pool_zone *zone, size_t n)
{
	struct worker *worker = session->worker;
	size_t bad;

	for (size_t i = 0; i < n; i++) {
		worker->scratch.ranges[i] = worker->scratch.grants[i].range;
		known_give(&session->known, zone, worker->scratch.ranges[i].pfn,
			   worker->scratch.ranges[i].pages);
	}
	if (leases_return(worker->net->leases, worker->caches, session->slot,
			  worker->scratch.ranges, n, &bad))
		assert(!"what was just granted is ours");
}

/* Room among the descriptors owed to this tenant, after a look at which have been read by now. */
static bool may_owe(struct session *session, size_t more)
{
	struct worker *worker = session->worker;
	const uint32_t *owed = &worker->owed_fds[session->tenant->owner];
	struct session *other;

	if (*owed + more > HP_DESCRIPTORS_OWED_MAX)
		TAILQ_FOREACH (other, &worker->sessions, link)
			if (other->tenant == session->tenant && other->fd >= 0)
				output_settle(other);
	return *owed + more <= HP_DESCRIPTORS_OWED_MAX;
}

/* Opens the fresh blocks. Return: 0, or -errno with none open. */
static int open_fresh(struct session *session, struct pool_zone *zone, size_t nr_fresh)
{
	struct worker *worker = session->worker;

	for (size_t i = 0; i < nr_fresh; i++) {
		int fd = pool_open_block(zone, worker->scratch.fresh[i],
					 &worker->scratch.generations[i]);

		if (fd < 0) {
			while (i--)
				close(worker->scratch.fds[i]);
			return fd;
		}
		worker->scratch.fds[i] = fd;
	}
	return 0;
}

static void send_fresh(struct session *session, const struct pool_zone *zone, size_t nr_fresh)
{
	struct worker *worker = session->worker;
	Hugepool__V1__Blocks message = HUGEPOOL__V1__BLOCKS__INIT;
	uint64_t words[HP_BLOCKS_MAX];

	message.zone = zone->id;
	message.blocks = words;
	for (size_t done = 0; done < nr_fresh; done += message.n_blocks) {
		size_t left = nr_fresh - done;

		message.n_blocks = left < HP_BLOCKS_MAX ? left : HP_BLOCKS_MAX;
		for (size_t i = 0; i < message.n_blocks; i++) {
			uint32_t block = worker->scratch.fresh[done + i];
			uint64_t generation = worker->scratch.generations[done + i];

			known_set(&session->known, zone, block, generation);
			words[i] = hp_wire_put_block(
				(struct hp_wire_block){.index = block, .generation = generation});
		}
		output_attach(session, worker->scratch.fds + done, message.n_blocks);
		reply(session, TYPE(BLOCKS), 0, &message.base);
	}
}

/* Return: 0, or -1: refused, and the grants taken back. */
static int deliver_blocks(struct session *session, uint16_t tag, struct pool_zone *zone, size_t n)
{
	struct worker *worker = session->worker;
	size_t nr_fresh = 0;
	int rc;

	for (size_t i = 0; i < n; i++)
		known_take(&session->known, zone, worker->scratch.grants[i].range.pfn,
			   worker->scratch.grants[i].range.pages, worker->scratch.fresh, &nr_fresh);
	if (!nr_fresh)
		return 0;

	rc = may_owe(session, nr_fresh) ? open_fresh(session, zone, nr_fresh) : -ETOOMANYREFS;
	if (!rc) {
		send_fresh(session, zone, nr_fresh);
		pool_poke(worker->net->pool); /* clean stock may have been taken */
		return 0;
	}
	take_back(session, zone, n);
	forget_fresh(session, zone, nr_fresh);
	if (rc == -ETOOMANYREFS)
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_DESCRIPTORS_OWED_MAX},
		       "descriptors on their way to tenant %s; its programs have to read them "
		       "first",
		       session->tenant->name);
	else
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL), .zone = zone},
		       "the memory is there, but no descriptor could be opened for it: %s",
		       strerror(-rc));
	return -1;
}

static void reply_grant(struct session *session, uint16_t tag, const struct hp_grant *grants,
			size_t n)
{
	uint64_t *words = session->worker->scratch.words;
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	for (size_t i = 0; i < n; i++) {
		struct hp_wire_range wire = {
			.page = grants[i].range.pfn,
			.pages = grants[i].range.pages,
			.generation = grants[i].range.generation,
			.zone = grants[i].range.zone,
			.zeroed = grants[i].zeroed,
		};
		hp_wire_put_range(words + i * HP_WIRE_RANGE_WORDS, &wire);
	}
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	reply(session, TYPE(GRANT), tag, &message.base);
}

void request_alloc(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Alloc *alloc = (const Hugepool__V1__Alloc *)message;
	struct worker *worker = session->worker;
	size_t n = alloc->count ? alloc->count : 1;
	struct hp_request request;
	struct pool_zone *zone;
	int rc;

	if (check_alloc(session, tag, alloc))
		return;
	zone = find_zone(session, tag, alloc);
	if (!zone)
		return;
	if (known_reserve(&session->known, zone)) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL), .zone = zone},
		       "the daemon is out of memory");
		return;
	}
	request = (struct hp_request){
		.pages = alloc->pages,
		.align = alloc->align_pages,
		.flags = (alloc->zero ? HP_ALLOC_ZEROED : 0) |
			 (alloc->exclusive ? HP_ALLOC_EXCLUSIVE : 0),
	};
	rc = leases_grant(worker->net->leases, worker->caches, session->slot, zone, &request,
			  worker->scratch.grants, n);
	if (rc) {
		pool_poke(worker->net->pool);
		refuse_grant(session, tag, rc, zone, &request, n);
		return;
	}
	if (deliver_blocks(session, tag, zone, n))
		return;
	reply_grant(session, tag, worker->scratch.grants, n);
}

/* --- giving -------------------------------------------------------------------------------------
 */

/* Return: how many ranges are in scratch, or -1: refused. */
static int get_ranges(struct session *session, uint16_t tag, const uint64_t *words, size_t nr_words)
{
	size_t n = nr_words / HP_WIRE_RANGE_WORDS;

	if (nr_words % HP_WIRE_RANGE_WORDS || n == 0) {
		refuse(session, tag, &(struct refusal){.code = CODE(MALFORMED)},
		       "ranges: %zu words, but each range has %u", nr_words, HP_WIRE_RANGE_WORDS);
		return -1;
	}
	if (n > HP_RANGES_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_RANGES_MAX},
		       "ranges of one request; there were %zu", n);
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		struct hp_wire_range wire;

		if (hp_wire_get_range(words + i * HP_WIRE_RANGE_WORDS, &wire)) {
			refuse(session, tag,
			       &(struct refusal){.code = CODE(MALFORMED), .index = (uint32_t)i},
			       "range %zu: no pages, or bits set that have no meaning", i);
			return -1;
		}
		session->worker->scratch.ranges[i] = (struct hp_range){
			.pfn = wire.page,
			.pages = wire.pages,
			.generation = wire.generation,
			.zone = wire.zone,
		};
	}
	return (int)n;
}

/* Pages are no longer held: a block of which this session has none left may be idle. */
static uint32_t forget_pages(struct session *session, uint8_t zone_id, hp_pfn_t pfn, uint32_t pages)
{
	return known_give(&session->known, pool_zone(session->worker->net->pool, zone_id), pfn,
			  pages);
}

void request_free(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Ranges *free = (const Hugepool__V1__Ranges *)message;
	struct worker *worker = session->worker;
	const struct hp_range *ranges = worker->scratch.ranges;
	int n = get_ranges(session, tag, free->ranges, free->n_ranges), rc;
	uint32_t emptied = 0;
	size_t bad;

	if (n < 0)
		return;
	rc = leases_return(worker->net->leases, worker->caches, session->slot, ranges, (size_t)n,
			   &bad);
	if (rc) {
		refuse_range(session, tag, rc, &ranges[bad], (uint32_t)bad);
		return;
	}
	for (int i = 0; i < n; i++)
		emptied += forget_pages(session, ranges[i].zone, ranges[i].pfn, ranges[i].pages);
	if (emptied)
		pool_poke(worker->net->pool);
	reply_done(session, tag);
}

void request_free_part(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__FreePart *part = (const Hugepool__V1__FreePart *)message;
	struct worker *worker = session->worker;
	const struct hp_range *range = worker->scratch.ranges;
	struct hp_range kept[2];
	struct hp_grant grants[2];
	unsigned nr_kept;
	int n = get_ranges(session, tag, part->range, part->n_range), rc;

	if (n < 0)
		return;
	if (n > 1) {
		refuse(session, tag, &(struct refusal){.code = CODE(MALFORMED)},
		       "range: one lease at a time");
		return;
	}
	if (part->pages == 0 || part->offset >= range->pages ||
	    part->pages > range->pages - part->offset)
		rc = -EINVAL;
	else
		rc = leases_return_part(worker->net->leases, worker->caches, session->slot, range,
					part->offset, part->pages, kept, &nr_kept);
	if (rc) {
		refuse_range(session, tag, rc, range, 0);
		return;
	}
	if (forget_pages(session, range->zone, range->pfn + part->offset, part->pages))
		pool_poke(worker->net->pool);
	for (unsigned i = 0; i < nr_kept; i++)
		grants[i] = (struct hp_grant){.range = kept[i]};
	reply_grant(session, tag, grants, nr_kept);
}

/* --- letting go of blocks -----------------------------------------------------------------------
 */

/* Return: 0, or -1: refused. Nothing is changed. */
static int check_release(struct session *session, uint16_t tag, const struct pool_zone *zone,
			 const Hugepool__V1__Blocks *blocks)
{
	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block wire = hp_wire_get_block(blocks->blocks[i]);
		struct refusal refusal = {.index = (uint32_t)i, .zone = zone};
		uint64_t generation;
		uint32_t pages;

		if (wire.index >= zone->nr_blocks) {
			refusal.code = CODE(OUT_OF_RANGE);
			refuse(session, tag, &refusal, "block %u: zone %s has %u", wire.index,
			       zone->name, zone->nr_blocks);
			return -1;
		}
		generation = known_generation(&session->known, zone, wire.index, &pages);
		if (wire.generation == 0 || wire.generation > generation) {
			refusal.code = CODE(STALE);
			refuse(session, tag, &refusal,
			       "block %u: generation %llu was not sent to this session, or has "
			       "been "
			       "released before",
			       wire.index, (unsigned long long)wire.generation);
			return -1;
		}
		if (wire.generation == generation && pages) {
			refusal.code = CODE(BUSY);
			refuse(session, tag, &refusal,
			       "block %u: this session still holds %u pages in it", wire.index,
			       pages);
			return -1;
		}
	}
	return 0;
}

void request_release_block(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Blocks *blocks = (const Hugepool__V1__Blocks *)message;
	struct pool *pool = session->worker->net->pool;
	const struct pool_zone *zone = pool_zone(pool, blocks->zone);

	if (!zone) {
		refuse(session, tag, &(struct refusal){.code = CODE(OUT_OF_RANGE)},
		       "zone: there is no zone %u", blocks->zone);
		return;
	}
	if (check_release(session, tag, zone, blocks))
		return;
	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block wire = hp_wire_get_block(blocks->blocks[i]);
		uint32_t pages;

		/* Of an earlier life than the one that is known there is nothing to forget. */
		if (known_generation(&session->known, zone, wire.index, &pages) == wire.generation)
			known_set(&session->known, zone, wire.index, 0);
	}
	pool_poke(pool);
	reply_done(session, tag);
}
