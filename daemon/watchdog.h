/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the service manager's watchdog, but only while every worker answers: an event loop that is
 * stuck ends the daemon, which comes back with its leases, instead of hanging its clients for ever.
 *
 * Main thread only.
 */
#pragma once

#include <stddef.h>

struct event_base;
struct watchdog;
struct worker;

/*
 * workers: borrowed, running until watchdog_free(). Without a watchdog on the other side there is
 * nothing to do: *ret is NULL, and no timer runs. Return: 0 or -ENOMEM.
 */
int watchdog_new(struct watchdog **ret, struct event_base *base, struct worker **workers,
		 size_t nr_workers);

struct watchdog *watchdog_free(struct watchdog *watchdog); /* NULL is fine; returns NULL */
