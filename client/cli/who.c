/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl who: whoever uses huge pages, with how much: holders of leases by process; what is kept
 * for a tenant or from others without a lease (idle, being recycled, in quarantine); and what of the
 * machine's huge pages others than hugepool have.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* Bytes of one holder in one zone. */
struct holding {
	uint8_t zone;
	uint32_t owner;
	uint64_t session;  /* 0: none */
	const char *state; /* a constant */
	uint64_t bytes, leases, age_ms;
	char reason[128]; /* of the oldest part */
};

struct who {
	struct cli_zones zones;
	struct cli_owners owners;
	struct cli_sessions sessions;
	struct holding *holdings;
	size_t nr, room;
};

/* --- gathering -------------------------------------------------------------------------------- */

static struct holding *add(struct who *who)
{
	if (who->nr == who->room) {
		size_t room = who->room ? 2 * who->room : 256;
		struct holding *holdings = reallocarray(who->holdings, room, sizeof(*holdings));

		if (!holdings)
			return NULL;
		who->holdings = holdings;
		who->room = room;
	}
	memset(&who->holdings[who->nr], 0, sizeof(*who->holdings));
	return &who->holdings[who->nr++];
}

static const Hugepool__V1__Zone *zone_of(const struct who *who, uint32_t id)
{
	for (size_t i = 0; i < who->zones.nr; i++)
		if (who->zones.zones[i].id == id)
			return &who->zones.zones[i];
	return NULL;
}

static const char *lease_state(const Hugepool__V1__Lease *lease, const struct cli_session *session)
{
	if (lease->revoked)
		return "revoked";
	if (lease->shared)
		return "shared";
	return session ? cli_session_state_name(session->state) : "leased";
}

static int add_leases(void *userdata, const Hugepool__V1__Zone *unused,
		      const Hugepool__V1__ListReply *reply)
{
	struct who *who = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_leases; i++) {
		const Hugepool__V1__Lease *lease = reply->leases[i];
		const struct cli_session *session =
			cli_sessions_find(&who->sessions, lease->session);
		const Hugepool__V1__Zone *zone;
		struct hp_wire_range range;
		struct holding *to;

		if (lease->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(lease->range, &range) < 0)
			continue;
		to = add(who);
		if (!to)
			return -ENOMEM;
		zone = zone_of(who, range.zone);
		to->zone = range.zone;
		to->owner = session ? session->owner : lease->owner;
		to->session = lease->session;
		to->state = lease_state(lease, session);
		to->bytes = range.pages * (zone ? zone->page_size : 0);
		to->leases = 1;
		to->age_ms = lease->age_ms;
	}
	return 0;
}

/* What a tenant is charged for without a lease in it; NULL: nothing. */
static const char *kept_state(Hugepool__V1__BlockState state)
{
	switch (state) {
	case HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_IDLE:
		return "idle";
	case HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_ISOLATED:
		return "recycling";
	case HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_QUARANTINED:
		return "quarantined";
	default:
		return NULL;
	}
}

static int add_blocks(void *userdata, const Hugepool__V1__Zone *zone,
		      const Hugepool__V1__ListReply *reply)
{
	struct who *who = userdata;

	for (size_t i = 0; i < reply->n_blocks; i++) {
		const Hugepool__V1__Block *block = reply->blocks[i];
		const Hugepool__V1__Zone *full = zone_of(who, zone->id);
		const char *state = kept_state(block->state);
		struct holding *to = state ? add(who) : NULL;
		char text[CLI_TEXT_MAX];

		if (!state)
			continue;
		if (!to)
			return -ENOMEM;
		to->zone = (uint8_t)zone->id;
		to->owner = block->owner;
		to->state = state;
		to->bytes = full ? full->block_size : 0;
		to->age_ms = block->age_ms;
		(void)snprintf(to->reason, sizeof(to->reason), "%.*s", (int)sizeof(to->reason) - 1,
			       cli_text(text, block->reason));
	}
	return 0;
}

