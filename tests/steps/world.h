/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon without its program and without memory: pool, tenants, slots, leases and shares over a state
 * file, built with a hook before every store to it. The backing is a fake that finds whatever it is
 * asked for, so that a world can be left by _exit(), as by kill -9, and another one goes on.
 */
#pragma once

#include "daemon/net/resume.h"
#include "daemon/net/worker.h"
#include "daemon/pool/internal.h"
#include "daemon/pool/state.h"

#define WORLD_BLOCKS	  8
#define WORLD_BLOCK_PAGES 16
#define WORLD_PAGES	  (WORLD_BLOCKS * WORLD_BLOCK_PAGES)
#define WORLD_UID	  1000 /* of the first tenant */

struct world {
	struct config *config;
	struct net net;
	struct worker *workers[1];
	_Atomic bool filled;
	bool threads; /* of the pool */
};

/* Opens it on this state file, what another one left restored. threads: the pool's are started, and it is filled. */
void world_open(struct world *world, const char *state_path, bool threads);
void world_close(struct world *world);

/* Kills: a store with this number from now on is the end of the process, before it happens; 0: none. */
void world_kill_at(unsigned number);
unsigned world_stores(void); /* since then */
#define WORLD_KILLED 42	     /* the exit status */

/* A session of uid WORLD_UID + tenant. */
struct slot *world_session(struct world *world, unsigned tenant);
void world_grant(struct world *world, struct slot *slot, uint32_t pages, uint32_t n,
		 struct hp_range *ret);
struct pool_zone *world_zone(struct world *world);

/* Until it holds, or the process ends with a message. */
#define WORLD_WAIT(condition)                                       \
	do {                                                        \
		unsigned tries_ = 0;                                \
		while (!(condition))                                \
			world_pause(&tries_, #condition, __LINE__); \
	} while (0)
void world_pause(unsigned *tries, const char *what, int line);

__attribute__((format(printf, 1, 2), noreturn)) void world_die(const char *format, ...);

/* --- what there is ---------------------------------------------------------------------------- */

#define WORLD_SLOTS 8 /* looked at */

struct fact {
	uint32_t slot, head, generation, pages; /* slot 0: not leased */
	uint32_t revoked;
};

struct facts {
	struct fact page[WORLD_PAGES];
	bool slot[WORLD_SLOTS + 1];
	uint64_t owner[WORLD_SLOTS + 1]; /* of the slot */
	uint64_t attached_bytes[WORLD_SLOTS + 1];
	char share[HP_NAME_MAX + 1]; /* name of the first one, if it is published */
};
void world_facts(struct world *world, struct facts *ret);
