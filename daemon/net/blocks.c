/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grant whose blocks the session does not know yet needs their descriptors first. They are all
 * opened before anything is said, so that a grant that cannot be delivered can be taken back as if
 * it had not been.
 */
#include "daemon/net/blocks.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "daemon/net/dispatch.h"
#include "daemon/net/reply.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

/* --- sending ---------------------------------------------------------------------------------- */

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
static int open_fresh(struct session *session, struct pool_zone *zone, size_t nr_fresh,
		      bool read_only)
{
	struct worker *worker = session->worker;

	for (size_t i = 0; i < nr_fresh; i++) {
		uint32_t block = worker->scratch.fresh[i];
		uint64_t *generation = &worker->scratch.generations[i];
		int fd = read_only ? pool_open_block_read_only(zone, block, generation)
				   : pool_open_block(zone, block, generation);

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

/* Puts into scratch which blocks are not known, and counts the pages of all. */
static size_t take_pages(struct session *session, const struct pool_zone *zone,
			 const struct hp_grant *grants, size_t n)
{
	size_t nr_fresh = 0;

	for (size_t i = 0; i < n; i++)
		known_take(&session->known, zone, grants[i].range.pfn, grants[i].range.pages,
			   session->worker->scratch.fresh, &nr_fresh);
	return nr_fresh;
}

static void give_pages(struct session *session, const struct pool_zone *zone,
		       const struct hp_grant *grants, size_t n)
{
	for (size_t i = 0; i < n; i++)
		known_give(&session->known, zone, grants[i].range.pfn, grants[i].range.pages);
}

int blocks_deliver(struct session *session, uint16_t tag, struct pool_zone *zone,
		   const struct hp_grant *grants, size_t n, bool read_only)
{
	size_t nr_fresh = take_pages(session, zone, grants, n);
	int rc;

	if (!nr_fresh)
		return 0;
	rc = may_owe(session, nr_fresh) ? open_fresh(session, zone, nr_fresh, read_only)
					: -ETOOMANYREFS;
	if (!rc) {
		send_fresh(session, zone, nr_fresh);
		pool_poke(session->worker->net->pool); /* clean stock may have been taken */
		return 0;
	}
	give_pages(session, zone, grants, n);
	if (rc == -ETOOMANYREFS)
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_DESCRIPTORS_OWED_MAX},
		       "descriptors on their way to tenant %s; its programs have to read them first",
		       session->tenant->name);
	else
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL), .zone = zone},
		       "the memory is there, but no descriptor could be opened for it: %s",
		       strerror(-rc));
	return -1;
}

/* --- letting go ------------------------------------------------------------------------------- */

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
			       "block %u: generation %llu was not sent to this session, or has been released before",
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
