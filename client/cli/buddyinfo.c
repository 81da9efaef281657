/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl buddyinfo: laid out like /proc/buddyinfo: a row for each owner, a column for each
 * order; the clean blocks are nobody's and stand first.
 */
#include "client/cli/cli.h"

#include <stdio.h>

static int print(void *userdata, const Hugepool__V1__Zone *zone,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli_owners *owners = userdata;
	char node[16], name[CLI_TEXT_MAX];

	for (size_t i = 0; i < reply->n_buddyinfo; i++) {
		const Hugepool__V1__BuddyRow *row = reply->buddyinfo[i];

		printf("Node %s, zone %8s, tenant %12s ", cli_node(node, zone->node),
		       cli_text(name, zone->name),
		       row->owner ? cli_owners_name(owners, row->owner) : "(clean)");
		for (size_t order = 0; order < row->n_free_chunks; order++)
			printf(" %6u", row->free_chunks[order]);
		printf("\n");
	}
	return 0;
}

int verb_buddyinfo(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(BUDDYINFO), "buddyinfo", true, print, NULL};
	struct cli_owners owners;

	cli_owners_load(cli, &owners);
	return cli_show_list(cli, &list, &owners);
}
