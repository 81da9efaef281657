/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sections and keys: what a key means is one row of the table below and nowhere else.
 *
 * Nothing is decided here except what one value tells by itself: files, sections and zones may come
 * in any order. config-check.c looks at the whole. A key given twice is a mistake, also when the
 * second time is in another file: files of hugepool.conf.d add, they do not override.
 */
#include "daemon/config-internal.h"

#include <stdio.h>
#include <string.h>

#define KNOWN_KEYS_MAX	    512 /* characters */
#define WORKERS_MAX	    64
#define RECYCLE_THREADS_MAX 64

static const char *const section_names[] = {"", "daemon", "zone", "tenant", "default"};

enum kind {
	KIND_SOCKET_PATH,
	KIND_PATH,
	KIND_MODE,
	KIND_GROUP,
	KIND_POLICY,
	KIND_COUNT,
	KIND_SIZE,
	KIND_DURATION,
	KIND_NODE,
	KIND_BACKING,
	KIND_BOOL,
	KIND_UID,
	KIND_CLEAN, /* slot tells which watermark */
	KIND_LIMIT, /* the name goes on with that of a zone */
	KIND_GUARANTEE,
};

struct key {
	enum config_section section;
	const char *name;
	enum kind kind;
	unsigned slot;	   /* of its place in config_section_draft.key */
	size_t offset;	   /* of its field in config, config_zone or config_tenant */
	unsigned min, max; /* of KIND_COUNT */
};

#define DAEMON(field) offsetof(struct config, field)
#define ZONE(field)   offsetof(struct config_zone, field)
#define TENANT(field) offsetof(struct config_tenant, field)

