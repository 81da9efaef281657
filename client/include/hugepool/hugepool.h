/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhugepool: huge pages from hugepoold.
 *
 * Open a handle, ask for ranges, use them as memory, give them back. A granted range is allocated,
 * mapped and populated: touching it never faults for lack of memory.
 *
 * Functions return 0, or a number that is not negative and has a meaning, or a negative errno;
 * hugepool_get_error() tells the numbers behind the last failure of a handle. Outputs are written
 * only on success. Nothing here installs signal handlers, starts threads, prints, or exits.
 *
 * "Thread-safe" means that several threads may call it on one handle at one time. They take turns:
 * one that waits for the daemon keeps the others waiting. A cache belongs to one thread at a time.
 *
 * A handle does not survive fork(): in the child every function but hugepool_close() and
 * hugepool_cache_free() returns -ECHILD, and the mappings are not there (unless HUGEPOOL_INHERIT).
 * hugepool_close() in the child only gives back the handle's own memory and descriptors; mappings
 * that were inherited stay.
 *
 * If the daemon is restarted or the connection breaks, calls take longer and the handle goes on with
 * all that it has (see resume_timeout_ms).
 *
 * Structs that the caller fills begin with their own size (`.size = sizeof(struct
 * hugepool_options)`, or the HUGEPOOL_*_INIT macros), so that they can grow; unset fields are zero,
 * and zero is the default.
 */
#ifndef HUGEPOOL_H
#define HUGEPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HUGEPOOL_PUBLIC	    __attribute__((visibility("default")))
#define HUGEPOOL_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HUGEPOOL_PUBLIC
#define HUGEPOOL_MUST_CHECK
#endif

/* One connection to a daemon. */
struct hugepool;

enum hugepool_flags {
	/*
	 * Keep blocks mapped that hold no range any more: the next range in them costs no system
	 * call, but no other tenant can have them.
	 */
	HUGEPOOL_KEEP_BLOCKS = 1 << 0,
	/* Keep the descriptors of mapped blocks, for hugepool_range_fd(). */
	HUGEPOOL_KEEP_FDS = 1 << 1,
	/* Children of fork() inherit the mappings. */
	HUGEPOOL_INHERIT = 1 << 2,
};

struct hugepool_options {
	size_t size;
	/* Path; NULL: $HUGEPOOL_SOCKET, or /run/hugepool/hugepool.sock. */
	const char *socket;
	/* Of this program, shown to the operator; NULL: the name of the process. */
	const char *name;
	/* enum hugepool_flags */
	unsigned flags;
	/* For connecting and for each reply; 0: 10 s, negative: for ever. */
	int timeout_ms;
	/*
	 * If the daemon goes away or the connection breaks, calls connect again and go on with
	 * everything that the handle has, for at most so long; 0: as long as the daemon keeps it for
	 * us (usually 30 s), negative: not at all.
	 */
	int resume_timeout_ms;
};
#define HUGEPOOL_OPTIONS_INIT                                        \
	{                                                            \
		sizeof(struct hugepool_options), NULL, NULL, 0, 0, 0 \
	}

enum hugepool_request_flags {
	HUGEPOOL_ZERO = 1 << 0,	     /* every byte of the range is zero */
	HUGEPOOL_EXCLUSIVE = 1 << 1, /* pageblocks, and so descriptors, that hold nothing else */
	HUGEPOOL_SHAREABLE = 1 << 2, /* may be given to others by hugepool_share(); exclusive too */
};

struct hugepool_request {
	size_t size;
	const char *zone;   /* name; NULL: the first zone of page_size */
	uint64_t page_size; /* bytes; 0: whatever the zone has */
	uint64_t bytes;	    /* of each range, rounded up to whole pages */
	uint64_t alignment; /* bytes, a power of two; 0: the page size */
	unsigned flags;	    /* enum hugepool_request_flags */
	/*
	 * How long it may wait for room, at most a day; 0: not at all. The time-out of the handle's
	 * replies comes on top.
	 */
	uint64_t deadline_ms;
	/* Of a waiting request among its tenant's: higher first, at most 255. */
	unsigned priority;
};
#define HUGEPOOL_REQUEST_INIT                                           \
	{                                                               \
		sizeof(struct hugepool_request), NULL, 0, 0, 0, 0, 0, 0 \
	}

