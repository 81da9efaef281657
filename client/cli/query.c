/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the daemon. Lists come in pieces, each good until the next is asked for, so whoever wants
 * rows is called with every piece.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/request.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int cli_open(struct cli *cli)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;

	options.socket = cli->path;
	return handle_open(&cli->pool, &options, &cli->error);
}

void cli_expect_wait(struct cli *cli, uint64_t ms)
{
	cli->wait_ms = ms;
}

int cli_ask(struct cli *cli, uint8_t type, const ProtobufCMessage *message, uint8_t reply_type,
	    const ProtobufCMessage **ret)
{
	int r = request_exchange_waiting(cli->pool, type, message, (uint32_t)cli->wait_ms,
					 reply_type, ret);

	if (r < 0)
		cli->error = cli->pool->error;
	return r;
}

/* One list to its end; there is one, since every piece begins behind the one before. */
static int list(struct cli *cli, Hugepool__V1__ListWhat what, const Hugepool__V1__Zone *zone,
		cli_list_fn fn, void *userdata)
{
	Hugepool__V1__List request = HUGEPOOL__V1__LIST__INIT;

	request.what = what;
	request.zone = zone ? zone->id : 0;
	for (;;) {
		const ProtobufCMessage *message;
		const Hugepool__V1__ListReply *reply;
		uint64_t next;
		int r = cli_ask(cli, TYPE(LIST), &request.base, TYPE(LIST_REPLY), &message);

		if (r < 0)
			return r;
		reply = (const Hugepool__V1__ListReply *)message;
		next = reply->next;
		r = fn(userdata, zone, reply);
		if (r < 0 || next == 0)
			return r;
		if (next <= request.cursor) {
			cli->error = (struct hugepool_error){
				.error = EPROTO,
				.message = "the daemon's list has no end",
			};
			return -EPROTO;
		}
		request.cursor = next;
	}
}

int cli_list(struct cli *cli, Hugepool__V1__ListWhat what, cli_list_fn fn, void *userdata)
{
	return list(cli, what, NULL, fn, userdata);
}

static int remember(void *userdata, const Hugepool__V1__Zone *unused,
		    const Hugepool__V1__ListReply *reply)
{
	struct cli_zones *all = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_zones && all->nr < HP_ZONES_MAX; i++) {
		Hugepool__V1__Zone *zone = &all->zones[all->nr];
		size_t n = reply->zones[i]->name.len;

		*zone = *reply->zones[i];
		zone->held = (ProtobufCBinaryData){.len = 0};
		zone->name.len = n < HP_NAME_MAX ? n : HP_NAME_MAX;
		zone->name.data = (uint8_t *)all->names[all->nr++];
		memcpy(zone->name.data, reply->zones[i]->name.data, zone->name.len);
	}
	return 0;
}

int cli_zones_load(struct cli *cli, struct cli_zones *ret)
{
	ret->nr = 0;
	return cli_list(cli, LIST_WHAT(ZONES), remember, ret);
}

bool cli_is_wanted(const struct cli *cli, const Hugepool__V1__Zone *zone)
{
	return !cli->zone || (zone->name.len == strlen(cli->zone) &&
			      memcmp(zone->name.data, cli->zone, zone->name.len) == 0);
}

int cli_list_zones(struct cli *cli, Hugepool__V1__ListWhat what, cli_list_fn fn, void *userdata)
{
	struct cli_zones all;
	int r = cli_zones_load(cli, &all);

	for (size_t i = 0; r == 0 && i < all.nr; i++)
		if (cli_is_wanted(cli, &all.zones[i]))
			r = list(cli, what, &all.zones[i], fn, userdata);
	return r;
}

/* Whether there is a zone for --zone. */
static int check_zone(struct cli *cli)
{
	struct cli_zones all;
	int r = cli->zone ? cli_zones_load(cli, &all) : 0;

	for (size_t i = 0; cli->zone && r == 0 && i < all.nr; i++)
		if (cli_is_wanted(cli, &all.zones[i]))
			return 0;
	if (cli->zone && r == 0) {
		cli->error = (struct hugepool_error){.error = ENODEV};
		(void)snprintf(cli->error.message, sizeof(cli->error.message), "no zone %s",
			       cli->zone);
		return -ENODEV;
	}
	return r;
}

static int remember_owners(void *userdata, const Hugepool__V1__Zone *unused,
			   const Hugepool__V1__ListReply *reply)
{
	struct cli_owners *owners = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_tenants && owners->nr < HP_TENANTS_MAX; i++) {
		char text[CLI_TEXT_MAX];

		if (reply->tenants[i]->name.len == 0)
			continue;
		owners->known[owners->nr].owner = reply->tenants[i]->owner;
		(void)snprintf(owners->known[owners->nr++].name, HP_NAME_MAX + 1, "%.*s",
			       HP_NAME_MAX, cli_text(text, reply->tenants[i]->name));
	}
	return 0;
}

