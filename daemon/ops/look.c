/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies are put together on the stack of the worker that was asked, from looks only: nothing here
 * changes what it looks at, keeps a copy, or holds more than one lock at a time that it took
 * itself. So a list is a moment's picture row by row, and two pieces of it need not fit together.
 */
#include "daemon/ops/look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ops/rows.h"
#include "daemon/tenancy/clock.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* --- stats ------------------------------------------------------------------------------------ */

static int look_stats(void *userdata, const struct tenant *viewer, uint16_t tag, uint8_t *frame)
{
	struct ops *ops = userdata;
	Hugepool__V1__StatsReply message = HUGEPOOL__V1__STATS_REPLY__INIT;
	struct pool_zone_info info;

	for (size_t i = 0; i < ops->nr_workers; i++) {
		const struct worker_counters *counters = &ops->workers[i]->counters;

		message.sessions += ops->workers[i]->connections;
		message.requests += counters->requests;
		message.errors += counters->errors;
		message.broken += counters->broken;
		if (ops->workers[i]->turn.longest_ns > message.longest_turn_ns)
			message.longest_turn_ns = ops->workers[i]->turn.longest_ns;
	}
	for (size_t i = 0; i < pool_nr_zones(ops->net->pool); i++) {
		pool_zone_get_info(pool_zone(ops->net->pool, i), &info);
		message.online_bytes += info.online_bytes;
	}
	message.server.data = (uint8_t *)(uintptr_t)HUGEPOOL_VERSION;
	message.server.len = sizeof(HUGEPOOL_VERSION) - 1;
	message.pid = (uint32_t)getpid();
	message.uptime_ms = clock_now_ms() - ops->started_ms;
	message.workers = (uint32_t)ops->nr_workers;
	message.condemned_sessions = slots_count(ops->net->slots, SLOT_CONDEMNED);
	message.ready = ops->ready;
	message.configured_bytes = ops->configured_bytes;
	message.tenants = tenants_count(ops->net->tenants);
	if (viewer) {
		message.tenant.data = (uint8_t *)(uintptr_t)viewer->name;
		message.tenant.len = strlen(viewer->name);
	}
	return hp_message_pack(frame, TYPE(STATS_REPLY), tag, &message.base);
}

/* --- lists ------------------------------------------------------------------------------------ */

struct list {
	void (*add)(struct rows *rows);
	size_t nr_offset, rows_offset; /* of its repeated field in the reply */
	bool of_zone;
};

#define LIST(name, field, of_zone)                                                   \
	[HUGEPOOL__V1__LIST_WHAT__LIST_WHAT_##                                       \
		name] = {rows_##field, offsetof(Hugepool__V1__ListReply, n_##field), \
			 offsetof(Hugepool__V1__ListReply, field), of_zone}

static const struct list lists[] = {
	LIST(ZONES, zones, false),	  LIST(BLOCKS, blocks, true),
	LIST(BUDDYINFO, buddyinfo, true), LIST(TENANTS, tenants, false),
	LIST(SESSIONS, sessions, false),  LIST(LEASES, leases, false),
	LIST(CACHES, caches, true),
};

static int look_list(void *userdata, const struct tenant *viewer, const Hugepool__V1__List *request,
		     uint16_t tag, uint8_t *frame)
{
	struct ops *ops = userdata;
	Hugepool__V1__ListReply message = HUGEPOOL__V1__LIST_REPLY__INIT;
	const struct list *list;
	struct rows rows;
	void *pointers = rows.rows;

	if ((size_t)request->what >= sizeof(lists) / sizeof(lists[0]) || !lists[request->what].add)
		return -EINVAL;
	list = &lists[request->what];
	rows.ops = ops;
	rows.viewer = viewer;
	rows.zone = pool_zone(ops->net->pool, request->zone);
	rows.cursor = request->cursor;
	rows.next = 0;
	rows.nr = rows.bytes = 0;
	if (list->of_zone && !rows.zone)
		return -ENODEV;

	list->add(&rows);
	message.next = rows.next;
	memcpy((char *)&message + list->nr_offset, &rows.nr, sizeof(rows.nr));
	memcpy((char *)&message + list->rows_offset, &pointers, sizeof(pointers));
	return hp_message_pack(frame, TYPE(LIST_REPLY), tag, &message.base);
}

/* --- check ------------------------------------------------------------------------------------ */

#define CHECK_LOOKS	   3  /* a violation counts if each of them sees it */
#define CHECK_MESSAGES_MAX 24 /* of one look; more are counted only */
#define CHECK_MESSAGE_MAX  256

struct check {
	const char *zone;
	const struct check *before; /* the look before this one, or NULL */
	uint32_t violations;
	size_t nr;
	char text[CHECK_MESSAGES_MAX][CHECK_MESSAGE_MAX];
};

static bool was_seen(const struct check *before, const char *text)
{
	for (size_t i = 0; i < before->nr; i++)
		if (strcmp(before->text[i], text) == 0)
			return true;
	return before->violations > before->nr; /* perhaps among those that were only counted */
}

static void note_violation(void *userdata, const char *message)
{
	struct check *check = userdata;
	char text[CHECK_MESSAGE_MAX];

	snprintf(text, sizeof(text), "zone %s: %s", check->zone, message);
	if (check->before && !was_seen(check->before, text))
		return;
	check->violations++;
	if (check->nr < CHECK_MESSAGES_MAX)
		strcpy(check->text[check->nr++], text);
}

/*
 * The zones are at work while they are looked at, and the check of a zone is exact only at rest: a
 * page on its way from one place to another may look lost. What is wrong stays wrong.
 */
static void look_until_sure(struct pool *pool, struct check looks[2], const struct check **ret)
{
	struct check *now = &looks[0], *before = NULL;

	for (int i = 0; i < CHECK_LOOKS; i++) {
		now = &looks[i % 2];
		now->before = before;
		now->violations = 0;
		now->nr = 0;
		for (size_t z = 0; z < pool_nr_zones(pool); z++) {
			struct pool_zone *zone = pool_zone(pool, z);

			now->zone = zone->name;
			hp_zone_check(zone->zone, note_violation, now);
		}
		if (!now->violations)
			break;
		before = now;
	}
	*ret = now;
}

static int look_check(void *userdata, uint16_t tag, uint8_t *frame)
{
	struct ops *ops = userdata;
	Hugepool__V1__CheckReply message = HUGEPOOL__V1__CHECK_REPLY__INIT;
	ProtobufCBinaryData messages[CHECK_MESSAGES_MAX];
	const struct check *check;
	struct check looks[2];

	look_until_sure(ops->net->pool, looks, &check);
	for (size_t i = 0; i < check->nr; i++)
		messages[i] = (ProtobufCBinaryData){
			.len = strlen(check->text[i]),
			.data = (uint8_t *)(uintptr_t)check->text[i],
		};
	message.violations = check->violations;
	message.n_messages = check->nr;
	message.messages = messages;
	return hp_message_pack(frame, TYPE(CHECK_REPLY), tag, &message.base);
}

struct looks ops_looks(struct ops *ops)
{
	return (struct looks){
		.stats = look_stats,
		.list = look_list,
		.check = look_check,
		.userdata = ops,
	};
}
