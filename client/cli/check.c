/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl check: has the daemon verify every invariant of its zones. */
#include "client/cli/cli.h"

#include <stdio.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int verb_check(struct cli *cli)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	const ProtobufCMessage *message;
	const Hugepool__V1__CheckReply *reply;
	char text[CLI_TEXT_MAX];
	int r = cli_ask(cli, TYPE(CHECK), &empty.base, TYPE(CHECK_REPLY), &message);

	if (r < 0)
		return cli_fail(cli, r);
	reply = (const Hugepool__V1__CheckReply *)message;
	if (cli->json)
		r = cli_print_json(cli_json_message(message));
	else if (reply->violations == 0)
		printf("no violations\n");
	else
		printf("%u violations\n", reply->violations);
	for (size_t i = 0; i < reply->n_messages && !cli->json; i++)
		printf("%s\n", cli_text(text, reply->messages[i]));
	return reply->violations ? EXIT_FAILED : r;
}
