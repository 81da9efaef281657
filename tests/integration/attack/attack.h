/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attack on a real hugepoold: tenants that mean harm, tenants that work, and somebody who watches.
 *
 * All processes share one tally. Attackers count how often each trick had the effect that makes it
 * one: a suite that no longer hits anything proves nothing. Victims, attackers and the watcher count
 * what must never happen.
 *
 * No attacker here faults a page in that is not there: it grows files by fallocate, which the kernel
 * keeps apart from truncation, and touches only what it has allocated. Faults that race with
 * truncation can lose pages until the machine is started again; what does that runs in a guest
 * (tests/guest).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hugepool/hugepool.h"

#define PAGE_BYTES  (UINT64_C(2) << 20)
#define BLOCK_PAGES 4
#define BLOCK_BYTES (BLOCK_PAGES * PAGE_BYTES)
#define NR_BLOCKS   44

/* Users that nobody else is. */
enum {
	UID_SERVICE = 54390,
	UID_ALICE,
	UID_BOB,
	UID_MALLORY, /* grows, pins, maps */
	UID_LOCKER,  /* holds the locks of his files */
	UID_LEAVER,  /* connects, takes, is gone */
};

/* Where an attack takes place: what makes the kernel lose pages only does in a guest. */
enum { HOST = 1, GUEST = 2, EVERYWHERE = HOST | GUEST };

/* What a trick did; each has to happen, where it is tried. */
#define HITS(X)                                                                                  \
	X(GREW_LIVE_SIZE, HOST, "live file made longer by ftruncate")                            \
	X(GREW_LIVE_PAGES, HOST, "live file: allocation beyond its end refused or cut")          \
	X(GREW_LIVE_MAP, HOST, "live file made longer by a mapping beyond its end")              \
	X(PUNCHED_LIVE, HOST, "hole punched into a live file")                                   \
	X(DEAD_SIZE, HOST, "dead file made longer by ftruncate")                                 \
	X(DEAD_PAGES, HOST, "dead file: pages taken back by fallocate")                          \
	X(DEAD_MAP, HOST, "dead file made longer by a mapping beyond its end")                   \
	X(DEAD_LOOKED, HOST, "pages of dead files looked through")                               \
	X(PUNCHED_DEAD, HOST, "hole punched into a dead file")                                   \
	X(REOPEN_REFUSED, HOST, "file opened again by way of /proc/self/fd: refused")            \
	X(SIGBUS_DEAD, HOST, "SIGBUS on a dead mapping")                                         \
	X(DEAD_DROPPED, HOST, "dead file let go of at last")                                     \
	X(PINNED_PIPE, HOST, "pages pinned by vmsplice while their file was truncated")          \
	X(PINNED_URING, HOST, "pages pinned by io_uring buffers while their file was truncated") \
	X(PINS_LOOKED, HOST, "pins read after the truncation")                                   \
	X(MAPPED_OFTEN, HOST, "block mapped 1000 times when given back")                         \
	X(CHILD_KEPT, HOST, "child with a mapping when its parent was gone")                     \
	X(LOCK_BURSTS, HOST, "bursts of threads on the lock of a file")                          \
	X(RECYCLER_STUCK, HOST, "recycler that waited for a lock and was replaced")              \
	X(LEFT, HOST, "connected, took, was gone")                                               \
	X(HELD, HOST, "block not clean because somebody still held its file")                    \
	X(QUARANTINED, EVERYWHERE, "block in quarantine, pages missing")                         \
	X(FOUND_AT_END, HOST, "block found with the attackers at the end")                       \
	X(BACKED_OUT, GUEST, "private fault that was backed out")                                \
	X(RACED, GUEST, "shared fault while the file was truncated again and again")

/* What must not happen. */
#define WRONGS(X)                                                      \
	X(SECRETS, "secrets read by somebody else")                    \
	X(DIRTY, "dirty bytes in memory that was to be clean")         \
	X(FOREIGN, "bytes changed by somebody else")                   \
	X(REOPENED, "files opened again by who has no right to")       \
	X(REFUSED, "requests of a victim refused")                     \
	X(DIED, "processes that ended otherwise than they should")     \
	X(FAILED_RECYCLES, "failed recycles of other tenants' blocks") \
	X(LOST, "blocks whose reservation was lost")                   \
	X(BLOCKED, "event loops seen asleep in a call for too long")   \
	X(CROWDED, "looks that found several recyclers stuck for one tenant")

#define NAME(name, where, text) HIT_##name,
enum hit { HITS(NAME) NR_HITS };
#undef NAME
#define NAME(name, text) WRONG_##name,
enum wrong { WRONGS(NAME) NR_WRONGS };
#undef NAME

#define LOCKED_FILES 4 /* of one tenant, whose blocks are recycled one at a time */

enum phase {
	PHASE_ATTACK, /* everybody does what he does */
	PHASE_HOLD,   /* victims end; attackers keep what they have and wait to be killed */
};

