/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl quota: sets what is given, then shows what a tenant has and may have in a zone. */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

static ProtobufCBinaryData bytes_of(char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

struct search {
	const char *tenant;
	size_t zone; /* index */
	bool found;
	uint64_t limit, guarantee, held;
};

static uint64_t at(const uint64_t *figures, size_t n, size_t i)
{
	return i < n ? figures[i] : 0;
}

static int look(void *userdata, const Hugepool__V1__Zone *unused,
		const Hugepool__V1__ListReply *reply)
{
	struct search *search = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_tenants; i++) {
		const Hugepool__V1__Tenant *t = reply->tenants[i];

		if (t->name.len != strlen(search->tenant) ||
		    memcmp(t->name.data, search->tenant, t->name.len) != 0)
			continue;
		search->found = true;
		search->limit = at(t->limit_blocks, t->n_limit_blocks, search->zone);
		search->guarantee = at(t->guarantee_blocks, t->n_guarantee_blocks, search->zone);
		search->held = at(t->held_blocks, t->n_held_blocks, search->zone);
	}
	return 0;
}

static int no_such(struct cli *cli, int error, const char *what, const char *name)
{
	cli->error = (struct hugepool_error){.error = -error};
	(void)snprintf(cli->error.message, sizeof(cli->error.message),
		       "there is no %s \"%.*s\" now", what, HP_NAME_MAX, name);
	return cli_fail(cli, error);
}

static int show(struct cli *cli, const struct cli_zones *zones, size_t zone)
{
	struct search search = {.tenant = cli->arguments[0], .zone = zone};
	uint64_t block = zones->zones[zone].block_size;
	char sizes[3][CLI_SIZE_MAX];
	int r = cli_list(cli, LIST_WHAT(TENANTS), look, &search);

	if (r < 0)
		return cli_fail(cli, r);
	if (!search.found)
		return no_such(cli, -EINVAL, "tenant", search.tenant);
	if (cli->json)
		return cli_print_json(
			json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "tenant", search.tenant, "zone",
				  cli->arguments[1], "limit_blocks", (json_int_t)search.limit,
				  "guarantee_blocks", (json_int_t)search.guarantee, "held_blocks",
				  (json_int_t)search.held, "block_size", (json_int_t)block));
	printf("limit      %10s  %" PRIu64 " blocks\nguarantee  %10s  %" PRIu64
	       " blocks\nheld       %10s  %" PRIu64 " blocks\n",
	       cli_size(sizes[0], search.limit * block), search.limit,
	       cli_size(sizes[1], search.guarantee * block), search.guarantee,
	       cli_size(sizes[2], search.held * block), search.held);
	return 0;
}

int verb_quota(struct cli *cli)
{
	Hugepool__V1__Quota quotas[HP_ZONES_MAX];
	struct cli_zones zones;
	size_t n = 0, zone = 0;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	cli->zone = cli->arguments[1];
	while (zone < zones.nr && !cli_is_wanted(cli, &zones.zones[zone]))
		zone++;
	if (zone == zones.nr)
		return no_such(cli, -ENODEV, "zone", cli->zone);
	r = cli_quotas(cli, &zones, cli->zone, quotas, &n);
	if (r)
		return r;
	if (n) {
		quotas[0].tenant = bytes_of(cli->arguments[0]);
		r = cli_ask(cli, TYPE(QUOTA), &quotas[0].base, TYPE(DONE), NULL);
	}
	return r < 0 ? cli_fail(cli, r) : show(cli, &zones, zone);
}
