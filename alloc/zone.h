/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zone: everything a caller of alloc/ does.
 *
 * A zone hands out ranges of pages to holders (slots) on behalf of owners. It lives in two
 * memories, both given by its caller: durable words (durable.h) and scratch, which
 * hp_zone_rebuild() makes anew from the durable words. It never allocates, logs, opens or sleeps on
 * anything but its own locks.
 *
 * Locking: every function may be called from any thread unless it says otherwise. Calls that name
 * ranges of one slot are made one at a time: a session belongs to one worker. (Calls about blocks
 * may meet them at any time.) Lock order is pcp -> zone, never two pcps at once.
 */
#pragma once

#include "alloc/durable.h"
#include "alloc/types.h"

struct hp_zone;
struct hp_pcp;

struct hp_zone_config {
	uint32_t nr_pages;	 /* 1 .. HP_ZONE_MAX_PAGES; need not be a multiple of a block */
	uint32_t nr_owners;	 /* owners 1 .. nr_owners - 1; at most HP_OWNER_MAX + 1 */
	uint8_t id;		 /* the zone's number in ranges */
	uint8_t pageblock_order; /* 0 .. HP_MAX_ORDER */
	uint8_t max_order; /* pageblock_order .. HP_MAX_ORDER: largest chunk of the buddy lists */
	bool refcounts;	   /* room for reference counts: shared ranges are possible */
};

/* --- life of a zone --- */

/*
 * How much memory a zone needs, in bytes, both multiples of 64. Together at most 16 bytes a page
 * for blocks of 8 pages and more; pcps, rounding and owners (128 bytes each, above max_order 13 192)
 * aside. Return: 0, or -EINVAL where the configuration is not possible.
 */
int hp_zone_sizes(const struct hp_zone_config *config, size_t *ret_durable_bytes,
		  size_t *ret_scratch_bytes);

/* Size of struct hp_zone itself, for callers that allocate it. */
size_t hp_zone_struct_size(void);

/*
 * Makes a new zone: all blocks offline, generation 0; hp_zone_online() brings them in. Both
 * memories are borrowed until the zone is no longer used, 64-byte aligned, of the sizes of
 * hp_zone_sizes(); their old content does not matter. Nobody else may use the zone meanwhile.
 * Return: 0 or -EINVAL.
 */
int hp_zone_init(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		 void *scratch);

/* What rebuild asks of its caller, who knows the tables that alloc/ does not. */
struct hp_rebuild_ops {
	/* The owner on whose behalf this slot holds ranges, or HP_OWNER_NONE if the slot is not in
	 * use. */
	uint32_t (*owner_of_slot)(void *userdata, uint32_t slot);
	/* May this block be used as its word says (its file is there and whole)? False quarantines
	 * it. */
	bool (*block_whole)(void *userdata, uint32_t block, struct hp_block_word word);
	/* One line about something that did not fit; optional. */
	void (*report)(void *userdata, const char *message);
	void *userdata;
};

struct hp_rebuild_stats {
	uint32_t leases, revoked;    /* leases kept; leases of which only revoked parts are left */
	uint32_t wiped_words;	     /* words inside other leases */
	uint32_t quarantined_blocks; /* blocks retired because something did not fit */
	uint32_t isolated_blocks;    /* live blocks without a leased page, to be recycled */
};

/*
 * Makes scratch memory from the durable words alone, steps 1-4 and 6 of the rebuild: may be killed
 * and repeated at any point. Nobody else may use the zone meanwhile. Return: 0 or -EINVAL.
 */
int hp_zone_rebuild(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		    void *scratch, const struct hp_rebuild_ops *ops,
		    struct hp_rebuild_stats *ret_stats);

/* Releases what the zone holds in the kernel: nothing but lock state. Memories stay as they are. */
void hp_zone_deinit(struct hp_zone *zone);

/*
 * Verifies every invariant of the zone: each page in exactly one place, lists and bitmaps and
 * counters in agreement, buddies merged, owners not mixed. Exact whoever else is at work: it keeps
 * all of them out meanwhile. report is called under all locks, with one line for each violation.
 * Return: the number of violations.
 */