/* A granted range. Copy it freely; the lease ends when one copy is freed. */
struct hugepool_range {
	void *address;
	uint64_t bytes;
	uint64_t page_size;
	uint64_t lease[2]; /* how the daemon names it */
};

/* The numbers behind a failure; what has no meaning is 0. */
struct hugepool_error {
	size_t size;
	int error;	   /* positive errno of the last failure, 0 if there was none */
	char message[256]; /* one sentence in English */
	char zone[65];	   /* name */
	uint64_t asked_bytes;
	uint64_t free_bytes;	 /* leased by nobody */
	uint64_t leasable_bytes; /* what this tenant could get */
	uint64_t limit_bytes;	 /* of this tenant */
	uint64_t largest_bytes;	 /* longest range this tenant could get */
	size_t index;		 /* which range of a bulk call is meant */
};

/* --- a handle ---------------------------------------------------------------------------------- */

/*
 * Connects and says hello. options: NULL for the defaults; borrowed for the call. The handle is the
 * caller's, for hugepool_close(). Any thread.
 * Errors: -ENOENT, -ECONNREFUSED, -EACCES (no daemon, or not for this user), -EPROTO (not a daemon,
 * or of another protocol), -EUSERS (too many connections of this tenant), -ENAMETOOLONG,
 * -ECONNRESET, -ETIMEDOUT, -EMFILE, -ENOMEM, -EINVAL and -E2BIG (options this version does not
 * know).
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_open(struct hugepool **ret,
						      const struct hugepool_options *options);

/*
 * Says goodbye: every range of the handle is freed and unmapped. NULL is fine. Returns NULL. No
 * other thread may be using the handle, and its caches have been freed. Not from a function that
 * hugepool_dispatch() calls.
 */
HUGEPOOL_PUBLIC struct hugepool *hugepool_close(struct hugepool *pool);

/* --- taking and giving ------------------------------------------------------------------------- */

/*
 * Takes one range. Thread-safe.
 * With a deadline it waits for room that others give back; what can never be had is refused at once
 * all the same. Calls of other threads on this handle, also those that free, have to wait as long:
 * where they must not, use another handle or hugepool_alloc_async().
 * Errors: -ENOMEM (no room now; hugepool_get_error() has the numbers), -EDQUOT (over this tenant's
 * limit), -ETIMEDOUT (no room until the deadline: with the numbers, and the handle is as before),
 * -EUSERS (too many wait), -ENODEV (no such zone), -EINVAL, -EOPNOTSUPP, -EMFILE (no descriptor
 * left to receive the memory with), -EBUSY (where it lies is a range that was revoked and not freed),
 * -EOWNERDEAD (revoked at the moment it was granted), -ESHUTDOWN (the daemon is about to end),
 * -EPROTO (it makes no sense), -ETIMEDOUT without numbers (it does not answer), -ESTALE (it has come
 * back and does not know this handle any more), and -ECONNRESET: the daemon is gone, or an earlier
 * call ended by its silence or by -EPROTO. Nothing more can be taken or freed with this handle then.
 * What it has stays mapped until hugepool_close(), but a daemon that has ended in order, without
 * keeping its state, takes its memory back: touching it is SIGBUS from then on.
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_alloc(struct hugepool *pool,
						       const struct hugepool_request *request,
						       struct hugepool_range *ret);

/* Takes n ranges (1 to 256) of the same kind in one exchange, all or none. Thread-safe. */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_alloc_bulk(struct hugepool *pool,
							    const struct hugepool_request *request,
							    struct hugepool_range *ret, size_t n);

/*
 * Gives a range back. Its memory must not be touched any more. Thread-safe.
 * Errors: -EINVAL (not a range of this handle: freed before, another length, out of range), -ESTALE
 * (the daemon came back without it: it was lost), and those of the connection; nothing is changed
 * then.
 */
HUGEPOOL_PUBLIC int hugepool_free(struct hugepool *pool, const struct hugepool_range *range);

/* Gives n ranges (1 to 256) back, all or none. Thread-safe. */
HUGEPOOL_PUBLIC int hugepool_free_bulk(struct hugepool *pool, const struct hugepool_range *ranges,
				       size_t n);

