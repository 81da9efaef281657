/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block can be taken at any moment, also between the grant of a lease in it and the reply that
 * names it. So there are two kinds of leases: those that the client knows, or will know from what is
 * in the output already, and those that it does not. Of the latter nothing is said; whoever has the
 * grant in hand finds out before he says GRANT, or when he gives it back.
 */
#include "daemon/net/notices.h"

#include "daemon/net/dispatch.h"
#include "daemon/net/park.h"
#include "daemon/net/reply.h"
#include "daemon/tenancy/clock.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* Notices of one kind, about one block, go into one frame as far as they fit. */
struct telling {
	struct session *session;
	const struct hp_grant *untold;
	size_t nr_untold;
	struct notice about; /* the first in words */
	size_t nr;
	bool said;
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
};

static void say(struct telling *telling)
{
	const struct notice *about = &telling->about;
	Hugepool__V1__Revoked message = HUGEPOOL__V1__REVOKED__INIT;
	uint64_t now = clock_now_ms();

	if (telling->nr == 0)
		return;
	message.n_ranges = telling->nr * HP_WIRE_RANGE_WORDS;
	message.ranges = telling->words;
	if (about->kind == NOTICE_ASKED) {
		message.force = about->force;
		if (about->deadline_ms > now)
			message.deadline_ms = (uint32_t)(about->deadline_ms - now);
	} else {
		message.force = true;
		message.zone = about->range.zone;
		message.block = hp_wire_put_block((struct hp_wire_block){
			.index = about->block, .generation = about->generation});
	}
	reply(telling->session, TYPE(REVOKED), 0, &message.base);
	telling->nr = 0;
	telling->said = true;
}

static bool goes_with(const struct notice *a, const struct notice *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == NOTICE_ASKED)
		return a->deadline_ms == b->deadline_ms && a->force == b->force;
	return a->range.zone == b->range.zone && a->block == b->block;
}

/* The lease as it was granted. */
static const struct hp_range *name_of(const struct notice *notice)
{
	return notice->kind == NOTICE_ASKED ? &notice->range : &notice->name;
}

static void add(struct telling *telling, const struct notice *notice)
{
	const struct hp_range *name = name_of(notice);
	const struct hp_wire_range wire = {
		.page = name->pfn,
		.pages = name->pages,
		.generation = name->generation,
		.zone = name->zone,
	};

	if (telling->nr == HP_RANGES_MAX || (telling->nr && !goes_with(&telling->about, notice)))
		say(telling);
	if (telling->nr == 0)
		telling->about = *notice;
	hp_wire_put_range(telling->words + telling->nr++ * HP_WIRE_RANGE_WORDS, &wire);
}

static bool is_untold(const struct telling *telling, const struct notice *notice)
{
	const struct session *session = telling->session;
	const struct hp_range *name = name_of(notice);

	/* What was taken is not what is leased, though it may have had the same name. */
	if (notice->kind == NOTICE_TAKEN && !notices_is_lost(session, name))
		return false;

	for (size_t i = 0; i < telling->nr_untold; i++)
		if (range_equal(&telling->untold[i].range, name))
			return true;
	return parked_has(telling->session, name);
}

/* leases_notice_fn */
static void take(void *userdata, const struct notice *notice)
{
	struct telling *telling = userdata;
	struct session *session = telling->session;
	const struct pool_zone *zone = pool_zone(session->worker->net->pool, notice->range.zone);

	if (is_untold(telling, notice))
		return;
	if (notice->kind == NOTICE_TAKEN) {
		hp_pfn_t from = notice->block * zone->block_pages;

		known_give(&session->known, zone,
			   notice->range.pfn > from ? notice->range.pfn : from,
			   notice->taken_pages);
	}
	if (session->phase == SESSION_SERVING)
		add(telling, notice);
}

bool notices_take(struct session *session, const struct hp_grant *untold, size_t n)
{
	struct telling telling;

	/* Who only waits for the end of a process has nobody to tell, and may have been replaced. */
	if (session->fd < 0 || !session->slot || !session->slot->notices)
		return false;
	telling.session = session;
	telling.untold = untold;
	telling.nr_untold = n;
	telling.nr = 0;
	telling.said = false;
	leases_take_notices(session->worker->net->leases, session->slot, take, &telling);
	say(&telling);
	return telling.said;
}

/* leases_part_fn */
static void forget_part(void *userdata, const struct hp_range *part)
{
	struct session *session = userdata;

	known_give(&session->known, pool_zone(session->worker->net->pool, part->zone), part->pfn,
		   part->pages);
}

bool notices_is_lost(const struct session *session, const struct hp_range *range)
{
	const struct pool_zone *zone = pool_zone(session->worker->net->pool, range->zone);

	return hp_zone_lookup(zone->zone, session->slot->number, range) != 0;
}

int notices_let_go(struct session *session, const struct hp_range *range, bool untold)
{
	struct worker *worker = session->worker;
	struct hp_grant grant = {.range = *range};
	size_t bad;
	int rc, acked;

	rc = leases_return(worker->net->leases, worker->caches, session->slot, range, 1, &bad);
	if (!rc) {
		if (!untold &&
		    known_give(&session->known, pool_zone(worker->net->pool, range->zone),
			       range->pfn, range->pages))
			pool_poke(worker->net->pool);
		return 0;
	}
	do {
		notices_take(session, &grant, untold);
		acked = leases_ack(worker->net->leases, session->slot, range,
				   untold ? NULL : forget_part, session);
	} while (acked == HP_BUSY);
	return acked ? rc : 0;
}
