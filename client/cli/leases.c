/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl leases: every range that is out: where it lies, whose it is, since when. */
#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

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

	(void)unused;
	for (size_t i = 0; i < reply->n_leases; i++) {
		const Hugepool__V1__Lease *lease = reply->leases[i];
		const Hugepool__V1__Zone *zone;
		struct hp_wire_range range;

		if (lease->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(lease->range, &range) < 0)
			continue;
		zone = find_zone(userdata, range.zone);
		printf("%-12s %10u %8u %10s %10u %7s  %s%s",
		       zone ? cli_text(name, zone->name) : "?", range.page, range.pages,
		       cli_size(size, range.pages * (zone ? zone->page_size : 0)), range.generation,
		       holder(session, lease), cli_age(age, lease->age_ms),
		       lease->revoked ? "  revoked" : "");
		if (lease->shared)
			print_shared(lease);
		putchar('\n');
	}
	return 0;
}

int verb_leases(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(LEASES), "leases", false, print};
	struct cli_zones zones;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	if (!cli->json)
		printf("%-12s %10s %8s %10s %10s %7s  %s\n", "ZONE", "PAGE", "PAGES", "SIZE",
		       "GENERATION", "SESSION", "SINCE");
	return cli_show_list(cli, &list, &zones);
}
