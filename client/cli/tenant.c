/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl tenant create, which prints the socket and nothing else, for scripts; tenant delete,
 * which returns when all is over, and may be interrupted: what was begun goes on.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

static ProtobufCBinaryData bytes_of(char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

/* Return: 0 or the exit status. */
static int find_user(const struct cli *cli, uint32_t *ret)
{
	const struct passwd *user;
	unsigned long number;
	char *end;

	*ret = getuid();
	if (!cli->user || cli->any_user)
		return 0;
	errno = 0;
	number = strtoul(cli->user, &end, 10);
	if (*cli->user >= '0' && *cli->user <= '9' && !*end && !errno && number < UINT32_MAX) {
		*ret = (uint32_t)number;
		return 0;
	}
	user = getpwnam(cli->user);
	if (!user)
		return cli_usage_error("--user: '%s' is no user of this machine", cli->user);
	*ret = user->pw_uid;
	return 0;
}

int verb_tenant_check(struct cli *cli, int given)
{
	const char *what = cli->arguments[0];
	uint32_t uid;

	if (strcmp(what, "create") == 0) {
		if (given & OPT_GRACE)
			return cli_usage_error("tenant create takes no --grace");
		if (cli->user && cli->any_user)
			return cli_usage_error("--user and --any-user: one of them");
		return find_user(cli, &uid);
	}
	if (strcmp(what, "delete") == 0) {
		if (given & (OPT_LIMIT | OPT_GUARANTEE | OPT_USER | OPT_ANY_USER))
			return cli_usage_error("tenant delete takes --grace and no other option");
		return 0;
	}
	return cli_usage_error("tenant: '%s' is neither create nor delete", what);
}

static int create(struct cli *cli)
{
	Hugepool__V1__TenantCreate request = HUGEPOOL__V1__TENANT_CREATE__INIT;
	Hugepool__V1__Quota quotas[HP_ZONES_MAX], *pointers[HP_ZONES_MAX];
	const ProtobufCMessage *message;
	struct cli_zones zones;
	char text[CLI_TEXT_MAX];
	size_t n = 0;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	r = cli_quotas(cli, &zones, NULL, quotas, &n);
	if (r == 0)
		r = find_user(cli, &request.uid);
	if (r)
		return r;
	for (size_t i = 0; i < n; i++)
		pointers[i] = &quotas[i];
	request.name = bytes_of(cli->arguments[1]);
	request.n_quotas = n;
	request.quotas = pointers;
	request.any_user = cli->any_user;
	r = cli_ask(cli, TYPE(TENANT_CREATE), &request.base, TYPE(TENANT_CREATED), &message);
	if (r < 0)
		return cli_fail(cli, r);
	if (cli->json)
		return cli_print_json(cli_json_message(message));
	printf("%s\n", cli_text(text, ((const Hugepool__V1__TenantCreated *)message)->socket));
	return 0;
}

static int end(struct cli *cli)
{
	Hugepool__V1__TenantDelete request = HUGEPOOL__V1__TENANT_DELETE__INIT;
	int r;

	request.name = bytes_of(cli->arguments[1]);
	request.grace_ms = (uint32_t)cli->grace_ms;
	cli_expect_wait(cli, cli->grace_ms);
	r = cli_ask(cli, TYPE(TENANT_DELETE), &request.base, TYPE(DONE), NULL);
	if (r < 0)
		return cli_fail(cli, r);
	return cli->json ? cli_print_json(json_object()) : 0;
}

int verb_tenant(struct cli *cli)
{
	return strcmp(cli->arguments[0], "create") == 0 ? create(cli) : end(cli);
}
