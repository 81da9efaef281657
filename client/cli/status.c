/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl status: one screen: is the daemon well, how full are the zones, what can I get. What
 * this tenant can get stands beside what there is, since the two differ.
 */
#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

static int ask(struct cli *cli, const Hugepool__V1__StatsReply **ret)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	const ProtobufCMessage *message;
	int r = cli_ask(cli, TYPE(STATS), &empty.base, TYPE(STATS_REPLY), &message);

	if (r == 0)
		*ret = (const Hugepool__V1__StatsReply *)message;
	return r;
}

static const char *plural(uint32_t n)
{
	return n == 1 ? "" : "s";
}

static void print_daemon(const Hugepool__V1__StatsReply *stats)
{
	char text[CLI_TEXT_MAX], age[CLI_AGE_MAX], online[CLI_SIZE_MAX], configured[CLI_SIZE_MAX];

	printf("hugepoold %s, pid %u, up %s, %s\n", cli_text(text, stats->server), stats->pid,
	       cli_age(age, stats->uptime_ms),
	       stats->ready ? "all of its memory is there" : "its memory is not all there yet");
	printf("memory    %s of %s configured\n", cli_size(online, stats->online_bytes),
	       cli_size(configured, stats->configured_bytes));
	printf("clients   %u connected, %u broken with a living process, %u tenant%s, %u worker%s\n",
	       stats->sessions, stats->condemned_sessions, stats->tenants, plural(stats->tenants),
	       stats->workers, plural(stats->workers));
	printf("requests  %" PRIu64 ", errors %" PRIu64
	       ", sessions ended for what they sent %" PRIu64 "\n",
	       stats->requests, stats->errors, stats->broken);
	printf("loops     %" PRIu64 " us the longest turn so far\n", stats->longest_turn_ns / 1000);
	if (stats->tenant.len)
		printf("you       %s\n", cli_text(text, stats->tenant));
}

/* What is of the asking tenant means nothing where there is none. */
static const char *own_size(const struct cli *cli, char buffer[CLI_SIZE_MAX], uint64_t bytes)
{
	return cli->admin ? "-" : cli_size(buffer, bytes);
}

static void print_zone(const struct cli *cli, const Hugepool__V1__Zone *zone)
{
	char name[CLI_TEXT_MAX], node[16], sizes[8][CLI_SIZE_MAX];

	printf("%-12s %4s %8s %8s %10s %10s %10s %10s %10s %10s\n", cli_text(name, zone->name),
	       cli_node(node, zone->node), cli_size(sizes[0], zone->page_size),
	       cli_size(sizes[1], zone->block_size),
	       cli_size(sizes[2], (zone->pages - zone->offline) * zone->page_size),
	       cli_size(sizes[3], zone->clean * zone->page_size),
	       cli_size(sizes[4], zone->leased * zone->page_size),
	       own_size(cli, sizes[5], zone->leasable * zone->page_size),
	       own_size(cli, sizes[6], zone->largest * zone->page_size),
	       own_size(cli, sizes[7], zone->limit_blocks * zone->block_size));
	if (zone->backing == HUGEPOOL__V1__BACKING__BACKING_MEMFD)
		printf("%-12s MEMFD: NOTHING IS GUARANTEED, AND LEASES END WITH THE DAEMON\n", "");
	if (zone->backing == HUGEPOOL__V1__BACKING__BACKING_SHMEM)
		printf("%-12s ordinary memory, for development\n", "");
	if (zone->held.len)
		printf("%-12s recycling is held: %s\n", "", cli_text(name, zone->held));
}

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	(void)unused;
	for (size_t i = 0; i < reply->n_zones; i++)
		print_zone(userdata, reply->zones[i]);
	return 0;
}

int verb_status(struct cli *cli)
{
	const Hugepool__V1__StatsReply *stats;
	int r = ask(cli, &stats);

	if (r)
		return cli_fail(cli, r);
	if (cli->json)
		return cli_print_json(cli_json_message(&stats->base));
	print_daemon(stats);
	printf("\n%-12s %4s %8s %8s %10s %10s %10s %10s %10s %10s\n", "ZONE", "NODE", "PAGE",
	       "BLOCK", "TOTAL", "CLEAN", "LEASED", "LEASABLE", "LARGEST", "LIMIT");
	r = cli_list(cli, LIST_WHAT(ZONES), print, cli);
	return r < 0 ? cli_fail(cli, r) : 0;
}
