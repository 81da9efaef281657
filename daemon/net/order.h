/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: requests of the admin that are not done at once, or not by a worker. The session's worker
 * notes the request, the main thread fetches it, does it, at once or in the course of time, and
 * answers; the worker sends the answer, if its session is still there.
 *
 * Requests of one session are begun in the order they came, and answered as they are done.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/net/session.h"
#include "proto/message.h"

struct orders;

struct order {
	STAILQ_ENTRY(order) link; /* of orders, then of the worker's answers */
	TAILQ_ENTRY(order) session_link;
	struct session *session; /* the worker's: NULL when it is gone */
	struct worker *worker;
	uint16_t tag;
	uint8_t type;
	size_t request_bytes, answer_bytes; /* of frames */
	uint8_t *answer;
	uint8_t request[];
};

/* wake: there is something to fetch; called by workers. Return: 0 or -ENOMEM. */
typedef void (*orders_wake_fn)(void *userdata);
int orders_new(struct orders **ret, orders_wake_fn wake, void *userdata);
struct orders *orders_free(struct orders *orders); /* NULL is fine; returns NULL */

/* --- the main thread's ------------------------------------------------------------------------ */

/* The next one, which is the caller's until it is answered or freed; NULL: there is none. */
struct order *orders_fetch(struct orders *orders);

/* What is asked for, as dispatch saw it. Borrowed until the next is looked at. */
const ProtobufCMessage *orders_message(struct orders *orders, const struct order *order);

/* Each of these consumes the order. */
void order_answer(struct order *order, uint8_t type, const ProtobufCMessage *message);
void order_done(struct order *order);
void order_refuse(struct order *order, Hugepool__V1__Code code, uint64_t limit, const char *format,
		  ...) __attribute__((format(printf, 4, 5)));
void order_free(struct order *order);

/* --- the worker's ----------------------------------------------------------------------------- */

/* Sends what has been answered meanwhile. May free sessions. */
void orders_take_answers(struct worker *worker);

/* The session ends: nobody wants its answers any more. */
void orders_abandon(struct session *session);
