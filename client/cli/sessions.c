/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl sessions: connections, and what is left of broken ones whose process lives. */
#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

static int print(void *userdata, const Hugepool__V1__Zone *unused,
		 const Hugepool__V1__ListReply *reply)
{
	const struct cli_owners *owners = userdata;
	char name[CLI_TEXT_MAX], command[CLI_TEXT_MAX], age[CLI_AGE_MAX], size[CLI_SIZE_MAX];

	(void)unused;
	for (size_t i = 0; i < reply->n_sessions; i++) {
		const Hugepool__V1__Session *s = reply->sessions[i];

		printf("%7" PRIu64 "  %-9s  %-12s %7u %6u %7" PRIu64 " %10s  %-14s %s (%s)\n",
		       s->session, cli_session_state_name(s->state),
		       cli_owners_name(owners, s->owner), s->pid, s->uid, s->leases,
		       cli_size(size, s->leased_bytes), cli_age(age, s->age_ms),
		       cli_text(name, s->name), cli_text(command, s->command));
	}
	return 0;
}

int verb_sessions(struct cli *cli)
{
	static const struct cli_list list = {LIST_WHAT(SESSIONS), "sessions", false, print, NULL};
	struct cli_owners owners;

	cli_owners_load(cli, &owners);
	if (!cli->json)
		printf("%7s  %-9s  %-12s %7s %6s %7s %10s  %-14s %s\n", "SESSION", "STATE",
		       "TENANT", "PID", "UID", "LEASES", "LEASED", "SINCE", "NAME (COMMAND)");
	return cli_show_list(cli, &list, &owners);
}
