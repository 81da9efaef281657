/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: zones of the allocator bound to files of huge pages.
 *
 * It brings blocks online, gives out descriptors of live ones, takes idle ones back (isolate,
 * recycle, put clean) in threads of its own, and gives everything back at the end. It knows owners
 * by number only; who they are is the business of tenancy.
 *
 * Data flow: tenancy and net call the zones directly (hp_zone_alloc() ...) and the pool for
 * descriptors; the pool tells them what happened to blocks through callbacks, from its own threads.
 */
#pragma once

#include "alloc/zone.h"
#include "daemon/config.h"

struct pool;
struct state;

struct pool_zone {
	uint8_t id; /* its number in ranges and in the configuration */
	const char *name;
	uint64_t page_bytes, block_bytes;
	uint32_t block_pages;	      /* a power of two */
	uint32_t nr_blocks;	      /* that there is room for: max-size */
	_Atomic uint32_t size_blocks; /* that it has or is to have; guarantees fit into them */
	struct hp_zone *zone;
	const struct config_zone *config;		   /* as it was at the start */
	_Atomic uint32_t clean_min, clean_low, clean_high; /* watermarks, in blocks */
};

/* All called from the pool's threads, without locks held; none may be NULL. */
struct pool_callbacks {
	/* A block came online or became clean: waiting requests may look again. */
	void (*clean)(void *userdata, struct pool_zone *zone);
	/* The memory of this life of a block is going; sessions that were sent it should let go of
	 * it. */
	void (*retired)(void *userdata, struct pool_zone *zone, uint32_t block,
			uint64_t generation);
	/* An owner may have lost its last block: its number may be free. */
	void (*owner_changed)(void *userdata, uint32_t owner);
	/* As much of the configured size is there as there will be; online and configured in bytes.
	 */
	void (*filled)(void *userdata, uint64_t online_bytes, uint64_t configured_bytes);
	void *userdata;
};

/*
 * Makes the zones (all blocks offline) and finds the memory: directory descriptors from
 * hugepool-setup where its socket answers, from an unpinned namespace of its own as root, or shmem
 * where the configuration says so. nr_owners: owners 1 .. nr_owners - 1 will be used. Nothing is
 * allocated yet. Return: 0 or -errno, the reason logged; nothing is left behind on failure.
 */
int pool_new(struct pool **ret, const struct config *config, uint32_t nr_owners,
	     const struct pool_callbacks *callbacks);

/* Starts the threads that fill the pool and recycle its blocks. */
int pool_start(struct pool *pool);

/*
 * Stops the threads, truncates every file (unless leases outlive the daemon), lets go of namespace
 * and surplus. No caller may be using the zones any more. NULL is fine; returns NULL.
 */
struct pool *pool_free(struct pool *pool);

/* The state that the zones' words lie in, for the tables of tenancy. Borrowed. */
struct state *pool_state(struct pool *pool);

/* Do leases outlive the daemon? The end of the pool then leaves blocks and words as they are. */
bool pool_keeps_leases(const struct pool *pool);

size_t pool_nr_zones(const struct pool *pool);
struct pool_zone *pool_zone(struct pool *pool, size_t id); /* NULL: no such zone */

/* Zone by name, or by page size if the name is empty (the first that fits; 0: the first). NULL:
 * none. */
struct pool_zone *pool_find_zone(struct pool *pool, const char *name, size_t name_bytes,
				 uint64_t page_bytes);

/*
 * A new open file description of a live block, read-write, for one client: never a dup, so that
 * letting go of it is visible. Never waits. The descriptor is the caller's.
 * Return: descriptor, or -errno (-EMFILE, -ENFILE; -ENOENT: the block is not live).
 */
int pool_open_block(struct pool_zone *zone, uint32_t block, uint64_t *ret_generation);

/*
 * The same for a client that may only read. The file is ours and nobody else's to open, so no
 * unprivileged process of another uid makes a writable one of it.
 */
int pool_open_block_read_only(struct pool_zone *zone, uint32_t block, uint64_t *ret_generation);

/* Pages of an owner may have become idle, or clean stock was taken: the recyclers look. Never
 * waits. */
