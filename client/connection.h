/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One socket to a daemon: frames out, frames in, descriptors kept until the frame they came with is
 * handled. Knows nothing of what the messages mean.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/fds.h"
#include "proto/frame.h"
#include "proto/message.h"

struct connection {
	int socket;	   /* -1: none */
	int timeout_ms;	   /* of each reply; negative: for ever */
	int broken;	   /* 0, or the -errno that ended it: nothing is exchanged any more */
	bool fds_lost;	   /* descriptors were lost on the way since the exchange began */
	bool waited;	   /* this exchange has slept already */
	uint32_t wait_ms;  /* how long this exchange may wait at the daemon */
	uint64_t deadline; /* of this exchange, CLOCK_MONOTONIC ns */
	size_t start, end; /* unread input */
	size_t out_start, out_end; /* of a frame that has been sent in part */
	size_t nr_fds;		   /* that came and no frame has claimed yet; owned */
	struct hp_arena *arena;
	int fds[HP_BLOCKS_MAX];
	uint8_t input[2 * HP_FRAME_MAX], output[HP_FRAME_MAX];
};

/*
 * Connects to the socket at `path`. Return: 0; -ENAMETOOLONG, -ETIMEDOUT, -ENOMEM, or what
 * connect() says. The connection needs connection_deinit() in either case.
 */
int connection_init(struct connection *connection, const char *path, int timeout_ms);

/* Closes everything it has. */
void connection_deinit(struct connection *connection);

/*
 * A new exchange: its time runs from now, and is longer by how long the daemon may let it wait.
 * Descriptors nobody claimed are closed.
 */
void connection_begin(struct connection *connection, uint32_t wait_ms);

/* CLOCK_MONOTONIC */
uint64_t connection_now_ns(void);

/* Sends a message. Return: 0, or -errno; the connection is broken then. */
int connection_send(struct connection *connection, uint8_t type, uint16_t tag,
		    const ProtobufCMessage *message);

/*
 * Sends a message as far as it goes without waiting. Return: 0 if it is taken: should a part of it be
 * left, it goes before everything else; -EAGAIN if nothing of it is; other -errno as above.
 */
int connection_try_send(struct connection *connection, uint8_t type, uint16_t tag,
			const ProtobufCMessage *message);

/* Sends what was left, without waiting. Return: 0; -EAGAIN; other -errno, and it is broken. */
int connection_flush(struct connection *connection);

/*
 * The next frame, borrowed until the next call. Return: 0; -ETIMEDOUT, -ECONNRESET, -EPROTO; the
 * connection is broken then.
 */
int connection_receive(struct connection *connection, struct hp_frame *ret);

/* The same without waiting: -EAGAIN if no whole frame is there. */
int connection_receive_nowait(struct connection *connection, struct hp_frame *ret);

/* The oldest descriptor that came, now the caller's; -1: none. */
int connection_take_fd(struct connection *connection);

/* Nothing more can be exchanged, because of `error` (-errno). Return: error. */
int connection_break(struct connection *connection, int error);
