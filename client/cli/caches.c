/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl caches: the page caches of the workers, one row for each owner they serve. */
#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

static int print(void *userdata, const Hugepool__V1__Zone *zone,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli_owners *owners = userdata;
	char name[CLI_TEXT_MAX];

	for (size_t i = 0; i < reply->n_caches; i++) {
		const Hugepool__V1__Cache *cache = reply->caches[i];

		printf("%-12s %6u  %-12s %6u %6u %6u %10" PRIu64 " %10" PRIu64 " %10" PRIu64
		       " %10" PRIu64 "\n",
		       cli_text(name, zone->name), cache->worker,
		       cli_owners_name(owners, cache->owner), cache->pages, cache->batch,
		       cache->high, cache->hits, cache->misses, cache->refills, cache->drains);
	}
	return 0;
}

int verb_caches(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(CACHES), "caches", true, print, NULL};
	struct cli_owners owners;

	cli_owners_load(cli, &owners);
	if (!cli->json)
		printf("%-12s %6s  %-12s %6s %6s %6s %10s %10s %10s %10s\n", "ZONE", "WORKER",
		       "TENANT", "PAGES", "BATCH", "HIGH", "HITS", "MISSES", "REFILLS", "DRAINS");
	return cli_show_list(cli, &list, &owners);
}
