/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At each tick: those who were asked at the last one have answered, so it is fed, and all are asked
 * again. A third of the time between two ticks leaves room for one that comes late.
 */
#include "daemon/watchdog.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/log.h"
#include "daemon/net/worker.h"
#include "daemon/service.h"

#define TICKS_PER_TIMEOUT 3

struct watchdog {
	struct event timer;
	struct worker **workers;
	size_t nr_workers;
	bool silent; /* somebody did not answer; said once */
};

static bool all_answer(struct watchdog *watchdog)
{
	for (size_t i = 0; i < watchdog->nr_workers; i++) {
		if (worker_answers(watchdog->workers[i]))
			continue;
		if (!watchdog->silent)
			log_error("a worker does not answer: the watchdog is not fed worker=%zu",
				  i);
		watchdog->silent = true;
		return false;
	}
	watchdog->silent = false;
	return true;
}

static void on_tick(evutil_socket_t fd, short what, void *userdata)
{
	struct watchdog *watchdog = userdata;

	(void)fd;
	(void)what;
	if (!all_answer(watchdog))
		return;
	service_feed_watchdog();
	for (size_t i = 0; i < watchdog->nr_workers; i++)
		worker_ask(watchdog->workers[i]);
}

int watchdog_new(struct watchdog **ret, struct event_base *base, struct worker **workers,
		 size_t nr_workers)
{
	uint64_t us = service_watchdog_us() / TICKS_PER_TIMEOUT;
	struct timeval interval = {.tv_sec = (time_t)(us / 1000000),
				   .tv_usec = (suseconds_t)(us % 1000000)};
	struct watchdog *watchdog;

	*ret = NULL;
	if (!us)
		return 0;
	watchdog = calloc(1, sizeof(*watchdog));
	if (!watchdog)
		return -ENOMEM;
	watchdog->workers = workers;
	watchdog->nr_workers = nr_workers;
	event_assign(&watchdog->timer, base, -1, EV_PERSIST, on_tick, watchdog);
	if (event_add(&watchdog->timer, &interval)) {
		free(watchdog);
		return -ENOMEM;
	}
	*ret = watchdog;
	return 0;
}

struct watchdog *watchdog_free(struct watchdog *watchdog)
{
	if (!watchdog)
		return NULL;
	event_del(&watchdog->timer);
	free(watchdog);
	return NULL;
}