/* clang-format off */
static const struct key keys[] = {
	{SECTION_DAEMON, "socket",          KIND_SOCKET_PATH, DAEMON_SOCKET,          DAEMON(socket), 0, 0},
	{SECTION_DAEMON, "socket-mode",     KIND_MODE,        DAEMON_SOCKET_MODE,     DAEMON(socket_mode), 0, 0},
	{SECTION_DAEMON, "socket-group",    KIND_GROUP,       DAEMON_SOCKET_GROUP,    DAEMON(socket_group), 0, 0},
	{SECTION_DAEMON, "policy",          KIND_POLICY,      DAEMON_POLICY,          DAEMON(policy), 0, 0},
	{SECTION_DAEMON, "admin-socket",    KIND_SOCKET_PATH, DAEMON_ADMIN_SOCKET,    DAEMON(admin_socket), 0, 0},
	{SECTION_DAEMON, "setup-socket",    KIND_SOCKET_PATH, DAEMON_SETUP_SOCKET,    DAEMON(setup_socket), 0, 0},
	{SECTION_DAEMON, "namespace",       KIND_PATH,        DAEMON_NAMESPACE,       DAEMON(namespace_path), 0, 0},
	{SECTION_DAEMON, "workers",         KIND_COUNT,       DAEMON_WORKERS,         DAEMON(workers), 1, WORKERS_MAX},
	{SECTION_DAEMON, "recycle-threads", KIND_COUNT,       DAEMON_RECYCLE_THREADS, DAEMON(recycle_threads), 1, RECYCLE_THREADS_MAX},
	{SECTION_DAEMON, "recycle-rate",    KIND_SIZE,        DAEMON_RECYCLE_RATE,    DAEMON(recycle_rate_bytes), 0, 0},
	{SECTION_DAEMON, "idle-delay",      KIND_DURATION,    DAEMON_IDLE_DELAY,      DAEMON(idle_delay_ms), 0, 0},
	{SECTION_DAEMON, "state",           KIND_PATH,        DAEMON_STATE,           DAEMON(state_path), 0, 0},
	{SECTION_DAEMON, "grace",           KIND_DURATION,    DAEMON_GRACE,           DAEMON(grace_ms), 0, 0},

	{SECTION_ZONE, "page-size",         KIND_SIZE,    ZONE_PAGE_SIZE,  ZONE(page_bytes), 0, 0},
	{SECTION_ZONE, "block-size",        KIND_SIZE,    ZONE_BLOCK_SIZE, ZONE(block_bytes), 0, 0},
	{SECTION_ZONE, "size",              KIND_SIZE,    ZONE_SIZE,       ZONE(size_bytes), 0, 0},
	{SECTION_ZONE, "max-size",          KIND_SIZE,    ZONE_MAX_SIZE,   ZONE(max_bytes), 0, 0},
	{SECTION_ZONE, "node",              KIND_NODE,    ZONE_NODE,       ZONE(node), 0, 0},
	{SECTION_ZONE, "backing",           KIND_BACKING, ZONE_BACKING,    ZONE(backing), 0, 0},
	{SECTION_ZONE, "grow-nr-hugepages", KIND_BOOL,    ZONE_GROW,       ZONE(grow), 0, 0},
	{SECTION_ZONE, "clean-min",         KIND_CLEAN,   ZONE_CLEAN_MIN,  0, 0, 0},
	{SECTION_ZONE, "clean-low",         KIND_CLEAN,   ZONE_CLEAN_LOW,  0, 0, 0},
	{SECTION_ZONE, "clean-high",        KIND_CLEAN,   ZONE_CLEAN_HIGH, 0, 0, 0},

	{SECTION_TENANT, "uid",             KIND_UID,         TENANT_UID,          TENANT(uid), 0, 0},
	{SECTION_TENANT, "socket",          KIND_SOCKET_PATH, TENANT_SOCKET,       TENANT(socket), 0, 0},
	{SECTION_TENANT, "socket-mode",     KIND_MODE,        TENANT_SOCKET_MODE,  TENANT(socket_mode), 0, 0},
	{SECTION_TENANT, "socket-group",    KIND_GROUP,       TENANT_SOCKET_GROUP, TENANT(socket_group), 0, 0},
	{SECTION_TENANT, "sessions",        KIND_COUNT,       TENANT_SESSIONS,     TENANT(sessions), 1, HP_SESSIONS_MAX},
	{SECTION_TENANT, "limit.",          KIND_LIMIT,       0, 0, 0, 0},
	{SECTION_TENANT, "guarantee.",      KIND_GUARANTEE,   0, 0, 0, 0},

	{SECTION_DEFAULT, "sessions",       KIND_COUNT,     TENANT_SESSIONS, TENANT(sessions), 1, HP_SESSIONS_MAX},
	{SECTION_DEFAULT, "limit.",         KIND_LIMIT,     0, 0, 0, 0},
};
/* clang-format on */
#define NR_KEYS (sizeof(keys) / sizeof(keys[0]))

bool config_key(size_t i, const char **ret_section, const char **ret_key)
{
	if (i >= NR_KEYS)
		return false;
	*ret_section = section_names[keys[i].section];
	*ret_key = keys[i].name;
	return true;
}

static size_t find_zone(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->nr_zones; i++)
		if (strcmp(config->zones[i].name, name) == 0)
			return i;
	return SIZE_MAX;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* Can it change while the daemon runs? */
