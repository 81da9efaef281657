/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new configuration for a daemon that runs: all of it that can change, or nothing.
 *
 * Main thread only.
 */
#pragma once

#include <stdint.h>

#include "daemon/config.h"
#include "daemon/doors.h"
#include "daemon/pool/pool.h"
#include "daemon/tenancy/tenant.h"

#define RELOAD_RESTART_MAX 64		      /* names that are kept of what needs a restart */
#define RELOAD_NAME_MAX	   (HP_NAME_MAX + 64) /* bytes of one */

/* Everything is logged as well. */
struct reload_outcome {
	unsigned nr_mistakes;
	char mistake[HP_MESSAGE_MAX]; /* the first: "file:line: what is wrong, what was expected" */
	unsigned nr_restart;	      /* keys that changed and have to wait for a restart */
	char restart[RELOAD_RESTART_MAX][RELOAD_NAME_MAX];
	uint32_t nr_tenants; /* in the configuration */
};

/*
 * Reads the files of the configuration again, checks all of it, also against tenants that were made at
 * run time, and takes over tenants with their sockets, limits and guarantees, watermarks, delay and
 * rate. Zones with another geometry stay as they are, with their quotas. running: what the daemon
 * started with. Return: 0, or -errno: nothing has changed.
 */
int reload(const struct config *running, struct pool *pool, struct tenants *tenants,
	   struct doors *doors, struct reload_outcome *ret);
