/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client tells what it keeps, and that is all that is kept: so it does not matter which of its last
 * requests were done and which were not. The list comes in as many frames as it needs, sorted, so that
 * one look at each range is enough; each frame is answered by those of its ranges that are the client's
 * indeed; and with the last one, and not before, everything else is freed. A list that was not finished
 * has changed nothing, and a list that is told again frees what is left to be freed.
 *
 * The connection that does this has said HELLO and so has a slot of its own, which holds nothing: it
 * ends when the old one is taken over, by one step under the lock of the table, from whoever kept it.
 */
#include "daemon/net/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/net/blocks.h"
#include "daemon/net/dispatch.h"
#include "daemon/net/reply.h"
#include "daemon/pool/state.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

#define ROOM_FIRST 256 /* ranges */

struct resume {
	struct hp_range *ranges; /* kept, sorted */
	size_t n, room;
	struct hp_range *attached; /* shared ones that are kept */
	size_t nr_attached, attached_room;
	uint64_t end; /* of the last range that was told: zone << 32 | page behind it */
	uint64_t pages[HP_ZONES_MAX]; /* of them */
	struct hp_range *leases;      /* of the slot, sorted, once a part of one was told */
	size_t nr_leases;
	bool only_wholes; /* no parts of leases among them */
};

void resume_drop(struct session *session)
{
	if (!session->resume)
		return;
	free(session->resume->ranges);
	free(session->resume->attached);
	free(session->resume->leases);
	free(session->resume);
	session->resume = NULL;
}

/* --- taking over ------------------------------------------------------------------------------ */

static void refuse_slot(struct session *session, uint16_t tag, int condition)
{
	if (condition == SLOT_CONNECTED)
		refuse(session, tag, &(struct refusal){.code = CODE(BUSY)},
		       "the connection of that session is still there; try again when it is gone");
	else if (condition == SLOT_EXPIRED)
		refuse(session, tag, &(struct refusal){.code = CODE(NO_SESSION)},
		       "it came later than %u ms after its connection broke; what that session holds stays charged until its process ends",
		       session->worker->net->grace_ms);
	else
		refuse(session, tag, &(struct refusal){.code = CODE(NO_SESSION)},
		       "there is no session of that token for this process: it has ended, or never was");
}

/* Whoever waited for the end of the process need not do so any more. */
static void dismiss(struct session *session, unsigned worker, void *keeper)
{
	const struct net *net = session->worker->net;

	if (!keeper)
		return;
	if (worker == session->worker->index)
		session_free(keeper);
	else
		worker_dismiss(net->workers[worker]);
}

/* Return: 0, or -1: refused. */
static int take_over(struct session *session, uint16_t tag, ProtobufCBinaryData token)
{
	const struct net *net = session->worker->net;
	struct slot *own = session->slot, *slot;
	struct resume *resume;
	unsigned worker;
	void *keeper;
	int rc = SLOT_UNKNOWN;

	if (own->leases || session->nr_parked || session->resumed) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "resume is for a connection that has done nothing but say hello");
		return -1;
	}
	resume = calloc(1, sizeof(*resume));
	if (!resume) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the daemon is out of memory");
		return -1;
	}
	if (token.len == SLOT_TOKEN_BYTES)
		rc = slots_resume(net->slots, token.data, session->tenant, &own->process, &slot,
				  &worker, &keeper);
	if (rc) {
		free(resume);
		refuse_slot(session, tag, rc);
		return -1;
	}
	dismiss(session, worker, keeper);
	if (session_change_slot(session, slot)) {
		free(resume);
		slots_break(net->slots, slot, session->worker->index, NULL);
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the daemon is out of memory");
		return -1;
	}
	/* What was taken from it is not on its list, or it will hear that it is not kept. */
	leases_ack_all(net->leases, slot);
	session->resume = resume;
	return 0;
}

static bool is_its_token(const struct session *session, ProtobufCBinaryData token)
{
	return token.len == SLOT_TOKEN_BYTES &&
	       memcmp(token.data, session->slot->token, SLOT_TOKEN_BYTES) == 0;
}

static void begin_list(struct session *session)
{
	struct resume *resume = session->resume;

	resume->n = resume->nr_attached = 0;
	resume->end = 0;
	resume->only_wholes = true;
	memset(resume->pages, 0, sizeof(resume->pages));
	known_deinit(&session->known);
}

/* --- the list --------------------------------------------------------------------------------- */

static int by_place(const void *key, const void *element)
{
	const struct hp_range *part = key, *lease = element;

	if (part->zone != lease->zone)
		return part->zone < lease->zone ? -1 : 1;
	if (part->pfn < lease->pfn)
		return -1;
	return part->pfn - lease->pfn >= lease->pages;
}

