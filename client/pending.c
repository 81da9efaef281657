/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests are sent in the order they were made, as far as the socket takes them without waiting; the
 * rest follows from hugepool_dispatch(). Two numbers are kept low: requests under way, because the
 * daemon stops reading from who does not read, and those that may wait there, because it would
 * refuse the next one. What is held back for the second reason is overtaken: a free must not wait
 * behind requests for room.
 *
 * An answer is used when it is read, whoever reads it: the blocks that came before it belong to it.
 * Only the program's function is called later, and memory is zeroed then, without the mutex.
 */
#include "client/pending.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/alloc.h"
#include "client/free.h"
#include "client/request.h"

#define SENT_MAX    256 /* answers of the longest kind: below what the daemon keeps for us */
#define WAITING_MAX (HP_WAITS_PER_SESSION_MAX - 1) /* one is left for a call that waits */
#define NS_PER_MS   UINT64_C(1000000)

#define SLOT_BITS  10
#define SERIAL_MAX (INT32_MAX >> SLOT_BITS)
_Static_assert(PENDING_MAX == 1 << SLOT_BITS, "a number is a serial and a slot");

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

enum pending_state { PENDING_UNSENT, PENDING_SENT, PENDING_DONE };

enum pending_cancel { CANCEL_NO, CANCEL_WANTED, CANCEL_SENT };

struct pending {
	struct pending *next; /* in `unsent` or `done` */
	int id;
	bool is_free; /* else: a request for a range */
	enum pending_state state;
	enum pending_cancel cancel;
	int tries;
	uint64_t expires_ns; /* UINT64_MAX: never */
	struct wanted wanted;
	struct hugepool_range range; /* to be freed, or granted */
	struct origin origin;
	hugepool_alloc_fn alloc_fn;
	hugepool_free_fn free_fn;
	void *userdata;
	int result;
	struct hugepool_error error;
};

/* --- lists and slots -------------------------------------------------------------------------- */

static void append(struct pending_list *list, struct pending *pending)
{
	pending->next = NULL;
	*list->end = pending;
	list->end = &pending->next;
}

/* Takes out the one that *at points to. */
static void take_out(struct pending_list *list, struct pending **at)
{
	struct pending *pending = *at;

	*at = pending->next;
	if (list->end == &pending->next)
		list->end = at;
	pending->next = NULL;
}

void pending_init(struct pendings *pendings)
{
	*pendings = (struct pendings){.next_expiry_ns = UINT64_MAX};
	pendings->unsent.end = &pendings->unsent.first;
	pendings->done.end = &pendings->done.first;
}

void pending_deinit(struct pendings *pendings)
{
	for (size_t i = 0; i < PENDING_MAX && pendings->nr; i++)
		if (pendings->slots[i]) {
			free(pendings->slots[i]);
			pendings->nr--;
		}
	pending_init(pendings);
}

static unsigned slot_of(const struct pending *pending)
{
	return (unsigned)pending->id & (PENDING_MAX - 1);
}

static uint16_t tag_of(const struct pending *pending)
{
	return (uint16_t)(PENDING_TAG + slot_of(pending));
}

/* NULL: there are too many, or no memory. *ret tells which. */
static struct pending *new_pending(struct hugepool *pool, int *ret)
{
	struct pendings *all = &pool->pendings;
	struct pending *pending;

	if (all->nr == PENDING_MAX) {
		*ret = handle_fail(pool, -EAGAIN, "%d requests are pending: dispatch first",
				   PENDING_MAX);
		return NULL;
	}
	pending = calloc(1, sizeof(*pending));
	if (!pending) {
		*ret = handle_fail(pool, -ENOMEM, "no memory to write the request down");
		return NULL;
	}
	while (all->slots[all->hint])
		all->hint = (all->hint + 1) % PENDING_MAX;
	all->serial = all->serial % SERIAL_MAX + 1;
	pending->id = all->serial << SLOT_BITS | (int)all->hint;
	pending->expires_ns = UINT64_MAX;
	all->slots[all->hint] = pending;
	all->nr++;
	return pending;
}

