/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon in this process, on ordinary memory, without its program: pool, tenants and workers as
 * the server makes them, connections over socket pairs.
 */
#pragma once

#include "daemon/net/listener.h"
#include "daemon/ops/look.h"
#include "tests/daemon/peer.h"

struct rig {
	struct config *config;
	struct net net;
	struct looks looks;
	struct ops ops;
	struct worker *workers[4];
	struct acceptor acceptor;
	_Atomic bool filled;
	bool by_hand;
	size_t descriptors; /* open before */
};

/* The zones of RIG_CONFIG; what is added to it, may be "". Everything is up and filled. */
#define RIG_CONFIG                                         \
	"[zone small]\npage-size = 4K\nblock-size = 64K\n" \
	"size = 1M\nbacking = shmem\n"                     \
	"[zone large]\npage-size = 4K\nblock-size = 1M\n"  \
	"size = 4M\nbacking = shmem\n"
#define RIG_SMALL_BLOCKS      16
#define RIG_SMALL_BLOCK_PAGES 16
#define RIG_SMALL_PAGES	      (RIG_SMALL_BLOCKS * RIG_SMALL_BLOCK_PAGES)
/* The whole zone for everybody, where a test does not look at limits. */
#define RIG_NO_LIMIT "[default]\nlimit.small = 16\nlimit.large = 4\n"

struct rig_options {
	const char *config;	   /* NULL: RIG_CONFIG RIG_NO_LIMIT */
	unsigned workers;	   /* 0: 1 */
	unsigned hello_timeout_ms; /* 0: HP_HELLO_TIMEOUT_MS */
	bool by_hand;		   /* no threads of workers: see rig_turn() */
};

struct rig *rig_new(const struct rig_options *options);

/* Ends it; no descriptor may be left open. */
struct rig *rig_free(struct rig *rig);

/* By hand: the workers do what they can do without waiting for anybody. */
void rig_turn(struct rig *rig);

/* A new connection, as if it had come from the listener. */
struct peer *rig_connect(struct rig *rig, enum socket_kind kind);
struct peer *rig_connect_as(struct rig *rig, uid_t uid); /* needs root; says HELLO */
struct peer *rig_connect_hello(struct rig *rig, enum socket_kind kind);

/* Waits until this many connections are left. */
void rig_wait_connections(struct rig *rig, uint32_t n);

size_t rig_count_descriptors(void);
