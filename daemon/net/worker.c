/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions are dealt out once and stay where they are, so that a worker's structures need no lock.
 * What comes from other threads comes through one eventfd: connections in a list; retired blocks as
 * one word for each block of each zone, so that telling needs no memory and cannot fail. A word
 * that is overwritten before the worker looks loses nothing: the earlier life ended long before the
 * later one could begin.
 */
#include "daemon/net/worker.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/net/order.h"
#include "daemon/net/park.h"
#include "daemon/net/session.h"
#include "daemon/tenancy/clock.h"

#define TRIM_BYTES	   (64 * 1024) /* less than this is not worth a walk through the heap */
#define LOG_LINES_A_SECOND 20
#define PRESSURE_EVERY_MS  1000 /* at most, for each zone */
#define TRIM_DELAY_SECS	   1

struct handover {
	STAILQ_ENTRY(handover) link; /* worker->arrivals */
	int fd;
	enum socket_kind kind;
	struct tenant *tenant;
};

/* --- from other threads ----------------------------------------------------------------------- */

void worker_wake(struct worker *worker)
{
	uint64_t one = 1;

	/* EAGAIN: it is awake for 2^64 - 2 reasons already. */
	while (write(worker->wakeup_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void worker_ask(struct worker *worker)
{
	worker->asked = true;
	worker_wake(worker);
}

bool worker_answers(const struct worker *worker)
{
	return !worker->asked;
}

int worker_hand_over(struct worker *worker, int fd, enum socket_kind kind, struct tenant *tenant)
{
	struct handover *handover = malloc(sizeof(*handover));

	if (!handover)
		return -ENOMEM;
	*handover = (struct handover){.fd = fd, .kind = kind, .tenant = tenant};
	(*worker_connections(worker, kind))++;
	pthread_mutex_lock(&worker->lock);
	STAILQ_INSERT_TAIL(&worker->arrivals, handover, link);
	pthread_mutex_unlock(&worker->lock);
	worker_wake(worker);
	return 0;
}

void worker_retire(struct worker *worker, const struct pool_zone *zone, uint32_t block,
		   uint64_t generation)
{
	atomic_store_explicit(&worker->retired[zone->id][block], generation, memory_order_relaxed);
	worker->retired_any = true;
	worker_wake(worker);
}

void worker_look_at_tenants(struct worker *worker)
{
	worker->tenants_changed = true;
	worker_wake(worker);
}

void worker_dismiss(struct worker *worker)
{
	worker->dismissed_any = true;
	worker_wake(worker);
}

static void dismiss_sessions(struct worker *worker)
{
	struct session *session = TAILQ_FIRST(&worker->sessions), *next;

	if (!atomic_exchange(&worker->dismissed_any, false))
		return;
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		if (session->phase == SESSION_CONDEMNED &&
		    !slots_is_turn(worker->net->slots, session->slot, session->turn))
			session_free(session);
	}
}

void worker_press(struct worker *worker, const struct pool_zone *zone)
{
	uint64_t now = clock_now_ms();
	const struct net *net = worker->net;

	if (worker->pressure_ms[zone->id] &&
	    now - worker->pressure_ms[zone->id] < PRESSURE_EVERY_MS)
		return;
	worker->pressure_ms[zone->id] = now;
	for (size_t i = 0; i < net->nr_workers; i++) {
		net->workers[i]->pressure |= UINT32_C(1) << zone->id;
		worker_wake(net->workers[i]);
	}
}

void worker_notice(struct worker *worker)
{
	worker->noticed = true;
	worker_wake(worker);
}

static void take_arrivals(struct worker *worker)
{
	struct handover_list arrivals = STAILQ_HEAD_INITIALIZER(arrivals);
	struct handover *handover;

	pthread_mutex_lock(&worker->lock);
	STAILQ_CONCAT(&arrivals, &worker->arrivals);
	pthread_mutex_unlock(&worker->lock);

	while ((handover = STAILQ_FIRST(&arrivals))) {
		STAILQ_REMOVE_HEAD(&arrivals, link);
		if (session_new(worker, handover->fd, handover->kind, handover->tenant))
			log_error("connection refused: no memory");
		free(handover);
	}
}

static void take_notices(struct worker *worker)
{
	struct session *session = TAILQ_FIRST(&worker->sessions), *next;

	if (!atomic_exchange(&worker->noticed, false))
		return;
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		session_take_notices(session);
	}
}

static void tell_retired(struct worker *worker, const struct pool_zone *zone, uint32_t block)
{
	uint64_t generation = atomic_exchange_explicit(&worker->retired[zone->id][block], 0,
						       memory_order_relaxed);
	struct session *session = TAILQ_FIRST(&worker->sessions), *next;

	for (; generation && session; session = next) {
		next = TAILQ_NEXT(session, link);
		session_retired(session, zone, block, generation);
	}
}

static void take_retired(struct worker *worker)
{
	if (!atomic_exchange(&worker->retired_any, false))
		return;
	for (size_t i = 0; i < pool_nr_zones(worker->net->pool); i++) {
		const struct pool_zone *zone = pool_zone(worker->net->pool, i);

		for (uint32_t block = 0; block < zone->nr_blocks; block++)
			tell_retired(worker, zone, block);
	}
}

static void press_sessions(struct worker *worker)
{
	uint32_t zones = atomic_exchange(&worker->pressure, 0);
	struct session *session = TAILQ_FIRST(&worker->sessions), *next;

	for (; zones && session; session = next) {
		next = TAILQ_NEXT(session, link);
		session_press(session, zones);
	}
}

/* Behind take_arrivals(): whoever had entered by then has a session by now. */
static void look_at_tenants(struct worker *worker)
{
	struct session *session = TAILQ_FIRST(&worker->sessions), *next;

	if (!atomic_exchange(&worker->tenants_changed, false))
		return;
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		session_look_at_tenant(session);
	}
}

