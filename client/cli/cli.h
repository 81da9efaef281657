/* SPDX-License-Identifier: Apache-2.0 */
/* hugepoolctl: what its verbs share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/handle.h"

#define LIST_WHAT(name) HUGEPOOL__V1__LIST_WHAT__LIST_WHAT_##name

enum {
	EXIT_FAILED = 1, /* the request */
	EXIT_USAGE = 2,
};

/* Options, as bits: a verb says which it takes. */
enum {
	OPT_SOCKET = 1 << 0,
	OPT_ADMIN = 1 << 1,
	OPT_JSON = 1 << 2,
	OPT_ZONE = 1 << 3,
	OPT_PAGE_SIZE = 1 << 4,
	OPT_ALIGN = 1 << 5,
	OPT_COUNT = 1 << 6,
	OPT_ZERO = 1 << 7,
	OPT_EXCLUSIVE = 1 << 8,
	OPT_WAIT = 1 << 9,
	OPT_LIMIT = 1 << 10,
	OPT_GUARANTEE = 1 << 11,
	OPT_GRACE = 1 << 12,
	OPT_USER = 1 << 13,
	OPT_ANY_USER = 1 << 14,
	OPT_READ_ONLY = 1 << 15,
	OPT_TENANT = 1 << 16,
	OPT_FOR = 1 << 17,
	OPT_SESSION = 1 << 18,
	OPT_LEASE = 1 << 19,
	OPT_BLOCK = 1 << 20,
	OPT_DEADLINE = 1 << 21,
	OPT_FORCE = 1 << 22,
};
enum { OPT_CONFIG = 1 << 24 };
#define CLI_AMOUNTS_MAX (2 * HP_ZONES_MAX) /* limits and guarantees of one call */
#define OPT_QUERY	(OPT_SOCKET | OPT_ADMIN | OPT_JSON)

/* --limit or --guarantee: [ZONE=]N, a number of blocks or a size. */
struct cli_amount {
	int option;
	const char *text;
};

struct cli {
	const char *path;   /* of the socket */
	const char *config; /* of hugepool-setup; NULL: its own */
	bool admin, json, zero, exclusive;
	const char *zone; /* NULL: all, or the first */
	uint64_t page_bytes, alignment, count;
	uint64_t bytes;	  /* the argument of a verb that takes SIZE */
	uint64_t wait_ms; /* for room */
	char **arguments; /* of the verb, as many as it takes */
	int nr_arguments;
	struct cli_amount amounts[CLI_AMOUNTS_MAX];
	size_t nr_amounts;
	uint64_t grace_ms;
	const char *user;  /* number or name */
	const char *users; /* several, with commas; NULL: everybody */
	bool any_user, read_only, force;
	const char *session, *lease, *block; /* numbers, as given */
	uint64_t deadline_ms;
	const char *tenant; /* name */
	const char *shared; /* the name of the shared range that is held, or NULL */
	struct hugepool *pool;
	struct hugepool_error error; /* of the last failure */
};

struct verb {
	const char *name;
	const char *summary;
	const char *arguments; /* that it takes, as --help names them, or NULL */
	int min_arguments, max_arguments;
	int options;		     /* it takes */
	bool needs_admin;	     /* socket */
	int (*run)(struct cli *cli); /* Return: exit status */
	/* NULL, or what can be told before the daemon is asked. given: options. Return: 0 or exit status */
	int (*check)(struct cli *cli, int given);
};

int verb_status(struct cli *cli);
int verb_zones(struct cli *cli);
int verb_buddyinfo(struct cli *cli);
int verb_blocks(struct cli *cli);
int verb_caches(struct cli *cli);
int verb_tenants(struct cli *cli);
int verb_sessions(struct cli *cli);
int verb_leases(struct cli *cli);
int verb_who(struct cli *cli);
int verb_alloc(struct cli *cli);
int verb_share(struct cli *cli);
int verb_share_check(struct cli *cli, int given);
int verb_attach(struct cli *cli);
int verb_check(struct cli *cli);
int verb_revoke(struct cli *cli);
int verb_revoke_check(struct cli *cli, int given);
int verb_flush(struct cli *cli);
int verb_tenant(struct cli *cli);
int verb_tenant_check(struct cli *cli, int given);
int verb_quota(struct cli *cli);
int verb_reload(struct cli *cli);
int verb_resize(struct cli *cli);
int verb_resize_check(struct cli *cli, int given);

int cli_usage_error(const char *format, ...)
	__attribute__((format(printf, 1, 2))); /* Return: EXIT_USAGE */

/* --- alloc.c ---------------------------------------------------------------------------------- */

/*
 * Takes cli->count ranges of cli->bytes with the options of alloc, and these flags of a request. Says
 * what it waits for. Return: 0 or -errno, with cli->error.
 */
int cli_take(struct cli *cli, unsigned flags, struct hugepool_range *ret);

/* Tells what is held and holds it until interrupted. Return: 0 or -errno, with cli->error. */
int cli_tell_and_hold(struct cli *cli, const struct hugepool_range *ranges);

/* --- query.c ---------------------------------------------------------------------------------- */

/* Connects. Return: 0 or -errno, with cli->error. */
int cli_open(struct cli *cli);

/* From now on a reply may take this much longer. */
void cli_expect_wait(struct cli *cli, uint64_t ms);

