/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is kept as the frame that it came in, its answer as the frame that it will be sent in:
 * no thread looks at memory of the other's. An order is in one place at a time - the queue to the
 * main thread, its hands, the list of answers of the worker - and what belongs to the session in it
 * is touched by the session's worker alone, wherever it is.
 */
#include "daemon/net/order.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/dispatch.h"
#include "daemon/net/reply.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

struct orders {
	pthread_mutex_t lock;
	struct order_list queue;
	orders_wake_fn wake;
	void *userdata;
	struct hp_arena *arena; /* the main thread's */
};

int orders_new(struct orders **ret, orders_wake_fn wake, void *userdata)
{
	struct orders *orders = calloc(1, sizeof(*orders));

	if (!orders)
		return -ENOMEM;
	if (hp_arena_new(&orders->arena)) {
		free(orders);
		return -ENOMEM;
	}
	pthread_mutex_init(&orders->lock, NULL);
	STAILQ_INIT(&orders->queue);
	orders->wake = wake;
	orders->userdata = userdata;
	*ret = orders;
	return 0;
}

struct orders *orders_free(struct orders *orders)
{
	struct order *order;

	if (!orders)
		return NULL;
	while ((order = orders_fetch(orders)))
		order_free(order);
	hp_arena_free(orders->arena);
	pthread_mutex_destroy(&orders->lock);
	free(orders);
	return NULL;
}

void order_free(struct order *order)
{
	free(order->answer);
	free(order);
}

/* --- the main thread -------------------------------------------------------------------------- */

struct order *orders_fetch(struct orders *orders)
{
	struct order *order;

	pthread_mutex_lock(&orders->lock);
	order = STAILQ_FIRST(&orders->queue);
	if (order)
		STAILQ_REMOVE_HEAD(&orders->queue, link);
	pthread_mutex_unlock(&orders->lock);
	return order;
}

const ProtobufCMessage *orders_message(struct orders *orders, const struct order *order)
{
	const ProtobufCMessage *message;
	struct hp_frame frame;
	size_t used;

	/* It was a message before, and we packed it ourselves. */
	if (hp_frame_parse(order->request, order->request_bytes, &frame, &used) ||
	    hp_message_unpack(orders->arena, hp_message_descriptor(frame.type), &frame, &message))
		abort();
	return message;
}

/* Back to the worker, which may be stopped by now: then the answer ends with it. */
static void hand_back(struct order *order)
{
	struct worker *worker = order->worker;

	pthread_mutex_lock(&worker->lock);
	STAILQ_INSERT_TAIL(&worker->answers, order, link);
	pthread_mutex_unlock(&worker->lock);
	worker_wake(worker);
}

void order_answer(struct order *order, uint8_t type, const ProtobufCMessage *message)
{
	uint8_t frame[HP_FRAME_MAX];
	int n = hp_message_pack(frame, type, order->tag, message);

	if (n > 0) {
		order->answer = malloc((size_t)n);
		if (order->answer) {
			memcpy(order->answer, frame, (size_t)n);
			order->answer_bytes = (size_t)n;
		}
	}
	hand_back(order); /* without an answer the worker says that there was no memory */
}

void order_done(struct order *order)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;

	order_answer(order, TYPE(DONE), &empty.base);
}

void order_refuse(struct order *order, Hugepool__V1__Code code, uint64_t limit, const char *format,
		  ...)
{
	Hugepool__V1__Error message = HUGEPOOL__V1__ERROR__INIT;
	char sentence[HP_MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	message.code = code;
	message.limit = limit;
	message.message.data = (uint8_t *)sentence;
	message.message.len = strlen(sentence);
	worker_count(&order->worker->counters.errors);
	order_answer(order, TYPE(ERROR), &message.base);
}

/* --- the worker ------------------------------------------------------------------------------- */

static uint32_t count_orders(const struct session *session)
{
	const struct order *order;
	uint32_t n = 0;

	TAILQ_FOREACH (order, &session->orders, session_link)
		n++;
	return n;
}

static void queue(struct session *session, uint16_t tag, uint8_t type,
		  const ProtobufCMessage *message)
{
	struct orders *orders = session->worker->net->orders;
	uint8_t frame[HP_FRAME_MAX];
	struct order *order;
	int n;

	if (count_orders(session) >= HP_ORDERS_PER_SESSION_MAX) {
		refuse(session, tag,
		       &(struct refusal){.code = CODE(TOO_MANY),
					 .limit = HP_ORDERS_PER_SESSION_MAX},
		       "requests of this session are being done already");
		return;
	}
	n = hp_message_pack(frame, type, tag, message);
	order = n > 0 ? calloc(1, sizeof(*order) + (size_t)n) : NULL;
	if (!order) {
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the daemon is out of memory");
		return;
	}
	order->session = session;
	order->worker = session->worker;
	order->tag = tag;
	order->type = type;
	order->request_bytes = (size_t)n;
	memcpy(order->request, frame, (size_t)n);
	TAILQ_INSERT_TAIL(&session->orders, order, session_link);
	pthread_mutex_lock(&orders->lock);
	STAILQ_INSERT_TAIL(&orders->queue, order, link);
	pthread_mutex_unlock(&orders->lock);
	orders->wake(orders->userdata);
}

static void send_answer(struct order *order)
{
	struct session *session = order->session;

	TAILQ_REMOVE(&session->orders, order, session_link);
	if (order->answer) {
		memcpy(output_room(session), order->answer, order->answer_bytes);
		output_commit(session, order->answer_bytes);
	} else {
		refuse(session, order->tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "it was done as far as it went, but the daemon is out of memory");
	}
	session_go_on(session);
}

void orders_take_answers(struct worker *worker)
{
	struct order_list answers = STAILQ_HEAD_INITIALIZER(answers);
	struct order *order;

	pthread_mutex_lock(&worker->lock);
	STAILQ_CONCAT(&answers, &worker->answers);
	pthread_mutex_unlock(&worker->lock);
	while ((order = STAILQ_FIRST(&answers))) {
		STAILQ_REMOVE_HEAD(&answers, link);
		if (order->session)
			send_answer(order);
		order_free(order);
	}
}

void orders_abandon(struct session *session)
{
	struct order *order;

	while ((order = TAILQ_FIRST(&session->orders))) {
		TAILQ_REMOVE(&session->orders, order, session_link);
		order->session = NULL;
	}
}

/* --- handlers --------------------------------------------------------------------------------- */

void request_quota(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(QUOTA), message);
}

void request_tenant_create(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(TENANT_CREATE), message);
}

void request_tenant_delete(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(TENANT_DELETE), message);
}

void request_adopt(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(ADOPT), message);
}

void request_offline(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(OFFLINE), message);
}

void request_reload(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	queue(session, tag, TYPE(RELOAD), message);
}