#define COMPARE(x, y)                              \
	do {                                       \
		if ((x) != (y))                    \
			return (x) < (y) ? -1 : 1; \
	} while (0)

static int by_holder(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;

	COMPARE(x->owner, y->owner);
	COMPARE(x->session, y->session);
	COMPARE(x->zone, y->zone);
	return strcmp(x->state, y->state);
}

static int by_bytes(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;

	COMPARE(y->bytes, x->bytes);
	return by_holder(a, b);
}

/* All of one holder in one zone becomes one, as old as the oldest part; the largest first. */
static void merge(struct who *who)
{
	size_t n = 0;

	if (!who->nr)
		return;
	qsort(who->holdings, who->nr, sizeof(*who->holdings), by_holder);
	for (size_t i = 1; i < who->nr; i++) {
		struct holding *to = &who->holdings[n], *from = &who->holdings[i];

		if (by_holder(to, from) != 0) {
			who->holdings[++n] = *from;
			continue;
		}
		to->bytes += from->bytes;
		to->leases += from->leases;
		if (from->age_ms > to->age_ms) {
			to->age_ms = from->age_ms;
			memcpy(to->reason, from->reason, sizeof(to->reason));
		}
	}
	who->nr = n + 1;
	qsort(who->holdings, who->nr, sizeof(*who->holdings), by_bytes);
}

static int gather(struct cli *cli, struct who *who)
{
	int r = cli_zones_load(cli, &who->zones);

	if (r == 0)
		r = cli_owners_load(cli, &who->owners);
	if (r == 0)
		r = cli_sessions_load(cli, &who->sessions);
	if (r == 0)
		r = cli_list(cli, LIST_WHAT(LEASES), add_leases, who);
	if (r == 0)
		r = cli_list_zones(cli, LIST_WHAT(BLOCKS), add_blocks, who);
	if (r == 0)
		merge(who);
	return r;
}

/* --- showing ---------------------------------------------------------------------------------- */

static json_t *holder_json(const struct who *who, const struct holding *from)
{
	const struct cli_session *session = cli_sessions_find(&who->sessions, from->session);
	const Hugepool__V1__Zone *zone = zone_of(who, from->zone);
	char name[CLI_TEXT_MAX];

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:s, s:I, s:s}", "tenant",
			 cli_owners_name(&who->owners, from->owner), "session",
			 from->session ? json_integer((json_int_t)from->session) : json_null(),
			 "uid", session ? json_integer(session->uid) : json_null(), "pid",
			 session ? json_integer(session->pid) : json_null(), "command",
			 session ? json_string(session->command) : json_null(), "zone",
			 zone ? cli_text(name, zone->name) : "?", "bytes", (json_int_t)from->bytes,
			 "leases", (json_int_t)from->leases, "state", from->state, "age_ms",
			 (json_int_t)from->age_ms, "reason", from->reason);
}

static int show_json(const struct who *who, json_t *machine)
{
	json_t *holders = json_array();

	for (size_t i = 0; holders && i < who->nr; i++) {
		if (json_array_append_new(holders, holder_json(who, &who->holdings[i])) < 0) {
			json_decref(holders);
			holders = NULL;
		}
	}
	return cli_print_json(json_pack("{s:o, s:O}", "holders", holders, "machine", machine));
}