/* --- states ----------------------------------------------------------------------------------- */

/* How many of what are under way. */
static void count_sent(struct pendings *all, const struct pending *pending, size_t by)
{
	all->sent += by;
	if (pending->is_free)
		return;
	all->allocs += by;
	if (pending->wanted.until_ns)
		all->waiting += by;
	if (pending->wanted.exclusive)
		all->exclusive += by;
}

static void set_state(struct pendings *all, struct pending *pending, enum pending_state state)
{
	static const bool allowed[3][3] = {
		[PENDING_UNSENT] = {[PENDING_SENT] = true, [PENDING_DONE] = true},
		[PENDING_SENT] = {[PENDING_UNSENT] = true, [PENDING_DONE] = true},
	};

	assert(allowed[pending->state][state]);
	if (pending->state == PENDING_SENT) {
		count_sent(all, pending, (size_t)-1);
		if (pending->cancel == CANCEL_WANTED)
			all->cancels--;
	}
	pending->state = state;
	switch (state) {
	case PENDING_UNSENT:
		pending->expires_ns = UINT64_MAX;
		append(&all->unsent, pending);
		break;
	case PENDING_SENT:
		count_sent(all, pending, 1);
		break;
	case PENDING_DONE:
		append(&all->done, pending);
		break;
	}
}

/* It is over. error: what is to be told, with result; NULL if it went well. */
static void finish(struct hugepool *pool, struct pending *pending, int result,
		   const struct hugepool_error *error)
{
	pending->result = result;
	if (error)
		pending->error = *error;
	pending->error.size = sizeof(pending->error);
	if (pending->is_free && result < 0)
		free_undo(pool, &pending->range, 1);
	if (!pending->is_free)
		range_table_promise(&pool->ranges, -1);
	set_state(&pool->pendings, pending, PENDING_DONE);
	loop_wake(pool);
}

static void finish_with(struct hugepool *pool, struct pending *pending, int result,
			const char *message)
{
	struct hugepool_error error = {.error = -result};

	(void)snprintf(error.message, sizeof(error.message), "%s", message);
	finish(pool, pending, result, &error);
}

static void expire_at(struct hugepool *pool, struct pending *pending, uint64_t ns)
{
	pending->expires_ns = ns;
	if (ns < pool->pendings.next_expiry_ns)
		pool->pendings.next_expiry_ns = ns;
	if (ns != UINT64_MAX)
		loop_wake_at(pool, ns);
}

/* Once more from the beginning. */
static void unsend(struct hugepool *pool, struct pending *pending)
{
	set_state(&pool->pendings, pending, PENDING_UNSENT);
	if (pending->wanted.until_ns)
		expire_at(pool, pending, pending->wanted.until_ns);
}

/* --- sending ---------------------------------------------------------------------------------- */

/* Return: 0; -EAGAIN if the socket takes no more; other -errno with the connection broken. */
static int send_one(struct hugepool *pool, struct pending *pending)
{
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;
	Hugepool__V1__Alloc alloc;
	uint64_t now = connection_now_ns(), until = now;
	int r;

	if (pending->is_free) {
		ranges.n_ranges = HP_WIRE_RANGE_WORDS;
		ranges.ranges = pending->range.lease;
		r = connection_try_send(&pool->connection, TYPE(FREE), tag_of(pending),
					&ranges.base);
	} else {
		alloc_put_message(&pending->wanted, &alloc);
		r = connection_try_send(&pool->connection, TYPE(ALLOC), tag_of(pending),
					&alloc.base);
		if (pending->wanted.until_ns > now)
			until = pending->wanted.until_ns;
	}
	if (r < 0)
		return r;
	if (pool->connection.timeout_ms >= 0)
		expire_at(pool, pending, until + (uint64_t)pool->connection.timeout_ms * NS_PER_MS);
	return 0;
}

