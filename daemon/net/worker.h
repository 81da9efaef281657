/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: one thread, one event loop, and the sessions that were given to it for life. Nothing of
 * a session is shared with another thread but its slot.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/net/output.h"
#include "daemon/net/turn.h"
#include "daemon/pool/pool.h"
#include "daemon/tenancy/cache.h"
#include "daemon/tenancy/lease.h"
#include "daemon/tenancy/revoke.h"
#include "daemon/tenancy/slot.h"
#include "daemon/tenancy/tenant.h"
#include "daemon/tenancy/wait.h"
#include "proto/message.h"

#define WORKER_RECV_BYTES (16 * 1024) /* of one receive */
/* Nothing is received while whole frames wait: what is left over is less than one. */
#define WORKER_INPUT_BYTES (WORKER_RECV_BYTES + HP_FRAME_MAX)

enum socket_kind { SOCKET_DATA = 1 << 0, SOCKET_ADMIN = 1 << 1 };

/* What all workers share; filled in by the server, which owns it all. */
struct net {
	struct pool *pool;
	struct tenants *tenants;
	struct slots *slots;
	struct shares *shares;
	struct leases *leases;
	struct waits *waits;
	struct orders *orders;
	struct revokes *revokes;
	struct worker **workers;
	size_t nr_workers;
	const struct looks *looks; /* dispatch.h */
	unsigned hello_timeout_ms; /* HP_HELLO_TIMEOUT_MS */
	unsigned grace_ms;	   /* how long broken sessions may be resumed */
	bool keep_leases; /* the daemon ends and what sessions hold stays; workers are stopped */
};

/* Written by the worker, looked at by anybody. */
struct worker_counters {
	_Atomic uint64_t requests;
	_Atomic uint64_t errors; /* ERROR replies */
	_Atomic uint64_t broken; /* sessions ended for what they sent */
};

TAILQ_HEAD(session_list, session);

struct handover;
STAILQ_HEAD(handover_list, handover);

struct order;
STAILQ_HEAD(order_list, order);

struct worker {
	/* constant while the worker runs */
	const struct net *net;
	unsigned index;
	struct event_base *base;
	pthread_t thread;
	bool running;

	/* of the worker's thread */
	struct caches *caches;
	struct hp_arena *arena; /* the message of the frame being handled */
	struct session_list sessions;
	struct session_list deadlines; /* without HELLO, or ending: the oldest first */
	struct event deadline_timer;
	uint64_t pressure_ms
		[HP_ZONES_MAX]; /* when sessions were last asked for what they can spare */
	uint64_t log_second;	/* see worker_may_log() */
	uint32_t log_lines;
	struct turn turn;   /* around the handling of each event */
	size_t freed_bytes; /* since memory was last given back to the kernel */
	struct event trim_timer;
	uint32_t owed_fds[HP_TENANTS_MAX]; /* per owner: see output_settle() */
	struct batch batch;
	uint8_t input[WORKER_INPUT_BYTES];
	struct { /* of the request that is being handled */
		struct hp_range ranges[HP_RANGES_MAX];
		struct hp_grant grants[HP_RANGES_MAX];
		uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
		uint32_t fresh[HP_ZONE_BLOCKS_MAX];
		uint64_t generations[HP_ZONE_BLOCKS_MAX];
		int fds[HP_ZONE_BLOCKS_MAX];
	} scratch;

	struct worker_counters counters;

	/* of any thread: see worker_hand_over() and worker_retire() */
	int wakeup_fd;
	struct event wakeup_event;
	pthread_mutex_t lock; /* of arrivals, answers and stopping */
	struct handover_list arrivals;
	struct order_list answers; /* order.h */
	bool stopping;
	_Atomic bool asked;				 /* see worker_ask() */
	_Atomic uint32_t connections, admin_connections; /* handed over and not yet gone */
	_Atomic uint32_t pressure;			 /* zones, as bits */
	_Atomic bool noticed, retired_any;
	_Atomic bool tenants_changed;
	_Atomic bool dismissed_any;
	_Atomic uint64_t *retired[HP_ZONES_MAX]; /* [block]: generation whose memory is going */
};

/* net is borrowed. Return: 0 or -errno. */
int worker_new(struct worker **ret, const struct net *net, unsigned index);

/*
 * Stops the thread. It may still be told things, which have no effect any more. Workers look at each
 * other's caches: all of them are stopped before anything of the first one is ended.
 */
void worker_stop(struct worker *worker);

/*
 * Of one that is stopped, when all are: ends every session, telling its client why, and gives the
 * page caches back.
 */
void worker_end_sessions(struct worker *worker);

struct worker *worker_free(struct worker *worker); /* ends it; NULL is fine; returns NULL */

/* Starts the thread, with all signals blocked. Return: 0 or -errno. */
int worker_start(struct worker *worker);

/*
 * Gives it a connection, from any thread. fd is consumed, and so is the connection of the tenant
 * (tenants_enter()); NULL on the admin socket. Return: 0, or -ENOMEM: nothing was consumed.
 */
int worker_hand_over(struct worker *worker, int fd, enum socket_kind kind, struct tenant *tenant);

/* The memory of this life of a block is going: tells the sessions that know it. Any thread. */
void worker_retire(struct worker *worker, const struct pool_zone *zone, uint32_t block,
		   uint64_t generation);

/* A tenant is leaving or ending, or its limit is lower: the sessions look at theirs. Any thread. */
void worker_look_at_tenants(struct worker *worker);
/* Broken sessions of it may have been resumed elsewhere: it forgets them. Any thread. */
void worker_dismiss(struct worker *worker);

/* Notices were posted to slots, perhaps of its sessions. Any thread. */
void worker_notice(struct worker *worker);

/* Has it look at what came from other threads. Any thread. */
void worker_wake(struct worker *worker);

/*
 * Is its event loop alive? It is asked, and a while later looked at whether it has answered. Any
 * thread, but one.
 */
void worker_ask(struct worker *worker);
bool worker_answers(const struct worker *worker);

/*
 * Somebody waits for room in this zone: asks the sessions of all workers for what they can spare.
 * Called by a worker.
 */
void worker_press(struct worker *worker, const struct pool_zone *zone);

/* --- for session.c ---------------------------------------------------------------------------- */

/* The session has to get on before the time-out from now, or is ended by session_expired(). */
void worker_set_deadline(struct worker *worker, struct session *session);
void worker_clear_deadline(struct worker *worker, struct session *session);

/*
 * May one more line about what a client did be logged? So many a second; how many were left out is
 * logged with the next one that is not.
 */
bool worker_may_log(struct worker *worker);

/*
 * Memory of sessions was freed. The C library keeps what it is given; after enough of it the worker
 * has it given back to the kernel, a little later.
 */
void worker_note_freed(struct worker *worker, size_t bytes);

static inline _Atomic uint32_t *worker_connections(struct worker *worker, enum socket_kind kind)
{
	return kind == SOCKET_ADMIN ? &worker->admin_connections : &worker->connections;
}

static inline void worker_count(_Atomic uint64_t *counter)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed) + 1;

	atomic_store_explicit(counter, value, memory_order_relaxed);
}