int cli_owners_load(struct cli *cli, struct cli_owners *ret)
{
	ret->nr = 0;
	return cli_list(cli, LIST_WHAT(TENANTS), remember_owners, ret);
}

const char *cli_owners_name(const struct cli_owners *owners, uint32_t owner)
{
	if (owner == 0)
		return "-";
	for (size_t i = 0; i < owners->nr; i++)
		if (owners->known[i].owner == owner)
			return owners->known[i].name;
	return "?";
}

/* --- sessions --------------------------------------------------------------------------------- */

static int by_session(const void *a, const void *b)
{
	const struct cli_session *x = a, *y = b;

	return x->session < y->session ? -1 : x->session > y->session;
}

static int remember_sessions(void *userdata, const Hugepool__V1__Zone *unused,
			     const Hugepool__V1__ListReply *reply)
{
	struct cli_sessions *all = userdata;

	(void)unused;
	for (size_t i = 0; i < reply->n_sessions; i++) {
		const Hugepool__V1__Session *from = reply->sessions[i];
		struct cli_session *to;
		char text[CLI_TEXT_MAX];

		if (all->nr == all->room) {
			size_t room = all->room ? 2 * all->room : 64;
			struct cli_session *known = reallocarray(all->known, room, sizeof(*known));

			if (!known)
				return -ENOMEM;
			all->known = known;
			all->room = room;
		}
		to = &all->known[all->nr++];
		*to = (struct cli_session){from->session, from->owner, from->pid,
					   from->uid,	  from->state, ""};
		(void)snprintf(to->command, sizeof(to->command), "%.*s",
			       (int)sizeof(to->command) - 1, cli_text(text, from->command));
	}
	return 0;
}

int cli_sessions_load(struct cli *cli, struct cli_sessions *ret)
{
	int r;

	*ret = (struct cli_sessions){NULL, 0, 0};
	r = cli_list(cli, LIST_WHAT(SESSIONS), remember_sessions, ret);
	if (r < 0)
		cli_sessions_free(ret);
	else if (ret->nr)
		qsort(ret->known, ret->nr, sizeof(*ret->known), by_session);
	return r;
}

void cli_sessions_free(struct cli_sessions *sessions)
{
	free(sessions->known);
	*sessions = (struct cli_sessions){NULL, 0, 0};
}

const struct cli_session *cli_sessions_find(const struct cli_sessions *sessions, uint64_t session)
{
	const struct cli_session key = {.session = session};

	return sessions->nr ? bsearch(&key, sessions->known, sessions->nr, sizeof(key), by_session)
			    : NULL;
}

const char *cli_session_state_name(Hugepool__V1__SessionState state)
{
	static const char *const names[] = {"unknown", "open", "condemned", "orphaned"};

	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : names[0];
}

/* --- one list as a verb ----------------------------------------------------------------------- */

struct collect {
	const struct cli *cli;
	const struct cli_list *what;
	void *userdata;
	json_t *rows;
};

/* Moves the rows of a piece to all of them, each with the zone it is of. */
static int collect(void *userdata, const Hugepool__V1__Zone *zone,
		   const Hugepool__V1__ListReply *reply)
{
	struct collect *all = userdata;
	json_t *piece = cli_json_message(&reply->base), *row;
	char text[CLI_TEXT_MAX];
	size_t i;
	int r = piece ? 0 : -ENOMEM;

	json_array_foreach(json_object_get(piece, all->what->key), i, row)
	{
		if (i < reply->n_zones && !cli_is_wanted(all->cli, reply->zones[i]))
			continue;
		if (zone &&
		    json_object_set_new(row, "zone", json_string(cli_text(text, zone->name))) < 0)
			r = -ENOMEM;
		if (all->what->complete && all->what->complete(all->userdata, row) < 0)
			r = -ENOMEM;
		if (json_array_append(all->rows, row) < 0)
			r = -ENOMEM;
	}
	json_decref(piece);
	return r;
}

int cli_show_list(struct cli *cli, const struct cli_list *what, void *userdata)
{
	struct collect all = {.cli = cli, .what = what, .userdata = userdata};
	int (*walk)(struct cli *, Hugepool__V1__ListWhat, cli_list_fn, void *) =
		what->per_zone ? cli_list_zones : cli_list;
	int r;

	r = check_zone(cli);
	if (r < 0)
		return cli_fail(cli, r);
	if (!cli->json) {
		r = walk(cli, what->what, what->print, userdata);
		return r < 0 ? cli_fail(cli, r) : 0;
	}
	all.rows = json_array();
	if (!all.rows)
		return cli_fail(cli, -ENOMEM);
	r = walk(cli, what->what, collect, &all);
	if (r < 0) {
		json_decref(all.rows);
		return cli_fail(cli, r);
	}
	return cli_print_json(json_pack("{s:o}", what->key, all.rows));
}
