/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REVOKE is answered when it is over, and a timer looks after it until then: see
 * daemon/tenancy/revoke.h. It is the admin's own wish and ends with his connection; nothing is taken
 * by force for somebody who is not there any more.
 */
#include "daemon/net/revoke.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/net/dispatch.h"
#include "daemon/net/reply.h"
#include "daemon/net/turn.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

struct revoking {
	TAILQ_ENTRY(revoking) link; /* session->revoking */
	struct session *session;
	uint16_t tag;
	struct revocation *revocation;
	struct event timer;
	char what[HP_NAME_MAX + 32]; /* for the log */
};

static void end(struct revoking *revoking)
{
	evtimer_del(&revoking->timer);
	TAILQ_REMOVE(&revoking->session->revoking, revoking, link);
	revoking->session->nr_revoking--;
	revocation_free(revoking->revocation);
	free(revoking);
}

void revoking_drop(struct session *session)
{
	struct revoking *revoking;

	while ((revoking = TAILQ_FIRST(&session->revoking))) {
		log_notice("revocation called off: the admin is gone what=\"%s\"", revoking->what);
		end(revoking);
	}
}

/* --- the reply -------------------------------------------------------------------------------- */

struct rows {
	Hugepool__V1__Lease lease[REVOCATION_ROWS_MAX], *pointer[REVOCATION_ROWS_MAX];
	uint64_t words[REVOCATION_ROWS_MAX * HP_WIRE_RANGE_WORDS];
};

/* Return: how many rows there are. */
static size_t fill_rows(struct rows *rows, const struct revocation_row *from, uint32_t n)
{
	if (n > REVOCATION_ROWS_MAX)
		n = REVOCATION_ROWS_MAX;
	for (uint32_t i = 0; i < n; i++) {
		const struct hp_range *range = &from[i].range;
		const struct hp_wire_range wire = {
			.page = range->pfn,
			.pages = range->pages,
			.generation = range->generation,
			.zone = range->zone,
		};
		Hugepool__V1__Lease *lease = rows->pointer[i] = &rows->lease[i];

		hugepool__v1__lease__init(lease);
		lease->range = rows->words + i * HP_WIRE_RANGE_WORDS;
		lease->n_range = HP_WIRE_RANGE_WORDS;
		hp_wire_put_range(lease->range, &wire);
		lease->session = from[i].session;
		lease->age_ms = from[i].age_ms;
	}
	return n;
}

static void answer(const struct revoking *revoking)
{
	Hugepool__V1__RevokeReply message = HUGEPOOL__V1__REVOKE_REPLY__INIT;
	struct revocation_result result;
	struct rows hit, left;

	revocation_get_result(revoking->revocation, &result);
	log_notice(
		"revoked what=\"%s\" returned_pages=%llu taken_pages=%llu left_pages=%llu others_hit=%u",
		revoking->what, (unsigned long long)result.acknowledged_pages,
		(unsigned long long)result.forced_pages, (unsigned long long)result.left_pages,
		result.nr_hit);
	message.acknowledged_pages = result.acknowledged_pages;
	message.forced_pages = result.forced_pages;
	message.left_pages = result.left_pages;
	message.n_hit = fill_rows(&hit, result.hit, result.nr_hit);
	message.hit = hit.pointer;
	message.nr_hit = result.nr_hit;
	message.n_left = fill_rows(&left, result.left, result.nr_left);
	message.left = left.pointer;
	message.nr_left = result.nr_left;
	reply(revoking->session, TYPE(REVOKE_REPLY), revoking->tag, &message.base);
}

/* Return: whether it is over, and has been answered. */
static bool step(struct revoking *revoking)
{
	uint32_t ms = revocation_step(revoking->revocation);
	struct timeval tv = {
		.tv_sec = ms / 1000,
		.tv_usec = (suseconds_t)(ms % 1000) * 1000,
	};

	if (ms && evtimer_add(&revoking->timer, &tv) == 0)
		return false;
	answer(revoking);
	end(revoking);
	return true;
}

static void on_timer(evutil_socket_t fd, short what, void *userdata)
{
	struct revoking *revoking = userdata;
	struct session *session = revoking->session;
	struct worker *worker = session->worker;

	(void)fd;
	(void)what;
	turn_begin(&worker->turn);
	if (step(revoking))
		session_go_on(session);
	turn_end(&worker->turn);
}

/* --- the request ------------------------------------------------------------------------------ */

struct asked {
	struct revoke_what what;
	char text[HP_NAME_MAX + 32];
	struct revoke_block blocks[HP_ZONE_BLOCKS_MAX];
};

static int refuse_field(struct session *session, uint16_t tag, const char *sentence)
{
	refuse(session, tag, &(struct refusal){.code = CODE(INVALID)}, "%s", sentence);
	return -1;
}

struct named {
	ProtobufCBinaryData name;
	uint32_t owner; /* 0: not found */
};

static int compare_name(void *userdata, const struct tenant *tenant)
{
	struct named *named = userdata;
	const char *name = tenant->name;

	if (strlen(name) != named->name.len || memcmp(name, named->name.data, named->name.len) != 0)
		return 0;
	named->owner = tenant->owner;
	return 1;
}

static int get_tenant(struct session *session, uint16_t tag, ProtobufCBinaryData name,
		      struct asked *ret)
{
	struct named named = {.name = name};
	int length = name.len < HP_NAME_MAX ? (int)name.len : HP_NAME_MAX;

	tenants_look(session->worker->net->tenants, 1, compare_name, &named);
	if (!named.owner) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "tenant: there is no tenant %.*s; hugepoolctl tenants --admin lists them",
		       length, (const char *)name.data);
		return -1;
	}
	ret->what.by = REVOKE_OWNER;
	ret->what.owner = named.owner;
	(void)snprintf(ret->text, sizeof(ret->text), "tenant %.*s", length,
		       (const char *)name.data);
	return 0;
}

