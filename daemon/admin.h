/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the main thread does for the admin: tenants made and deleted, quotas, a new configuration.
 *
 * Main thread only.
 */
#pragma once

#include <event2/event.h>

#include "daemon/config.h"
#include "daemon/doors.h"
#include "daemon/net/worker.h"

struct admin;

/*
 * All are borrowed. running: what the daemon started with. net: with orders, workers and everything
 * else in it by the time of the first admin_look(). Return: 0 or -ENOMEM.
 */
int admin_new(struct admin **ret, struct event_base *base, const struct config *running,
	      const struct net *net, struct doors *doors);
struct admin *admin_free(struct admin *admin); /* NULL is fine; returns NULL */

/* Opens the sockets of tenants that an earlier daemon made; what cannot be had is logged. */
void admin_restore(struct admin *admin);

/* Does what was ordered, and goes on with what is under way. */
void admin_look(struct admin *admin);

/* Reads the configuration again; what comes of it is logged. */
void admin_reload(struct admin *admin);
