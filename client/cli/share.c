/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl share: takes memory, publishes it by name, and holds it until it is told to end.
 * hugepoolctl attach: the other side of that.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

/* Numbers or names of users, with commas between them. Return: 0 or the exit status. */
static int parse_users(const char *list, uint32_t uids[HP_SHARE_UIDS_MAX], size_t *ret_nr)
{
	char *copy = strdup(list), *rest = NULL, *end;
	int r = copy ? 0 : EXIT_FAILED;

	*ret_nr = 0;
	for (char *name = r ? NULL : strtok_r(copy, ",", &rest); name && r == 0;
	     name = strtok_r(NULL, ",", &rest)) {
		const struct passwd *user = getpwnam(name);
		unsigned long number;

		errno = 0;
		number = strtoul(name, &end, 10);
		if (*ret_nr == HP_SHARE_UIDS_MAX)
			r = cli_usage_error("--for: more than %d users", HP_SHARE_UIDS_MAX);
		else if (user)
			uids[(*ret_nr)++] = user->pw_uid;
		else if (*name >= '0' && *name <= '9' && !*end && !errno && number < UINT32_MAX)
			uids[(*ret_nr)++] = (uint32_t)number;
		else
			r = cli_usage_error("--for: '%s' is no user of this machine", name);
	}
	if (r == 0 && *ret_nr == 0)
		r = cli_usage_error("--for: no user in '%s'", list);
	free(copy);
	return r;
}

int verb_share_check(struct cli *cli, int given)
{
	uint32_t uids[HP_SHARE_UIDS_MAX];
	size_t n;

	(void)given;
	if (cli_parse_size(cli->arguments[0], &cli->bytes) < 0 || cli->bytes == 0)
		return cli_usage_error("share: '%s' is not a size like 2M or 1G",
				       cli->arguments[0]);
	return cli->users ? parse_users(cli->users, uids, &n) : 0;
}

int verb_share(struct cli *cli)
{
	struct hugepool_share_options options = HUGEPOOL_SHARE_OPTIONS_INIT;
	uint32_t uids[HP_SHARE_UIDS_MAX];
	struct hugepool_range range;
	int r;

	cli->shared = cli->arguments[1];
	options.uids = uids;
	options.flags = cli->read_only ? HUGEPOOL_READ_ONLY : 0;
	if (cli->users) {
		r = parse_users(cli->users, uids, &options.nr_uids);
		if (r)
			return r;
	}
	r = cli_take(cli, HUGEPOOL_SHAREABLE, &range);
	if (r < 0)
		return cli_fail(cli, r);
	r = hugepool_share(cli->pool, &range, cli->shared, &options);
	if (r < 0)
		cli->error = cli->pool->error;
	if (r == 0)
		r = cli_tell_and_hold(cli, &range);
	return r < 0 ? cli_fail(cli, r) : 0;
}

int verb_attach(struct cli *cli)
{
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_range range;
	int r;

	cli->shared = cli->arguments[0];
	options.tenant = cli->tenant;
	options.flags = cli->read_only ? HUGEPOOL_READ_ONLY : 0;
	r = hugepool_attach(cli->pool, cli->shared, &options, &range);
	if (r < 0)
		cli->error = cli->pool->error;
	if (r == 0)
		r = cli_tell_and_hold(cli, &range);
	return r < 0 ? cli_fail(cli, r) : 0;
}
