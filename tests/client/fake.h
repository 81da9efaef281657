/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon inside the test: one zone of one tenant on memfds, served by a thread, one connection
 * after the other. It behaves, unless a hook answers in its stead.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/fds.h"
#include "proto/message.h"

#define FAKE_ZONE	 7 /* its number: not 0, so that a forgotten one shows */
#define FAKE_ZONE_NAME	 "small"
#define FAKE_BLOCKS	 8
#define FAKE_BLOCK_PAGES 16
#define FAKE_PAGES	 (FAKE_BLOCKS * FAKE_BLOCK_PAGES)

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

struct fake;

/* Runs in the daemon's thread, for each request. Return: true if it has been answered. */
typedef bool (*fake_hook)(struct fake *fake, const struct hp_frame *frame);

struct fake {
	/* Set before fake_start(). */
	uint64_t page_bytes;  /* default 64 KiB, on ordinary memory */
	unsigned memfd_flags; /* e.g. MFD_HUGETLB */

	/* May be changed at any time. */
	_Atomic fake_hook hook;
	_Atomic bool claim_zeroed; /* grants say the range is zero */
	_Atomic bool resumable;	   /* leases outlive their session, and RESUME is served */
	_Atomic int counter;	   /* for hooks */

	/* For looking. */
	char directory[64], path[80];
	atomic_uint seen[256];	    /* requests, by type */
	atomic_uint blocks_sent;    /* descriptors */
	atomic_uint connections;    /* so far */
	char name[HP_NAME_MAX + 1]; /* said in the last HELLO */
	int files[FAKE_BLOCKS];
	atomic_uint_least32_t leased_pages;

	/* The thread's own. */
	int listener, stop, session;
	pthread_t thread;
	struct hp_arena *arena;
	uint32_t next_generation;
	bool sent[FAKE_BLOCKS];
	uint32_t kept[FAKE_PAGES]; /* pages of what RESUME has named so far, by first page */
	struct {
		uint32_t length; /* of the lease that begins here */
		uint32_t generation;
		bool used;
	} pages[FAKE_PAGES];
};

/* Return: 0, or -1 if the machine does not have what it needs. */
int fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

/* Until the n-th request of this type has been seen, or ten seconds are over (then it fails). */
void fake_await(struct fake *fake, uint8_t type, unsigned n);

/* For hooks. */
const void *fake_unpack(struct fake *fake, const struct hp_frame *frame);
void fake_send(struct fake *fake, uint8_t type, uint16_t tag, const ProtobufCMessage *message);
void fake_send_bytes(struct fake *fake, const void *bytes, size_t n, const int *fds, size_t nr_fds);
void fake_done(struct fake *fake, uint16_t tag);
void fake_error(struct fake *fake, uint16_t tag, Hugepool__V1__Code code);
void fake_grant(struct fake *fake, uint16_t tag, const struct hp_wire_range *ranges, size_t n);

/* fd -1: the frame comes without a descriptor. The descriptor is borrowed. */
void fake_blocks(struct fake *fake, uint8_t type, uint32_t index, uint64_t generation, int fd);
void fake_welcome(struct fake *fake, uint16_t tag, const Hugepool__V1__Zone *zone, size_t copies);
Hugepool__V1__Zone fake_zone(const struct fake *fake);

/* The well-behaved answer. */
void fake_answer(struct fake *fake, const struct hp_frame *frame);
uint64_t fake_generation(uint32_t index);
