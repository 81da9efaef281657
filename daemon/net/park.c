/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that waits is nothing but what it asked for, a place in a queue of tenancy, and a timer.
 * It may be granted by any thread at any moment; what is granted is a lease of the session only once
 * its worker has fetched it. So whatever ends the wait - the grant, the deadline, CANCEL, the end of
 * the session - first takes it out of the queue and then looks whether it had been granted by then.
 */
#include "daemon/net/park.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/alloc.h"
#include "daemon/net/dispatch.h"
#include "daemon/net/reply.h"
#include "daemon/net/share.h"
#include "daemon/tenancy/clock.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

struct parked {
	TAILQ_ENTRY(parked) link; /* session->parked */
	struct session *session;
	uint16_t tag;
	struct waiter waiter;
	struct event deadline;
	uint64_t until_ms;	  /* not before: clock_now_ms() */
	bool adopted;		  /* what it was granted is the session's */
	struct hp_grant grants[]; /* waiter.n */
};

static bool is_shared(const struct parked *parked)
{
	return parked->waiter.request.flags & HP_ALLOC_SHARED;
}

/* Of the session and its leases, as far as it was granted. */
static void adopt(struct parked *parked)
{
	const struct net *net = parked->session->worker->net;
	struct slot *slot = parked->session->slot;

	parked->adopted = true;
	if (is_shared(parked))
		shares_granted(net->shares, slot, &parked->waiter.request, &parked->grants->range);
	else
		leases_adopt(net->leases, slot, parked->waiter.zone, parked->grants,
			     parked->waiter.n);
}

static void end(struct parked *parked)
{
	struct session *session = parked->session;

	if (is_shared(parked) && !parked->adopted)
		shares_abandon(session->worker->net->shares, session->slot,
			       &parked->waiter.request);
	evtimer_del(&parked->deadline);
	TAILQ_REMOVE(&session->parked, parked, link);
	session->nr_parked--;
	free(parked);
}

static void deliver(struct parked *parked)
{
	adopt(parked);
	alloc_deliver(parked->session, parked->tag, parked->waiter.zone, &parked->waiter.request,
		      parked->grants, parked->waiter.n);
}

static void refuse_late(struct parked *parked)
{
	const struct waiter *waiter = &parked->waiter;

	refuse(parked->session, parked->tag,
	       &(struct refusal){.code = CODE(TIMED_OUT),
				 .zone = waiter->zone,
				 .asked_pages = waiter->n * waiter->request.pages},
	       "%zu x %u pages of %llu kB were asked for in zone %s, and there was no room for them until the deadline",
	       waiter->n, waiter->request.pages,
	       (unsigned long long)waiter->zone->page_bytes / 1024, waiter->zone->name);
}

static void on_deadline(evutil_socket_t fd, short what, void *userdata)
{
	struct parked *parked = userdata;
	struct session *session = parked->session;
	struct turn *turn = &session->worker->turn;
	struct timeval left = {0};
	uint64_t now = clock_now_ms();

	(void)fd;
	(void)what;
	/* The loop counts from when it woke up, which may have been a good while before. */
	if (now < parked->until_ms) {
		left.tv_sec = (time_t)((parked->until_ms - now) / 1000);
		left.tv_usec = (suseconds_t)((parked->until_ms - now) % 1000) * 1000;
		if (evtimer_add(&parked->deadline, &left) == 0)
			return;
	}
	turn_begin(turn);
	if (waits_cancel(session->worker->net->waits, &parked->waiter))
		deliver(parked);
	else
		refuse_late(parked);
	end(parked);
	session_go_on(session);
	turn_end(turn);
}

static struct parked *new_parked(struct session *session, uint16_t tag, size_t n)
{
	struct parked *parked = calloc(1, sizeof(*parked) + n * sizeof(parked->grants[0]));

	if (!parked)
		return NULL;
	parked->session = session;
	parked->tag = tag;
	evtimer_assign(&parked->deadline, session->worker->base, on_deadline, parked);
	TAILQ_INSERT_TAIL(&session->parked, parked, link);
	session->nr_parked++;
	return parked;
}

/* Who is to have it: the session, or a share that it is attached to. Return: 0, or -1: refused. */
static int prepare(struct parked *parked)
{
	struct session *session = parked->session;
	struct hp_request *request = &parked->waiter.request;
	int rc = 0;

	request->owner = session->tenant->owner;
	request->slot = session->slot->number;
	if (is_shared(parked))
		rc = shares_prepare(session->worker->net->shares, session->slot,
				    parked->waiter.zone, request);
	if (!rc)
		return 0;
	request->flags = 0; /* there is no share to let go of */
	share_refuse(session, parked->tag, rc);
	return -1;
}

