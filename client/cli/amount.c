/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits and guarantees as people type them: "small=8" blocks, "small=512M". The daemon counts blocks,
 * so a size has to be whole ones: nothing is rounded, since half a block more or less is somebody's.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *option_name(const struct cli_amount *amount)
{
	return amount->option == OPT_LIMIT ? "limit" : "guarantee";
}

static const Hugepool__V1__Zone *find_zone(const struct cli_zones *zones, const char *name,
					   size_t length)
{
	for (size_t i = 0; i < zones->nr; i++)
		if (zones->zones[i].name.len == length &&
		    memcmp(zones->zones[i].name.data, name, length) == 0)
			return &zones->zones[i];
	return NULL;
}

static int no_zone(struct cli *cli, const char *name, size_t length)
{
	cli->error = (struct hugepool_error){.error = ENODEV};
	(void)snprintf(cli->error.message, sizeof(cli->error.message), "there is no zone \"%.*s\"",
		       length < HP_NAME_MAX ? (int)length : HP_NAME_MAX, name);
	return cli_fail(cli, -ENODEV);
}

static int parse(const struct cli_amount *amount, const char *text, const Hugepool__V1__Zone *zone,
		 uint32_t *ret_blocks)
{
	char size[CLI_SIZE_MAX], below[CLI_SIZE_MAX], above[CLI_SIZE_MAX], name[CLI_TEXT_MAX];
	uint64_t n, block = zone->block_size;

	if (cli_parse_size(text, &n) < 0)
		return cli_usage_error(
			"--%s: '%s' is not a number of blocks like 8, or a size like 512M",
			option_name(amount), text);
	if (text[strspn(text, "0123456789")] != '\0') {
		if (n % block)
			return cli_usage_error(
				"--%s: %s is not whole blocks of zone %s, which are %s each; %s or %s is",
				option_name(amount), text, cli_text(name, zone->name),
				cli_size(size, block), cli_size(below, n / block * block),
				cli_size(above, (n / block + 1) * block));
		n /= block;
	}
	if (n > UINT32_MAX)
		return cli_usage_error("--%s: %s is more blocks than any zone has",
				       option_name(amount), text);
	*ret_blocks = (uint32_t)n;
	return 0;
}

static int set(Hugepool__V1__Quota *quota, const struct cli_amount *amount, uint32_t blocks)
{
	if (amount->option == OPT_LIMIT ? quota->set_limit : quota->set_guarantee)
		return cli_usage_error("--%s is given twice for one zone", option_name(amount));
	if (amount->option == OPT_LIMIT) {
		quota->set_limit = true;
		quota->limit_blocks = blocks;
	} else {
		quota->set_guarantee = true;
		quota->guarantee_blocks = blocks;
	}
	return 0;
}

/* The part of an amount before the =, and what follows. Return: 0 or the exit status. */
static int split(const struct cli_amount *amount, const char *zone, const char **ret_name,
		 size_t *ret_length, const char **ret_text)
{
	const char *equals = strchr(amount->text, '=');

	if (zone && equals)
		return cli_usage_error("--%s: '%s' names a zone, which is the second argument here",
				       option_name(amount), amount->text);
	if (!zone && !equals)
		return cli_usage_error("--%s: '%s' names no zone: ZONE=N", option_name(amount),
				       amount->text);
	*ret_name = zone ? zone : amount->text;
	*ret_length = zone ? strlen(zone) : (size_t)(equals - amount->text);
	*ret_text = zone ? amount->text : equals + 1;
	return 0;
}

int cli_quotas(struct cli *cli, const struct cli_zones *zones, const char *zone,
	       Hugepool__V1__Quota ret[HP_ZONES_MAX], size_t *ret_nr)
{
	Hugepool__V1__Quota quotas[HP_ZONES_MAX];

	for (size_t i = 0; i < zones->nr; i++)
		hugepool__v1__quota__init(&quotas[i]);
	for (size_t i = 0; i < cli->nr_amounts; i++) {
		const struct cli_amount *amount = &cli->amounts[i];
		const Hugepool__V1__Zone *of;
		const char *name, *text;
		uint32_t blocks;
		size_t length;
		int r = split(amount, zone, &name, &length, &text);

		if (r)
			return r;
		of = find_zone(zones, name, length);
		if (!of)
			return no_zone(cli, name, length);
		r = parse(amount, text, of, &blocks);
		if (r == 0)
			r = set(&quotas[of - zones->zones], amount, blocks);
		if (r)
			return r;
	}
	*ret_nr = 0;
	for (size_t i = 0; i < zones->nr; i++) {
		if (!quotas[i].set_limit && !quotas[i].set_guarantee)
			continue;
		quotas[i].zone = zones->zones[i].name;
		ret[(*ret_nr)++] = quotas[i];
	}
	return 0;
}
