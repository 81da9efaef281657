/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first and the last word of a session. Who the client is was known when it connected; what
 * costs a descriptor and a slot is spent only on those who say something.
 */
#include "daemon/net/alloc.h"
#include "daemon/net/dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/net/reply.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

static ProtobufCBinaryData bytes_of(const void *data, size_t n)
{
	return (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)data};
}

/* What a client needs to use the zone; the rest is told by LIST. */
static void fill_zone(Hugepool__V1__Zone *row, const struct pool_zone *zone,
		      const struct tenant *tenant)
{
	struct tenant_figures figures;

	tenant_get_figures(tenant, zone, &figures);
	hugepool__v1__zone__init(row);
	row->id = zone->id;
	row->name = bytes_of(zone->name, strlen(zone->name));
	row->page_size = zone->page_bytes;
	row->block_size = zone->block_bytes;
	row->node = zone->config->node;
	row->backing = reply_backing(zone);
	row->pages = hp_zone_get_config(zone->zone)->nr_pages;
	row->blocks = zone->nr_blocks;
	row->leasable = figures.leasable_pages;
	row->largest = figures.largest_pages;
	row->limit_blocks = figures.limit_blocks;
	row->guarantee_blocks = figures.guarantee_blocks;
	row->held_blocks = figures.held_blocks;
}

static void welcome(struct session *session, uint16_t tag)
{
	struct pool *pool = session->worker->net->pool;
	Hugepool__V1__Welcome message = HUGEPOOL__V1__WELCOME__INIT;
	Hugepool__V1__Zone rows[HP_ZONES_MAX], *zones[HP_ZONES_MAX];

	for (size_t i = 0; i < pool_nr_zones(pool); i++) {
		zones[i] = &rows[i];
		fill_zone(zones[i], pool_zone(pool, i), session->tenant);
	}
	message.protocol = HP_PROTOCOL_VERSION;
	message.server = bytes_of(HUGEPOOL_VERSION, sizeof(HUGEPOOL_VERSION) - 1);
	message.max_ranges = HP_RANGES_MAX;
	message.max_frame = HP_FRAME_PAYLOAD_MAX;
	message.n_zones = pool_nr_zones(pool);
	message.zones = zones;
	if (session->slot) {
		message.grace_ms = session->worker->net->grace_ms;
		message.durable = pool_keeps_leases(pool);
		message.tenant = bytes_of(session->tenant->name, strlen(session->tenant->name));
		message.session = session->slot->session;
		message.token = bytes_of(session->slot->token, SLOT_TOKEN_BYTES);
	}
	reply(session, TYPE(WELCOME), tag, &message.base);
}

/* Who it is, and a slot for it. Return: 0, or -1: refused. */
static int identify(struct session *session, uint16_t tag, const char *name, struct slot **ret_slot,
		    int *ret_pidfd)
{
	struct process process;
	int rc = process_of_peer(session->fd, &process, ret_pidfd);

	if (rc > 0) {
		refuse(session, tag, &(struct refusal){.code = CODE(PERMISSION)},
		       rc == PROCESS_GONE
			       ? "the process that connected is gone"
			       : "the process is in a pid namespace that this daemon cannot see into");
		return -1;
	}
	if (rc < 0) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the daemon cannot hold on to the process: %s", strerror(-rc));
		return -1;
	}
	rc = slots_open(session->worker->net->slots, session->tenant, &process, name, ret_slot);
	if (!rc)
		return 0;
	close(*ret_pidfd);
	if (rc == SLOT_TOO_MANY)
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_SLOTS_MAX},
		       "sessions in all, broken ones of living processes included");
	else if (rc == SLOT_TOO_MANY_OF_TENANT)
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY), .limit = HP_SLOTS_PER_TENANT_MAX},
		       "sessions of tenant %s, broken ones of living processes included",
		       session->tenant->name);
	else
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "no session can be made: %s", strerror(-rc));
	return -1;
}

void request_hello(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const Hugepool__V1__Hello *hello = (const Hugepool__V1__Hello *)message;
	char name[HP_NAME_MAX + 1];
	struct slot *slot = NULL;
	int pidfd = -1;

	if (hello->protocol != HP_PROTOCOL_VERSION) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(VERSION), .limit = HP_PROTOCOL_VERSION},
		       "protocol %u was asked for, this daemon speaks %u", hello->protocol,
		       HP_PROTOCOL_VERSION);
		return;
	}
	if (hello->name.len > HP_NAME_MAX) {
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID), .limit = HP_NAME_MAX},
		       "name: longer than %u bytes", HP_NAME_MAX);
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)hello->name.len,
		 hello->name.len ? (const char *)hello->name.data : "");
	if (session->tenant && !tenant_is_live(session->tenant)) {
		refuse(session, tag, &(struct refusal){.code = CODE(SHUTTING_DOWN)}, ALLOC_LEAVING,
		       session->tenant->name);
		return;
	}
	if (session->kind == SOCKET_DATA && identify(session, tag, name, &slot, &pidfd))
		return;
	session_serve(session, slot, pidfd);
	welcome(session, tag);
}

void request_goodbye(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	(void)message;
	session_goodbye(session);
	reply_done(session, tag);
}