/*
 * Gives a part of a range back: at its head, its tail, in the middle, or all of it. Whole pages
 * only. The part must not be touched any more; what is left keeps its addresses and what is in it.
 * *range becomes what is left before the part or, where that is nothing, what is left behind it.
 * Only a part in the middle leaves two: *ret_rest becomes the second then, and .bytes = 0 in all
 * other cases. ret_rest may be NULL if the part is not in the middle. If nothing is left *range has
 * .bytes = 0 and need not be freed. Other copies of the range name nothing any more. Thread-safe.
 * Errors: -EINVAL (not a range of this handle, the part is not inside of it, not whole pages, or in
 * the middle without ret_rest), -ENOMEM (of this process); nothing is changed then.
 */
HUGEPOOL_PUBLIC int hugepool_free_part(struct hugepool *pool, struct hugepool_range *range,
				       uint64_t offset_bytes, uint64_t length_bytes,
				       struct hugepool_range *ret_rest);

/*
 * The descriptor of the file that a range lies in, and the range's offset there in bytes: for
 * programs that want to map it themselves or to hand it to another process. Borrowed: valid until
 * the range is freed; dup() it to keep it. Whoever has it can reach the whole pageblock, so ask for
 * the range with HUGEPOOL_EXCLUSIVE if others are to get it. Needs such a range, or a handle opened
 * with HUGEPOOL_KEEP_FDS. Thread-safe. Errors: -EXDEV (the range lies in several pageblocks: use a
 * zone with larger ones), -EBADF (neither), -EINVAL (not a range of this
 * handle).
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int
hugepool_range_fd(struct hugepool *pool, const struct hugepool_range *range, uint64_t *ret_offset);

/*
 * What the last failed call on this handle had to say (with several threads: of whichever failed
 * last). ret->size must be set. Thread-safe.
 */
HUGEPOOL_PUBLIC int hugepool_get_error(struct hugepool *pool, struct hugepool_error *ret);

/* --- sharing ----------------------------------------------------------------------------------- */

/*
 * Several handles, of processes that may be different users', can hold one range. It is decided when
 * the range is taken: HUGEPOOL_SHAREABLE. Whoever took it publishes it by name; others attach; its
 * memory lives until the last of them has detached, closed its handle, or ended, in whatever order.
 * All that time it is charged to the tenant that published it. A shared range is given back by
 * hugepool_detach(), as a whole; hugepool_free() and its like refuse it with -EINVAL.
 *
 * Whoever may write can also take the memory away (ftruncate()): the others' next access is SIGBUS
 * then. Whoever may only read can not, but keeps it from being used again for as long as he likes.
 * Share only with whom you trust. What one writes the other sees at once, as with any shared memory:
 * agreeing on who writes when is up to the programs.
 */

/* uids that one range may be for. */
#define HUGEPOOL_SHARE_UIDS_MAX 64

enum hugepool_share_flags {
	/* Of hugepool_share(): nobody may attach to write. Of hugepool_attach(): only to read. */
	HUGEPOOL_READ_ONLY = 1 << 0,
};

struct hugepool_share_options {
	size_t size;
	/* Who may attach, besides this process's own uid; none: everybody who may connect. */
	const uint32_t *uids;
	size_t nr_uids; /* at most HUGEPOOL_SHARE_UIDS_MAX */
	unsigned flags; /* enum hugepool_share_flags */
};
#define HUGEPOOL_SHARE_OPTIONS_INIT                               \
	{                                                         \
		sizeof(struct hugepool_share_options), NULL, 0, 0 \
	}

struct hugepool_attach_options {
	size_t size;
	/*
	 * Name of the tenant that has published it (hugepoolctl status says one's own); NULL: one's
	 * own, or else whoever has published that name for us.
	 */
	const char *tenant;
	unsigned flags; /* enum hugepool_share_flags */
};
#define HUGEPOOL_ATTACH_OPTIONS_INIT                            \
	{                                                       \
		sizeof(struct hugepool_attach_options), NULL, 0 \
	}

