/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing, attaching and detaching. A shared range has its blocks to itself, so what a session
 * knows of them ends with its attachment: the next one brings descriptors again, which may be of the
 * other kind.
 */
#include "daemon/net/share.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/net/alloc.h"
#include "daemon/net/blocks.h"
#include "daemon/net/dispatch.h"
#include "daemon/net/ranges.h"
#include "daemon/net/reply.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

#define NO_UID UINT32_MAX /* of setresuid(2): means nobody */

void share_refuse(struct session *session, uint16_t tag, int condition)
{
	static const struct {
		Hugepool__V1__Code code;
		uint32_t limit;
		const char *sentence;
	} conditions[] = {
#define CONDITION(name) [SHARE_##name - SHARE_TOO_MANY]
		CONDITION(TOO_MANY) = {CODE(TOO_MANY), HP_SHARES_MAX,
				       "shared ranges at one time, those being recycled included"},
		CONDITION(TOO_MANY_OF_TENANT) =
			{CODE(TOO_MANY), HP_SHARES_PER_TENANT_MAX,
			 "shared ranges of one tenant, those being recycled included"},
		CONDITION(TOO_MANY_ATTACHED) = {CODE(TOO_MANY), HP_ATTACHMENTS_MAX,
						"attachments to shared ranges at one time"},
		CONDITION(TOO_MANY_ATTACHED_OF_TENANT) = {CODE(TOO_MANY),
							  HP_ATTACHMENTS_PER_TENANT_MAX,
							  "attachments of one tenant's sessions"},
		CONDITION(UNKNOWN) =
			{CODE(NO_SHARE), 0,
			 "name: nothing of that name is there for this uid; who published it may have gone, or does not permit it"},
		CONDITION(AMBIGUOUS) =
			{CODE(INVALID), 0,
			 "name: several tenants have published that name; say whose is meant by tenant"},
		CONDITION(READ_ONLY) = {CODE(PERMISSION), 0,
					"read_only: it may be attached to read only"},
		CONDITION(ATTACHED_ALREADY) =
			{CODE(BUSY), 0,
			 "this session has it already; detach it first, or use another session"},
		CONDITION(NAME_TAKEN) = {CODE(BUSY), 0,
					 "name: another shared range of this tenant has it"},
		CONDITION(NOT_PUBLISHER) =
			{CODE(PERMISSION), 0,
			 "range: only the session that allocated it may publish it"},
#undef CONDITION
	};
	size_t i = (size_t)(condition - SHARE_TOO_MANY);

	refuse(session, tag,
	       &(struct refusal){.code = conditions[i].code, .limit = conditions[i].limit}, "%s",
	       conditions[i].sentence);
}

/* A name, which may be missing if it need not be there. Return: 0, or -1: refused. */
static int check_name(struct session *session, uint16_t tag, const char *field,
		      ProtobufCBinaryData name, bool needed)
{
	if (name.len > HP_NAME_MAX || (needed && !name.len)) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID), .limit = HP_NAME_MAX},
		       "%s: %zu bytes, but it has 1 to %u", field, name.len, HP_NAME_MAX);
		return -1;
	}
	if (name.len && memchr(name.data, 0, name.len)) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "%s: it has a byte of 0 in it", field);
		return -1;
	}
	return 0;
}

static int check_uids(struct session *session, uint16_t tag, const Hugepool__V1__Share *share)
{
	if (share->n_uids > HP_SHARE_UIDS_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_SHARE_UIDS_MAX},
		       "uids: that one shared range is for; there were %zu", share->n_uids);
		return -1;
	}
	for (size_t i = 0; i < share->n_uids; i++)
		if (share->uids[i] == NO_UID) {
			refuse(session, tag,
			       &(struct refusal){.code = CODE(INVALID), .index = (uint32_t)i},
			       "uids: %u is nobody's", NO_UID);
			return -1;
		}
	return 0;
}

/* What shares_check() has against a range. */
static void refuse_not_attached(struct session *session, uint16_t tag, int condition,
				const struct hp_range *range, uint32_t index)
{
	const struct pool_zone *zone = pool_zone(session->worker->net->pool, range->zone);
	struct refusal refusal = {.zone = zone, .asked_pages = range->pages, .index = index};

	if (condition != HP_NOT_LEASED || !zone) {
		ranges_refuse(session, tag, zone ? condition : HP_OUT_OF_RANGE, range, index);
	} else if (hp_zone_lookup(zone->zone, session->slot->number, range) == 0) {
		refusal.code = CODE(INVALID);
		refuse(session, tag, &refusal,
		       "range %u: it was not allocated shareable, and FREE gives it back", index);
	} else {
		refusal.code = CODE(NOT_LEASED);
		refuse(session, tag, &refusal,
		       "range %u (zone %u, page %u): this session has nothing attached there; nothing was changed",
		       index, range->zone, range->pfn);
	}
}

