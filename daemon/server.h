/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as an object: owns everything below it and ties it together.
 *
 * All for the thread that made it, except server_stop(), which any may call.
 */
#pragma once

#include "daemon/config.h"

struct server;

/*
 * Takes the sockets, then makes pool, tenants and workers; nothing is served yet. config is
 * borrowed. Return: 0; -ECANCELED if SIGTERM or SIGINT pends and there was long to wait; -errno, the
 * reason logged. Nothing is left behind on failure.
 */
int server_new(struct server **ret, const struct config *config);

/* From now on SIGTERM and SIGINT stop it. Once a process. Return: 0 or -ENOMEM. */
int server_handle_signals(struct server *server);

/* Fills the pool in the background and serves until it is stopped. Return: 0 or -errno. */
int server_run(struct server *server);

void server_stop(struct server *server);

/* Ends every session, gives everything back. NULL is fine; returns NULL. */
struct server *server_free(struct server *server);