/*
 * Publishes a range that this handle took with HUGEPOOL_SHAREABLE. Again with the same range: another
 * name, other terms, for those that attach from then on. name: 1 to 64 bytes, unique among those of
 * the tenant. options: NULL for everybody, to read and write; borrowed for the call. Thread-safe.
 * Errors: -EINVAL (not such a range of this handle, the name, the options), -EBUSY (another range of
 * this tenant has that name), -EACCES (it is only attached), -EOPNOTSUPP, -ECONNRESET and the like.
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int
hugepool_share(struct hugepool *pool, const struct hugepool_range *range, const char *name,
	       const struct hugepool_share_options *options);

/*
 * Attaches a range that somebody has published. With HUGEPOOL_READ_ONLY its pages can only be read,
 * and nothing this process can do (other than root's) makes them writable. options: NULL for the
 * defaults; borrowed for the call. Thread-safe.
 * Errors: -ENOENT (nothing of that name, or not for this uid), -EACCES (it may only be read), -EBUSY
 * (this handle has it already), -EINVAL (several tenants have published that name: say which),
 * -EUSERS (a limit of the daemon), -ESHUTDOWN, -EMFILE, -ENOMEM, -EPROTO, -ECONNRESET and the like.
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int
hugepool_attach(struct hugepool *pool, const char *name,
		const struct hugepool_attach_options *options, struct hugepool_range *ret);

/*
 * Gives a shared range back, attached or one's own. Its memory must not be touched any more; the
 * others keep it. Thread-safe. Errors: -EINVAL (not a shared range of this handle); nothing is changed
 * then.
 */
HUGEPOOL_PUBLIC int hugepool_detach(struct hugepool *pool, const struct hugepool_range *range);

/* --- figures ----------------------------------------------------------------------------------- */

/* What a handle has. */
struct hugepool_stats {
	size_t size;
	size_t zones;	      /* that this tenant may use */
	uint64_t ranges;      /* held, those of caches included */
	uint64_t bytes;	      /* of them */
	uint64_t block_bytes; /* of the pageblocks that are mapped: what they are charged as */
	size_t pending;	      /* requests whose functions have not been called yet */
};

/* What a zone has, for this tenant. */
struct hugepool_zone_stats {
	size_t size;
	char name[65];
	int node; /* NUMA node, -1: any */
	uint64_t page_size, block_size;
	uint64_t total_bytes;
	uint64_t free_bytes;	  /* leased by nobody */
	uint64_t leasable_bytes;  /* what this tenant could get */
	uint64_t largest_bytes;	  /* the longest range of it */
	uint64_t limit_bytes;	  /* of this tenant */
	uint64_t guarantee_bytes; /* likewise: it can always get as much */
	uint64_t charged_bytes;	  /* likewise: the pageblocks it has, used or not */
};

/* Both: ret->size must be set. The first asks nobody. Thread-safe. Errors: -EINVAL. */
HUGEPOOL_PUBLIC int hugepool_stats(struct hugepool *pool, struct hugepool_stats *ret);

/*
 * Asks the daemon for the zone of this index, from 0 to one less than hugepool_stats() says. Errors:
 * -ENODEV (there is none), -EINVAL, -ECONNRESET and the like.
 */
HUGEPOOL_PUBLIC int hugepool_zone_stats(struct hugepool *pool, size_t index,
					struct hugepool_zone_stats *ret);

/* --- caches ------------------------------------------------------------------------------------ */

/* Ranges that one cache can keep. */
#define HUGEPOOL_CACHE_MAX 1024

/*
 * A stock of ranges of one kind, from which taking and giving costs a few nanoseconds; the daemon is
 * asked for, and given, a batch at a time. What it keeps is leased by this handle. It gives that back
 * when the daemon says that somebody waits for room: with the next call on it, so a program that
 * sleeps for long should flush before.
 *
 * Owned by one thread at a time: each thread has its own, or they take turns by means of theirs. All
 * caches are freed before the handle is closed. In a child of fork() a cache is empty, every
 * function returns -ECHILD, and hugepool_cache_free() only gives its memory back.
 */
struct hugepool_cache;

struct hugepool_cache_options {
	size_t size;
	const char *zone;   /* as in a request */
	uint64_t page_size; /* likewise */
	uint64_t bytes;	    /* of each range, rounded up to whole pages; 0: one page */
	uint64_t alignment; /* as in a request */
	unsigned flags;	    /* 0 or HUGEPOOL_ZERO: ranges are zeroed when they are taken from it */
	unsigned batch;	    /* taken or given at one time, at most 256; 0: half of high */
	unsigned high;	    /* ranges it keeps at most; 0: 64 MiB of them, 2 to 256 */
};
#define HUGEPOOL_CACHE_OPTIONS_INIT                                           \
	{                                                                     \
		sizeof(struct hugepool_cache_options), NULL, 0, 0, 0, 0, 0, 0 \
	}