static bool is_live(const struct key *key)
{
	if (key->section == SECTION_DAEMON)
		return key->slot == DAEMON_POLICY || key->slot == DAEMON_RECYCLE_RATE ||
		       key->slot == DAEMON_IDLE_DELAY;
	/* the size is what "hugepool-setup up" and the next start make, and RESIZE in between */
	return key->section != SECTION_ZONE || key->kind == KIND_CLEAN || key->slot == ZONE_SIZE;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_value(const struct key *key, const void *a, const void *b)
{
	switch (key->kind) {
	case KIND_SOCKET_PATH:
	case KIND_PATH:
	case KIND_GROUP:
		return same_text(*(char *const *)a, *(char *const *)b);
	case KIND_SIZE:
		return memcmp(a, b, sizeof(uint64_t)) == 0;
	case KIND_MODE:
		return memcmp(a, b, sizeof(mode_t)) == 0;
	case KIND_BACKING:
		return memcmp(a, b, sizeof(enum config_backing)) == 0;
	case KIND_BOOL:
		return *(const bool *)a == *(const bool *)b;
	case KIND_NODE:
	case KIND_COUNT:
	case KIND_DURATION:
		return memcmp(a, b, sizeof(unsigned)) == 0;
	case KIND_POLICY:
	case KIND_UID:
	case KIND_CLEAN:
	case KIND_LIMIT:
	case KIND_GUARANTEE:
		break; /* live, and not of [daemon] or a zone */
	}
	return true;
}

/* report: NULL, or called for each key that differs and is not live. Return: how many do. */
static unsigned compare(enum config_section section, const char *title, const void *a,
			const void *b, config_report_fn report, void *userdata)
{
	char name[HP_NAME_MAX + 64];
	unsigned n = 0;

	for (size_t i = 0; i < NR_KEYS; i++) {
		if (keys[i].section != section || is_live(&keys[i]) ||
		    same_value(&keys[i], (const char *)a + keys[i].offset,
			       (const char *)b + keys[i].offset))
			continue;
		n++;
		(void)snprintf(name, sizeof(name), "[%s] %s", title, keys[i].name);
		if (report)
			report(userdata, name);
	}
	return n;
}

const struct config_zone *config_find_zone(const struct config *config, const char *name)
{
	size_t index = find_zone(config, name);

	return index == SIZE_MAX ? NULL : &config->zones[index];
}

bool config_same_zone(const struct config_zone *a, const struct config_zone *b)
{
	return compare(SECTION_ZONE, a->name, a, b, NULL, NULL) == 0;
}

void config_compare(const struct config *running, const struct config *wanted,
		    config_report_fn report, void *userdata)
{
	char title[HP_NAME_MAX + 8];

	compare(SECTION_DAEMON, "daemon", running, wanted, report, userdata);
	for (size_t i = 0; i < running->nr_zones; i++) {
		const struct config_zone *a = &running->zones[i];
		const struct config_zone *b = config_find_zone(wanted, a->name);

		(void)snprintf(title, sizeof(title), b ? "zone %s" : "[zone %s]", a->name);
		if (b)
			compare(SECTION_ZONE, title, a, b, report, userdata);
		else
			report(userdata, title);
	}
	for (size_t i = 0; i < wanted->nr_zones; i++) {
		(void)snprintf(title, sizeof(title), "[zone %s]", wanted->zones[i].name);
		if (!config_find_zone(running, wanted->zones[i].name))
			report(userdata, title);
	}
}

/* --- sections --------------------------------------------------------------------------------- */

static size_t find_tenant(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->nr_tenants; i++)
		if (strcmp(config->tenants[i].name, name) == 0)
			return i;
	return SIZE_MAX;
}

static bool section_name_usable(struct config_reader *reader, const char *kind, const char *name,
				struct config_place earlier)
{
	if (!config_is_name(name)) {
		config_mistake(
			reader->draft, reader->place,
			"[%s %s]: expected a name of 1 to %d letters, digits, '_', '.' and '-'",
			kind, name, CONFIG_NAME_MAX);
		return false;
	}
	if (earlier.file) {
		config_mistake(
			reader->draft, reader->place,
			"[%s %s] given twice, first in %s:%u: expected one section for each %s",
			kind, name, earlier.file, earlier.line, kind);
		return false;
	}
	return true;
}

static void open_zone(struct config_reader *reader, const char *name)
{
	struct config_draft *draft = reader->draft;
	struct config *config = draft->config;
	size_t index = find_zone(config, name);
	struct config_place earlier = {NULL, 0};

	if (index != SIZE_MAX)
		earlier = draft->zones[index].section;
	if (!section_name_usable(reader, "zone", name, earlier))
		return;
	if (config->nr_zones == HP_ZONES_MAX) {
		config_mistake(draft, reader->place, "[zone %s]: expected at most %d zones", name,
			       HP_ZONES_MAX);
		return;
	}
	index = config->nr_zones++;
	config->zones[index] = (struct config_zone){
		.node = -1, .file = reader->place.file, .line = reader->place.line};
	memcpy(config->zones[index].name, name, strlen(name) + 1);
	draft->zones[index].section = reader->place;
	reader->section = SECTION_ZONE;
	reader->index = index;
}

