/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a list, gathered for one reply until it is full.
 */
#pragma once

#include "daemon/ops/look.h"
#include "proto/message.h"

/* Bytes of payload that rows may take; what is left is for the cursor. */
#define ROWS_BYTES_MAX (HP_FRAME_PAYLOAD_MAX - 64)

#define ROW_NUMBERS (4 * HP_ZONES_MAX) /* numbers that a row refers to */
#define ROW_TEXT    128		       /* bytes of text, likewise */

struct row {
	union {
		ProtobufCMessage base;
		Hugepool__V1__Zone zone;
		Hugepool__V1__Block block;
		Hugepool__V1__BuddyRow buddy;
		Hugepool__V1__Tenant tenant;
		Hugepool__V1__Session session;
		Hugepool__V1__Lease lease;
		Hugepool__V1__Cache cache;
	};
	union {
		uint64_t numbers[ROW_NUMBERS];
		uint32_t small_numbers[ROW_NUMBERS];
	};
	char text[ROW_TEXT];
};

/* A list being made, on the stack of whoever makes it. */
struct rows {
	const struct ops *ops;
	const struct tenant *viewer; /* NULL: the admin */
	struct pool_zone *zone;	     /* of lists of one zone */
	uint64_t cursor;	     /* where to go on */
	uint64_t next;		     /* cursor of the first row that did not fit; 0: none */
	size_t nr, bytes;
	struct row row[HP_LIST_ROWS_MAX];
	ProtobufCMessage *rows[HP_LIST_ROWS_MAX];
};

/* One for each list: adds rows from rows->cursor on until there is no more room. */
void rows_zones(struct rows *rows);
void rows_blocks(struct rows *rows);
void rows_buddyinfo(struct rows *rows);
void rows_tenants(struct rows *rows);
void rows_sessions(struct rows *rows);
void rows_leases(struct rows *rows);
void rows_caches(struct rows *rows);