static bool is_held_back(const struct pendings *all, const struct pending *pending)
{
	return !pending->is_free && pending->wanted.until_ns && all->waiting >= WAITING_MAX;
}

static int send_requests(struct hugepool *pool)
{
	struct pendings *all = &pool->pendings;
	struct pending **at = &all->unsent.first;

	while (*at && all->sent < SENT_MAX) {
		struct pending *pending = *at;
		int r;

		if (is_held_back(all, pending)) {
			at = &pending->next;
			continue;
		}
		r = send_one(pool, pending);
		if (r < 0)
			return r;
		take_out(&all->unsent, at);
		set_state(all, pending, PENDING_SENT);
	}
	return 0;
}

static int send_cancels(struct hugepool *pool)
{
	struct pendings *all = &pool->pendings;

	for (size_t i = 0; i < PENDING_MAX && all->cancels; i++) {
		Hugepool__V1__Cancel cancel = HUGEPOOL__V1__CANCEL__INIT;
		struct pending *pending = all->slots[i];
		int r;

		if (!pending || pending->state != PENDING_SENT || pending->cancel != CANCEL_WANTED)
			continue;
		cancel.request_tag = tag_of(pending);
		r = connection_try_send(&pool->connection, TYPE(CANCEL), REQUEST_TAG_NOBODY,
					&cancel.base);
		if (r < 0)
			return r;
		pending->cancel = CANCEL_SENT;
		all->cancels--;
	}
	return 0;
}

void pending_send(struct hugepool *pool)
{
	int r;

	if (pool->connection.broken)
		return;
	r = connection_flush(&pool->connection);
	if (r == 0)
		r = send_cancels(pool);
	if (r == 0)
		r = send_requests(pool);
	loop_want_write(pool, r == -EAGAIN);
	if (r < 0 && r != -EAGAIN)
		loop_wake(pool); /* there the broken connection is seen to */
}

/* --- answers ---------------------------------------------------------------------------------- */

/* A grant that cannot be used goes back; nobody waits for the daemon to say that it has it. */
static void give_back(struct hugepool *pool, const struct pending *pending,
		      const Hugepool__V1__Ranges *grant)
{
	uint8_t type = alloc_free_type(&pending->wanted);

	if (connection_send(&pool->connection, type, REQUEST_TAG_NOBODY, &grant->base) == 0)
		alloc_release_blocks(pool, &pending->wanted, grant);
}

static int take_grant(struct hugepool *pool, struct pending *pending,
		      const Hugepool__V1__Ranges *grant)
{
	int r;

	range_table_promise(&pool->ranges, -1);
	r = alloc_accept(pool, &pending->wanted, grant, &pending->range, &pending->origin);
	range_table_promise(&pool->ranges, 1);
	if (r == -EPROTO)
		return r;
	if (r == 0) {
		finish(pool, pending, 0, NULL);
		return 0;
	}
	give_back(pool, pending, grant);
	if (r != -EAGAIN) {
		finish_with(pool, pending, r, "a granted block could not be mapped");
		return 0;
	}
	if (++pending->tries == ALLOC_TRIES)
		return request_fail_protocol(pool);
	unsend(pool, pending);
	return 0;
}

/* An error in the daemon's words is this request's, and not the handle's last one. */
static void take_error(struct hugepool *pool, struct pending *pending,
		       const Hugepool__V1__Error *told)
{
	struct hugepool_error others = pool->error, error;
	int r = request_fail_as_told(pool, told);

	error = pool->error;
	pool->error = others;
	if (!pending->is_free && (r == -ENOMEM || r == -EDQUOT || r == -ETIMEDOUT))
		error.asked_bytes = pending->wanted.bytes;
	finish(pool, pending, r, &error);
}

