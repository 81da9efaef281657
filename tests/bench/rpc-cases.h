/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of bench-rpc. Rounds and rows are those of bench-handout. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "tests/bench/handout-cases.h"

/* Ordinary memory in small pages: what is measured is the way there, not the memory. */
#define RPC_PAGE UINT64_C(4096)
#define RPC_SHAPE(mib, n)                                                            \
	{                                                                            \
		.zone_bytes = (mib)*MIB, .block_bytes = MIB, .shmem_page = RPC_PAGE, \
		.workers = (n)                                                       \
	}

/* CPU time of all threads of a process until now, ns. */
uint64_t rpc_cpu_ns(pid_t process);

/* A memcached of our own at this path, or 0 if none is installed. Ends with this program. */
pid_t rpc_memcached_start(const char *path);
void rpc_memcached_end(pid_t memcached);

void case_alloc_1(struct bench *bench);
void case_alloc_32(struct bench *bench);
void case_batch_64(struct bench *bench);
void case_batch_256(struct bench *bench);
void case_pipelined(struct bench *bench);
void case_workers_2(struct bench *bench);
void case_cache_hit(struct bench *bench);
void case_idle(struct bench *bench);
void case_mem_session(struct bench *bench);
void case_mem_range(struct bench *bench);
void case_page_fault1(struct bench *bench);