void park(struct session *session, uint16_t tag, struct pool_zone *zone,
	  const struct hp_request *request, size_t n, uint32_t priority, uint32_t deadline_ms)
{
	struct worker *worker = session->worker;
	struct timeval tv = {
		.tv_sec = deadline_ms / 1000,
		.tv_usec = (suseconds_t)(deadline_ms % 1000) * 1000,
	};
	struct parked *parked = NULL;

	if (session->nr_parked >= HP_WAITS_PER_SESSION_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_WAITS_PER_SESSION_MAX},
		       "requests of this session wait already");
		return;
	}
	parked = new_parked(session, tag, n);
	if (parked)
		parked->until_ms = clock_now_ms() + deadline_ms;
	if (!parked || evtimer_add(&parked->deadline, &tv)) {
		if (parked)
			end(parked);
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL), .zone = zone},
		       "the daemon is out of memory");
		return;
	}
	parked->waiter = (struct waiter){
		.tenant = session->tenant,
		.zone = zone,
		.request = *request,
		.grants = parked->grants,
		.n = n,
		.priority = priority,
		.worker = worker->index,
	};
	if (prepare(parked)) {
		end(parked);
		return;
	}
	switch (waits_add(worker->net->waits, &parked->waiter)) {
	case 0:
		worker_press(worker, zone);
		return;
	case WAIT_GRANTED:
		deliver(parked);
		break;
	case WAIT_OVER_LIMIT:
		alloc_refuse(session, tag, HP_OVER_LIMIT, zone, request, n);
		break;
	default:
		alloc_refuse(session, tag, HP_NO_ROOM, zone, request, n);
	}
	end(parked);
}

void parked_fetch(struct worker *worker)
{
	struct waiter *waiter;

	while ((waiter = waits_fetch(worker->net->waits, worker->index))) {
		struct parked *parked =
			(struct parked *)((char *)waiter - offsetof(struct parked, waiter));
		struct session *session = parked->session;

		deliver(parked);
		end(parked);
		session_go_on(session);
	}
}

bool parked_has(struct session *session, const struct hp_range *range)
{
	struct parked *parked;

	TAILQ_FOREACH (parked, &session->parked, link)
		for (size_t i = 0; i < parked->waiter.n; i++)
			if (waits_is_granted(session->worker->net->waits, &parked->waiter) &&
			    range_equal(&parked->grants[i].range, range))
				return true;
	return false;
}

/* Whether it had been granted or not: the client is not told of it, only why (NULL: nothing). */
static void drop(struct parked *parked, Hugepool__V1__Code code, const char *why)
{
	struct session *session = parked->session;

	if (waits_cancel(session->worker->net->waits, &parked->waiter)) {
		adopt(parked);
		alloc_take_back(session, &parked->waiter.request, parked->grants, parked->waiter.n);
	}
	if (why)
		refuse(session, parked->tag, &(struct refusal){.code = code}, "%s", why);
	end(parked);
}

static const char taken_back[] = "the request was taken back while it waited";

void parked_drop(struct session *session, bool answer)
{
	while (!TAILQ_EMPTY(&session->parked))
		drop(TAILQ_FIRST(&session->parked), CODE(CANCELLED), answer ? taken_back : NULL);
}

void parked_refuse(struct session *session)
{
	char why[HP_MESSAGE_MAX];

	snprintf(why, sizeof(why), ALLOC_LEAVING, session->tenant->name);
	while (!TAILQ_EMPTY(&session->parked))
		drop(TAILQ_FIRST(&session->parked), CODE(SHUTTING_DOWN), why);
}

bool parked_look(struct session *session)
{
	struct parked *parked = TAILQ_FIRST(&session->parked), *next;
	bool any = false;

	for (; parked; parked = next) {
		struct waiter *waiter = &parked->waiter;
		struct hp_account_stats stats;

		next = TAILQ_NEXT(parked, link);
		hp_zone_account_stats(waiter->zone->zone, session->tenant->owner, &stats);
		if (waits_blocks(waiter->zone, &waiter->request, waiter->n) <= stats.limit_blocks)
			continue;
		any = true;
		if (waits_cancel(session->worker->net->waits, waiter))
			deliver(parked);
		else
			alloc_refuse(session, parked->tag, HP_OVER_LIMIT, waiter->zone,
				     &waiter->request, waiter->n);
		end(parked);
	}
	return any;
}

void request_cancel(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Cancel *cancel = (const Hugepool__V1__Cancel *)message;
	struct parked *parked;

	TAILQ_FOREACH (parked, &session->parked, link)
		if (parked->tag == cancel->request_tag)
			break;
	if (!parked) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "request_tag: no request %u of this session waits", cancel->request_tag);
		return;
	}
	drop(parked, CODE(CANCELLED), taken_back);
	reply_done(session, tag);
}