/* One exchange; the reply is borrowed until the next. Return: 0 or -errno, with cli->error. */
int cli_ask(struct cli *cli, uint8_t type, const ProtobufCMessage *message, uint8_t reply_type,
	    const ProtobufCMessage **ret);

/* Called with each piece of a list. zone: NULL where the list is not of one. Return: 0 goes on. */
typedef int (*cli_list_fn)(void *userdata, const Hugepool__V1__Zone *zone,
			   const Hugepool__V1__ListReply *reply);

int cli_list(struct cli *cli, Hugepool__V1__ListWhat what, cli_list_fn fn, void *userdata);

/* The same for each zone, or the one of --zone. The zone has only its identity. */
int cli_list_zones(struct cli *cli, Hugepool__V1__ListWhat what, cli_list_fn fn, void *userdata);

/* A verb that shows one list. */
struct cli_list {
	Hugepool__V1__ListWhat what;
	const char *key; /* in LIST_REPLY, and in the JSON */
	bool per_zone;
	cli_list_fn print; /* as text */
	/* NULL, or what is added to the JSON of a row. Return: 0 or -ENOMEM */
	int (*complete)(void *userdata, json_t *row);
};

/* Return: exit status. */
int cli_show_list(struct cli *cli, const struct cli_list *what, void *userdata);

/* The zones, with everything but why recycling is held. They outlive the reply that named them. */
struct cli_zones {
	Hugepool__V1__Zone zones[HP_ZONES_MAX];
	char names[HP_ZONES_MAX][HP_NAME_MAX];
	size_t nr;
};
int cli_zones_load(struct cli *cli, struct cli_zones *ret);

/*
 * Limits and guarantees of the options, in blocks. zone: that all of them are of; NULL: each names its
 * own, as ZONE=N. ret: one for each zone that is named, in the order of zones, its zone's name borrowed.
 * Return: 0 or the exit status, said.
 */
int cli_quotas(struct cli *cli, const struct cli_zones *zones, const char *zone,
	       Hugepool__V1__Quota ret[HP_ZONES_MAX], size_t *ret_nr);

/* Whether it is the zone of --zone, or there is none. */
bool cli_is_wanted(const struct cli *cli, const Hugepool__V1__Zone *zone);

/* Names of tenants by number, as far as we may know them. */
struct cli_owners {
	struct {
		uint32_t owner;
		char name[HP_NAME_MAX + 1];
	} known[HP_TENANTS_MAX];
	size_t nr;
};
int cli_owners_load(struct cli *cli, struct cli_owners *ret);
const char *cli_owners_name(const struct cli_owners *owners, uint32_t owner);

/* Sessions, as far as we may know them: whose a lease is. */
struct cli_session {
	uint64_t session;
	uint32_t owner, pid, uid;
	Hugepool__V1__SessionState state;
	char command[64];
};
struct cli_sessions {
	struct cli_session *known; /* by number of the session */
	size_t nr, room;
};
int cli_sessions_load(struct cli *cli, struct cli_sessions *ret);
void cli_sessions_free(struct cli_sessions *sessions);
const struct cli_session *cli_sessions_find(const struct cli_sessions *sessions, uint64_t session);
const char *cli_session_state_name(Hugepool__V1__SessionState state);

/* --- machine.c -------------------------------------------------------------------------------- */

/*
 * The huge pages of this machine that are not hugepool's, as far as we may look: what processes have
 * mapped, files on mounts of hugetlbfs, and the kernel's counts. daemon: process of hugepoold, whose
 * files are left out; if they cannot be told, its clients are. Return: NULL: no memory.
 */
json_t *cli_machine(pid_t daemon, const struct cli_sessions *clients);

/* --- print.c ---------------------------------------------------------------------------------- */

/* What was asked for and what there is, on stderr. */
void cli_print_figures(const struct hugepool_error *error);

/* Says what went wrong and what can be done. Return: EXIT_FAILED. */
int cli_fail(struct cli *cli, int error);

/* Prints and frees it. Return: exit status. */
int cli_print_json(json_t *json);

/* "64 MiB": exact, in the largest unit that divides it. */
#define CLI_SIZE_MAX 32
const char *cli_size(char buffer[CLI_SIZE_MAX], uint64_t bytes);

/* "2 h 05 min": in the two units that matter. */
#define CLI_AGE_MAX 32
const char *cli_age(char buffer[CLI_AGE_MAX], uint64_t ms);

/* "NODE" of /proc's files. */
const char *cli_node(char buffer[16], int node);

/* Bytes of the wire as a C string: cut, and without control characters. */
#define CLI_TEXT_MAX (HP_MESSAGE_MAX + 1)
const char *cli_text(char buffer[CLI_TEXT_MAX], ProtobufCBinaryData bytes);

/* "2M", "2Mi", "2MiB", "2048kB", "1G", "4096": powers of 1024. Return: 0, -EINVAL, -ERANGE. */
int cli_parse_size(const char *text, uint64_t *ret);

/* "500ms", "10s", "10", "5min", "2h", at most a day. Return: 0, -EINVAL, -ERANGE. */
int cli_parse_duration(const char *text, uint64_t *ret_ms);

/* --- json.c ----------------------------------------------------------------------------------- */

/* Every field of a message by its name in the protocol. NULL: no memory. */
json_t *cli_json_message(const ProtobufCMessage *message);

/* As the JSON of a failure. */
json_t *cli_json_error(const struct hugepool_error *error);
