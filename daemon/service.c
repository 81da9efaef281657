/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sd_listen_fds(3) and sd_notify(3). Descriptors have names, so that one unit may bring the socket
 * of the clients and another one that of the administrator, in whatever order they come; what has
 * no name that we know is a mistake in a unit, and better refused than served to the wrong people.
 */
#include "daemon/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "daemon/log.h"

#define STATUS_MAX 256

static struct {
	const char *name;
	int fd;
} sockets[] = {{SERVICE_SOCKET_DATA, -1}, {SERVICE_SOCKET_ADMIN, -1}};

#define NR_SOCKETS (sizeof(sockets) / sizeof(sockets[0]))

static uint64_t watchdog_us;

static int keep_socket(const char *name, int fd)
{
	for (size_t i = 0; i < NR_SOCKETS; i++) {
		if (strcmp(sockets[i].name, name) != 0)
			continue;
		if (sockets[i].fd >= 0) {
			log_error("started with two sockets of one name name=%s", name);
			return -EINVAL;
		}
		if (sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) <= 0) {
			log_error("started with something else than a listening UNIX stream socket "
				  "name=%s",
				  name);
			return -EINVAL;
		}
		if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
			return -errno;
		sockets[i].fd = fd;
		return 0;
	}
	log_error("started with a socket that has no use here name=%s known=\"%s, %s\": "
		  "FileDescriptorName= in its unit",
		  name, SERVICE_SOCKET_DATA, SERVICE_SOCKET_ADMIN);
	return -EINVAL;
}

int service_init(void)
{
	char **names = NULL;
	uint64_t us = 0;
	int n = sd_listen_fds_with_names(1, &names), rc = n < 0 ? n : 0;

	for (int i = 0; i < n && !rc; i++)
		rc = keep_socket(names[i], SD_LISTEN_FDS_START + i);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	if (sd_watchdog_enabled(1, &us) > 0)
		watchdog_us = us;
	return rc;
}

int service_take_socket(const char *name)
{
	for (size_t i = 0; i < NR_SOCKETS; i++) {
		int fd = sockets[i].fd;

		if (strcmp(sockets[i].name, name) != 0)
			continue;
		sockets[i].fd = -1;
		return fd;
	}
	return -1;
}

static void tell(const char *state, const char *format, va_list ap)
{
	char text[STATUS_MAX];

	vsnprintf(text, sizeof(text), format, ap);
	(void)sd_notifyf(0, "%sSTATUS=%s", state, text);
}

void service_ready(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	tell("READY=1\n", format, ap);
	va_end(ap);
}

void service_status(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	tell("", format, ap);
	va_end(ap);
}

void service_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1");
}

uint64_t service_watchdog_us(void)
{
	return watchdog_us;
}

void service_feed_watchdog(void)
{
	(void)sd_notify(0, "WATCHDOG=1");
}
