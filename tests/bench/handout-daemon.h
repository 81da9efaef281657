/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a case of bench-handout or bench-rpc uses of the machine: a hugepoold of its own with one zone,
 * and huge pages beside the zone for the baselines. One at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define ANYWHERE   (-1) /* no processor in particular */

struct stage_shape {
	uint64_t zone_bytes;	 /* 0: no daemon */
	uint64_t block_bytes;	 /* of a pageblock */
	uint64_t baseline_bytes; /* huge pages that are free for mmap() */
	uint64_t shmem_page; /* not 0: no huge pages but ordinary memory, in pages of this size */
	unsigned workers;    /* of the daemon; 0: one */
};

/*
 * Makes it: on return all of the zone is clean. Ends the program with status 77 and a reason where
 * there is no root or no huge page of 2 MiB.
 * Return: whether the machine has the memory; otherwise that has been said.
 */
bool stage_begin(const char *name, const struct stage_shape *shape);

/* Ends the daemon and gives all pages back. Also done whenever and however this program ends. */
void stage_end(void);

/* The daemon's, and NULL or 0 where there is none. */
const char *stage_socket(void);
pid_t stage_daemon(void);

/*
 * From now on the calling thread and all threads of the daemon run on this processor only, or
 * ANYWHERE as at the beginning.
 */
void stage_place(int cpu);

/* The first processor that this program may use. */
int stage_first_cpu(void);

/* The same for all threads of another process alone. */
void stage_place_process(pid_t process, int cpu);

/* Waits until no page of the zone is anybody's, and all are zeroed. */
void stage_wait_clean(void);
