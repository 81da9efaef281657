/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool_dispatch() reads what has come, then tells what there is to tell. It waits without the
 * mutex, so that other threads can use the handle meanwhile. What those read on the way to replies of
 * their own would not show on the socket any more: therefore the timer, which is also set off by hand
 * (loop_wake()).
 */
#include "client/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/handle.h"
#include "client/request.h"

#define FRAMES_AT_A_TIME 256 /* read before anything is told */
#define NS_PER_S	 UINT64_C(1000000000)
#define NS_PER_MS	 UINT64_C(1000000)

void loop_init(struct loop *loop)
{
	*loop = (struct loop){.epoll = -1, .timer = -1, .socket = -1, .wake_ns = UINT64_MAX};
}

void loop_deinit(struct loop *loop)
{
	if (loop->epoll >= 0)
		close(loop->epoll);
	if (loop->timer >= 0)
		close(loop->timer);
	loop_init(loop);
}

/* --- the set ---------------------------------------------------------------------------------- */

static int add(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void loop_unwatch(struct hugepool *pool)
{
	struct loop *loop = &pool->loop;

	/* Closing would not do where a child of fork() still has the socket. */
	if (loop->socket >= 0)
		(void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, loop->socket, NULL);
	loop->socket = -1;
	loop->writing = false;
}

void loop_want_write(struct hugepool *pool, bool want)
{
	struct loop *loop = &pool->loop;
	struct epoll_event event = {.events = EPOLLIN | (want ? EPOLLOUT : 0)};

	if (loop->socket < 0 || loop->writing == want)
		return;
	event.data.fd = loop->socket;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, loop->socket, &event) == 0)
		loop->writing = want;
}

void loop_watch(struct hugepool *pool)
{
	struct loop *loop = &pool->loop;

	if (loop->epoll < 0)
		return;
	loop_unwatch(pool);
	/* Without memory for that in the kernel the next hugepool_dispatch() tries again. */
	if (pool->connection.socket >= 0 && !pool->connection.broken &&
	    add(loop->epoll, pool->connection.socket) == 0)
		loop->socket = pool->connection.socket;
	else
		loop_wake(pool);
}

static void arm(struct loop *loop, uint64_t ns)
{
	const struct itimerspec at = {
		.it_value.tv_sec = (time_t)(ns / NS_PER_S),
		.it_value.tv_nsec = (long)(ns % NS_PER_S),
	};

	if (ns >= loop->wake_ns || loop->epoll < 0)
		return;
	loop->wake_ns = ns;
	(void)timerfd_settime(loop->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void loop_wake_at(struct hugepool *pool, uint64_t ns)
{
	arm(&pool->loop, ns ? ns : 1); /* 0 would disarm it */
}

void loop_wake(struct hugepool *pool)
{
	loop_wake_at(pool, 1);
}

/* The timer has done its duty: who wants to be woken says so again. */
static void rest(struct loop *loop)
{
	const struct itimerspec never = {.it_value.tv_sec = 0};

	if (loop->wake_ns == UINT64_MAX)
		return;
	loop->wake_ns = UINT64_MAX;
	(void)timerfd_settime(loop->timer, 0, &never, NULL);
}

static int make(struct hugepool *pool)
{
	struct loop *loop = &pool->loop;
	struct loop made;
	int r = 0;

	if (loop->epoll >= 0)
		return 0;
	loop_init(&made);
	made.epoll = epoll_create1(EPOLL_CLOEXEC);
	made.timer =
		made.epoll < 0 ? -1 : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (made.timer < 0)
		r = -errno;
	if (r == 0)
		r = add(made.epoll, made.timer);
	if (r < 0) {
		loop_deinit(&made);
		return r;
	}
	*loop = made;
	loop_watch(pool);
	/* What there was to tell before, or has been read already. */
	loop_wake(pool);
	return 0;
}

static int make_locked(struct hugepool *pool)
{
	int r = make(pool);

	if (r < 0)
		return handle_fail(pool, r, "no descriptors for an event loop: %s", strerror(-r));
	return 0;
}

int hugepool_get_fd(struct hugepool *pool)
{
	int r = handle_enter(pool);

	if (r < 0)
		return r;
	r = make_locked(pool);
	return handle_leave(pool, r < 0 ? r : pool->loop.epoll);
}

/* --- dispatch --------------------------------------------------------------------------------- */

/* Handles what has come. Return: 0, or why nothing comes any more. */
static int look(struct hugepool *pool)
{
	struct hp_frame frame;
	int r = 0;

	rest(&pool->loop);
	if (pool->loop.socket < 0 && !pool->connection.broken)
		loop_watch(pool);
	connection_begin(&pool->connection, 0);
	pending_send(pool);
	for (int i = 0; r == 0 && i < FRAMES_AT_A_TIME; i++) {
		r = connection_receive_nowait(&pool->connection, &frame);
		if (r == 0)
			r = request_handle(pool, &frame);
		else if (r != -EAGAIN)
			r = request_fail_broken(pool, r);
	}
	if (r == 0)
		loop_wake(pool); /* there is more */
	if (r == 0 || r == -EAGAIN)
		r = pending_expire(pool);
	if (resume_is_possible(pool)) {
		r = resume_try(pool);
		if (r == -EAGAIN)
			loop_unwatch(pool);
		if (r == 0)
			loop_wake(pool);
		if (r == 0 || r == -EAGAIN)
			return 0;
	}
	if (pool->connection.broken) {
		loop_unwatch(pool); /* its end can be read for ever */
		pending_fail(pool, r < 0 ? r : -ECONNRESET);
		if (event_is_due(pool) || pool->pendings.done.first)
			loop_wake(pool); /* first the news, then the end */
	}
	return r;
}

void loop_glance(struct hugepool *pool)
{
	/* Whoever has it reads anyway. */
	if (pthread_mutex_trylock(&pool->mutex))
		return;
	(void)look(pool);
	if (event_is_due(pool) || pool->pendings.done.first)
		loop_wake(pool);
	(void)handle_leave(pool, 0);
}

static int look_and_tell(struct hugepool *pool)
{
	int r, called = 0, n;

	r = handle_enter(pool);
	if (r < 0)
		return r;
	r = make_locked(pool);
	if (r == 0)
		r = look(pool);
	(void)handle_leave(pool, 0);
	do {
		n = event_deliver(pool);
		n += pending_deliver(pool);
		called += n;
	} while (n);
	return called ? called : r;
}

/* Until there is something to do, or the time is over. Return: 0, or -EINTR and the like. */
static int wait_for_news(const struct loop *loop, uint64_t until_ns)
{
	struct epoll_event event;
	uint64_t now = connection_now_ns();
	int timeout_ms = -1;

	if (until_ns != UINT64_MAX)
		timeout_ms =
			now >= until_ns ? 0 : (int)((until_ns - now + NS_PER_MS - 1) / NS_PER_MS);
	return epoll_wait(loop->epoll, &event, 1, timeout_ms) < 0 ? -errno : 0;
}

int hugepool_dispatch(struct hugepool *pool, int timeout_ms)
{
	uint64_t until_ns = UINT64_MAX;
	int r;

	if (timeout_ms >= 0)
		until_ns = connection_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	for (;;) {
		r = look_and_tell(pool);
		if (r != 0 || (timeout_ms >= 0 && connection_now_ns() >= until_ns))
			return r;
		r = wait_for_news(&pool->loop, until_ns);
		if (r < 0)
			return r;
	}
}
