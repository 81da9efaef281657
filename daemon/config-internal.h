/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the configuration share: config-file.c reads files into a draft, config-key.c
 * knows sections and keys, config-value.c turns texts into values, config-check.c makes of the draft
 * a configuration that holds together, and config.c has them do it in this order.
 */
#pragma once

#include "daemon/config.h"

#include <stdio.h>

/*
 * Where something was written; file (one of config.files) is NULL for what was not. line is 0 for
 * the file as a whole.
 */
struct config_place {
	const char *file;
	unsigned line;
};

/* A number of blocks as it is written: a bare number counts blocks, one with a unit bytes. */
struct config_amount {
	struct config_place place;
	bool in_bytes;
	uint64_t value;
};

enum config_section { SECTION_NONE, SECTION_DAEMON, SECTION_ZONE, SECTION_TENANT, SECTION_DEFAULT };

/* Keys of a section, and where they were given in one section. */
enum {
	DAEMON_SOCKET,
	DAEMON_SOCKET_MODE,
	DAEMON_SOCKET_GROUP,
	DAEMON_POLICY,
	DAEMON_ADMIN_SOCKET,
	DAEMON_SETUP_SOCKET,
	DAEMON_NAMESPACE,
	DAEMON_WORKERS,
	DAEMON_RECYCLE_THREADS,
	DAEMON_RECYCLE_RATE,
	DAEMON_IDLE_DELAY,
	DAEMON_STATE,
	DAEMON_GRACE
};
enum {
	ZONE_PAGE_SIZE,
	ZONE_BLOCK_SIZE,
	ZONE_SIZE,
	ZONE_MAX_SIZE,
	ZONE_NODE,
	ZONE_BACKING,
	ZONE_GROW,
	ZONE_CLEAN_MIN,
	ZONE_CLEAN_LOW,
	ZONE_CLEAN_HIGH
};
enum { TENANT_UID, TENANT_SOCKET, TENANT_SOCKET_MODE, TENANT_SOCKET_GROUP, TENANT_SESSIONS };
#define CONFIG_KEYS_MAX	 16 /* of a section */
#define CONFIG_FILES_MAX 256

struct config_section_draft {
	struct config_place section, key[CONFIG_KEYS_MAX];
	bool spoiled; /* a value was not understood: nothing can follow from the section */
};

/* limit.ZONE and guarantee.ZONE: the zone may be described further down. */
struct config_quota_draft {
	size_t tenant; /* index of a tenant, or CONFIG_TENANT_DEFAULT */
	bool guarantee;
	char zone[CONFIG_NAME_MAX + 1];
	struct config_amount amount;
};
#define CONFIG_TENANT_DEFAULT SIZE_MAX
#define CONFIG_QUOTAS_MAX     ((CONFIG_TENANTS_MAX + 1) * HP_ZONES_MAX * 2)

struct config_draft {
	struct config *config;
	struct config_section_draft daemon, defaults;
	struct config_section_draft zones[HP_ZONES_MAX], tenants[CONFIG_TENANTS_MAX];
	struct config_amount clean[HP_ZONES_MAX][3]; /* min, low, high */
	struct config_quota_draft *quotas;
	size_t nr_quotas;

	const char *path; /* of the main file */
	config_report_fn report;
	void *userdata;
	unsigned mistakes;
};

/* Counts a mistake and reports it with its place in front. */
void config_mistake(struct config_draft *draft, struct config_place place, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The state of reading one file. */
struct config_reader {
	struct config_draft *draft;
	FILE *file;
	struct config_place place;   /* of the line at hand */
	enum config_section section; /* SECTION_NONE: of a section that was refused */
	size_t index;		     /* of the zone or tenant */
	bool no_section_reported;
};

/* config-key.c. line: "[...", without blanks in front; changed. */
void config_open_section(struct config_reader *reader, char *line);
void config_take_key(struct config_reader *reader, const char *name, const char *value);

/* config-file.c. Return: 0 or -errno, reported; mistakes in the files are counted. */
int config_read_files(struct config_draft *draft, const char *path);

/* Fills what was left out and checks what only the whole can tell. Mistakes are counted. */
void config_check(struct config_draft *draft);

/*
 * Texts to values. Return: NULL, or what would have been right: a phrase that goes on after
 * "expected ". The value is written only on success.
 */
const char *config_value_bool(const char *text, bool *ret);
const char *config_value_size(const char *text, uint64_t *ret);
const char *config_value_amount(const char *text, struct config_amount *ret); /* not its place */
const char *config_value_duration(const char *text, unsigned *ret_ms);
const char *config_value_policy(const char *text, enum config_policy *ret);
const char *config_value_mode(const char *text, mode_t *ret);
const char *config_value_backing(const char *text, enum config_backing *ret);
const char *config_value_node(const char *text, int *ret);
const char *config_value_uid(const char *text, uid_t *ret);
const char *config_value_path(const char *text, char **ret);	    /* replaces the string */
const char *config_value_socket_path(const char *text, char **ret); /* fits a sockaddr_un */
const char *config_value_group(const char *text, char **ret);
int config_value_count(const char *text, uint64_t min, uint64_t max, unsigned *ret);
