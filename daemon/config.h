/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: read once, checked as a whole, then immutable. Shared by hugepoold and
 * hugepool-setup. systemd/hugepool.conf documents every key.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/limits.h"

#define CONFIG_DEFAULT_PATH "/etc/hugepool/hugepool.conf"
#define CONFIG_TENANTS_MAX  256
#define CONFIG_NAME_MAX	    32 /* characters of a zone's or tenant's name: letters, digits, _ . - */
#define CONFIG_EXIT_STATUS  78 /* EX_CONFIG: of every program, for a configuration it cannot use */

enum config_policy {
	CONFIG_POLICY_UID,     /* users who are not named are tenants of their own */
	CONFIG_POLICY_SESSION, /* connections of users who are not named are */
};

enum config_backing { CONFIG_BACKING_HUGETLB, CONFIG_BACKING_MEMFD, CONFIG_BACKING_SHMEM };

/* [zone NAME] */
struct config_zone {
	char name[HP_NAME_MAX + 1];
	uint64_t page_bytes, block_bytes,
		size_bytes, /* size is a multiple of block, block of page */
		max_bytes;  /* what it may be made to grow to, not below size */
	int node;	    /* -1: any */
	enum config_backing backing;
	uint32_t clean_min, clean_low, clean_high; /* blocks */
	bool grow;				   /* grow-nr-hugepages */
	const char *file; /* of its section, for messages: one of config.files */
	unsigned line;
};

struct config_quota {
	bool given;
	uint32_t limit_blocks, guarantee_blocks;
};

/* [tenant NAME], and [default] for everybody else. */
struct config_tenant {
	char name[HP_NAME_MAX + 1];
	bool has_uid; /* it has a uid, or a socket, or both */
	uid_t uid;
	char *socket;				 /* path; NULL: none of its own */
	mode_t socket_mode;			 /* default 0660 */
	char *socket_group;			 /* NULL: that of the process */
	uint32_t sessions;			 /* connections at one time */
	struct config_quota quota[HP_ZONES_MAX]; /* per zone, in the order of zones */
	const char *file;			 /* as of a zone */
	unsigned line;
};

struct config {
	/* [daemon] */
	char *socket, *admin_socket; /* paths */
	mode_t socket_mode;	     /* of the data socket, default 0660 */
	char *socket_group;	     /* NULL: that of the process */
	enum config_policy policy;
	char *setup_socket;   /* where hugepool-setup hands out directory descriptors */
	char *namespace_path; /* the pin of the mount namespace */
	unsigned workers;     /* event loops, default 1 */
	unsigned recycle_threads;
	uint64_t recycle_rate_bytes; /* a second, 0: no limit */
	char *state_path;	     /* the state file; NULL: leases end with the daemon */
	unsigned grace_ms;	     /* how long broken sessions may be resumed */
	unsigned idle_delay_ms; /* before idle blocks of a tenant without sessions are reclaimed */

	struct config_zone *zones;
	size_t nr_zones;
	struct config_tenant *tenants;
	size_t nr_tenants;
	struct config_tenant defaults; /* [default]; without it half of each zone, no guarantee */

	char **files; /* that were read: the main one first */
	size_t nr_files;
};

/*
 * Reads path, then the files of the directory path + ".d" that end in .conf, in order of name, and
 * checks everything. On a mistake report is called once for each with "file:line: what is wrong,
 * what was expected". Return: 0; -EINVAL for mistakes; -errno if a file cannot be read (reported as
 * well).
 */
typedef void (*config_report_fn)(void *userdata, const char *message);
int config_load(struct config **ret, const char *path, config_report_fn report, void *userdata);
struct config *config_free(struct config *config); /* NULL is fine; returns NULL */

/*
 * The keys, as "[daemon] workers", and zones, as "[zone x]", that differ and that a running daemon cannot
 * change: report is called for each. Tenants, watermarks, delays and rates it can.
 */
void config_compare(const struct config *running, const struct config *wanted,
		    config_report_fn report, void *userdata);

/* Of this name; NULL: there is none. */
const struct config_zone *config_find_zone(const struct config *config, const char *name);

/* Equal but for what can change at run time? */
bool config_same_zone(const struct config_zone *a, const struct config_zone *b);

/* "2M", "2Mi", "2MiB", "2048kB", "1G", "4096": powers of 1024. Return: 0 or -EINVAL / -ERANGE. */
int config_parse_size(const char *text, uint64_t *ret_bytes);

/*
 * "2M", "512K", "1536" for 1536: the largest unit that divides it. buffer is returned. A size of
 * zero is "0".
 */
#define CONFIG_SIZE_TEXT_MAX 24
char *config_format_size(uint64_t bytes, char buffer[CONFIG_SIZE_TEXT_MAX]);

/* Whether it may be the name of a zone or of a tenant: see CONFIG_NAME_MAX; not beginning with '.'. */
bool config_is_name(const char *text);

/* The table of keys, for the test that compares it with the example. False: there is no i-th key.
 */
bool config_key(size_t i, const char **ret_section, const char **ret_key);