unsigned hp_zone_check(struct hp_zone *zone, void (*report)(void *userdata, const char *message),
		       void *userdata);

/* Called for a page that failed its check and is kept out of the free lists. No locks held. */
typedef void (*hp_bad_page_fn)(void *userdata, hp_pfn_t pfn, const char *what);
void hp_zone_set_bad_page_fn(struct hp_zone *zone, hp_bad_page_fn fn, void *userdata);

/*
 * A page is known to be broken (memory failure): it is taken out of the free pages, or, while it is
 * leased, kept out when it is freed. Only in live and failing blocks; put_clean and offline end it.
 * Return: 0 (also if it is known already); HP_OUT_OF_RANGE; HP_BUSY.
 */
int hp_zone_poison(struct hp_zone *zone, hp_pfn_t pfn);

/* --- owners and their accounts --- */

/*
 * Owners are charged by the pageblocks they hold: live, failing, isolated, quarantined and lent
 * ones. Several owners (a tenant and the shares it published) may be charged to one account; an
 * account is named by the number of the owner it was made for. An owner that was never set charges
 * its own account.
 */
void hp_zone_owner_set_account(struct hp_zone *zone, uint32_t owner, uint32_t account);

/* Whom it charges. One load, no lock. owner < nr_owners. */
uint32_t hp_zone_owner_account(const struct hp_zone *zone, uint32_t owner);

/* How many blocks name it: live, failing, isolated, quarantined and lent ones. */
uint32_t hp_zone_owner_blocks(struct hp_zone *zone, uint32_t owner);

#define HP_UNLIMITED UINT32_MAX

/*
 * limit: blocks that the account never exceeds. guarantee: blocks that nobody else can make
 * unobtainable: a claim of another account leaves as many clean blocks as guarantees are still
 * unmet. A limit below what is held stops further claims and takes nothing away. New accounts have
 * HP_UNLIMITED and 0.
 * Return: 0; -EINVAL if guarantee > limit; HP_BUSY if the guarantees would add up to more than the
 * size of the zone.
 */
int hp_zone_account_set_quota(struct hp_zone *zone, uint32_t account, uint32_t limit_blocks,
			      uint32_t guarantee_blocks);

/*
 * How many blocks the guarantees may add up to, for a zone with room for more blocks than it has. A
 * new zone has all. Return: 0; HP_OUT_OF_RANGE; HP_BUSY if the guarantees, ret_guaranteed_blocks, are
 * more.
 */
int hp_zone_set_size(struct hp_zone *zone, uint32_t blocks, uint32_t *ret_guaranteed_blocks);

struct hp_account_stats {
	uint32_t held_blocks, limit_blocks, guarantee_blocks;
	uint32_t claimable_blocks; /* clean blocks it could claim now */
};
void hp_zone_account_stats(struct hp_zone *zone, uint32_t account, struct hp_account_stats *ret);

struct hp_owner_stats {
	uint32_t blocks;      /* live and failing */
	uint32_t idle_blocks; /* of those, with every page free in the buddy lists or a pcp */
	uint32_t free_pages;  /* in its buddy lists */
	uint32_t pcp_pages;   /* in its pcps */
	uint32_t leased_pages, revoked_pages;
	uint32_t
		largest_pages; /* longest range obtainable now, clean blocks and limit considered */
	uint32_t leasable_pages;		/* pages obtainable now in all, one by one */
	uint32_t free_chunks[HP_MAX_ORDER + 1]; /* buddy chunks per order */
};
/* Figures of one owner; HP_OWNER_NONE: of the clean blocks. */
void hp_zone_owner_stats(struct hp_zone *zone, uint32_t owner, struct hp_owner_stats *ret);

/* --- granting --- */

enum hp_alloc_flags {
	HP_ALLOC_ZEROED = 1u << 0,    /* prefers pages that are zero; what came is told per grant */
	HP_ALLOC_EXCLUSIVE = 1u << 1, /* whole clean blocks that hold nothing else while it lives */
	HP_ALLOC_NO_CLAIM = 1u << 2,  /* only from blocks that the owner has already */
	HP_ALLOC_SHARED = 1u << 3,    /* each page counts its references, one to begin with */
};