/* Is it the slot's, as a whole or as a part? Return: 1, 0 or -ENOMEM. */
static int is_held(struct session *session, const struct hp_range *range)
{
	const struct net *net = session->worker->net;
	struct resume *resume = session->resume;
	struct pool_zone *zone = pool_zone(net->pool, range->zone);
	const struct hp_range *lease;

	if (!zone)
		return 0;
	if (hp_zone_lookup(zone->zone, session->slot->number, range) == 0)
		return 1;
	resume->only_wholes = false;
	if (!resume->leases &&
	    leases_list(net->leases, session->slot, &resume->leases, &resume->nr_leases) < 0)
		return -ENOMEM;
	lease = bsearch(range, resume->leases, resume->nr_leases, sizeof(*lease), by_place);
	return lease && lease->generation == range->generation &&
	       range->pages <= lease->pages - (range->pfn - lease->pfn);
}

static int append(struct hp_range **ranges, size_t *n, size_t *room, const struct hp_range *range)
{
	if (*n == *room) {
		size_t larger = *room ? 2 * *room : ROOM_FIRST;
		struct hp_range *grown = realloc(*ranges, larger * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		*ranges = grown;
		*room = larger;
	}
	(*ranges)[(*n)++] = *range;
	return 0;
}

static int add(struct resume *resume, const struct hp_range *range)
{
	int rc = append(&resume->ranges, &resume->n, &resume->room, range);

	if (rc == 0)
		resume->pages[range->zone] += range->pages;
	return rc;
}

/* Return: 0, or -1: refused. Room for words of the ranges that are kept. */
static int take_ranges(struct session *session, uint16_t tag, const Hugepool__V1__Resume *message,
		       uint64_t *kept, size_t *ret_nr_kept)
{
	size_t n = message->n_ranges / HP_WIRE_RANGE_WORDS;
	struct resume *resume = session->resume;

	*ret_nr_kept = 0;
	for (size_t i = 0; i < n; i++) {
		const uint64_t *words = message->ranges + i * HP_WIRE_RANGE_WORDS;
		struct hp_wire_range wire;
		struct hp_range range;
		uint64_t place;
		int rc;

		if (hp_wire_get_range(words, &wire)) {
			refuse(session, tag,
			       &(struct refusal){.code = CODE(MALFORMED), .index = (uint32_t)i},
			       "range %zu: no pages, or bits set that have no meaning", i);
			return -1;
		}
		place = (uint64_t)wire.zone << 32 | wire.page;
		if (place < resume->end) {
			refuse(session, tag,
			       &(struct refusal){.code = CODE(INVALID), .index = (uint32_t)i},
			       "range %zu (zone %u, page %u) is not behind the one before it; the list begins anew",
			       i, wire.zone, wire.page);
			return -1;
		}
		resume->end = place + wire.pages;
		range = (struct hp_range){
			.pfn = wire.page,
			.pages = wire.pages,
			.generation = wire.generation,
			.zone = wire.zone,
		};
		rc = is_held(session, &range);
		if (rc == 1)
			rc = add(resume, &range) < 0 ? -ENOMEM : 1;
		if (rc < 0) {
			refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
			       "the daemon is out of memory");
			return -1;
		}
		if (rc == 0)
			continue;
		memcpy(kept + *ret_nr_kept, words, HP_WIRE_RANGE_WORDS * sizeof(*words));
		*ret_nr_kept += HP_WIRE_RANGE_WORDS;
	}
	return 0;
}

static bool is_told_again(const struct resume *resume, const struct hp_range *range)
{
	for (size_t i = 0; i < resume->nr_attached; i++)
		if (resume->attached[i].zone == range->zone &&
		    resume->attached[i].pfn == range->pfn)
			return true;
	return false;
}

/* The same for shared ranges, in any order. Those that are kept are put behind. */
static int take_attachments(struct session *session, uint16_t tag,
			    const Hugepool__V1__Resume *message, uint64_t *kept, size_t *nr_kept)
{
	struct resume *resume = session->resume;
	struct shares *shares = session->worker->net->shares;

	for (size_t i = 0; i < message->n_attachments; i += HP_WIRE_RANGE_WORDS) {
		const uint64_t *words = message->attachments + i;
		struct hp_wire_range wire;
		struct hp_range range;

		if (hp_wire_get_range(words, &wire)) {
			refuse(session, tag, &(struct refusal){.code = CODE(MALFORMED)},
			       "attachments: no pages, or bits set that have no meaning");
			return -1;
		}
		range = (struct hp_range){
			.pfn = wire.page,
			.pages = wire.pages,
			.generation = wire.generation,
			.zone = wire.zone,
		};
		if (shares_check(shares, session->slot, &range))
			continue;
		if (is_told_again(resume, &range)) {
			refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
			       "attachments: zone %u, page %u is told twice; the list begins anew",
			       wire.zone, wire.page);
			return -1;
		}
		if (append(&resume->attached, &resume->nr_attached, &resume->attached_room,
			   &range)) {
			refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
			       "the daemon is out of memory");
			return -1;
		}
		memcpy(kept + *nr_kept, words, HP_WIRE_RANGE_WORDS * sizeof(*words));
		*nr_kept += HP_WIRE_RANGE_WORDS;
	}
	return 0;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* What the client has mapped it knows, if it is of this life; otherwise it hears that it is over. */
