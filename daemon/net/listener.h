/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting connections and dealing them out to the workers.
 *
 * Main thread only.
 */
#pragma once

#include <stddef.h>

#include <event2/event.h>

#include "daemon/net/worker.h"

/* Who new connections go to, and how many there may be; filled in by the server. */
struct acceptor {
	const struct net *net;
	struct worker **workers;
	size_t nr_workers;
	uint32_t sessions_max;	     /* HP_SESSIONS_MAX */
	uint32_t admin_sessions_max; /* HP_ADMIN_SESSIONS_MAX */
};

/*
 * Takes a connected socket, which is consumed: to a worker, or with an ERROR frame to its end.
 * Non-blocking and close-on-exec are the caller's business.
 */
void acceptor_take(struct acceptor *acceptor, int fd, enum socket_kind kind);

/* The same of one that came over the tenant's own socket. */
void acceptor_take_own(struct acceptor *acceptor, int fd, struct tenant *tenant);

struct listener;

/*
 * fd (listening, non-blocking) and acceptor are borrowed, and so is the tenant whose socket it is
 * (NULL: everybody's). Return: 0 or -errno.
 */
int listener_new(struct listener **ret, struct event_base *base, int fd, enum socket_kind kind,
		 struct tenant *tenant, struct acceptor *acceptor);

/* Connections wait in the kernel until this is called. Return: 0 or -ENOMEM. */
int listener_start(struct listener *listener);

struct listener *listener_free(struct listener *listener); /* NULL is fine; returns NULL */
