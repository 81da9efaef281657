/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl leases: every range that is out: where it lies, whose it is, since when. */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct known {
	struct cli_zones zones;
	struct cli_owners owners;
	struct cli_sessions sessions;
};

static const Hugepool__V1__Zone *find_zone(const struct cli_zones *zones, uint8_t id)
{
	for (size_t i = 0; i < zones->nr; i++)
		if (zones->zones[i].id == id)
			return &zones->zones[i];
	return NULL;
}

/* A shared range has as many holders as are attached to it. */
static const char *holder(char buffer[24], const Hugepool__V1__Lease *lease)
{
	if (lease->shared)
		return "shared";
	(void)snprintf(buffer, 24, "%" PRIu64, lease->session);
	return buffer;
}

static void print_shared(const Hugepool__V1__Lease *lease)
{
	char name[CLI_TEXT_MAX];

	if (lease->share.len)
		printf("  as %s", cli_text(name, lease->share));
	else
		printf("  not published");
	printf(", %u attached, %u of them to read only", lease->attachments, lease->readers);
}

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	char name[CLI_TEXT_MAX], age[CLI_AGE_MAX], size[CLI_SIZE_MAX], session[24];
	const struct known *known = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_leases; i++) {
		const Hugepool__V1__Lease *lease = reply->leases[i];
		const Hugepool__V1__Zone *zone;
		const struct cli_session *of;
		struct hp_wire_range range;

		if (lease->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(lease->range, &range) < 0)
			continue;
		zone = find_zone(&known->zones, range.zone);
		of = cli_sessions_find(&known->sessions, lease->session);
		printf("%-12s %10u %8u %10s %10u %7s  %-12s %7u  %-15s  %s%s",
		       zone ? cli_text(name, zone->name) : "?", range.page, range.pages,
		       cli_size(size, range.pages * (zone ? zone->page_size : 0)), range.generation,
		       holder(session, lease),
		       cli_owners_name(&known->owners, of ? of->owner : lease->owner),
		       of ? of->pid : 0, of ? of->command : "-", cli_age(age, lease->age_ms),
		       lease->revoked ? "  revoked" : "");
		if (lease->shared)
			print_shared(lease);
		putchar('\n');
	}
	return 0;
}

/* Whose it is, beside what the daemon says of the range. */
static int complete(void *userdata, json_t *row)
{
	const struct known *known = userdata;
	const struct cli_session *of = cli_sessions_find(
		&known->sessions, (uint64_t)json_integer_value(json_object_get(row, "session")));
	uint32_t owner =
		of ? of->owner : (uint32_t)json_integer_value(json_object_get(row, "owner"));
	json_t *holder = json_pack("{s:s, s:i}", "tenant", cli_owners_name(&known->owners, owner),
				   "owner", (int)owner);
	int r = holder ? 0 : -ENOMEM;

	if (r == 0 && of)
		r = json_object_update_new(
			holder, json_pack("{s:i, s:I, s:s, s:s}", "pid", (int)of->pid, "uid",
					  (json_int_t)of->uid, "command", of->command, "state",
					  cli_session_state_name(of->state)));
	if (r == 0)
		r = json_object_update(row, holder);
	json_decref(holder);
	return r < 0 ? -ENOMEM : 0;
}

int verb_leases(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(LEASES), "leases", false, print, complete};
	struct known known;
	int r = cli_zones_load(cli, &known.zones);

	if (r == 0)
		r = cli_owners_load(cli, &known.owners);
	if (r == 0)
		r = cli_sessions_load(cli, &known.sessions);
	if (r < 0)
		return cli_fail(cli, r);
	if (!cli->json)
		printf("%-12s %10s %8s %10s %10s %7s  %-12s %7s  %-15s  %s\n", "ZONE", "PAGE",
		       "PAGES", "SIZE", "GENERATION", "SESSION", "TENANT", "PID", "COMMAND",
		       "SINCE");
	r = cli_show_list(cli, &list, &known);
	cli_sessions_free(&known.sessions);
	return r;
}