struct tally {
	_Atomic uint64_t hits[NR_HITS], wrongs[NR_WRONGS];
	_Atomic uint64_t looked_bytes; /* by victims, at memory new to them */
	_Atomic uint32_t holding;      /* attackers that have come to rest */
	_Atomic int phase;
	_Atomic uint64_t
		locked[LOCKED_FILES]; /* file systems whose files' locks are kept busy; or 0 */
};
extern struct tally *tally;	  /* shared by all processes */
extern const char *attack_socket; /* of the daemon */

static inline void hit(enum hit what)
{
	atomic_fetch_add(&tally->hits[what], 1);
}

static inline void wrong(enum wrong what)
{
	atomic_fetch_add(&tally->wrongs[what], 1);
}

static inline bool attacking(void)
{
	return tally->phase == PHASE_ATTACK;
}

/* --- memory.c: touching what may be gone ------------------------------------------------------- */

void memory_init(void); /* once a process: SIGBUS ends a look, not the process */

/* Marks each cache line of memory that is there. Return: false after SIGBUS. */
bool memory_mark(void *memory, uint64_t bytes, uint32_t who);

/* Whether every byte is zero; whether it is all as who marked it. */
bool memory_is_zero(const void *memory, uint64_t bytes);
bool memory_is_marked(const void *memory, uint64_t bytes, uint32_t who);

/* Looks for marks of anybody but who; they are counted. Return: false after SIGBUS. */
bool memory_search(const void *memory, uint64_t bytes, uint32_t who);

/* A byte is read. Return: false after SIGBUS. */
bool memory_is_there(const void *memory);

/* --- taking.c: a block to do harm with -------------------------------------------------------- */

/* A block of one's own, with a descriptor and a mapping that the library knows nothing of. */
struct taken {
	struct hugepool *pool;
	struct hugepool_range range;
	int fd;	   /* -1: let go of */
	char *map; /* of BLOCK_BYTES, or NULL */
};

/* Opens a handle of its own, takes a block and marks it. Return: whether there was one. */
bool taken_new(struct taken *taken, uint32_t who);

/* Gives it back and says goodbye; keeps descriptor and mapping. */
void taken_give_back(struct taken *taken);

/* Lets go of descriptor and mapping. */
void taken_drop(struct taken *taken);

/* Waits until the file has been truncated, while attacking. Return: whether it has. */
bool taken_wait_dead(const struct taken *taken);

void nap_ms(unsigned ms);

/* Comes to rest with whatever it has, and waits to be killed. */
_Noreturn void hold(void);

/* Forks a process that dies with us. Return: as fork(). */
pid_t fork_child(void);

/* --- the parts, each the whole life of a process ---------------------------------------------- */

_Noreturn void victim(uint32_t who);		/* victim.c */
_Noreturn void attacker_grow(uint32_t who);	/* grow.c */
_Noreturn void attacker_pin(uint32_t who);	/* pin.c */
_Noreturn void attacker_map(uint32_t who);	/* map.c */
_Noreturn void attacker_lock(uint32_t who);	/* lock.c */
_Noreturn void attacker_leave(uint32_t who);	/* leave.c */
_Noreturn void attacker_back_out(uint32_t who); /* lose.c: in a guest only */
_Noreturn void attacker_race(uint32_t who);

/* --- stage.c: set-up, daemon, machine --------------------------------------------------------- */

struct stage {
	const char *daemon, *setup; /* programs */
	char directory[64], config[96], socket[96], admin_socket[96], log[96];
	pid_t fds_pid, daemon_pid;
};

/* Sets up, as root, and starts the daemon as the service's user. Return: 0, or -1 with a reason. */
int stage_up(struct stage *stage, const char *daemon, const char *setup);

/* Takes all of it down, however far it came. Return: the daemon's exit status; -1: not all of it. */
int stage_down(struct stage *stage);

/* Lines of the daemon's log that have this text. */
unsigned stage_log_count(const struct stage *stage, const char *text);
void stage_log_print(const struct stage *stage);

/* The machine's huge pages of 2 MiB. */
struct huge_pages {
	long total, free, reserved, surplus;
};
struct huge_pages huge_pages_now(void);

/* --- watch.c: what the daemon says and does --------------------------------------------------- */

struct watch;

struct watch *watch_new(const struct stage *stage);
struct watch *watch_free(struct watch *watch);

/* Looks at the daemon's threads. */
void watch_threads(struct watch *watch);

/* Looks at its blocks, and whose they are. */
void watch_blocks(struct watch *watch);

/* Says which blocks are not clean and why. */
void watch_print(struct watch *watch);

uint64_t watch_recycles(struct watch *watch);
uint64_t watch_longest_turn_ns(struct watch *watch);

/*
 * Blocks that are not clean: of whom there are how many, and whether each is charged. Only
 * attackers' are expected.
 */
struct watch_held {
	unsigned attackers, others, uncharged;
};
struct watch_held watch_held(struct watch *watch);

/* The zones' own check. Return: violations, which are printed. */
unsigned watch_check(struct watch *watch);
