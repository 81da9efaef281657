/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup fds: hands the directories of the blocks to the daemon, which has no right to enter
 * the namespace. Started by socket activation (it ends when idle, and is started again) or with
 * --listen (it stays).
 *
 * It answers root and the user that "up" was run for, and nobody else. Each request is served by a
 * child, which enters the namespace and ends: the server itself never lives there, and sees the
 * namespace that is pinned now, not the one of its start.
 *
 * From before its socket is made the signals that end it only pend, so that at whatever moment one
 * comes, the socket and its lock are taken away again.
 */
#include "daemon/endpoint.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/directories.h"
#include "daemon/setup/namespace.h"
#include "daemon/setup/record.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ACTIVATION_FD	3
#define IDLE_TIMEOUT_MS 10000 /* when socket-activated */
#define SOCKET_MODE	0666

struct fds {
	const struct config *config;
	int listener, signals;
	bool activated;
};

/* --- one request ------------------------------------------------------------------------------ */

static int send_block(void *userdata, const char *zone, unsigned block, int fd)
{
	return directories_send_consume_fd(userdata, zone, block, fd);
}

static int send_blocks(struct directories_sender *sender, struct setup_namespace *ns)
{
	int r;

	r = namespace_is_pinned(ns);
	if (r == 1)
		r = namespace_enter(ns); /* this process ends here: no way back is needed */
	else if (r == 0)
		r = -ENOENT;
	return r < 0 ? r : namespace_for_each_block(send_block, sender);
}

static int send_end(struct directories_sender *sender, int error)
{
	static const char nothing[] = "nothing is set up: run \"hugepool-setup up\"",
			  changing[] = "another hugepool-setup is at work: try again",
			  failed[] = "hugepool-setup cannot open the blocks";

	return directories_send_end(sender, error,
				    error == 0	      ? ""
				    : error == ENOENT ? nothing
				    : error == EBUSY  ? changing
						      : failed);
}

/* The daemon locks what it is handed, then hangs up. Until then nobody may take it down. */
static void wait_for_end(int socket)
{
	char byte;
	ssize_t n;

	do
		n = recv(socket, &byte, sizeof(byte), 0);
	while (n < 0 && errno == EINTR);
}

static int serve(const struct config *config, int socket)
{
	struct directories_sender sender;
	struct setup_namespace ns;
	int opened, r;

	directories_sender_init(&sender, socket);
	opened = r = namespace_open(&ns, config->namespace_path, NAMESPACE_USE);
	if (r == 0)
		r = send_blocks(&sender, &ns);
	r = send_end(&sender, -r);
	directories_sender_deinit(&sender);
	if (opened == 0) {
		wait_for_end(socket);
		namespace_close(&ns);
	}
	return r < 0 ? setup_fail("cannot hand out descriptors: %s", strerror(-r)) : 0;
}

static bool may_ask(const struct config *config, uid_t uid)
{
	struct setup_namespace ns;
	struct setup_record record;
	bool answer = false;

	if (uid == 0)
		return true;
	if (namespace_open(&ns, config->namespace_path, NAMESPACE_LOOK) < 0)
		return false;
	setup_record_init(&record, ns.dirfd, 0);
	if (setup_record_load(&record) == 1)
		answer = record.uid == uid;
	namespace_close(&ns);
	return answer;
}

static void handle(const struct fds *fds, int socket)
{
	const struct timeval timeout = {.tv_sec = DIRECTORIES_TIMEOUT_SEC};
	socklen_t length = sizeof(struct ucred);
	struct ucred peer;
	pid_t pid;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return;
	if (!may_ask(fds->config, peer.uid)) {
		setup_warn("refused: pid=%d uid=%u", (int)peer.pid, peer.uid);
		return;
	}
	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	pid = fork();
	if (pid == 0)
		_exit(serve(fds->config, socket));
	if (pid < 0)
		setup_warn("cannot fork: %s", strerror(errno));
	else
		waitpid(pid, NULL, 0);
}

/* --- the socket ------------------------------------------------------------------------------- */

/* 0: not activated. As sd_listen_fds(3) describes it. */
static int activation_fd(void)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");

	return pid && n && atol(pid) == (long)getpid() && atol(n) >= 1 ? ACTIVATION_FD : 0;
}

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static int run(const struct fds *fds)
{
	struct pollfd polled[] = {{.fd = fds->listener, .events = POLLIN},
				  {.fd = fds->signals, .events = POLLIN}};

	for (;;) {
		int n = poll(polled, 2, fds->activated ? IDLE_TIMEOUT_MS : -1), socket;

		if (n < 0 && errno != EINTR)
			return setup_fail("poll: %s", strerror(errno));
		if (n == 0 || (n > 0 && polled[1].revents))
			return 0;
		if (n < 0)
			continue;
		socket = accept4(fds->listener, NULL, NULL, SOCK_CLOEXEC);
		if (socket < 0 && errno != ECONNABORTED && errno != EINTR && errno != EAGAIN)
			return setup_fail("accept: %s", strerror(errno));
		if (socket < 0)
			continue;
		handle(fds, socket);
		close(socket);
	}
}

/* Everybody may connect; SO_PEERCRED decides. */
int setup_fds(const struct setup_options *options)
{
	const char *path = options->listen ? options->listen : options->config->setup_socket;
	struct fds fds = {.config = options->config, .listener = activation_fd()};
	struct endpoint *endpoint = NULL;
	int status;

	fds.activated = fds.listener > 0;
	fds.signals = block_signals();
	if (fds.signals < 0)
		return setup_fail("signalfd: %s", strerror(errno));
	if (!fds.activated) {
		if (endpoint_open(&endpoint, path, SOCK_SEQPACKET, SOCKET_MODE, NULL) < 0)
			return EXIT_FAILURE; /* it said why */
		fds.listener = endpoint_fd(endpoint);
	}
	status = run(&fds);
	endpoint_close(endpoint);
	return status;
}
