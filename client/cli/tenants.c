/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl tenants: a row for each tenant and zone; who holds how much of what he may have. */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* The figures are lists by zone; one that is too short has nothing. */
static uint64_t at(const uint64_t *figures, size_t n, size_t i)
{
	return i < n ? figures[i] : 0;
}

/* Those with a socket of their own may have none, and that of others is not told. */
static const char *user(char buffer[16], uint32_t uid)
{
	(void)snprintf(buffer, 16, uid == UINT32_MAX ? "-" : "%" PRIu32, uid);
	return buffer;
}

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli_zones *zones = userdata;
	char name[CLI_TEXT_MAX], zone[CLI_TEXT_MAX], sizes[4][CLI_SIZE_MAX], uid[16];

	(void)unused;
	for (size_t i = 0; i < reply->n_tenants; i++) {
		const Hugepool__V1__Tenant *t = reply->tenants[i];

		for (size_t z = 0; z < zones->nr; z++) {
			uint64_t block = zones->zones[z].block_size;

			printf("%-12s %6s %8u %6u  %-12s %10s %10s %10s %10s\n",
			       t->name.len ? cli_text(name, t->name) : "?", user(uid, t->uid),
			       t->sessions, t->shares, cli_text(zone, zones->zones[z].name),
			       cli_size(sizes[0], at(t->held_blocks, t->n_held_blocks, z) * block),
			       cli_size(sizes[1], at(t->leased_pages, t->n_leased_pages, z) *
							  zones->zones[z].page_size),
			       cli_size(sizes[2],
					at(t->limit_blocks, t->n_limit_blocks, z) * block),
			       cli_size(sizes[3],
					at(t->guarantee_blocks, t->n_guarantee_blocks, z) * block));
		}
	}
	return 0;
}

static int complete(void *userdata, json_t *row)
{
	(void)userdata;
	if (json_integer_value(json_object_get(row, "uid")) != UINT32_MAX)
		return 0;
	return json_object_set_new(row, "uid", json_null()) < 0 ? -ENOMEM : 0;
}

int verb_tenants(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(TENANTS), "tenants", false, print, complete};
	struct cli_zones zones;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	if (!cli->json)
		printf("%-12s %6s %8s %6s  %-12s %10s %10s %10s %10s\n", "TENANT", "UID",
		       "SESSIONS", "SHARES", "ZONE", "HELD", "LEASED", "LIMIT", "GUARANTEE");
	return cli_show_list(cli, &list, &zones);
}
