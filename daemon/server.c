/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which things are made is the order of what may fail without harm: first the right to
 * the socket paths (another daemon may have them), then the pool, which may begin to take memory,
 * then whatever serves it; everything is undone in the opposite order.
 *
 * The main thread has the listeners and the signals and nothing else to do: the pool is filled by
 * threads of its own, which tell what they did by callbacks. Clients are accepted as soon as there
 * is something to give; until then they wait in connect(), which is better than being told that
 * there is no memory. The admin is served at once.
 */
#include "daemon/server.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/admin.h"
#include "daemon/doors.h"
#include "daemon/endpoint.h"
#include "daemon/log.h"
#include "daemon/net/listener.h"
#include "daemon/net/order.h"
#include "daemon/net/resume.h"
#include "daemon/net/worker.h"
#include "daemon/ops/look.h"
#include "daemon/pool/pool.h"
#include "daemon/service.h"
#include "daemon/tenancy/clock.h"
#include "daemon/watchdog.h"

#define ADMIN_SOCKET_MODE 0600
#define MIB		  (UINT64_C(1) << 20)

struct server {
	const struct config *config;
	struct event_base *base;
	struct endpoint *data_endpoint, *admin_endpoint;
	struct pool *pool;
	struct net net; /* owns tenants, slots, leases */
	struct looks looks;
	struct ops ops;
	struct worker **workers;
	size_t nr_workers;
	struct acceptor acceptor;
	struct listener *data_listener, *admin_listener;
	struct doors *doors;
	struct doors_plan doors_plan; /* of the start */
	struct admin *admin;
	struct watchdog *watchdog;
	struct event terminate[2], hangup;
	bool handles_signals, serving;
	int result; /* of server_run() */

	/* from other threads to the main one */
	int wakeup_fd;
	struct event wakeup_event;
	_Atomic bool stopping, something_to_serve, filled;
	_Atomic bool admin_waits;
	_Atomic uint64_t online_bytes;
};

/* --- from other threads ----------------------------------------------------------------------- */