static int take_known(struct session *session, uint16_t tag, const Hugepool__V1__Blocks *blocks)
{
	const struct pool_zone *zone = pool_zone(session->worker->net->pool, blocks->zone);

	if (!zone) {
		refuse(session, tag, &(struct refusal){.code = CODE(OUT_OF_RANGE)},
		       "known: there is no zone %u", blocks->zone);
		return -1;
	}
	if (known_reserve(&session->known, zone)) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the daemon is out of memory");
		return -1;
	}
	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block wire = hp_wire_get_block(blocks->blocks[i]);

		if (wire.index >= zone->nr_blocks) {
			refuse(session, tag, &(struct refusal){.code = CODE(OUT_OF_RANGE)},
			       "known: block %u, but zone %s has %u", wire.index, zone->name,
			       zone->nr_blocks);
			return -1;
		}
		known_set(&session->known, zone, wire.index, wire.generation);
	}
	return 0;
}

static void tell_retired(struct session *session, const struct pool_zone *zone)
{
	for (uint32_t i = 0; session->known.zone[zone->id] && i < zone->nr_blocks; i++) {
		struct hp_block_word word = hp_zone_block_word(zone->zone, i);
		uint32_t pages;
		uint64_t generation = known_generation(&session->known, zone, i, &pages);

		if (generation && (generation != word.generation ||
				   (word.state != HP_BLOCK_LIVE && word.state != HP_BLOCK_FAILING)))
			reply_retired(session, zone, i, generation);
	}
}

/* Counts the pages, and sends the descriptors that are missing. Return: 0, or -1: refused. */
static int deliver(struct session *session, uint16_t tag)
{
	struct resume *resume = session->resume;
	struct hp_grant *grants = session->worker->scratch.grants;

	for (size_t i = 0, n; i < resume->n; i += n) {
		struct pool_zone *zone =
			pool_zone(session->worker->net->pool, resume->ranges[i].zone);

		for (n = 0; n < HP_RANGES_MAX && i + n < resume->n &&
			    resume->ranges[i + n].zone == zone->id;
		     n++)
			grants[n] = (struct hp_grant){.range = resume->ranges[i + n]};
		if (known_reserve(&session->known, zone)) {
			refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
			       "the daemon is out of memory");
			return -1;
		}
		if (blocks_deliver(session, tag, zone, grants, n, false))
			return -1;
	}
	return 0;
}

/* Likewise, each as it may be used. */
static int deliver_attached(struct session *session, uint16_t tag)
{
	const struct net *net = session->worker->net;
	const struct resume *resume = session->resume;

	for (size_t i = 0; i < resume->nr_attached; i++) {
		const struct hp_grant grant = {.range = resume->attached[i]};
		struct pool_zone *zone = pool_zone(net->pool, grant.range.zone);

		if (known_reserve(&session->known, zone)) {
			refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
			       "the daemon is out of memory");
			return -1;
		}
		if (blocks_deliver(session, tag, zone, &grant, 1,
				   shares_is_read_only(net->shares, session->slot, &grant.range)))
			return -1;
	}
	return 0;
}

/* --- the end of the list ---------------------------------------------------------------------- */

/* Everything that the slot holds was told: there is nothing to free. */
static bool keeps_all(const struct session *session)
{
	const struct resume *resume = session->resume;
	const struct slot *slot = session->slot;
	bool all = resume->only_wholes;

	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		all &= resume->pages[i] == slot->pages[i] && !slot->revoked_pages[i];
	return all;
}

/* Return: 0, or -1: refused. */
static int commit(struct session *session, uint16_t tag)
{
	const struct net *net = session->worker->net;
	struct resume *resume = session->resume;
	int rc = 0;

	leases_ack_all(net->leases, session->slot); /* what was taken is not on the list */
	if (!keeps_all(session))
		rc = leases_keep(net->leases, session->slot, resume->ranges, resume->n);
	if (rc) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the list could not be gone through: %s",
		       rc < 0 ? strerror(-rc) : "a lease changed meanwhile");
		return -1;
	}
	shares_keep(net->shares, session->slot, resume->attached, resume->nr_attached);
	return deliver(session, tag) || deliver_attached(session, tag) ? -1 : 0;
}