/*
 * Makes an empty cache. options: NULL for single pages of the first zone; borrowed for the call.
 * Thread-safe. Errors: -ENODEV, -EINVAL, -E2BIG, -ENOMEM (of this process).
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int
hugepool_cache_new(struct hugepool_cache **ret, struct hugepool *pool,
		   const struct hugepool_cache_options *options);

/* Gives back all it keeps, and itself. NULL is fine. Returns NULL. Its owner only. */
HUGEPOOL_PUBLIC struct hugepool_cache *hugepool_cache_free(struct hugepool_cache *cache);

/*
 * Takes a range from it, refilling it if it is empty. The range is like any other of the handle: it
 * may be released here, or to another cache of the same kind, or freed. Its owner only. Errors: those
 * of hugepool_alloc_bulk().
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_cache_alloc(struct hugepool_cache *cache,
							     struct hugepool_range *ret);

/*
 * Puts a range of this kind and handle into it, draining it if it is full. The range must not be
 * touched or named any more. For speed only its kind is looked at; one that is released twice may be
 * handed out twice. Its owner only. Errors: -EINVAL (another kind of range, or the very one that was
 * released last), and if it was full those of hugepool_free_bulk(): the range is the caller's then.
 */
HUGEPOOL_PUBLIC int hugepool_cache_release(struct hugepool_cache *cache,
					   const struct hugepool_range *range);

/*
 * Takes ranges from the daemon until it keeps n of them. Its owner only. Errors: -EINVAL (n is above
 * its limit), those of hugepool_alloc_bulk(): it may have got some of them.
 */
HUGEPOOL_PUBLIC int hugepool_cache_fill(struct hugepool_cache *cache, size_t n);

/* Gives back all it keeps. Its owner only. Errors: those of hugepool_free_bulk(). */
HUGEPOOL_PUBLIC int hugepool_cache_flush(struct hugepool_cache *cache);

/* --- without waiting --------------------------------------------------------------------------- */

/* Requests of a handle whose functions have not been called yet. */
#define HUGEPOOL_PENDING_MAX 1024

/*
 * How a request has ended. result: 0 or -errno, as the function that waits would have returned; then
 * *error has the numbers, and is NULL otherwise. Borrowed for the call. Called by hugepool_dispatch()
 * and by nothing else, in its thread, without a lock: it may call any function of the library but
 * hugepool_close() of the same handle, so also make the next request.
 * range of hugepool_alloc_async(): the caller's from now on; NULL if there is none. Of
 * hugepool_free_async(): the one that was meant; if there is an error it is still held.
 */
typedef void (*hugepool_alloc_fn)(void *userdata, int result, const struct hugepool_range *range,
				  const struct hugepool_error *error);
typedef void (*hugepool_free_fn)(void *userdata, int result, const struct hugepool_range *range,
				 const struct hugepool_error *error);

/*
 * Asks for one range and returns: fn is called once, by hugepool_dispatch(), when there is an answer.
 * The request is copied. Return: > 0, the number of the request, for hugepool_cancel().
 * Requests are sent in the order they are made, and answered in any. Those that may wait beyond what
 * one session may have waiting at the daemon (63) are kept here until others are answered, overtaken
 * by those that may not. A call that waits is sent at once, before what is kept here.
 * Of a daemon that does not answer in the time-out of the handle (and the deadline) nothing more
 * comes: all pending requests end with an error then. hugepool_close() forgets them, and calls
 * nothing.
 * Thread-safe; if another thread is in a call that waits, it has to wait for that.
 * Errors at once: -EAGAIN (HUGEPOOL_PENDING_MAX are pending), -EINVAL, -ENODEV, -ENOMEM (of this
 * process), -ECONNRESET. All others come to fn: those of hugepool_alloc(), and -ECANCELED.
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_alloc_async(struct hugepool *pool,
							     const struct hugepool_request *request,
							     hugepool_alloc_fn fn, void *userdata);

/*
 * Gives a range back without waiting for the daemon to have it. Its memory must not be touched any
 * more, and the range must not be named any more: it is found out if it is. fn may be NULL.
 * Thread-safe, as above.
 * Errors at once: -EINVAL (not a range of this handle), -EAGAIN, -ENOMEM, -ECONNRESET; nothing is
 * changed then.
 */