struct hp_request {
	uint32_t owner; /* 1 .. nr_owners - 1 */
	uint32_t slot;	/* holder, 1 .. HP_SLOT_MAX */
	uint32_t pages; /* 1 .. HP_RANGE_MAX_PAGES */
	uint32_t align; /* in pages, a power of two; 0: none */
	uint32_t flags; /* enum hp_alloc_flags */
};

struct hp_grant {
	struct hp_range range;
	bool zeroed; /* every page of it is zero */
};

/*
 * Grants one range. Blocks it touches are live before its lease word is stored. pcp: the caller's
 * cache for this owner, or NULL; used where the size is one that it caches. Return: 0; HP_NO_ROOM,
 * HP_OVER_LIMIT; -EINVAL for an impossible request.
 */
int hp_zone_alloc(struct hp_zone *zone, struct hp_pcp *pcp, const struct hp_request *request,
		  struct hp_grant *ret);

/* Grants n ranges (1 .. HP_BULK_MAX) or none. Return: as hp_zone_alloc(). */
int hp_zone_alloc_bulk(struct hp_zone *zone, struct hp_pcp *pcp, const struct hp_request *request,
		       struct hp_grant *ret, size_t n);

/* --- giving back --- */

/*
 * Frees one lease, named exactly. pcp: as above; must be of the owner of the pages, otherwise (and
 * when it is busy) the pages go to the buddy lists. Return: 0 or the first of HP_WRONG_ZONE,
 * HP_OUT_OF_RANGE, HP_NOT_LEASED, HP_REVOKED, HP_WRONG_HOLDER, HP_STALE, HP_WRONG_LENGTH that
 * holds; HP_BAD_PAGE if pages of it failed their check (the others are free).
 */
int hp_zone_free(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		 const struct hp_range *range);

/* Frees n leases or, if one of them is wrong (also if one is named twice), none; ret_bad tells
 * which. */
int hp_zone_free_bulk(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		      const struct hp_range *ranges, size_t n, size_t *ret_bad);

/*
 * Frees any part of a lease: pages [offset, offset + pages) of it. What is left are up to two
 * leases of the same slot and generation, named by ret_kept / ret_nr_kept (room for 2).
 */
int hp_zone_free_part(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		      const struct hp_range *range, uint32_t offset, uint32_t pages,
		      struct hp_range *ret_kept, unsigned *ret_nr_kept);

/*
 * Keeps exactly these parts of a lease (sorted, inside it, not overlapping; n may be 0) and frees
 * the rest in one commit.
 */
int hp_zone_keep_parts(struct hp_zone *zone, uint32_t slot, const struct hp_range *range,
		       const struct hp_range *keep, size_t n);

/*
 * Makes of one lease of n pages n leases of one page each, same slot and generation, so that any
 * run of them can be freed by hp_zone_free_contig().
 */
int hp_zone_split(struct hp_zone *zone, uint32_t slot, const struct hp_range *range);

/*
 * Frees pages [pfn, pfn + pages), all leased by slot, whatever leases they are parts of. Every page
 * is checked one by one; runs of good pages are decomposed into the largest aligned chunks, which
 * go to the pcp or the buddy lists as units. Pages of shared leases drop one reference each and are
 * freed at zero; a page still referenced splits its run and stays leased. Return: 0;
 * HP_OUT_OF_RANGE, HP_NOT_LEASED, HP_REVOKED, HP_WRONG_HOLDER with nothing changed; HP_BAD_PAGE if
 * pages failed their check and were kept out (the others are free).
 */
int hp_zone_free_contig(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot, hp_pfn_t pfn,
			uint32_t pages);

/* Takes one more reference on each page of a shared lease. HP_BUSY at the counter's end. */
int hp_zone_share_get(struct hp_zone *zone, uint32_t slot, const struct hp_range *range);

/* Frees every lease of a slot, revoked words included. ret_pages: how many pages came back. */
int hp_zone_free_slot(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot, uint64_t *ret_pages);

