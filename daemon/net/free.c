/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back, in whole and in part. A range is named by everything the client knows of it, and the
 * zone compares all of that before it changes anything: what is said about a wrong one is the first
 * thing that did not fit.
 */
#include "daemon/net/dispatch.h"

#include <assert.h>
#include <errno.h>

#include "daemon/net/notices.h"
#include "daemon/net/ranges.h"
#include "daemon/net/reply.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

struct range_error {
	Hugepool__V1__Code code;
	const char *text;
};

static struct range_error range_error(const struct session *session, int condition,
				      const struct hp_range *range)
{
	/* To the zone a shared range is a share's, whoever is attached to it. */
	if (condition == HP_WRONG_HOLDER &&
	    shares_check(session->worker->net->shares, session->slot, range) == 0)
		return (struct range_error){CODE(INVALID),
					    "it is shared: DETACH gives it back, as a whole"};
	switch (condition) {
	case HP_OUT_OF_RANGE:
	case HP_WRONG_ZONE:
		return (struct range_error){CODE(OUT_OF_RANGE), "it lies outside of the zone"};
	case HP_NOT_LEASED:
		return (struct range_error){
			CODE(NOT_LEASED),
			"no lease begins there: it was freed before, or never granted"};
	case HP_WRONG_HOLDER:
		return (struct range_error){CODE(WRONG_HOLDER), "it is another session's"};
	case HP_WRONG_LENGTH:
		return (struct range_error){CODE(WRONG_LENGTH), "the lease has another length"};
	case HP_STALE:
		return (struct range_error){CODE(STALE), "the lease there is a later one"};
	case HP_REVOKED:
		return (struct range_error){CODE(REVOKED),
					    "it was taken by the operator; free it as a whole"};
	case -EINVAL:
		return (struct range_error){CODE(INVALID), "the part is not inside of the lease"};
	default:
		return (struct range_error){CODE(INTERNAL), "the zone refused it"};
	}
}

void ranges_refuse(struct session *session, uint16_t tag, int condition,
		   const struct hp_range *range, uint32_t index)
{
	struct range_error error = range_error(session, condition, range);
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

int ranges_get(struct session *session, uint16_t tag, const uint64_t *words, size_t nr_words)
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

/*
 * Of several zones, or with something in it that was taken: each by itself, after all have been
 * found right. What is taken meanwhile is still right. Return: 0 or, with ret_bad, as
 * hp_zone_free() and nothing has changed.
 */
static int free_one_by_one(struct session *session, const struct hp_range *ranges, size_t n,
			   size_t *ret_bad)
{
	int rc;

	notices_take(session, NULL, 0);
	rc = leases_check(session->worker->net->leases, session->slot, ranges, n, ret_bad);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (notices_let_go(session, &ranges[i], false))
			assert(!"only its own worker ends a lease for good");
	return 0;
}

static bool same_zone(const struct hp_range *ranges, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (ranges[i].zone != ranges[0].zone)
			return false;
	return true;
}

/* All at once, as it usually is. Return: whether it was possible. */
static bool free_at_once(struct session *session, const struct hp_range *ranges, size_t n)
{
	struct worker *worker = session->worker;
	uint32_t emptied = 0;
	size_t bad;

	if (!same_zone(ranges, n) ||
	    leases_return(worker->net->leases, worker->caches, session->slot, ranges, n, &bad))
		return false;
	for (size_t i = 0; i < n; i++)
		emptied += forget_pages(session, ranges[i].zone, ranges[i].pfn, ranges[i].pages);
	if (emptied)
		pool_poke(worker->net->pool);
	return true;
}

/* FREE, and ACK: whoever acknowledges that he is asked for a lease gives it back. */
void request_free(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Ranges *free = (const Hugepool__V1__Ranges *)message;
	const struct hp_range *ranges = session->worker->scratch.ranges;
	int n = ranges_get(session, tag, free->ranges, free->n_ranges), rc;
	size_t bad;

	if (n < 0)
		return;
	if (!free_at_once(session, ranges, (size_t)n)) {
		rc = free_one_by_one(session, ranges, (size_t)n, &bad);
		if (rc) {
			ranges_refuse(session, tag, rc, &ranges[bad], (uint32_t)bad);
			return;
		}
	}
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
	int n = ranges_get(session, tag, part->range, part->n_range), rc;

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
		notices_take(session, NULL, 0); /* before an answer that only they explain */
		if (leases_is_revoked(session->slot, range))
			rc = HP_REVOKED;
		ranges_refuse(session, tag, rc, range, 0);
		return;
	}
	if (forget_pages(session, range->zone, range->pfn + part->offset, part->pages))
		pool_poke(worker->net->pool);
	for (unsigned i = 0; i < nr_kept; i++)
		grants[i] = (struct hp_grant){.range = kept[i]};
	reply_grant(session, tag, grants, nr_kept);
}
