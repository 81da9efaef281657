/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl reload: has the daemon read its configuration again, and tells what has to wait. */
#include "client/cli/cli.h"

#include <stdio.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int verb_reload(struct cli *cli)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	const ProtobufCMessage *message;
	const Hugepool__V1__Reloaded *reply;
	char text[CLI_TEXT_MAX];
	int r = cli_ask(cli, TYPE(RELOAD), &empty.base, TYPE(RELOADED), &message);

	if (r < 0)
		return cli_fail(cli, r);
	reply = (const Hugepool__V1__Reloaded *)message;
	if (cli->json)
		return cli_print_json(cli_json_message(message));
	printf("reloaded, with %u tenants\n", reply->tenants);
	for (size_t i = 0; i < reply->n_restart; i++)
		printf("needs a restart: %s\n", cli_text(text, reply->restart[i]));
	if (reply->nr_restart > reply->n_restart)
		printf("needs a restart: %zu more, see the log\n",
		       reply->nr_restart - reply->n_restart);
	return 0;
}