static void on_wakeup(evutil_socket_t fd, short what, void *userdata)
{
	struct worker *worker = userdata;
	uint64_t count;
	bool stopping;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	worker->asked = false;
	pthread_mutex_lock(&worker->lock);
	stopping = worker->stopping;
	pthread_mutex_unlock(&worker->lock);
	if (stopping) {
		event_base_loopbreak(worker->base);
		return;
	}
	turn_begin(&worker->turn);
	take_arrivals(worker);
	dismiss_sessions(worker);
	take_notices(worker);
	take_retired(worker);
	press_sessions(worker);
	parked_fetch(worker);
	look_at_tenants(worker);
	orders_take_answers(worker);
	turn_end(&worker->turn);
}

/* --- deadlines -------------------------------------------------------------------------------- */

/* The timer runs only while somebody has a deadline: an idle daemon does not wake up. */
static void arm_deadline_timer(struct worker *worker, uint64_t now)
{
	const struct session *first = TAILQ_FIRST(&worker->deadlines);
	uint64_t ms;
	struct timeval tv;

	if (!first) {
		evtimer_del(&worker->deadline_timer);
		return;
	}
	ms = first->deadline_ms > now ? first->deadline_ms - now : 0;
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000) * 1000;
	evtimer_add(&worker->deadline_timer, &tv);
}

static void on_deadline(evutil_socket_t fd, short what, void *userdata)
{
	struct worker *worker = userdata;
	uint64_t now = clock_now_ms();
	struct session *session;

	(void)fd;
	(void)what;
	turn_begin(&worker->turn);
	while ((session = TAILQ_FIRST(&worker->deadlines)) && session->deadline_ms <= now)
		session_expired(session);
	arm_deadline_timer(worker, now);
	turn_end(&worker->turn);
}

void worker_set_deadline(struct worker *worker, struct session *session)
{
	uint64_t now = clock_now_ms();

	worker_clear_deadline(worker, session);
	session->deadline_ms = now + worker->net->hello_timeout_ms;
	TAILQ_INSERT_TAIL(&worker->deadlines, session, deadline_link);
	if (session == TAILQ_FIRST(&worker->deadlines))
		arm_deadline_timer(worker, now);
}

void worker_clear_deadline(struct worker *worker, struct session *session)
{
	if (!session->deadline_ms)
		return;
	TAILQ_REMOVE(&worker->deadlines, session, deadline_link);
	session->deadline_ms = 0;
	if (TAILQ_EMPTY(&worker->deadlines))
		evtimer_del(&worker->deadline_timer);
}

/* --- log -------------------------------------------------------------------------------------- */

bool worker_may_log(struct worker *worker)
{
	uint64_t second = clock_now_ms() / 1000;

	if (second != worker->log_second) {
		if (worker->log_lines > LOG_LINES_A_SECOND)
			log_warning("more of the same, not logged worker=%u lines=%u",
				    worker->index, worker->log_lines - LOG_LINES_A_SECOND);
		worker->log_second = second;
		worker->log_lines = 0;
	}
	return worker->log_lines++ < LOG_LINES_A_SECOND;
}

