/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl flush: drains every page cache, so that free pages merge and idle blocks show. */
#include "client/cli/cli.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int verb_flush(struct cli *cli)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;
	int r = cli_ask(cli, TYPE(FLUSH), &empty.base, TYPE(DONE), NULL);

	if (r < 0)
		return cli_fail(cli, r);
	return cli->json ? cli_print_json(json_object()) : 0;
}