static int get_blocks(struct session *session, uint16_t tag, const Hugepool__V1__Revoke *revoke,
		      struct asked *ret)
{
	struct pool_zone *zone = pool_find_zone(
		session->worker->net->pool, revoke->zone.len ? (const char *)revoke->zone.data : "",
		revoke->zone.len, 0);

	if (!zone)
		return refuse_field(session, tag, "zone: there is no such zone");
	if (revoke->n_blocks > HP_ZONE_BLOCKS_MAX)
		return refuse_field(session, tag, "blocks: more than any zone has");
	for (size_t i = 0; i < revoke->n_blocks; i++) {
		struct hp_wire_block wire = hp_wire_get_block(revoke->blocks[i]);

		ret->blocks[i] = (struct revoke_block){wire.index, wire.generation};
	}
	ret->what.by = REVOKE_BLOCKS;
	ret->what.zone = zone;
	ret->what.blocks = ret->blocks;
	ret->what.n = revoke->n_blocks;
	(void)snprintf(ret->text, sizeof(ret->text), "%zu blocks of zone %s", ret->what.n,
		       zone->name);
	return 0;
}

static int get_ranges(struct session *session, uint16_t tag, const Hugepool__V1__Revoke *revoke,
		      struct asked *ret)
{
	struct hp_range *ranges = session->worker->scratch.ranges;
	size_t n = revoke->n_ranges / HP_WIRE_RANGE_WORDS;
	struct hp_wire_range wire;

	if (revoke->n_ranges % HP_WIRE_RANGE_WORDS || n > HP_RANGES_MAX)
		return refuse_field(session, tag, "ranges: not 1 to 256 pairs of words");
	for (size_t i = 0; i < n; i++) {
		if (hp_wire_get_range(revoke->ranges + i * HP_WIRE_RANGE_WORDS, &wire))
			return refuse_field(session, tag,
					    "ranges: no pages, or bits set that have no meaning");
		ranges[i] = (struct hp_range){
			.pfn = wire.page,
			.pages = wire.pages,
			.generation = wire.generation,
			.zone = wire.zone,
		};
	}
	ret->what.by = REVOKE_RANGES;
	ret->what.ranges = ranges;
	ret->what.n = n;
	(void)snprintf(ret->text, sizeof(ret->text), "%zu leases", n);
	return 0;
}

/* Return: 0, or -1: refused. */
static int get_what(struct session *session, uint16_t tag, const Hugepool__V1__Revoke *revoke,
		    struct asked *ret)
{
	ret->what = (struct revoke_what){.n = 0};
	if (!!revoke->n_ranges + !!revoke->session + !!revoke->tenant.len + !!revoke->n_blocks != 1)
		return refuse_field(session, tag,
				    "exactly one of ranges, session, tenant and blocks is revoked");
	if (revoke->deadline_ms > HP_DEADLINE_MAX_MS)
		return refuse_field(session, tag, "deadline_ms: at most 86400000");
	if (session->nr_revoking >= HP_REVOCATIONS_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_REVOCATIONS_MAX},
		       "revocations of this connection are under way already");
		return -1;
	}
	if (revoke->tenant.len)
		return get_tenant(session, tag, revoke->tenant, ret);
	if (revoke->n_blocks)
		return get_blocks(session, tag, revoke, ret);
	if (revoke->n_ranges)
		return get_ranges(session, tag, revoke, ret);
	ret->what.by = REVOKE_SESSION;
	ret->what.session = revoke->session;
	(void)snprintf(ret->text, sizeof(ret->text), "session %llu",
		       (unsigned long long)revoke->session);
	return 0;
}

static void refuse_condition(struct session *session, uint16_t tag, int condition, const char *what,
			     size_t bad)
{
	struct refusal refusal = {.code = CODE(INVALID), .index = (uint32_t)bad};

	if (condition == REVOKE_NO_SESSION) {
		refuse(session, tag, &refusal,
		       "there is no %s; hugepoolctl sessions --admin lists them", what);
	} else if (condition == REVOKE_NO_LEASE) {
		refuse(session, tag, &refusal,
		       "range %zu: no lease, or named twice; hugepoolctl leases --admin lists them",
		       bad);
	} else if (condition == REVOKE_NO_BLOCK) {
		refuse(session, tag, &refusal,
		       "block %zu: the zone has no such block, or it is in another life; hugepoolctl blocks --admin lists them",
		       bad);
	} else {
		refusal.code = CODE(INTERNAL);
		refuse(session, tag, &refusal, "the daemon is out of memory");
	}
}

void request_revoke(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Revoke *revoke = (const Hugepool__V1__Revoke *)message;
	struct revoking *revoking;
	struct asked asked;
	size_t bad = 0;
	int rc = -ENOMEM;

	if (get_what(session, tag, revoke, &asked))
		return;
	revoking = calloc(1, sizeof(*revoking));
	if (revoking)
		rc = revocation_new(&revoking->revocation, session->worker->net->revokes,
				    &asked.what, revoke->deadline_ms, revoke->force, &bad);
	if (rc) {
		free(revoking);
		refuse_condition(session, tag, rc, asked.text, bad);
		return;
	}
	revoking->session = session;
	revoking->tag = tag;
	memcpy(revoking->what, asked.text, sizeof(revoking->what));
	evtimer_assign(&revoking->timer, session->worker->base, on_timer, revoking);
	TAILQ_INSERT_TAIL(&session->revoking, revoking, link);
	session->nr_revoking++;
	step(revoking);
}
