/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking: the one path that has to be fast. In the usual case (blocks known) nothing is allocated,
 * opened or logged, and no system call is made; every figure of a refusal is looked up only once it
 * is one.
 */
#include "daemon/net/dispatch.h"

#include <assert.h>
#include <errno.h>

#include "daemon/net/alloc.h"
#include "daemon/net/blocks.h"
#include "daemon/net/notices.h"
#include "daemon/net/park.h"
#include "daemon/net/reply.h"
#include "daemon/net/share.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

/* What the protocol has and this daemon does not serve is named, never ignored. */
static const char *not_served(const Hugepool__V1__Alloc *alloc)
{
	if (alloc->node_policy != HUGEPOOL__V1__NODE_POLICY__NODE_POLICY_UNSPECIFIED)
		return "node_policy";
	if (alloc->n_nodes)
		return "nodes";
	return NULL;
}

/* Return: 0, or -1: refused. */
static int check_alloc(struct session *session, uint16_t tag, const Hugepool__V1__Alloc *alloc)
{
	const char *field = not_served(alloc);

	if (!tenant_is_live(session->tenant)) {
		refuse(session, tag, &(struct refusal){.code = CODE(SHUTTING_DOWN)}, ALLOC_LEAVING,
		       session->tenant->name);
		return -1;
	}
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
	if (alloc->shareable && alloc->count > 1) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID), .limit = 1},
		       "count: %u, but a shareable range is asked for by itself", alloc->count);
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
	if (alloc->deadline_ms > HP_DEADLINE_MAX_MS) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(INVALID), .limit = HP_DEADLINE_MAX_MS},
		       "deadline_ms: %u, but one may wait for at most %u", alloc->deadline_ms,
		       HP_DEADLINE_MAX_MS);
		return -1;
	}
	if (alloc->priority > HP_PRIORITY_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(INVALID), .limit = HP_PRIORITY_MAX},
		       "priority: %u, but the highest is %u", alloc->priority, HP_PRIORITY_MAX);
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

static const char *what_to_do(const struct pool_zone *zone)
{
	struct hp_zone_stats stats;

	hp_zone_stats(zone->zone, &stats);
	return stats.offline == stats.nr_pages
		       ? "no block of it has memory yet, hugepoolctl blocks tells why"
		       : "free some, or ask for less";
}

void alloc_refuse(struct session *session, uint16_t tag, int condition,
		  const struct pool_zone *zone, const struct hp_request *request, size_t n)
{
	struct refusal refusal = {
		.zone = zone,
		.asked_pages = (uint64_t)n * request->pages,
	};
	struct tenant_figures have;
	uint32_t blocks = waits_blocks(zone, request, n);

	tenant_get_figures(session->tenant, zone, &have);
	/* The zone says what it has not; more than his limit he would not get from an empty one. */
	if (condition == HP_NO_ROOM && blocks > have.limit_blocks && blocks <= zone->nr_blocks)
		condition = HP_OVER_LIMIT;
	if (condition == HP_NO_ROOM) {
		refusal.code = CODE(NO_MEMORY);
		refuse(session, tag, &refusal,
		       "%zu x %u pages of %llu kB were asked for in zone %s, aligned to %u%s; %llu pages can be had now, the longest range is %llu; %s",
		       n, request->pages, (unsigned long long)zone->page_bytes / 1024, zone->name,
		       request->align ? request->align : 1,
		       request->flags & HP_ALLOC_EXCLUSIVE ? ", in blocks of its own" : "",
		       (unsigned long long)have.leasable_pages,
		       (unsigned long long)have.largest_pages, what_to_do(zone));
	} else if (condition == HP_OVER_LIMIT) {
		refusal.code = CODE(OVER_LIMIT);
		refuse(session, tag, &refusal,
		       "%zu x %u pages of %llu kB were asked for in zone %s; tenant %s may hold %u blocks of %u pages and holds %u, %llu pages can be had in those; free some, or have its limit raised",
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

void alloc_take_back(struct session *session, const struct hp_request *request,
		     const struct hp_grant *grants, size_t n)
{
	if (request->flags & HP_ALLOC_SHARED) {
		shares_detach(session->worker->net->shares, session->slot, &grants->range);
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (notices_let_go(session, &grants[i].range, true))
			assert(!"what was just granted is ours");
}

/* Was anything of it taken, by force, before the client has heard of it? */
static bool is_taken(struct session *session, const struct hp_grant *grants, size_t n)
{
	notices_take(session, grants, n);
	for (size_t i = 0; i < n && session->slot->revoked; i++)
		if (notices_is_lost(session, &grants[i].range))
			return true;
	return false;
}

void alloc_deliver(struct session *session, uint16_t tag, struct pool_zone *zone,
		   const struct hp_request *request, const struct hp_grant *grants, size_t n)
{
	if (!(request->flags & HP_ALLOC_SHARED) && is_taken(session, grants, n)) {
		refuse(session, tag, &(struct refusal){.code = CODE(REVOKED), .zone = zone},
		       "the range was taken by the operator at the moment it was granted; ask again");
		alloc_take_back(session, request, grants, n);
	} else if (blocks_deliver(session, tag, zone, grants, n, false)) {
		alloc_take_back(session, request, grants, n);
	} else {
		reply_grant(session, tag, grants, n);
	}
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
			 (alloc->exclusive ? HP_ALLOC_EXCLUSIVE : 0) |
			 (alloc->shareable ? HP_ALLOC_EXCLUSIVE | HP_ALLOC_SHARED : 0),
	};
	/* Who can wait takes his place behind those of his tenant who do. */
	if (alloc->deadline_ms && waits_count(worker->net->waits, zone->id)) {
		park(session, tag, zone, &request, n, alloc->priority, alloc->deadline_ms);
		return;
	}
	rc = tenant_is_over_limit(session->tenant, zone)
		     ? HP_OVER_LIMIT
		     : leases_grant(worker->net->leases, worker->caches, session->slot, zone,
				    &request, worker->scratch.grants, n);
	if (!rc) {
		alloc_deliver(session, tag, zone, &request, worker->scratch.grants, n);
		return;
	}
	if (rc > HP_BAD_PAGE) {
		share_refuse(session, tag, rc);
		return;
	}
	pool_poke(worker->net->pool);
	if (alloc->deadline_ms && (rc == HP_NO_ROOM || rc == HP_OVER_LIMIT)) {
		park(session, tag, zone, &request, n, alloc->priority, alloc->deadline_ms);
		return;
	}
	if (request.flags & HP_ALLOC_EXCLUSIVE) /* he may have what he needs, but not clean */
		pool_refresh_owner(zone, session->tenant->owner, waits_blocks(zone, &request, n));
	alloc_refuse(session, tag, rc, zone, &request, n);
}
