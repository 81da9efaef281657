/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one connection, from accept to the end of what it held.
 *
 *   silent      connected, no HELLO yet
 *   serving     HELLO was answered; on the data socket it has a slot
 *   ending      has said goodbye: its last reply is on its way
 *   condemned   the connection is gone, its process lives, and it still holds leases
 *
 * Only the session's worker calls these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event_struct.h>

#include "daemon/net/known.h"
#include "daemon/net/output.h"
#include "daemon/net/worker.h"

TAILQ_HEAD(parked_list, parked);
TAILQ_HEAD(revoking_list, revoking);

struct order;
TAILQ_HEAD(session_orders, order);

enum session_phase {
	SESSION_SILENT,
	SESSION_SERVING,
	SESSION_ENDING,
	SESSION_CONDEMNED,
	SESSION_PHASES,
};

struct session {
	TAILQ_ENTRY(session) link;	    /* worker->sessions */
	TAILQ_ENTRY(session) deadline_link; /* worker->deadlines, if deadline_ms */
	uint64_t deadline_ms;

	struct worker *worker;
	enum socket_kind kind;
	enum session_phase phase;
	int fd;		       /* -1 when the connection is gone */
	struct tenant *tenant; /* NULL on the admin socket; entered while fd is there */
	struct slot *slot;     /* from HELLO to GOODBYE, data socket only */
	int pidfd;	       /* likewise, otherwise -1 */

	struct event read_event, write_event, retry_timer, process_event;
	bool reading;
	enum output_wait waiting; /* what write_event and retry_timer are set for */
	unsigned retry_ms;

	uint8_t *input; /* bytes received and not handled yet */
	size_t input_bytes, input_room;
	struct output output;
	struct known known;
	struct parked_list parked; /* requests that wait */
	uint32_t nr_parked;
	struct session_orders orders; /* of the admin, being done */
	uint32_t turn;		      /* since when it has the slot: see slots_take() */
	struct resume *resume;	      /* the list of what it keeps, while that is under way */
	bool resumed;
	struct revoking_list revoking; /* of an admin: revocations under way */
	uint32_t nr_revoking;
	uint32_t pressed; /* zones, as bits: asked for, and not read for all that is known */
};

/*
 * Takes a connection. fd and the tenant's connection are consumed, also on failure. Return: 0 or
 * -ENOMEM.
 */
int session_new(struct worker *worker, int fd, enum socket_kind kind, struct tenant *tenant);

/* Ends everything at once: what it holds is free again. */
void session_free(struct session *session);

/* The daemon ends: says so, as far as the socket takes it, and frees the session. */
void session_shut_down(struct session *session);

/* From silent to serving; data socket: with this slot and process, both consumed. */
void session_serve(struct session *session, struct slot *slot, int pidfd);

/*
 * Goes on as the session of another slot, which has been taken over; its own one ends. Return: 0, or
 * -ENOMEM: the other one is broken again.
 */
int session_change_slot(struct session *session, struct slot *slot);

/*
 * Of another daemon: without a connection, until it is resumed or its process ends. pidfd (-1: the process
 * is gone, and a child may come) is consumed. Return: 0 or -ENOMEM.
 */
int session_restore(struct worker *worker, struct slot *slot, int pidfd);

/* From serving to ending: frees what it holds; the connection is closed behind the last reply. */
void session_goodbye(struct session *session);

/*
 * Sends what was said outside of a turn, and handles what had to wait. May free the session.
 */
void session_go_on(struct session *session);

/*
 * Asks the client for what it can spare of these zones (bits), unless it has not read yet that it
 * was asked: a client that sleeps is sent one of each, not one a second.
 */
void session_press(struct session *session, uint32_t zones);

/*
 * Its tenant is leaving: what waits is refused, and the client is asked for what it can spare. It is
 * ending: so does the session, whatever it holds. Its limit is lower: what can never be granted any
 * more is refused. May free the session.
 */
void session_look_at_tenant(struct session *session);

/* Tells the client what has been posted to its slot. */
void session_take_notices(struct session *session);

/* It did not get on in time. */
void session_expired(struct session *session);

/* Tells the client if it knows this life of the block. */
void session_retired(struct session *session, const struct pool_zone *zone, uint32_t block,
		     uint64_t generation);