void pool_poke(struct pool *pool);

/*
 * Requests wait for this many blocks of the zone altogether: idle ones are taken back for them as if
 * the watermarks were as high. 0: nobody waits. Never waits itself.
 */
void pool_set_wanted(struct pool_zone *zone, uint32_t blocks);

/*
 * A request of this owner waits: his own idle blocks are the first that it can have, and stay. But if
 * it can only have clean ones, so many of his are made clean, now or as soon as he has idle ones, and
 * again if others get them first. Never waits itself.
 */
void pool_set_owner_waits(struct pool_zone *zone, uint32_t owner, bool waits,
			  uint32_t clean_blocks);

/*
 * This owner needs clean blocks, which his own idle ones are not (blocks of an exclusive lease are in
 * nobody else's hands): the next `blocks` idle ones of his are made clean. They stay charged to him
 * meanwhile. Never waits.
 */
void pool_refresh_owner(struct pool_zone *zone, uint32_t owner, uint32_t blocks);

/*
 * Takes a live or failing block out of its zone with everything that is leased in it, as
 * hp_zone_revoke_block() does; hit is its. Then `retired` is called, and then the block is the
 * recyclers': whatever hit has written down is seen before anybody can be granted a page of the
 * next life. It stays charged to its owner until it is clean. Waits for nothing that a client can
 * hold up. Return: 0; HP_OUT_OF_RANGE; HP_BUSY: it is not live (any more).
 */
int pool_take_block(struct pool_zone *zone, uint32_t block, hp_hit_fn hit, void *userdata);

/* An owner has no session any more (idle blocks go after idle-delay), or has one again. */
void pool_owner_idle(struct pool *pool, uint32_t owner, bool idle);

/* Nobody will come back to this owner: what is idle of his goes at once. Until pool_owner_idle(). */
void pool_owner_gone(struct pool *pool, uint32_t owner);

/*
 * What may change at run time: idle-delay and recycle-rate of config, and the watermarks of the
 * zones: of each its section in config, or NULL where nothing changes. Nothing of it is kept.
 */
void pool_set_tuning(struct pool *pool, const struct config *config,
		     const struct config_zone *const zones[HP_ZONES_MAX]);

/* --- resizing --------------------------------------------------------------------------------- */

enum pool_resize_kind {
	POOL_ADOPT,   /* takes in blocks that there is memory for, until the zone has so many */
	POOL_GIVE_UP, /* gives up free ones, until it has so many; never what guarantees need */
};

#define POOL_REASON_MAX 256

struct pool_resized {
	uint32_t before_blocks, after_blocks; /* with memory */
	uint32_t wanted_blocks;
	bool set_up;		      /* hugepool-setup has made the memory, and is to be told */
	char reason[POOL_REASON_MAX]; /* why it is not what was wanted, or "" */
};

/* Called once, from a thread of the pool, without locks. */
typedef void (*pool_resized_fn)(void *userdata, struct pool_zone *zone,
				const struct pool_resized *resized);

/*
 * Begins to resize a zone, in a thread of its own. blocks: 0 to adopt whatever is set up. What falls
 * short is not an error, but said. Return: 0; -EBUSY: another resize is under way; -EINVAL: more than
 * there is room for; -errno. fn is called if it is 0, at the latest by pool_free().
 */
int pool_resize(struct pool_zone *zone, enum pool_resize_kind kind, uint32_t blocks,
		pool_resized_fn fn, void *userdata);

/* --- looking ---------------------------------------------------------------------------------- */

struct pool_zone_info {
	uint64_t recycles;     /* blocks made clean since start */
	uint64_t online_bytes; /* brought online so far */
	char held[128];	       /* why recycling is held, or "" */
};
void pool_zone_get_info(struct pool_zone *zone, struct pool_zone_info *ret);

struct pool_block_info {
	uint64_t age_ms;  /* since it came into its state */
	char reason[128]; /* e.g. who still holds the old file, or how many pages are missing; or ""
			   */
};
void pool_block_get_info(struct pool_zone *zone, uint32_t block, struct pool_block_info *ret);
