/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl revoke: asks for memory back and waits for it; with --force what is not given back by
 * the deadline is taken. Whoever interrupts it calls it off. What is not given back is a failure.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

static int take_number(const char *option, const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || *ret > max)
		return cli_usage_error("%s: '%s' is not a number", option, text);
	return 0;
}

int verb_revoke_check(struct cli *cli, int given)
{
	int what = given & (OPT_TENANT | OPT_SESSION | OPT_LEASE | OPT_BLOCK);
	uint64_t number;

	if (!what || what & (what - 1))
		return cli_usage_error(
			"revoke takes one of --tenant, --session, --lease and --block");
	if (what & (OPT_LEASE | OPT_BLOCK) && !cli->zone)
		return cli_usage_error("--lease and --block need a --zone");
	if (what == OPT_SESSION)
		return take_number("--session", cli->session, UINT64_MAX, &number);
	if (what == OPT_LEASE)
		return take_number("--lease", cli->lease, UINT32_MAX, &number);
	if (what == OPT_BLOCK)
		return take_number("--block", cli->block, HP_ZONE_BLOCKS_MAX - 1, &number);
	return 0;
}

/* --- which lease ------------------------------------------------------------------------------ */

struct wanted {
	uint32_t zone;
	uint64_t page;
	uint64_t words[HP_WIRE_RANGE_WORDS];
	bool found;
};

static int look_at_lease(void *userdata, const Hugepool__V1__Zone *unused,
			 const Hugepool__V1__ListReply *reply)
{
	struct wanted *wanted = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_leases && !wanted->found; i++) {
		const Hugepool__V1__Lease *lease = reply->leases[i];
		struct hp_wire_range range;

		if (lease->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(lease->range, &range) < 0 || range.zone != wanted->zone ||
		    range.page != wanted->page)
			continue;
		memcpy(wanted->words, lease->range, sizeof(wanted->words));
		wanted->found = true;
	}
	return 0;
}

/* Return: 0 or the exit status. */
static int find_lease(struct cli *cli, const struct cli_zones *zones, struct wanted *ret)
{
	int r;

	*ret = (struct wanted){.page = strtoull(cli->lease, NULL, 10)};
	for (size_t i = 0; i < zones->nr; i++)
		if (cli_is_wanted(cli, &zones->zones[i]))
			ret->zone = zones->zones[i].id;
	r = cli_list(cli, LIST_WHAT(LEASES), look_at_lease, ret);
	if (r < 0)
		return cli_fail(cli, r);
	if (ret->found)
		return 0;
	(void)fprintf(
		stderr,
		"hugepoolctl: no lease begins at page %s of zone %s; hugepoolctl leases --admin lists them\n",
		cli->lease, cli->zone);
	return EXIT_FAILED;
}

/* --- the answer ------------------------------------------------------------------------------- */

static void print_leases(const struct cli_zones *zones, const char *title,
			 Hugepool__V1__Lease *const *leases, size_t n, uint32_t all)
{
	char name[CLI_TEXT_MAX], age[CLI_AGE_MAX], size[CLI_SIZE_MAX];

	if (n == 0)
		return;
	printf("\n%s\n%-12s %10s %8s %10s %7s  %s\n", title, "ZONE", "PAGE", "PAGES", "SIZE",
	       "SESSION", "SINCE");
	for (size_t i = 0; i < n; i++) {
		const Hugepool__V1__Zone *zone = NULL;
		struct hp_wire_range range;

		if (leases[i]->n_range != HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(leases[i]->range, &range) < 0)
			continue;
		for (size_t z = 0; z < zones->nr; z++)
			if (zones->zones[z].id == range.zone)
				zone = &zones->zones[z];
		printf("%-12s %10u %8u %10s %7" PRIu64 "  %s\n",
		       zone ? cli_text(name, zone->name) : "?", range.page, range.pages,
		       cli_size(size, range.pages * (zone ? zone->page_size : 0)),
		       leases[i]->session, cli_age(age, leases[i]->age_ms));
	}
	if (all > n)
		printf("and %zu more\n", all - n);
}

static int show(struct cli *cli, const struct cli_zones *zones,
		const Hugepool__V1__RevokeReply *reply)
{
	int status = reply->left_pages ? EXIT_FAILED : 0, r;

	if (cli->json) {
		r = cli_print_json(cli_json_message(&reply->base));
		return r ? r : status;
	}
	printf("given back %10" PRIu64 " pages\ntaken      %10" PRIu64
	       " pages\nleft       %10" PRIu64 " pages\n",
	       reply->acknowledged_pages, reply->forced_pages, reply->left_pages);
	print_leases(zones, "Not given back:", reply->left, reply->n_left, reply->nr_left);
	print_leases(zones, "Other leases that lost pages:", reply->hit, reply->n_hit,
		     reply->nr_hit);
	return status;
}

int verb_revoke(struct cli *cli)
{
	Hugepool__V1__Revoke request = HUGEPOOL__V1__REVOKE__INIT;
	const ProtobufCMessage *reply;
	struct cli_zones zones;
	struct wanted wanted;
	uint64_t block;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	if (cli->tenant) {
		request.tenant.data = (uint8_t *)(uintptr_t)cli->tenant;
		request.tenant.len = strlen(cli->tenant);
	} else if (cli->session) {
		request.session = strtoull(cli->session, NULL, 10);
	} else if (cli->block) {
		request.zone.data = (uint8_t *)(uintptr_t)cli->zone;
		request.zone.len = strlen(cli->zone);
		block = hp_wire_put_block(
			(struct hp_wire_block){.index = (uint32_t)strtoul(cli->block, NULL, 10)});
		request.blocks = &block;
		request.n_blocks = 1;
	} else {
		r = find_lease(cli, &zones, &wanted);
		if (r)
			return r;
		request.ranges = wanted.words;
		request.n_ranges = HP_WIRE_RANGE_WORDS;
	}
	request.deadline_ms = (uint32_t)cli->deadline_ms;
	request.force = cli->force;
	cli_expect_wait(cli, cli->deadline_ms);
	r = cli_ask(cli, TYPE(REVOKE), &request.base, TYPE(REVOKE_REPLY), &reply);
	return r < 0 ? cli_fail(cli, r)
		     : show(cli, &zones, (const Hugepool__V1__RevokeReply *)reply);
}