/*
 * Gives a lease that its holder has not heard of the next generation, where the one it has would
 * make its name that of an earlier one which is not forgotten yet. Return: as hp_zone_free(); range
 * is the new name if it is 0.
 */
int hp_zone_rename(struct hp_zone *zone, uint32_t slot, struct hp_range *range);

/* Ends a revoked word, on acknowledgement, resume or death. Return: as hp_zone_free(). */
int hp_zone_ack(struct hp_zone *zone, uint32_t slot, const struct hp_range *range);

/* --- pageblocks --- */

/*
 * States and who may leave them:
 *
 *   offline -> clean (online)              clean -> live (a grant claims it), offline, lent (lend)
 *   live -> isolated (isolate), failing (fail), quarantined (retire)
 *   isolated -> clean (put_clean), quarantined (quarantine), offline
 *   quarantined -> clean (put_clean), isolated, offline       failing -> offline when empty
 *   lent -> isolated (unlend)
 *
 * Return of all: 0; HP_OUT_OF_RANGE; HP_BUSY if the block is in another state or not free.
 */

/* Memory is behind an offline block, all zero, in a file of this generation. */
int hp_zone_online(struct hp_zone *zone, uint32_t block, uint64_t generation);

/*
 * Takes an idle live block out of use: flagged first, then every pcp of its owner is drained, then,
 * if every page of it is free, its word is stored. It stays charged until put_clean or offline.
 */
int hp_zone_isolate(struct hp_zone *zone, uint32_t block);

/* The block's file of this generation is allocated and zero: it is nobody's again. */
int hp_zone_put_clean(struct hp_zone *zone, uint32_t block, uint64_t generation);

/* Not all pages of an isolated block came back. Charged to its owner until put_clean. */
int hp_zone_quarantine(struct hp_zone *zone, uint32_t block);

/* Clean, isolated, quarantined or empty failing: no memory behind it any more. */
int hp_zone_offline(struct hp_zone *zone, uint32_t block);

/*
 * The same for a clean block that is not needed: so many clean ones are left, and as many as
 * guarantees are still unmet. HP_BUSY otherwise.
 */
int hp_zone_give_up(struct hp_zone *zone, uint32_t block, uint32_t keep_clean_blocks);

/* A live block gets no new grants; what is leased in it stays. */
int hp_zone_fail(struct hp_zone *zone, uint32_t block);

/*
 * Takes a block with its leases: block isolated (or quarantined), every lease that touches it cut
 * down to its parts in other blocks, which become revoked words. hit is called for each lease, and
 * for each revoked word of an earlier one (state tells them apart), with its old extent, under the
 * zone lock and before its words change; it must not call into the zone.
 */
typedef void (*hp_hit_fn)(void *userdata, uint32_t slot, const struct hp_range *range,
			  enum hp_lease_state state);
int hp_zone_revoke_block(struct hp_zone *zone, uint32_t block, bool quarantine, hp_hit_fn hit,
			 void *userdata);

/* A clean block as a whole to an owner, outside the page lists; and back (to isolated). */
int hp_zone_lend(struct hp_zone *zone, uint32_t owner, uint32_t *ret_block);
int hp_zone_unlend(struct hp_zone *zone, uint32_t block);

struct hp_block_info {
	struct hp_block_word word;
	uint32_t pages;	     /* of the block; the last one of a zone may be shorter */
	uint32_t free_pages; /* in the buddy lists (all of them, if clean) */
	bool idle;	     /* live, and no page of it is leased */
};
int hp_zone_block_info(struct hp_zone *zone, uint32_t block, struct hp_block_info *ret);

/* The word alone: one load, no lock. block < hp_zone_nr_blocks(). */
struct hp_block_word hp_zone_block_word(const struct hp_zone *zone, uint32_t block);

/* --- looking --- */