HUGEPOOL_PUBLIC int hugepool_free_async(struct hugepool *pool, const struct hugepool_range *range,
					hugepool_free_fn fn, void *userdata);

/*
 * Takes back a request of hugepool_alloc_async(). Its function is called in any case, by
 * hugepool_dispatch(): with -ECANCELED, or with the range, if that was faster. Thread-safe.
 * Errors: -ENOENT (no such request, or it is answered already).
 */
HUGEPOOL_PUBLIC int hugepool_cancel(struct hugepool *pool, int request);

/* --- news of the daemon ------------------------------------------------------------------------ */

/*
 * Functions for what the daemon says unasked, each NULL or called with userdata first. All but log
 * are called by hugepool_dispatch() and by nothing else, in its thread, without a lock: they may call
 * any function of the library but hugepool_close() of the same handle. What they are given is
 * borrowed for the call.
 */
struct hugepool_callbacks {
	size_t size;
	void *userdata;
	/*
	 * Something for the program's log. priority: as of syslog(3). Called at once, by whichever
	 * function and thread has something to say, while the handle is locked: it must not call the
	 * library with that handle.
	 */
	void (*log)(void *userdata, int priority, const char *message);
	/* Somebody waits for room in this zone: whoever can spare something there gives it back. */
	void (*pressure)(void *userdata, const char *zone);
	/*
	 * The range was taken away by the operator. What it held is gone; ordinary memory full of
	 * zeros is in its place, so that a late access does no harm. (Of a range over several
	 * pageblocks only those that were taken.) It is to be freed like any other, and soon:
	 * nothing else can be had where it lies before. News are read whenever this handle talks to
	 * the daemon, and by hugepool_dispatch(); before they are, an access is SIGBUS.
	 */
	void (*revoked)(void *userdata, const struct hugepool_range *range);
	/* The daemon was away and is back; every range is as it was. */
	void (*resumed)(void *userdata);
	/*
	 * The operator wants the range back. Nothing has happened to it: whoever can do without saves
	 * what is in it and frees it within deadline_ms. With force it is taken then.
	 */
	void (*wanted)(void *userdata, const struct hugepool_range *range, uint64_t deadline_ms,
		       int force);
};
#define HUGEPOOL_CALLBACKS_INIT                                                       \
	{                                                                             \
		sizeof(struct hugepool_callbacks), NULL, NULL, NULL, NULL, NULL, NULL \
	}

/*
 * Sets all of them; NULL: none. Copied. Set them right after hugepool_open(): news for which there is
 * no function are dropped. Thread-safe; another thread may be in an old function still. Errors:
 * -EINVAL, -E2BIG (functions this version does not know).
 */
HUGEPOOL_PUBLIC int hugepool_set_callbacks(struct hugepool *pool,
					   const struct hugepool_callbacks *callbacks);

/*
 * A descriptor for poll(), epoll or an event loop: readable when hugepool_dispatch() has something to
 * do. It is the same one for as long as the handle lives, also when the connection is made anew.
 * Borrowed: only wait for it to be readable. Thread-safe.
 * Errors: -EMFILE, -ENFILE, -ENOMEM.
 */
HUGEPOOL_PUBLIC HUGEPOOL_MUST_CHECK int hugepool_get_fd(struct hugepool *pool);

/*
 * Takes in what the daemon has sent, and calls the functions that are due. If none is, it waits at
 * most timeout_ms for one (0: not at all, negative: for ever). Return: how many were called, 0 if
 * none until then. Thread-safe; a function that is called may itself dispatch. Which of several
 * dispatching threads calls a function is not said; with one, they come in order.
 * Errors: -EINTR (a signal came while it waited), -ECONNRESET and -EPROTO (nothing will come any
 * more), and those of hugepool_get_fd().
 */
HUGEPOOL_PUBLIC int hugepool_dispatch(struct hugepool *pool, int timeout_ms);

/* Version of the library, "major.minor.patch". */
HUGEPOOL_PUBLIC const char *hugepool_version(void);

#ifdef __cplusplus
}
#endif

#endif
