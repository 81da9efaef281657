/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager hands over at the start, and what it is told later. Without one (no
 * LISTEN_FDS, no NOTIFY_SOCKET) nothing is handed over and nothing is told.
 *
 * Main thread only.
 */
#pragma once

#include <stdint.h>

#define SERVICE_SOCKET_DATA  "data" /* FileDescriptorName= in the socket units */
#define SERVICE_SOCKET_ADMIN "admin"

/*
 * Takes over the sockets that we were started with, and keeps what the manager said from our
 * children. Once, before anything else. Return: 0; -EINVAL, the reason logged, if something else
 * than listening UNIX stream sockets with known names came.
 */
int service_init(void);

/* The listening socket of that name, which is the caller's from now on; -1: there was none. */
int service_take_socket(const char *name);

/* All the configured memory is there. */
void service_ready(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line for whoever looks at the service. */
void service_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

void service_stopping(void);

/* How long it may at most go unfed, in microseconds; 0: there is no watchdog. */
uint64_t service_watchdog_us(void);
void service_feed_watchdog(void);