/* --- memory ----------------------------------------------------------------------------------- */

/*
 * malloc_trim() gives back the end of the main arena, not that of a thread's own; so main() asks
 * for one arena. Nobody waits for its lock: serving requests takes no memory.
 */
static void on_trim(evutil_socket_t fd, short what, void *userdata)
{
	struct worker *worker = userdata;

	(void)fd;
	(void)what;
	turn_begin(&worker->turn);
	worker->freed_bytes = 0;
	malloc_trim(0);
	turn_end(&worker->turn);
}

void worker_note_freed(struct worker *worker, size_t bytes)
{
	struct timeval tv = {.tv_sec = TRIM_DELAY_SECS};

	worker->freed_bytes += bytes;
	if (worker->freed_bytes >= TRIM_BYTES && !evtimer_pending(&worker->trim_timer, NULL))
		evtimer_add(&worker->trim_timer, &tv);
}

/* --- life ------------------------------------------------------------------------------------- */

int worker_new(struct worker **ret, const struct net *net, unsigned index)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int rc = -ENOMEM;

	if (!worker)
		return -ENOMEM;
	worker->net = net;
	worker->index = index;
	TAILQ_INIT(&worker->sessions);
	TAILQ_INIT(&worker->deadlines);
	STAILQ_INIT(&worker->arrivals);
	STAILQ_INIT(&worker->answers);
	pthread_mutex_init(&worker->lock, NULL);
	worker->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->wakeup_fd < 0) {
		rc = -errno;
		goto fail;
	}
	worker->base = event_base_new();
	if (!worker->base || hp_arena_new(&worker->arena) ||
	    caches_new(&worker->caches, net->pool, index))
		goto fail;
	for (size_t i = 0; i < pool_nr_zones(net->pool); i++) {
		worker->retired[i] =
			calloc(pool_zone(net->pool, i)->nr_blocks, sizeof(*worker->retired[i]));
		if (!worker->retired[i])
			goto fail;
	}
	evtimer_assign(&worker->deadline_timer, worker->base, on_deadline, worker);
	evtimer_assign(&worker->trim_timer, worker->base, on_trim, worker);
	event_assign(&worker->wakeup_event, worker->base, worker->wakeup_fd, EV_READ | EV_PERSIST,
		     on_wakeup, worker);
	if (event_add(&worker->wakeup_event, NULL))
		goto fail;
	*ret = worker;
	return 0;
fail:
	worker_free(worker);
	return rc;
}

static void *worker_main(void *userdata)
{
	struct worker *worker = userdata;

	turn_init(&worker->turn);
	event_base_loop(worker->base, EVLOOP_NO_EXIT_ON_EMPTY);
	turn_deinit(&worker->turn);
	return NULL;
}

int worker_start(struct worker *worker)
{
	sigset_t all, old;
	char name[16];
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&worker->thread, NULL, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	worker->running = true;
	snprintf(name, sizeof(name), "worker-%u", worker->index);
	pthread_setname_np(worker->thread, name);
	return 0;
}

void worker_stop(struct worker *worker)
{
	if (!worker->running)
		return;
	pthread_mutex_lock(&worker->lock);
	worker->stopping = true;
	pthread_mutex_unlock(&worker->lock);
	worker_wake(worker);
	pthread_join(worker->thread, NULL);
	worker->running = false;
}

void worker_end_sessions(struct worker *worker)
{
	struct session *session;

	if (worker->caches)
		take_arrivals(worker); /* the last ones are ended like all others */
	while ((session = TAILQ_FIRST(&worker->sessions)))
		session_shut_down(session);
	worker->caches = caches_free(worker->caches);
}

struct worker *worker_free(struct worker *worker)
{
	if (!worker)
		return NULL;
	worker_stop(worker);
	worker_end_sessions(worker);
	orders_take_answers(worker); /* nobody wants them any more */
	if (worker->base && event_initialized(&worker->wakeup_event))
		event_del(&worker->wakeup_event);
	if (worker->base && event_initialized(&worker->deadline_timer)) {
		event_del(&worker->deadline_timer);
		event_del(&worker->trim_timer);
	}
	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		free((void *)worker->retired[i]);
	hp_arena_free(worker->arena);
	if (worker->base)
		event_base_free(worker->base);
	if (worker->wakeup_fd >= 0)
		close(worker->wakeup_fd);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return NULL;
}
