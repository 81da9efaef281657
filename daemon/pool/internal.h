/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the pool share.
 *
 * Threads: recyclers do what may take time (empty, make); one keeper does what must not (watches
 * stock, idle blocks, timers and recyclers); event loops call in. Lock order: pool.lock -> locks of
 * alloc/. Callbacks are called without locks. Fields are written under pool.lock unless said
 * otherwise.
 */
#pragma once

#include "daemon/pool/backing.h"
#include "daemon/pool/budget.h"
#include "daemon/pool/pool.h"
#include "daemon/pool/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* Where the memory of a block stands; what the block is to its owner is the zone's word. */
enum block_stage {
	STAGE_ABSENT,	/* no memory is known for it */
	STAGE_RETIRING, /* its files must be emptied */
	STAGE_HELD,	/* emptied; waiting until nobody holds them */
	STAGE_EMPTY,	/* no file */
	STAGE_DAMAGED,	/* no file, and not all pages are there to make one */
	STAGE_READY,	/* the file of this life is whole */
	STAGES
};

struct pool_block {
	struct bound_zone *zone;
	uint32_t index;
	struct backing_block backing; /* whoever made it busy writes here */

	enum block_stage stage;
	bool busy;	   /* a recycler works on it, or the keeper tells its users */
	bool tried;	   /* its first filling has come to a result */
	unsigned failures; /* in a row */
	uint64_t retry_ns; /* while in pool.waiting */
	char reason[BACKING_REASON_MAX];

	enum hp_block_state seen_state; /* of the zone's word, when looked at last */
	uint64_t since_ns;		/* that it is in this state */
	uint64_t idle_since_ns;		/* 0: not idle */

	TAILQ_ENTRY(pool_block) queue; /* of pool.ready or pool.waiting */
};
TAILQ_HEAD(block_queue, pool_block);

/* A zone of the allocator and the memory that it is bound to. */
struct bound_zone {
	struct pool_zone public;
	struct pool *pool;
	const struct backing_ops *backing;
	struct pool_block *blocks;
	void *scratch; /* the durable words lie in the state */
	size_t durable_bytes, scratch_bytes;

	pthread_mutex_t open_lock; /* memfds: the descriptor of a life against its end */
	uint64_t opening_ns; /* of looking at the files that were taken over: the kernel's time */
	uint64_t recycles;
	uint32_t online_blocks;
	uint32_t giving_up_blocks;		     /* clean ones that a resize still waits for */
	char held[BACKING_REASON_MAX];		     /* why recycling is held, or "" */
	_Atomic bool owner_waits[HP_OWNERS_MAX];     /* these keep their idle blocks */
	_Atomic uint32_t owner_lacks[HP_OWNERS_MAX]; /* clean blocks that these wait for */
	_Atomic uint32_t owner_refresh[HP_OWNERS_MAX]; /* so many idle ones of these go first */
	_Atomic uint32_t wanted_blocks;		       /* that requests wait for */
};

struct recycler {
	struct pool *pool;
	pthread_t thread;
	enum { RECYCLER_FREE, RECYCLER_RUNNING, RECYCLER_DONE } state;
	bool stuck;		 /* does not count: another one has taken over */
	uint64_t waits_since_ns; /* in a call that a client can hold up; 0: not */
	int node;		 /* that it allocates on; its own */
};

struct pool_owner {
	bool busy;		/* a recycler works on a block of this owner */
	uint64_t idle_since_ns; /* without a session since; 0: has one, or never had */
	bool gone;		/* and will never have one again */
	uint32_t spare_blocks;	/* the keeper's, in the zone it looks at: see count_spare() */
	struct budget budget;
};

struct pool {
	const struct config *config;
	struct pool_callbacks callbacks;
	struct bound_zone zones[HP_ZONES_MAX];
	size_t nr_zones;
	struct pool_owner *owners;
	uint32_t nr_owners;

	struct state *state;
	bool pinned; /* the memory of huge pages outlives us */
	bool keeps;  /* at the end files and words stay as they are */

	int guard_socket; /* to the guard of an unpinned set-up, or -1 */
	pid_t guard_pid;