static void open_tenant(struct config_reader *reader, const char *name)
{
	struct config_draft *draft = reader->draft;
	struct config *config = draft->config;
	size_t index = find_tenant(config, name);
	struct config_place earlier = {NULL, 0};

	if (index != SIZE_MAX)
		earlier = draft->tenants[index].section;
	if (!section_name_usable(reader, "tenant", name, earlier))
		return;
	if (config->nr_tenants == CONFIG_TENANTS_MAX) {
		config_mistake(draft, reader->place, "[tenant %s]: expected at most %d tenants",
			       name, CONFIG_TENANTS_MAX);
		return;
	}
	index = config->nr_tenants++;
	config->tenants[index] =
		(struct config_tenant){.file = reader->place.file, .line = reader->place.line};
	memcpy(config->tenants[index].name, name, strlen(name) + 1);
	draft->tenants[index].section = reader->place;
	reader->section = SECTION_TENANT;
	reader->index = index;
}

void config_open_section(struct config_reader *reader, char *line)
{
	struct config_draft *draft = reader->draft;
	char *end = strchr(line, ']'), *name = line + 1;

	reader->section = SECTION_NONE;
	reader->no_section_reported = true; /* its keys need no message of their own */
	if (!end || end[1 + strspn(end + 1, " \t\r\n")] != '\0') {
		line[strcspn(line, "\r\n")] = '\0';
		config_mistake(
			draft, reader->place,
			"%s: expected a section header such as [daemon] or [zone small], and nothing behind it",
			line);
		return;
	}
	*end = '\0';
	if (strcmp(name, "daemon") == 0) {
		reader->section = SECTION_DAEMON;
		if (!draft->daemon.section.file)
			draft->daemon.section = reader->place;
	} else if (strcmp(name, "default") == 0) {
		reader->section = SECTION_DEFAULT;
		if (!draft->defaults.section.file)
			draft->defaults.section = reader->place;
		draft->config->defaults.line = draft->defaults.section.line;
	} else if (strncmp(name, "zone ", 5) == 0) {
		open_zone(reader, name + 5);
	} else if (strncmp(name, "tenant ", 7) == 0) {
		open_tenant(reader, name + 7);
	} else {
		config_mistake(
			draft, reader->place,
			"[%s]: unknown section; expected [daemon], [zone NAME], [tenant NAME] or [default]",
			name);
	}
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool is_prefix(const struct key *key)
{
	return key->kind == KIND_LIMIT || key->kind == KIND_GUARANTEE;
}

static const struct key *find_key(enum config_section section, const char *name)
{
	for (size_t i = 0; i < NR_KEYS; i++) {
		const struct key *key = &keys[i];

		if (key->section != section)
			continue;
		if (is_prefix(key) ? strncmp(name, key->name, strlen(key->name)) == 0
				   : strcmp(name, key->name) == 0)
			return key;
	}
	return NULL;
}

static void unknown_key(struct config_reader *reader, const char *name)
{
	char known[KNOWN_KEYS_MAX] = "";
	size_t n = 0;

	for (size_t i = 0; i < NR_KEYS && n < sizeof(known); i++)
		if (keys[i].section == reader->section)
			n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s%s", n ? ", " : "",
					      keys[i].name, is_prefix(&keys[i]) ? "ZONE" : "");
	config_mistake(reader->draft, reader->place, "%s: unknown key of [%s]; expected one of %s",
		       name, section_names[reader->section], known);
}

