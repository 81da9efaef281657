/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News come in the middle of other calls, with the mutex held and half of the work done: not a moment
 * for the program's functions. So they are written down, and told by hugepool_dispatch(), one after
 * the other and without the mutex: what is called then may call the library, even
 * hugepool_dispatch() again.
 */
#include "client/event.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/handle.h"
#include "client/loop.h"

#define REVOKED_AT_A_TIME 64 /* found in one pass over the ranges */
#define WANTED_AT_A_TIME  64 /* likewise */

#define NS_PER_MS UINT64_C(1000000)

/* All that came later is behind it. */
#define CALLBACKS_FIRST_BYTES offsetof(struct hugepool_callbacks, wanted)

int hugepool_set_callbacks(struct hugepool *pool, const struct hugepool_callbacks *theirs)
{
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;
	int r;

	if (theirs) {
		r = handle_take_struct(&callbacks, sizeof(callbacks), CALLBACKS_FIRST_BYTES,
				       theirs);
		if (r < 0)
			return r;
	}
	r = handle_enter(pool);
	if (r < 0)
		return r;
	pool->events.callbacks = callbacks;
	return handle_leave(pool, 0);
}

/* --- writing down ----------------------------------------------------------------------------- */

void event_pressure(struct hugepool *pool, struct window *window)
{
	window_drain_caches(window);
	pool->events.pressed |= 1u << (window - pool->windows);
	loop_wake(pool);
}

void event_revoked(struct hugepool *pool, struct held_range *held)
{
	if (held->untold)
		return;
	/* A cache may have it. */
	window_drain_caches(handle_window(pool, held->zone));
	held->untold = true;
	pool->events.revoked++;
	loop_wake(pool);
}

void event_wanted(struct hugepool *pool, struct held_range *held, uint64_t until_ns, bool force)
{
	held->wanted_ns = until_ns;
	held->forced = force;
	if (held->unasked)
		return;
	held->unasked = true;
	pool->events.wanted++;
	/* Ranges that only lie in a cache need not be asked for. */
	window_drain_caches(handle_window(pool, held->zone));
	loop_wake(pool);
}

void event_forget(struct hugepool *pool, struct held_range *held)
{
	if (held->unasked)
		pool->events.wanted--;
	held->unasked = false;
	if (held->untold)
		pool->events.revoked--;
	held->untold = false;
}

void event_resumed(struct hugepool *pool)
{
	pool->events.resumed = true;
	loop_wake(pool);
}

void event_log(struct hugepool *pool, int priority, const char *format, ...)
{
	char message[sizeof(pool->error.message)];
	va_list args;

	if (!pool->events.callbacks.log)
		return;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	pool->events.callbacks.log(pool->events.callbacks.userdata, priority, message);
}

bool event_is_due(const struct hugepool *pool)
{
	return pool->events.resumed || pool->events.revoked || pool->events.wanted ||
	       pool->events.pressed;
}

/* --- telling ---------------------------------------------------------------------------------- */

/* What there is to tell, as far as it fits, taken off the books. */
struct news {
	struct hugepool_callbacks callbacks;
	bool resumed;
	size_t nr_revoked, nr_wanted, nr_zones;
	struct hugepool_range revoked[REVOKED_AT_A_TIME];
	struct {
		struct hugepool_range range;
		uint64_t until_ns;
		bool force;
	} wanted[WANTED_AT_A_TIME];
	char zones[HP_ZONES_MAX][HP_NAME_MAX + 1];
};

static void take_revoked(struct hugepool *pool, struct news *news)
{
	for (size_t i = 0; i < pool->ranges.capacity && pool->events.revoked; i++) {
		struct held_range *held = &pool->ranges.slots[i];

		if (!held->pages || !held->untold)
			continue;
		if (news->nr_revoked == REVOKED_AT_A_TIME)
			return;
		news->revoked[news->nr_revoked++] = handle_name_range(pool, held);
		event_forget(pool, held); /* also that it was wanted */
	}
}

static void take_wanted(struct hugepool *pool, struct news *news)
{
	for (size_t i = 0; i < pool->ranges.capacity && pool->events.wanted; i++) {
		struct held_range *held = &pool->ranges.slots[i];
		size_t n = news->nr_wanted;

		if (!held->pages || !held->unasked)
			continue;
		if (n == WANTED_AT_A_TIME)
			return;
		news->wanted[n].range = handle_name_range(pool, held);
		news->wanted[n].until_ns = held->wanted_ns;
		news->wanted[n].force = held->forced;
		news->nr_wanted++;
		held->unasked = false;
		pool->events.wanted--;
	}
}

static void take_news(struct hugepool *pool, struct news *ret)
{
	ret->callbacks = pool->events.callbacks;
	ret->resumed = pool->events.resumed;
	ret->nr_revoked = ret->nr_wanted = ret->nr_zones = 0;
	take_revoked(pool, ret);
	take_wanted(pool, ret);
	for (size_t i = 0; i < pool->nr_windows; i++)
		if (pool->events.pressed & 1u << i)
			memcpy(ret->zones[ret->nr_zones++], pool->windows[i].name,
			       sizeof(ret->zones[0]));
	pool->events.resumed = false;
	pool->events.pressed = 0;
}

static int tell(const struct news *news)
{
	const struct hugepool_callbacks *call = &news->callbacks;
	int n = 0;

	if (news->resumed && call->resumed) {
		call->resumed(call->userdata);
		n++;
	}
	for (size_t i = 0; i < news->nr_revoked && call->revoked; i++, n++)
		call->revoked(call->userdata, &news->revoked[i]);
	for (size_t i = 0; i < news->nr_wanted && call->wanted; i++, n++) {
		uint64_t now_ns = connection_now_ns(), until_ns = news->wanted[i].until_ns;

		call->wanted(call->userdata, &news->wanted[i].range,
			     until_ns > now_ns ? (until_ns - now_ns) / NS_PER_MS : 0,
			     news->wanted[i].force);
	}
	for (size_t i = 0; i < news->nr_zones && call->pressure; i++, n++)
		call->pressure(call->userdata, news->zones[i]);
	return n;
}

int event_deliver(struct hugepool *pool)
{
	struct news news;
	int called = 0;

	for (;;) {
		bool due;

		if (handle_enter(pool) < 0)
			return called;
		due = event_is_due(pool);
		if (due)
			take_news(pool, &news);
		(void)handle_leave(pool, 0);
		if (!due)
			return called;
		called += tell(&news);
	}
}