int pending_reply(struct hugepool *pool, const struct hp_frame *frame)
{
	struct pending *pending = pool->pendings.slots[frame->tag - PENDING_TAG];
	const ProtobufCMessage *message;
	int r = 0;

	if (!pending || pending->state != PENDING_SENT ||
	    (frame->type != TYPE(ERROR) &&
	     frame->type != (pending->is_free ? TYPE(DONE) : TYPE(GRANT))) ||
	    hp_message_unpack(pool->connection.arena, hp_message_descriptor(frame->type), frame,
			      &message) < 0)
		return request_fail_protocol(pool);
	if (frame->type == TYPE(ERROR)) {
		take_error(pool, pending, (const Hugepool__V1__Error *)message);
	} else if (pending->is_free) {
		free_finish(pool, &pending->range, 1);
		finish(pool, pending, 0, NULL);
	} else {
		r = take_grant(pool, pending, (const Hugepool__V1__Ranges *)message);
	}
	if (r == 0)
		pending_send(pool);
	return r;
}

/* --- other ends ------------------------------------------------------------------------------- */

/* Requests that were held back until their time was over. */
static void expire_unsent(struct hugepool *pool, uint64_t now)
{
	struct pending **at = &pool->pendings.unsent.first;

	while (*at) {
		struct pending *pending = *at;

		if (pending->expires_ns > now) {
			at = &pending->next;
			continue;
		}
		take_out(&pool->pendings.unsent, at);
		finish_with(pool, pending, -ETIMEDOUT,
			    "too many others were waiting until the deadline");
	}
}

int pending_expire(struct hugepool *pool)
{
	struct pendings *all = &pool->pendings;
	uint64_t now = connection_now_ns();

	if (now < all->next_expiry_ns) {
		if (all->next_expiry_ns != UINT64_MAX)
			loop_wake_at(pool, all->next_expiry_ns);
		return 0;
	}
	expire_unsent(pool, now);
	all->next_expiry_ns = UINT64_MAX;
	for (size_t i = 0; i < PENDING_MAX; i++) {
		struct pending *pending = all->slots[i];

		if (!pending || pending->state == PENDING_DONE)
			continue;
		if (pending->expires_ns <= now)
			return request_fail_broken(pool,
						   connection_break(&pool->connection, -ETIMEDOUT));
		expire_at(pool, pending, pending->expires_ns);
	}
	return 0;
}

void pending_fail(struct hugepool *pool, int error)
{
	struct pendings *all = &pool->pendings;

	all->unsent.first = NULL;
	all->unsent.end = &all->unsent.first;
	for (size_t i = 0; i < PENDING_MAX && all->nr; i++)
		if (all->slots[i] && all->slots[i]->state != PENDING_DONE)
			finish_with(pool, all->slots[i], error,
				    "the connection to the daemon is lost");
	all->next_expiry_ns = UINT64_MAX;
}

void pending_requeue(struct hugepool *pool)
{
	struct pendings *all = &pool->pendings;

	for (struct pending **at = &all->unsent.first; *at;) {
		struct pending *pending = *at;

		if (!pending->is_free) {
			at = &pending->next;
			continue;
		}
		take_out(&all->unsent, at);
		free_finish(pool, &pending->range, 1);
		finish(pool, pending, 0, NULL);
	}
	for (size_t i = 0; i < PENDING_MAX && all->sent; i++) {
		struct pending *pending = all->slots[i];

		if (!pending || pending->state != PENDING_SENT)
			continue;
		if (pending->is_free) {
			free_finish(pool, &pending->range, 1);
			finish(pool, pending, 0, NULL);
		} else if (pending->cancel != CANCEL_NO) {
			finish_with(pool, pending, -ECANCELED, "cancelled");
		} else {
			unsend(pool, pending);
		}
	}
	pending_send(pool);
}

/* --- the program's side ----------------------------------------------------------------------- */