static void set_quota(struct config_reader *reader, const struct key *key, const char *name,
		      const char *value)
{
	struct config_draft *draft = reader->draft;
	const char *zone = name + strlen(key->name), *expected;
	struct config_quota_draft quota = {
		.tenant =
			reader->section == SECTION_DEFAULT ? CONFIG_TENANT_DEFAULT : reader->index,
		.guarantee = key->kind == KIND_GUARANTEE,
	};

	if (!config_is_name(zone)) {
		config_mistake(draft, reader->place, "%s: expected %sZONE with the name of a zone",
			       name, key->name);
		return;
	}
	memcpy(quota.zone, zone, strlen(zone) + 1);
	for (size_t i = 0; i < draft->nr_quotas; i++) {
		const struct config_quota_draft *q = &draft->quotas[i];

		if (q->tenant == quota.tenant && q->guarantee == quota.guarantee &&
		    strcmp(q->zone, zone) == 0) {
			config_mistake(draft, reader->place, "%s given twice, first in %s:%u", name,
				       q->amount.place.file, q->amount.place.line);
			return;
		}
	}
	expected = config_value_amount(value, &quota.amount);
	if (expected) {
		config_mistake(draft, reader->place, "%s = %s: expected %s", name, value, expected);
		return;
	}
	if (draft->nr_quotas == CONFIG_QUOTAS_MAX) {
		config_mistake(draft, reader->place,
			       "%s: expected at most %d limits and guarantees", name,
			       CONFIG_QUOTAS_MAX);
		return;
	}
	quota.amount.place = reader->place;
	draft->quotas[draft->nr_quotas++] = quota;
}

/* Where the fields and the places of the section at hand are. */
static void *section_fields(struct config_reader *reader, struct config_section_draft **ret_places)
{
	struct config_draft *draft = reader->draft;

	switch (reader->section) {
	case SECTION_DAEMON:
		*ret_places = &draft->daemon;
		return draft->config;
	case SECTION_ZONE:
		*ret_places = &draft->zones[reader->index];
		return &draft->config->zones[reader->index];
	case SECTION_TENANT:
		*ret_places = &draft->tenants[reader->index];
		return &draft->config->tenants[reader->index];
	default:
		*ret_places = &draft->defaults;
		return &draft->config->defaults;
	}
}

static const char *set_field(struct config_reader *reader, const struct key *key, void *field,
			     const char *value, char buffer[static 64])
{
	switch (key->kind) {
	case KIND_SOCKET_PATH:
		return config_value_socket_path(value, field);
	case KIND_PATH:
		return config_value_path(value, field);
	case KIND_MODE:
		return config_value_mode(value, field);
	case KIND_GROUP:
		return config_value_group(value, field);
	case KIND_SIZE:
		return config_value_size(value, field);
	case KIND_DURATION:
		return config_value_duration(value, field);
	case KIND_NODE:
		return config_value_node(value, field);
	case KIND_BACKING:
		return config_value_backing(value, field);
	case KIND_BOOL:
		return config_value_bool(value, field);
	case KIND_UID:
		return config_value_uid(value, field);
	case KIND_CLEAN:
		return config_value_amount(
			value, &reader->draft->clean[reader->index][key->slot - ZONE_CLEAN_MIN]);
	case KIND_POLICY:
		return config_value_policy(value, field);
	case KIND_COUNT:
		if (config_value_count(value, key->min, key->max, field) == 0)
			return NULL;
		(void)snprintf(buffer, 64, "a number from %u to %u", key->min, key->max);
		return buffer;
	case KIND_LIMIT:
	case KIND_GUARANTEE:
		break; /* set_quota() */
	}
	return "something else";
}

void config_take_key(struct config_reader *reader, const char *name, const char *value)
{
	struct config_section_draft *places;
	const char *expected;
	const struct key *key;
	char buffer[64];
	char *fields;

	if (reader->section == SECTION_NONE) {
		if (!reader->no_section_reported)
			config_mistake(reader->draft, reader->place,
				       "%s: before any section; expected a header such as [daemon]",
				       name);
		reader->no_section_reported = true;
		return;
	}
	key = find_key(reader->section, name);
	if (!key) {
		unknown_key(reader, name);
		return;
	}
	if (is_prefix(key)) {
		set_quota(reader, key, name, value);
		return;
	}
	fields = section_fields(reader, &places);
	if (places->key[key->slot].file) {
		config_mistake(reader->draft, reader->place, "%s given twice, first in %s:%u", name,
			       places->key[key->slot].file, places->key[key->slot].line);
		return;
	}
	places->key[key->slot] = reader->place;
	expected = set_field(reader, key, fields + key->offset, value, buffer);
	if (expected) {
		places->spoiled = true;
		config_mistake(reader->draft, reader->place, "%s = %s: expected %s", name, value,
			       expected);
	}
}
