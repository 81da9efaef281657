/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors: the listening sockets that tenants have of their own, those of the configuration and those of
 * tenants that were made at run time. Clients wait in the kernel until the daemon serves.
 *
 * Main thread only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/net/listener.h"

struct doors;
struct door;

/* base and acceptor are borrowed. Return: 0 or -ENOMEM. */
int doors_new(struct doors **ret, struct event_base *base, struct acceptor *acceptor);
struct doors *doors_free(struct doors *doors); /* closes all; NULL is fine; returns NULL */

/* From now on connections are accepted. Return: 0 or -ENOMEM. */
int doors_serve(struct doors *doors);

/* --- of the configuration --------------------------------------------------------------------- */

/* The doors of a configuration, before it is taken: those that are missing are open, and nobody's. */
struct doors_plan {
	struct door *door[CONFIG_TENANTS_MAX]; /* per tenant; NULL: it has none */
	bool fresh[CONFIG_TENANTS_MAX];
};

/*
 * Opens what is missing. Return: 0; -errno, the reason logged: nothing has changed, and ret_index is the
 * tenant whose socket could not be made.
 */
int doors_prepare(struct doors *doors, const struct config *config, struct doors_plan *ret_plan,
		  size_t *ret_index);

/* Takes back what was opened. */
void doors_abandon(struct doors *doors, const struct config *config, struct doors_plan *plan);

/*
 * The configuration was taken: gives its tenants their doors, and closes those of tenants that are
 * not there, or have none, any more. What cannot be done (no memory) is logged.
 */
void doors_commit(struct doors *doors, const struct config *config, struct doors_plan *plan,
		  struct tenants *tenants);

/* --- of tenants that were made ---------------------------------------------------------------- */

/* Return: 0; -errno, the reason logged. The tenant has to stay until the door is closed. */
int doors_open_made(struct doors *doors, const char *path, struct tenant *tenant);

/* Who waits there is turned away. */
void doors_close_made(struct doors *doors, const struct tenant *tenant);