static int alloc_async_locked(struct hugepool *pool, const struct hugepool_request *request,
			      hugepool_alloc_fn fn, void *userdata)
{
	struct pending *pending;
	struct wanted wanted;
	int r;

	if (!fn)
		return handle_fail(pool, -EINVAL, "no function to call with the range");
	if (pool->connection.broken && !resume_is_possible(pool))
		return request_fail_broken(pool, pool->connection.broken == -ESTALE ? -ESTALE
										    : -ECONNRESET);
	r = alloc_translate(pool, request, 1, &wanted);
	if (r == 0)
		r = alloc_prepare(pool, &wanted);
	if (r < 0)
		return r;
	pending = new_pending(pool, &r);
	if (!pending)
		return r;
	pending->wanted = wanted;
	pending->alloc_fn = fn;
	pending->userdata = userdata;
	range_table_promise(&pool->ranges, 1);
	append(&pool->pendings.unsent, pending);
	if (wanted.until_ns)
		expire_at(pool, pending, wanted.until_ns);
	r = pending->id;
	pending_send(pool);
	return r;
}

int hugepool_alloc_async(struct hugepool *pool, const struct hugepool_request *request,
			 hugepool_alloc_fn fn, void *userdata)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, alloc_async_locked(pool, request, fn, userdata));
}

static int free_async_locked(struct hugepool *pool, const struct hugepool_range *range,
			     hugepool_free_fn fn, void *userdata)
{
	uint64_t words[HP_WIRE_RANGE_WORDS];
	struct pending *pending;
	int r;

	if (pool->connection.broken && !resume_is_possible(pool))
		return request_fail_broken(pool, pool->connection.broken == -ESTALE ? -ESTALE
										    : -ECONNRESET);
	r = free_begin(pool, range, 1, words);
	if (r < 0)
		return r;
	pending = new_pending(pool, &r);
	if (!pending) {
		free_undo(pool, range, 1);
		return r;
	}
	pending->is_free = true;
	pending->range = *range;
	pending->free_fn = fn;
	pending->userdata = userdata;
	append(&pool->pendings.unsent, pending);
	pending_send(pool);
	return 0;
}

int hugepool_free_async(struct hugepool *pool, const struct hugepool_range *range,
			hugepool_free_fn fn, void *userdata)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, free_async_locked(pool, range, fn, userdata));
}

static int cancel_locked(struct hugepool *pool, int id)
{
	struct pendings *all = &pool->pendings;
	struct pending *pending = id > 0 ? all->slots[(unsigned)id & (PENDING_MAX - 1)] : NULL;
	struct pending **at = &all->unsent.first;

	if (!pending || pending->id != id || pending->is_free || pending->state == PENDING_DONE)
		return handle_fail(pool, -ENOENT, "no such request is pending");
	if (pending->state == PENDING_UNSENT) {
		while (*at != pending)
			at = &(*at)->next;
		take_out(&all->unsent, at);
		finish_with(pool, pending, -ECANCELED, "cancelled");
		return 0;
	}
	if (pending->cancel != CANCEL_NO)
		return 0;
	pending->cancel = CANCEL_WANTED;
	all->cancels++;
	pending_send(pool);
	return 0;
}

int hugepool_cancel(struct hugepool *pool, int request)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, cancel_locked(pool, request));
}

static void call(const struct pending *pending)
{
	const struct hugepool_error *error = pending->result < 0 ? &pending->error : NULL;

	if (pending->is_free) {
		if (pending->free_fn)
			pending->free_fn(pending->userdata, pending->result, &pending->range,
					 error);
		return;
	}
	if (pending->result == 0 && pending->wanted.zero && !pending->origin.zeroed)
		zero_memory(pending->range.address, pending->range.bytes, pending->origin.hot);
	pending->alloc_fn(pending->userdata, pending->result, error ? NULL : &pending->range,
			  error);
}

bool pending_deliver(struct hugepool *pool)
{
	struct pending *pending;

	if (handle_enter(pool) < 0)
		return false;
	pending = pool->pendings.done.first;
	if (pending) {
		take_out(&pool->pendings.done, &pool->pendings.done.first);
		pool->pendings.slots[slot_of(pending)] = NULL;
		pool->pendings.nr--;
	}
	(void)handle_leave(pool, 0);
	if (!pending)
		return false;
	call(pending);
	free(pending);
	return true;
}
