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

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	char name[CLI_TEXT_MAX], age[CLI_AGE_MAX], size[CLI_SIZE_MAX];

	(void)unused;
	for (size_t i = 0; i < reply->n_leases; i++) {
		const Hugepool__V1__Lease *lease = reply->leases[i];
		const Hugepool__V1__Zone *zone;
		struct hp_wire_range range;

		if (lease->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(lease->range, &range) < 0)
			continue;
		zone = find_zone(userdata, range.zone);
		printf("%-12s %10u %8u %10s %10u %7" PRIu64 "  %s%s\n",
		       zone ? cli_text(name, zone->name) : "?", range.page, range.pages,
		       cli_size(size, range.pages * (zone ? zone->page_size : 0)), range.generation,
		       lease->session, cli_age(age, lease->age_ms),
		       lease->revoked ? "  revoked" : "");
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