static void wake(struct server *server)
{
	uint64_t one = 1;

	while (write(server->wakeup_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void server_stop(struct server *server)
{
	server->stopping = true;
	wake(server);
}

static void on_clean(void *userdata, struct pool_zone *zone)
{
	struct server *server = userdata;

	waits_poke(server->net.waits, zone);
	if (!server->something_to_serve) {
		server->something_to_serve = true;
		wake(server);
	}
}

static void on_retired(void *userdata, struct pool_zone *zone, uint32_t block, uint64_t generation)
{
	struct server *server = userdata;

	for (size_t i = 0; i < server->nr_workers; i++)
		worker_retire(server->workers[i], zone, block, generation);
}

static void on_owner_changed(void *userdata, uint32_t owner)
{
	struct server *server = userdata;

	tenants_collect(server->net.tenants, shares_collect(server->net.shares, owner));
}

/* orders_wake_fn, tenants_empty_fn */
static void on_admin_waits(void *userdata)
{
	struct server *server = userdata;

	server->admin_waits = true;
	wake(server);
}

static void on_filled(void *userdata, uint64_t online_bytes, uint64_t configured_bytes)
{
	struct server *server = userdata;

	server->online_bytes = online_bytes;
	server->ops.configured_bytes = configured_bytes;
	server->filled = true;
	server->something_to_serve = true;
	wake(server);
}

/* --- main thread ------------------------------------------------------------------------------ */

static void start_serving(struct server *server)
{
	server->serving = true;
	server->result = listener_start(server->data_listener);
	if (!server->result)
		server->result = doors_serve(server->doors);
	if (server->result) {
		log_error("the socket cannot be listened on path=%s reason=\"%s\"",
			  server->config->socket, strerror(-server->result));
		server->stopping = true;
		return;
	}
	log_info("serving socket=%s", server->config->socket);
	if (!server->filled && !server->ops.ready)
		service_status("serving while the rest of the memory is made ready");
}

static void report_filled(struct server *server)
{
	uint64_t online = server->online_bytes, configured = server->ops.configured_bytes;

	server->ops.ready = online >= configured;
	if (online < configured) {
		service_status("short of memory: serving %llu of %llu MiB",
			       (unsigned long long)(online / MIB),
			       (unsigned long long)(configured / MIB));
		log_warning(
			"SHORT of memory: serving what there is online=%lluMiB configured=%lluMiB",
			(unsigned long long)(online / MIB), (unsigned long long)(configured / MIB));
	} else {
		service_ready("serving %llu MiB", (unsigned long long)(online / MIB));
		log_notice("READY online=%lluMiB configured=%lluMiB zones=%zu workers=%zu",
			   (unsigned long long)(online / MIB),
			   (unsigned long long)(configured / MIB), pool_nr_zones(server->pool),
			   server->nr_workers);
	}
}

static void on_wakeup(evutil_socket_t fd, short what, void *userdata)
{
	struct server *server = userdata;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	if (server->something_to_serve && !server->serving)
		start_serving(server);
	if (atomic_exchange(&server->admin_waits, false))
		admin_look(server->admin);
	if (atomic_exchange(&server->filled, false))
		report_filled(server);
	if (server->stopping)
		event_base_loopbreak(server->base);
}

static void on_terminate(evutil_socket_t number, short what, void *userdata)
{
	struct server *server = userdata;

	(void)what;
	log_notice("stopping signal=%s", sigabbrev_np(number));
	service_stopping();
	event_base_loopbreak(server->base);
}

static void on_hangup(evutil_socket_t number, short what, void *userdata)
{
	struct server *server = userdata;

	(void)number;
	(void)what;
	log_notice("reloading signal=HUP");
	admin_reload(server->admin);
}

int server_handle_signals(struct server *server)
{
	static const int numbers[] = {SIGTERM, SIGINT};

	for (size_t i = 0; i < 2; i++)
		evsignal_assign(&server->terminate[i], server->base, numbers[i], on_terminate,
				server);
	evsignal_assign(&server->hangup, server->base, SIGHUP, on_hangup, server);
	server->handles_signals = true;
	if (event_add(&server->hangup, NULL))
		return -ENOMEM;
	for (size_t i = 0; i < 2; i++)
		if (event_add(&server->terminate[i], NULL))
			return -ENOMEM;
	return 0;
}

int server_run(struct server *server)
{
	int rc = 0;

	for (size_t i = 0; i < server->nr_workers && !rc; i++)
		rc = worker_start(server->workers[i]);
	if (!rc)
		rc = listener_start(server->admin_listener);
	if (!rc)
		rc = watchdog_new(&server->watchdog, server->base, server->workers,
				  server->nr_workers);
	if (!rc)
		rc = pool_start(server->pool);
	if (rc) {
		log_error("not started reason=\"%s\"", strerror(-rc));
		return rc;
	}
	if (event_base_loop(server->base, EVLOOP_NO_EXIT_ON_EMPTY) < 0) {
		log_error("the event loop failed");
		return -EIO;
	}
	return server->result;
}

/* --- life ------------------------------------------------------------------------------------- */

/* Sessions cost two descriptors each, blocks one: take what the hard limit allows. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warning("descriptor limit not raised reason=\"%s\"", strerror(errno));
}

static int make_base(struct server *server)
{
	server->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->wakeup_fd < 0)
		return -errno;
	server->base = event_base_new();
	if (!server->base)
		return -ENOMEM;
	event_assign(&server->wakeup_event, server->base, server->wakeup_fd, EV_READ | EV_PERSIST,
		     on_wakeup, server);
	return event_add(&server->wakeup_event, NULL) ? -ENOMEM : 0;
}

/* The service manager's, who keeps it while we are away, or one of our own. */
static int take_socket(struct endpoint **ret, const char *name, const char *path, mode_t mode,
		       const char *group)
{
	int fd = service_take_socket(name);

	if (fd < 0)
		return endpoint_open(ret, path, SOCK_STREAM, mode, group);
	log_info("socket of the service manager name=%s", name);
	return endpoint_adopt_consume_fd(ret, fd);
}

static int take_sockets(struct server *server)
{
	const struct config *config = server->config;
	size_t index;
	int rc = take_socket(&server->data_endpoint, SERVICE_SOCKET_DATA, config->socket,
			     config->socket_mode, config->socket_group);

	if (!rc)
		rc = take_socket(&server->admin_endpoint, SERVICE_SOCKET_ADMIN,
				 config->admin_socket, ADMIN_SOCKET_MODE, NULL);
	if (!rc)
		rc = doors_new(&server->doors, server->base, &server->acceptor);
	if (!rc)
		rc = doors_prepare(server->doors, config, &server->doors_plan, &index);
	return rc;
}

/* waits_wake_fn */
static void wake_worker(void *userdata, unsigned worker)
{
	const struct net *net = userdata;

	worker_wake(net->workers[worker]);
}

/* revokes_tell_fn */
static void tell_notices(void *userdata)
{
	const struct net *net = userdata;

	for (size_t i = 0; i < net->nr_workers; i++)
		worker_notice(net->workers[i]);
}

static int make_memory(struct server *server)
{
	struct pool_callbacks callbacks = {
		.clean = on_clean,
		.retired = on_retired,
		.owner_changed = on_owner_changed,
		.filled = on_filled,
		.userdata = server,
	};
	int rc = pool_new(&server->pool, server->config, HP_OWNERS_MAX, &callbacks);

	server->net.pool = server->pool;
	if (!rc)
		rc = tenants_new(&server->net.tenants, server->config, server->pool);
	if (!rc)
		tenants_on_empty(server->net.tenants, on_admin_waits, server);
	if (!rc)
		rc = orders_new(&server->net.orders, on_admin_waits, server);
	if (!rc)
		rc = slots_new(&server->net.slots, server->net.tenants, server->pool);
	if (!rc)
		rc = waits_new(&server->net.waits, server->pool, server->config->workers,
			       wake_worker, &server->net);
	if (!rc)
		rc = shares_new(&server->net.shares, server->pool, server->net.tenants);
	if (!rc)
		rc = leases_new(&server->net.leases, server->pool, server->net.slots,
				server->net.waits, server->net.shares);
	if (!rc)
		rc = revokes_new(&server->net.revokes, server->pool, server->net.slots,
				 server->net.leases, tell_notices, &server->net);
	for (size_t i = 0; !rc && i < pool_nr_zones(server->pool); i++)
		server->ops.configured_bytes += pool_zone(server->pool, i)->config->size_bytes;
	return rc;
}

static int make_workers(struct server *server)
{
	int rc = 0;

	server->net.hello_timeout_ms = HP_HELLO_TIMEOUT_MS;
	server->net.grace_ms = server->config->grace_ms;
	server->net.looks = &server->looks;
	server->workers = calloc(server->config->workers, sizeof(*server->workers));
	if (!server->workers)
		return -ENOMEM;
	server->net.workers = server->workers;
	server->net.nr_workers = server->config->workers;
	while (server->nr_workers < server->config->workers && !rc) {
		rc = worker_new(&server->workers[server->nr_workers], &server->net,
				(unsigned)server->nr_workers);
		server->nr_workers += !rc;
	}
	return rc;
}

static int make_listeners(struct server *server)
{
	int rc;

	server->acceptor = (struct acceptor){
		.net = &server->net,
		.workers = server->workers,
		.nr_workers = server->nr_workers,
		.sessions_max = HP_SESSIONS_MAX,
		.admin_sessions_max = HP_ADMIN_SESSIONS_MAX,
	};
	rc = listener_new(&server->data_listener, server->base, endpoint_fd(server->data_endpoint),
			  SOCKET_DATA, NULL, &server->acceptor);
	if (!rc)
		rc = listener_new(&server->admin_listener, server->base,
				  endpoint_fd(server->admin_endpoint), SOCKET_ADMIN, NULL,
				  &server->acceptor);
	if (!rc)
		rc = admin_new(&server->admin, server->base, server->config, &server->net,
			       server->doors);
	if (!rc) {
		doors_commit(server->doors, server->config, &server->doors_plan,
			     server->net.tenants);
		admin_restore(server->admin);
	}
	return rc;
}

static void make_looks(struct server *server)
{
	server->ops.net = &server->net;
	server->ops.workers = server->workers;
	server->ops.nr_workers = server->nr_workers;
	server->ops.started_ms = clock_now_ms();
	server->looks = ops_looks(&server->ops);
}

int server_new(struct server **ret, const struct config *config)
{
	struct server *server = calloc(1, sizeof(*server));
	int rc;

	if (!server)
		return -ENOMEM;
	server->config = config;
	server->wakeup_fd = -1;
	raise_descriptor_limit();
	rc = make_base(server);
	if (!rc)
		rc = take_sockets(server);
	if (!rc)
		rc = make_memory(server);
	if (!rc)
		rc = make_workers(server);
	if (!rc)
		rc = resume_restore(&server->net);
	if (!rc)
		rc = make_listeners(server);
	if (rc) {
		server_free(server);
		return rc;
	}
	make_looks(server);
	*ret = server;
	return 0;
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	watchdog_free(server->watchdog);
	listener_free(server->data_listener);
	listener_free(server->admin_listener);
	doors_free(server->doors);
	for (size_t i = 0; i < server->nr_workers; i++)
		worker_stop(server->workers[i]);
	server->net.keep_leases = server->pool && pool_keeps_leases(server->pool);
	for (size_t i = 0; i < server->nr_workers; i++)
		worker_end_sessions(server->workers[i]);
	pool_free(server->pool); /* until then its threads may still call back */
	for (size_t i = 0; i < server->nr_workers; i++)
		worker_free(server->workers[i]);
	free(server->workers);
	admin_free(server->admin);
	orders_free(server->net.orders);
	revokes_free(server->net.revokes);
	leases_free(server->net.leases);
	shares_free(server->net.shares);
	waits_free(server->net.waits);
	slots_free(server->net.slots);
	tenants_free(server->net.tenants);
	endpoint_close(server->admin_endpoint);
	endpoint_close(server->data_endpoint);
	if (server->handles_signals)
		event_del(&server->hangup);
	for (size_t i = 0; server->handles_signals && i < 2; i++)
		event_del(&server->terminate[i]);
	if (server->base) {
		event_del(&server->wakeup_event);
		event_base_free(server->base);
	}
	if (server->wakeup_fd >= 0)
		close(server->wakeup_fd);
	free(server);
	return NULL;
}
