/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl blocks: every pageblock, and why it is in the state it is in. */
#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

static const char *state_name(Hugepool__V1__BlockState state)
{
	static const char *const names[] = {
		"unknown", "offline",  "clean",	      "live", "idle",
		"failing", "isolated", "quarantined", "lent",
	};

	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : names[0];
}

static int print(void *userdata, const Hugepool__V1__Zone *zone,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli_owners *owners = userdata;
	char name[CLI_TEXT_MAX], reason[CLI_TEXT_MAX], age[CLI_AGE_MAX];

	for (size_t i = 0; i < reply->n_blocks; i++) {
		const Hugepool__V1__Block *block = reply->blocks[i];

		printf("%-12s %5u  %-11s  %-12s %10" PRIu64 " %6u %6u  %-14s %s\n",
		       cli_text(name, zone->name), block->index, state_name(block->state),
		       cli_owners_name(owners, block->owner), block->generation, block->pages,
		       block->free_pages, cli_age(age, block->age_ms),
		       cli_text(reason, block->reason));
	}
	return 0;
}

int verb_blocks(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(BLOCKS), "blocks", true, print, NULL};
	struct cli_owners owners;

	cli_owners_load(cli, &owners);
	if (!cli->json)
		printf("%-12s %5s  %-11s  %-12s %10s %6s %6s  %-14s %s\n", "ZONE", "BLOCK", "STATE",
		       "TENANT", "GENERATION", "PAGES", "FREE", "SINCE", "REASON");
	return cli_show_list(cli, &list, &owners);
}