/* In pages; the fields after nr_pages add up to it, at every moment that all locks are free. */
struct hp_zone_stats {
	uint64_t nr_pages;
	uint64_t clean, free, pcp, draining, leased, revoked, isolated, quarantined, lent, offline,
		bad;
	/* blocks */
	uint32_t nr_blocks, clean_blocks, unmet_guarantee_blocks, idle_blocks;
	uint32_t size_blocks; /* that guarantees may add up to: hp_zone_set_size() */
	/* events since init */
	uint64_t grants, frees, refills, drains, claims, lock_acquisitions;
	uint64_t lock_held_ns; /* of the zone lock; only where built with HP_LOCK_TIMES, else 0 */
};
void hp_zone_stats(struct hp_zone *zone, struct hp_zone_stats *ret);

const struct hp_zone_config *hp_zone_get_config(const struct hp_zone *zone);
uint32_t hp_zone_nr_blocks(const struct hp_zone *zone);

/*
 * Calls fn for every lease word in use, in order of pfn, until it returns nonzero, which is passed
 * on. Takes no lock: a snapshot word by word. state tells leased from revoked.
 */
typedef int (*hp_lease_fn)(void *userdata, uint32_t slot, const struct hp_range *range,
			   enum hp_lease_state state);
int hp_zone_for_each_lease(struct hp_zone *zone, hp_lease_fn fn, void *userdata);

/* The same for words that begin in [from, to), from not inside of a lease. */
int hp_zone_for_each_lease_in(struct hp_zone *zone, hp_pfn_t from, hp_pfn_t to, hp_lease_fn fn,
			      void *userdata);

/* Is this range, exactly, leased by slot? Return: as hp_zone_free(), changing nothing. */
int hp_zone_lookup(struct hp_zone *zone, uint32_t slot, const struct hp_range *range);

/* --- per-worker page caches --- */

/*
 * A cache of free pages of one owner for one worker thread. The worker that made it is the only one
 * who passes it to alloc and free; anybody may drain it. Orders cached: 0 to 3 and the pageblock
 * order.
 */
size_t hp_pcp_size(const struct hp_zone *zone);

/* memory: hp_pcp_size() bytes, 64-byte aligned, borrowed until deinit. Return: 0 or -EINVAL. */
int hp_pcp_init(struct hp_pcp **ret, void *memory, struct hp_zone *zone, uint32_t owner);

/* Gives every page back to the buddy lists and leaves the zone. NULL is fine. By its worker. */
void hp_pcp_deinit(struct hp_pcp *pcp);

/* Full drain, from any thread. Return: pages given back. */
uint32_t hp_pcp_drain(struct hp_pcp *pcp);

/* Drain of at most one batch of the coldest pages: for a timer. From any thread. */
uint32_t hp_pcp_drain_batch(struct hp_pcp *pcp);

/* Full drain of every pcp of an owner; HP_OWNER_NONE: of every owner. Return: pages given back. */
uint32_t hp_zone_drain(struct hp_zone *zone, uint32_t owner);

/*
 * 0 for either: the size computed from the zone. May be changed at any time; read once per
 * operation. high is bounded by 1/8 of the zone, of the account's limit and of the owner's pages,
 * but may be 16 in any zone of 32 pages and more: two cache lines of lease words.
 */
void hp_pcp_set_sizes(struct hp_pcp *pcp, uint32_t batch, uint32_t high);

struct hp_pcp_stats {
	uint32_t owner, count, batch, high;
	uint32_t per_order[5]; /* chunks cached: orders 0..3, pageblock order (if above 3) */
	uint64_t hits, misses, refills, drains;
};
void hp_pcp_get_stats(struct hp_pcp *pcp, struct hp_pcp_stats *ret);

/*
 * How a drain picks the pages it gives back: under the zone lock, or before it is taken; and
 * whether it then prefetches the metadata of the first batch. Same pages, same result; the default
 * is the one that measured fastest (docs/allocator.md). For the benchmark; any time, any thread.
 */
enum hp_drain_variant {
	HP_DRAIN_DEFAULT = 0,
	HP_DRAIN_PICK_INSIDE,
	HP_DRAIN_PICK_OUTSIDE,
	HP_DRAIN_PICK_OUTSIDE_PREFETCH,
};
void hp_zone_set_drain_variant(struct hp_zone *zone, enum hp_drain_variant variant);