static void finish(struct session *session)
{
	struct pool *pool = session->worker->net->pool;

	session->resumed = true;
	if (worker_may_log(session->worker))
		log_info("resumed tenant=%s session=%llu pid=%d leases=%llu", session->tenant->name,
			 (unsigned long long)session->slot->session,
			 (int)session->slot->process.pid,
			 (unsigned long long)session->slot->leases);
	resume_drop(session);
	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		tell_retired(session, pool_zone(pool, i));
}

void request_resume(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Resume *resume = (const Hugepool__V1__Resume *)message;
	Hugepool__V1__Ranges kept = HUGEPOOL__V1__RANGES__INIT;

	if (resume->n_ranges % HP_WIRE_RANGE_WORDS || resume->n_attachments % HP_WIRE_RANGE_WORDS ||
	    (resume->n_ranges + resume->n_attachments) / HP_WIRE_RANGE_WORDS > HP_RANGES_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(MALFORMED), .limit = HP_RANGES_MAX},
		       "ranges: %zu words, attachments: %zu", resume->n_ranges,
		       resume->n_attachments);
		return;
	}
	if (!session->resume) {
		if (take_over(session, tag, resume->token))
			return;
		begin_list(session);
	} else if (!is_its_token(session, resume->token)) {
		refuse_slot(session, tag, SLOT_UNKNOWN);
		return;
	}
	kept.ranges = session->worker->scratch.words;
	if (take_ranges(session, tag, resume, kept.ranges, &kept.n_ranges) ||
	    take_attachments(session, tag, resume, kept.ranges, &kept.n_ranges)) {
		begin_list(session);
		return;
	}
	for (size_t i = 0; i < resume->n_known; i++) {
		if (take_known(session, tag, resume->known[i])) {
			begin_list(session);
			return;
		}
	}
	if (resume->last && commit(session, tag)) {
		begin_list(session);
		return;
	}
	reply(session, TYPE(RESUMED), tag, &kept.base);
	if (resume->last)
		finish(session);
}

/* --- after another daemon --------------------------------------------------------------------- */

struct restoring {
	const struct net *net;
	uint32_t kept, ended;
	int error;
};

/* Its process is gone, or its end had begun: what it held is free. */
static void end(struct restoring *restoring, struct slot *slot)
{
	leases_end(restoring->net->leases, slot);
	restoring->ended++;
}

/* As of a connection that breaks: without anything there is nothing to come back for. */
static bool holds_nothing(const struct slot *slot)
{
	bool nothing = !slot->leases;

	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		nothing &= !slot->pages[i] && !slot->revoked_pages[i];
	return nothing;
}

/* An orphan's process is gone as it is; whoever has its token may come. */
static void restore_slot(struct restoring *restoring, struct slot *slot)
{
	const struct net *net = restoring->net;
	int pidfd = -1, rc = 0;

	if (slot->state == SLOT_CONDEMNED && !holds_nothing(slot))
		rc = process_find(&slot->process, &pidfd);
	if (rc < 0) {
		log_error("taking over: a process cannot be held on to pid=%d error=\"%s\"",
			  (int)slot->process.pid, strerror(-rc));
		restoring->error = rc;
		return;
	}
	if (rc == PROCESS_GONE || slot->state == SLOT_CLOSING || holds_nothing(slot) ||
	    !tenant_is_live(slot->tenant)) {
		if (pidfd >= 0)
			close(pidfd);
		end(restoring, slot);
		return;
	}
	rc = session_restore(net->workers[restoring->kept % net->nr_workers], slot, pidfd);
	if (rc < 0)
		restoring->error = rc;
	restoring->kept++;
}

int resume_restore(const struct net *net)
{
	struct restoring restoring = {.net = net};

	if (!state_is_adopted(pool_state(net->pool)))
		return 0;
	slots_restore(net->slots);
	leases_restore(net->leases);
	shares_restore(net->shares, net->slots);
	for (uint32_t i = 1; i <= HP_SLOTS_MAX && !restoring.error; i++) {
		struct slot *slot = slots_find(net->slots, i);

		if (slot)
			restore_slot(&restoring, slot);
	}
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		tenants_collect(net->tenants, owner);
	if (!restoring.error)
		log_notice("sessions taken over kept=%u ended=%u grace_ms=%u", restoring.kept,
			   restoring.ended, net->grace_ms);
	return restoring.error;
}
