/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl zones: laid out like /proc/zoneinfo, with its words where they mean the same, so that
 * who reads the one reads the other. Watermarks are of the clean stock, in pages as there.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void print_zone(const Hugepool__V1__Zone *zone)
{
	char node[16], name[CLI_TEXT_MAX], size[CLI_SIZE_MAX];
	uint64_t block_pages = zone->page_size ? zone->block_size / zone->page_size : 0;
	const struct {
		const char *name;
		uint64_t n;
	} figures[] = {
		{"clean", zone->clean},
		{"free", zone->free},
		{"pcp", zone->pcp},
		{"draining", zone->draining},
		{"leased", zone->leased},
		{"condemned", zone->condemned},
		{"revoked", zone->revoked},
		{"isolated", zone->isolated},
		{"quarantined", zone->quarantined},
		{"lent", zone->lent},
		{"offline", zone->offline},
		{"bad", zone->bad},
	};
	const struct {
		const char *name;
		uint64_t n;
	} counts[] = {
		{"nr_blocks", zone->blocks},
		{"nr_clean_blocks", zone->clean_blocks},
		{"nr_idle_blocks", zone->idle_blocks},
		{"grants", zone->grants},
		{"frees", zone->frees},
		{"claims", zone->claims},
		{"refills", zone->refills},
		{"drains", zone->drains},
		{"recycles", zone->recycles},
	};

	printf("Node %s, zone %8s\n", cli_node(node, zone->node), cli_text(name, zone->name));
	printf("  page size      %s\n", cli_size(size, zone->page_size));
	printf("  block size     %s\n", cli_size(size, zone->block_size));
	printf("  pages free     %" PRIu64 "\n",
	       zone->clean + zone->free + zone->pcp + zone->draining);
	printf("        min      %" PRIu64 "\n", zone->clean_min * block_pages);
	printf("        low      %" PRIu64 "\n", zone->clean_low * block_pages);
	printf("        high     %" PRIu64 "\n", zone->clean_high * block_pages);
	printf("        spanned  %" PRIu64 "\n", zone->pages);
	printf("        present  %" PRIu64 "\n", zone->pages - zone->offline - zone->bad);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		printf("      nr_%-12s %" PRIu64 "\n", figures[i].name, figures[i].n);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		printf("      %-15s %" PRIu64 "\n", counts[i].name, counts[i].n);
	if (zone->held.len)
		printf("  recycling is held: %s\n", cli_text(name, zone->held));
}

/* What the asking tenant has and may have; on the admin socket there is none. */
static void print_tenant(const Hugepool__V1__Zone *zone)
{
	uint64_t block_pages = zone->page_size ? zone->block_size / zone->page_size : 0;

	printf("  your tenant\n");
	printf("        leasable  %" PRIu64 "\n", zone->leasable);
	printf("        largest   %" PRIu64 "\n", zone->largest);
	printf("        held      %" PRIu64 "\n", zone->held_blocks * block_pages);
	printf("        limit     %" PRIu64 "\n", zone->limit_blocks * block_pages);
	printf("        guarantee %" PRIu64 "\n", zone->guarantee_blocks * block_pages);
}

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli *cli = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_zones; i++) {
		if (!cli_is_wanted(cli, reply->zones[i]))
			continue;
		print_zone(reply->zones[i]);
		if (!cli->admin)
			print_tenant(reply->zones[i]);
	}
	return 0;
}

/* What is of the asking tenant means nothing where there is none. */
static int complete(void *userdata, json_t *row)
{
	static const char *const names[] = {"leasable", "largest", "limit_blocks",
					    "guarantee_blocks", "held_blocks"};
	const struct cli *cli = userdata;

	for (size_t i = 0; cli->admin && i < sizeof(names) / sizeof(names[0]); i++)
		if (json_object_set_new(row, names[i], json_null()) < 0)
			return -ENOMEM;
	return 0;
}

int verb_zones(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(ZONES), "zones", false, print, complete};

	return cli_show_list(cli, &list, cli);
}
