/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of descriptors, a listening socket stays readable and accept() keeps failing: the usual loop
 * spins, and clients hang. Here a spare descriptor is kept for that hour. It is given up to accept
 * whoever waits, tell him why, and close him again; then nothing is accepted until a timer says so.
 */
#include "daemon/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "daemon/log.h"
#include "daemon/net/reply.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

#define ACCEPT_BATCH 64	 /* connections of one event: signals and timers want their turn */
#define PAUSE_MS     100 /* out of descriptors or memory, or whatever it is */

struct listener {
	int fd;
	enum socket_kind kind;
	struct tenant *tenant; /* NULL: everybody's socket */
	struct acceptor *acceptor;
	int spare_fd; /* -1: could not be had yet */
	bool paused;
	struct event accept_event, pause_timer;
};

/* --- dealing out ------------------------------------------------------------------------------ */

static uint32_t count_connections(const struct acceptor *acceptor, enum socket_kind kind)
{
	uint32_t n = 0;

	for (size_t i = 0; i < acceptor->nr_workers; i++)
		n += *worker_connections(acceptor->workers[i], kind);
	return n;
}

static struct worker *least_busy(const struct acceptor *acceptor)
{
	struct worker *best = acceptor->workers[0];

	for (size_t i = 1; i < acceptor->nr_workers; i++)
		if (*worker_connections(acceptor->workers[i], SOCKET_DATA) <
		    *worker_connections(best, SOCKET_DATA))
			best = acceptor->workers[i];
	return best;
}

static void turn_away(int fd, Hugepool__V1__Code code, uint64_t limit, const char *sentence)
{
	refuse_connection(fd, code, limit, sentence);
	close(fd);
}

/* own: whose socket it is, or NULL. Return: 0 and the tenant entered, or -1: turned away. */
static int enter_tenant(struct acceptor *acceptor, int fd, struct tenant *own, struct tenant **ret)
{
	struct tenants *tenants = acceptor->net->tenants;
	uid_t uid;
	int rc = process_peer_uid(fd, &uid);

	if (rc) {
		turn_away(fd, CODE(INTERNAL), 0, "the daemon cannot tell who you are");
		return -1;
	}
	*ret = own;
	rc = own ? tenants_enter_own(tenants, own, uid) : tenants_enter(tenants, uid, ret);
	switch (rc) {
	case 0:
		return 0;
	case TENANT_TOO_MANY_SESSIONS:
		turn_away(fd, CODE(TOO_MANY),
			  own ? own->sessions_max : tenants_sessions_max(tenants, uid),
			  "sessions of this tenant; close some, or have `sessions` raised");
		break;
	case TENANT_TOO_MANY_TENANTS:
		turn_away(fd, CODE(TOO_MANY), HP_TENANTS_MAX - 1,
			  "tenants; wait until others have given everything back");
		break;
	case TENANT_NOT_FOR_USER:
		turn_away(fd, CODE(PERMISSION), 0, "this socket is that of another user");
		break;
	case TENANT_LEAVES:
		turn_away(fd, CODE(SHUTTING_DOWN), 0, "this tenant is being deleted");
		break;
	case -ENOMEM:
		turn_away(fd, CODE(INTERNAL), 0, "the daemon is out of memory");
		break;
	default:
		turn_away(fd, CODE(INTERNAL), 0, "the daemon cannot make you a tenant");
	}
	return -1;
}

static void take(struct acceptor *acceptor, int fd, enum socket_kind kind, struct tenant *own)
{
	uint32_t max = kind == SOCKET_ADMIN ? acceptor->admin_sessions_max : acceptor->sessions_max;
	struct tenant *tenant = NULL;

	if (count_connections(acceptor, kind) >= max) {
		turn_away(fd, CODE(TOO_MANY), max, "sessions of this daemon; try again later");
		return;
	}
	if (kind == SOCKET_DATA && enter_tenant(acceptor, fd, own, &tenant))
		return;
	if (worker_hand_over(least_busy(acceptor), fd, kind, tenant)) {
		if (tenant)
			tenants_leave(acceptor->net->tenants, tenant);
		turn_away(fd, CODE(INTERNAL), 0, "the daemon is out of memory");
	}
}

void acceptor_take(struct acceptor *acceptor, int fd, enum socket_kind kind)
{
	take(acceptor, fd, kind, NULL);
}

void acceptor_take_own(struct acceptor *acceptor, int fd, struct tenant *tenant)
{
	take(acceptor, fd, SOCKET_DATA, tenant);
}

/* --- accepting -------------------------------------------------------------------------------- */

static int accept_one(const struct listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

static int open_spare(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Accepts and turns away who is waiting, at most a batch, with the one descriptor that is left. */
static void turn_away_waiting(struct listener *listener)
{
	for (int i = 0; i < ACCEPT_BATCH && listener->spare_fd >= 0; i++) {
		int fd;

		close(listener->spare_fd);
		fd = accept_one(listener);
		if (fd >= 0)
			turn_away(fd, CODE(INTERNAL), 0,
				  "the daemon is out of descriptors; try again later");
		listener->spare_fd = open_spare();
		if (fd < 0)
			return;
	}
}

static void pause_accepting(struct listener *listener, int reason)
{
	struct timeval tv = {.tv_usec = PAUSE_MS * 1000};

	if (!listener->paused)
		log_error("accepting nobody for now reason=\"%s\"", strerror(-reason));
	listener->paused = true;
	turn_away_waiting(listener);
	event_del(&listener->accept_event);
	evtimer_add(&listener->pause_timer, &tv);
}

static void on_pause_over(evutil_socket_t fd, short what, void *userdata)
{
	struct listener *listener = userdata;

	(void)fd;
	(void)what;
	if (listener->spare_fd < 0)
		listener->spare_fd = open_spare();
	event_add(&listener->accept_event, NULL);
}

static void on_acceptable(evutil_socket_t listening, short what, void *userdata)
{
	struct listener *listener = userdata;

	(void)listening;
	(void)what;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept_one(listener);

		if (fd == -EAGAIN)
			return;
		if (fd == -ECONNABORTED || fd == -EINTR)
			continue; /* that one has gone again */
		if (fd < 0) {
			pause_accepting(listener, fd);
			return;
		}
		if (listener->paused)
			log_notice("accepting again");
		listener->paused = false;
		take(listener->acceptor, fd, listener->kind, listener->tenant);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

int listener_new(struct listener **ret, struct event_base *base, int fd, enum socket_kind kind,
		 struct tenant *tenant, struct acceptor *acceptor)
{
	struct listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	listener->fd = fd;
	listener->kind = kind;
	listener->tenant = tenant;
	listener->acceptor = acceptor;
	listener->spare_fd = open_spare();
	event_assign(&listener->accept_event, base, fd, EV_READ | EV_PERSIST, on_acceptable,
		     listener);
	evtimer_assign(&listener->pause_timer, base, on_pause_over, listener);
	*ret = listener;
	return 0;
}

int listener_start(struct listener *listener)
{
	return event_add(&listener->accept_event, NULL) ? -ENOMEM : 0;
}

struct listener *listener_free(struct listener *listener)
{
	if (!listener)
		return NULL;
	event_del(&listener->accept_event);
	event_del(&listener->pause_timer);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	free(listener);
	return NULL;
}