static void print_holders(const struct who *who)
{
	char name[CLI_TEXT_MAX], size[CLI_SIZE_MAX], age[CLI_AGE_MAX];

	printf("%-12s %6s %7s  %-15s  %-12s %10s  %-11s  %-14s %s\n", "TENANT", "UID", "PID",
	       "COMMAND", "ZONE", "BYTES", "STATE", "SINCE", "REASON");
	for (size_t i = 0; i < who->nr; i++) {
		const struct holding *from = &who->holdings[i];
		const struct cli_session *session =
			cli_sessions_find(&who->sessions, from->session);
		const Hugepool__V1__Zone *zone = zone_of(who, from->zone);
		char uid[16] = "-", pid[16] = "-";

		if (session) {
			(void)snprintf(uid, sizeof(uid), "%u", session->uid);
			(void)snprintf(pid, sizeof(pid), "%u", session->pid);
		}
		printf("%-12s %6s %7s  %-15s  %-12s %10s  %-11s  %-14s %s\n",
		       cli_owners_name(&who->owners, from->owner), uid, pid,
		       session ? session->command : "-", zone ? cli_text(name, zone->name) : "?",
		       cli_size(size, from->bytes), from->state, cli_age(age, from->age_ms),
		       from->reason);
	}
}

static uint64_t figure(const json_t *row, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(row, name));
}

static void print_outside(const json_t *machine)
{
	const json_t *processes = json_object_get(machine, "processes"),
		     *files = json_object_get(machine, "files"), *row;
	char size[CLI_SIZE_MAX], page[CLI_SIZE_MAX];
	size_t i;

	printf("\noutside hugepool:\n%6s %7s  %-15s  %8s %10s\n", "UID", "PID", "COMMAND", "PAGE",
	       "BYTES");
	json_array_foreach(processes, i, row)
		printf("%6" PRIu64 " %7" PRIu64 "  %-15s  %8s %10s\n", figure(row, "uid"),
		       figure(row, "pid"), json_string_value(json_object_get(row, "command")),
		       figure(row, "page_size") ? cli_size(page, figure(row, "page_size")) : "?",
		       cli_size(size, figure(row, "bytes")));
	json_array_foreach(files, i, row) printf(
		"%6" PRIu64 " %7s  %-15s  %8s %10s  %s\n", figure(row, "uid"), "-", "(file)",
		cli_size(page, figure(row, "page_size")), cli_size(size, figure(row, "bytes")),
		json_string_value(json_object_get(row, "path")));
	if (figure(machine, "unreadable"))
		printf("%" PRIu64
		       " could not be looked into, for which one has to be root: of their bytes some may be hugepool's\n",
		       figure(machine, "unreadable"));
}

static void print_machine(const json_t *machine)
{
	const json_t *row;
	char size[CLI_SIZE_MAX];
	size_t i;

	printf("\nthis machine:\n%8s %10s %10s %10s %10s\n", "PAGE", "PAGES", "FREE", "RESERVED",
	       "SURPLUS");
	json_array_foreach(json_object_get(machine, "pages"), i, row)
		printf("%8s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
		       cli_size(size, figure(row, "page_size")), figure(row, "pages"),
		       figure(row, "free"), figure(row, "reserved"), figure(row, "surplus"));
}

static int ask_for_daemon(struct cli *cli, pid_t *ret)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	const ProtobufCMessage *message;
	int r = cli_ask(cli, TYPE(STATS), &empty.base, TYPE(STATS_REPLY), &message);

	if (r == 0)
		*ret = (pid_t)((const Hugepool__V1__StatsReply *)message)->pid;
	return r;
}

static int show(struct cli *cli, struct who *who)
{
	json_t *machine;
	pid_t daemon;
	int r;

	r = ask_for_daemon(cli, &daemon);
	if (r == 0)
		r = gather(cli, who);
	if (r < 0)
		return cli_fail(cli, r);
	machine = cli_machine(daemon, &who->sessions);
	if (!machine)
		return cli_fail(cli, -ENOMEM);
	if (cli->json) {
		r = show_json(who, machine);
	} else {
		print_holders(who);
		print_outside(machine);
		print_machine(machine);
	}
	json_decref(machine);
	return r;
}

int verb_who(struct cli *cli)
{
	struct who who = {.nr = 0};
	int r = show(cli, &who);

	cli_sessions_free(&who.sessions);
	free(who.holdings);
	return r;
}