	pthread_mutex_t lock;
	pthread_cond_t work; /* something is in ready */
	struct block_queue ready, waiting;
	struct budget budget; /* of all recycling */
	uint64_t idle_delay_ns;
	uint64_t pick_again_ns;	  /* when a budget lets the next block through; 0: none waits */
	uint32_t nr_known_blocks; /* that there is memory for */
	uint32_t untried_blocks;  /* of those, in the first filling */
	bool started, stopping;
	struct recycler *recyclers;	   /* nr_recyclers places */
	unsigned nr_recyclers, nr_counted; /* counted: running and not stuck */

	/* One resize at a time; its thread is joined by the next one, or at the end. */
	pthread_t resizer;
	bool resizing, resizer_started;
	int resize_socket;	/* that it receives from; -1: none */
	pthread_cond_t changed; /* a recycler has done something, or it is over */

	pthread_t keeper;
	int keeper_event;	  /* eventfd */
	uint64_t keeper_wakes_ns; /* when it wakes by itself */
	atomic_bool poked;
	uint64_t scanned_ns;
	struct pool_block **retired; /* the keeper's own: room for a zone */
};

uint64_t pool_now_ns(void); /* never 0 */

static inline struct bound_zone *bound_zone(struct pool_zone *zone)
{
	return (struct bound_zone *)((char *)zone - offsetof(struct bound_zone, public));
}

/* --- life.c ----------------------------------------------------------------------------------- */

/* Checked against the table of transitions. Lock held. */
void life_set_stage(struct pool_block *block, enum block_stage stage, const char *reason);

/*
 * Takes a block as far towards ready as it gets, and puts it into the zone. The recycler has made it
 * busy; no lock held. Return: 0, or after how many nanoseconds to try again.
 */
uint64_t life_advance(struct recycler *recycler, struct pool_block *block);

/* --- recycler.c ------------------------------------------------------------------------------- */

/* Around calls that a client can hold up: a recycler that is in one for too long is replaced. */
void recycler_begin_wait(struct recycler *recycler);
void recycler_end_wait(struct recycler *recycler);

/* Starts one more. Lock held. Return: 0 or -errno. */
int recycler_start(struct pool *pool);

/* Replaces those that are stuck and joins those that are done. Lock held. */
void recycler_watch(struct pool *pool, uint64_t now_ns, uint64_t *next_ns);

/* Waits for all; pool.stopping is set. No lock held. */
void recycler_join_all(struct pool *pool);

/* --- keeper.c --------------------------------------------------------------------------------- */

int keeper_start(struct pool *pool);
void keeper_join(struct pool *pool); /* pool.stopping is set */
void keeper_kick(struct pool *pool); /* looks at once; from any thread, never waits */
void keeper_wake_by(struct pool *pool, uint64_t when_ns); /* lock held */

/* Takes in a block with its memory; the recyclers do the rest. Lock held. */
void life_take_in(struct pool_block *block);

/* --- resize.c --------------------------------------------------------------------------------- */

/* Blocks that there is memory for. Lock held, or nobody else there yet. */
uint32_t resize_known_blocks(const struct bound_zone *zone);

/* So that it comes to its end soon, and when it has. pool.stopping is set; no lock held. */
void resize_stop(struct pool *pool);

/* What is online, and what is to be. Lock held. */
void resize_sum_up(const struct pool *pool, uint64_t *ret_online_bytes,
		   uint64_t *ret_configured_bytes);

/* --- source.c --------------------------------------------------------------------------------- */

/* Finds the memory of zones of huge pages. Return: 0 or -errno, the reason logged. */
int source_open(struct pool *pool);

/*
 * More of a zone, up to so many blocks in all, from where its memory comes from; each is taken in. A
 * guard makes them, a set-up hands out what it has. text: what it had to say. Return: 0 or -errno.
 */
int source_adopt(struct bound_zone *zone, uint32_t blocks, char text[POOL_REASON_MAX]);

/* Blocks have been let go of: a guard takes them away. Return: 0 or -errno. */
int source_give_up(struct bound_zone *zone, char text[POOL_REASON_MAX]);

/* Ends the guard, if there is one, and waits until it has given everything back. */
void source_close(struct pool *pool);