void request_share(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Share *share = (const Hugepool__V1__Share *)message;
	struct worker *worker = session->worker;
	const struct hp_range *range = worker->scratch.ranges;
	struct share_terms terms;
	int n = ranges_get(session, tag, share->range, share->n_range), rc;

	if (n < 0)
		return;
	if (n > 1) {
		refuse(session, tag, &(struct refusal){.code = CODE(MALFORMED)},
		       "range: one at a time");
		return;
	}
	if (check_name(session, tag, "name", share->name, true) || check_uids(session, tag, share))
		return;
	terms = (struct share_terms){
		.name = share->name.data,
		.name_bytes = share->name.len,
		.uids = share->uids,
		.nr_uids = share->n_uids,
		.read_only = share->read_only,
	};
	rc = shares_publish(worker->net->shares, session->slot, range, &terms);
	if (!rc)
		reply_done(session, tag);
	else if (rc > HP_BAD_PAGE)
		share_refuse(session, tag, rc);
	else
		refuse_not_attached(session, tag, rc, range, 0);
}

/* Its blocks are nobody else's, so the session knows them for this range alone, which it has not. */
static void forget_blocks(struct session *session, const struct pool_zone *zone,
			  const struct hp_range *range)
{
	uint32_t last = (range->pfn + range->pages - 1) / zone->block_pages;

	for (uint32_t b = range->pfn / zone->block_pages; b <= last; b++)
		known_set(&session->known, zone, b, 0);
}

static void detach(struct session *session, const struct hp_range *range)
{
	shares_detach(session->worker->net->shares, session->slot, range);
}

void request_attach(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Attach *attach = (const Hugepool__V1__Attach *)message;
	struct worker *worker = session->worker;
	struct hp_grant grant = {.zeroed = false};
	struct pool_zone *zone;
	int rc;

	if (!tenant_is_live(session->tenant)) {
		refuse(session, tag, &(struct refusal){.code = CODE(SHUTTING_DOWN)}, ALLOC_LEAVING,
		       session->tenant->name);
		return;
	}
	if (check_name(session, tag, "name", attach->name, true) ||
	    check_name(session, tag, "tenant", attach->tenant, false))
		return;
	rc = shares_attach(worker->net->shares, session->slot, attach->name.data, attach->name.len,
			   attach->tenant.data, attach->tenant.len, attach->read_only,
			   &grant.range);
	if (rc) {
		share_refuse(session, tag, rc);
		return;
	}
	zone = pool_zone(worker->net->pool, grant.range.zone);
	if (known_reserve(&session->known, zone)) {
		detach(session, &grant.range);
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL), .zone = zone},
		       "the daemon is out of memory");
		return;
	}
	/* After a break it may have said that it has them mapped, from before. */
	forget_blocks(session, zone, &grant.range);
	if (blocks_deliver(session, tag, zone, &grant, 1, attach->read_only))
		detach(session, &grant.range);
	else
		reply_grant(session, tag, &grant, 1);
}

/* Return: 0, or -1: refused. */
static int check_attached(struct session *session, uint16_t tag, const struct hp_range *ranges,
			  size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = shares_check(session->worker->net->shares, session->slot, &ranges[i]);

		for (size_t j = 0; j < i && !rc; j++)
			if (ranges[j].zone == ranges[i].zone && ranges[j].pfn == ranges[i].pfn)
				rc = HP_NOT_LEASED;
		if (rc) {
			refuse_not_attached(session, tag, rc, &ranges[i], (uint32_t)i);
			return -1;
		}
	}
	return 0;
}

void request_detach(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Ranges *detached = (const Hugepool__V1__Ranges *)message;
	struct worker *worker = session->worker;
	const struct hp_range *ranges = worker->scratch.ranges;
	int n = ranges_get(session, tag, detached->ranges, detached->n_ranges);

	if (n < 0 || check_attached(session, tag, ranges, (size_t)n))
		return;
	/* Only this thread changes what this session is attached to: what was right stays right. */
	for (int i = 0; i < n; i++) {
		const struct pool_zone *zone = pool_zone(worker->net->pool, ranges[i].zone);

		known_give(&session->known, zone, ranges[i].pfn, ranges[i].pages);
		forget_blocks(session, zone, &ranges[i]);
		detach(session, &ranges[i]);
	}
	reply_done(session, tag);
}
