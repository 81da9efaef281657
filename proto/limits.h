/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every limit of the protocol and of what a client can make the daemon hold, in one place.
 */
#pragma once

#define HP_PROTOCOL_VERSION 1

#define HP_FRAME_HEADER_BYTES 8
#define HP_FRAME_PAYLOAD_MAX  8192 /* bytes of payload, either way */
#define HP_FRAME_MAX	      (HP_FRAME_HEADER_BYTES + HP_FRAME_PAYLOAD_MAX)

#define HP_RANGES_MAX	   256		    /* ranges of one request */
#define HP_RANGE_PAGES_MAX ((1u << 20) - 1) /* pages of one range: 20 bits of its word */
#define HP_BLOCKS_MAX	   253	/* blocks of one frame, and descriptors: the kernel's SCM_MAX_FD */
#define HP_NAME_MAX	   64	/* bytes of any name on the wire */
#define HP_MESSAGE_MAX	   512	/* bytes of the sentence of an error */
#define HP_LIST_ROWS_MAX   64	/* rows of one LIST_REPLY: fits a frame */
#define HP_ZONES_MAX	   32	/* zones of one daemon */
#define HP_ZONE_BLOCKS_MAX 1024 /* blocks of one zone: each is a mount and a descriptor */

/* Memory for the messages of one frame while it is handled: see hp_arena in message.h. */
#define HP_ARENA_BYTES (64 * 1024)

/* Daemon, defaults of what the configuration may change. */
#define HP_SESSIONS_MAX		      4096 /* connections in all */
#define HP_SESSIONS_PER_TENANT_MAX    1024
#define HP_HELLO_TIMEOUT_MS	      10000 /* a connection that does not say HELLO ends */
#define HP_OUTPUT_MAX		      (256 * 1024) /* unsent bytes of one session; above it, reading stops */
#define HP_TENANTS_MAX		      1024 /* tenants known at one time: owners of a zone */
#define HP_TENANTS_MADE_MAX	      256  /* of those, made at run time: each has a socket */
#define HP_ORDERS_PER_SESSION_MAX     16   /* requests of the admin that are being done */
#define HP_ADMIN_SESSIONS_MAX	      16   /* connections of the admin socket, counted apart */
#define HP_SLOTS_MAX		      16384 /* holders: open sessions and what is left of broken ones */
#define HP_SLOTS_PER_TENANT_MAX	      2048
#define HP_WAITS_PER_SESSION_MAX      64       /* requests that wait at one time */
#define HP_REVOCATIONS_MAX	      16       /* of one admin session, under way at one time */
#define HP_DEADLINE_MAX_MS	      86400000 /* how long one may wait: a day */
#define HP_PRIORITY_MAX		      255
#define HP_SHARES_MAX		      1024 /* shared ranges at one time */
#define HP_SHARES_PER_TENANT_MAX      128  /* published by one tenant */
#define HP_SHARE_UIDS_MAX	      64   /* uids that one may be attached by */
#define HP_ATTACHMENTS_MAX	      16384
#define HP_ATTACHMENTS_PER_TENANT_MAX 2048 /* of its sessions, to anybody's shares */
#define HP_OWNERS_MAX		      (HP_TENANTS_MAX + HP_SHARES_MAX) /* owners of a zone: tenants, then shares */
#define HP_DESCRIPTORS_OWED_MAX	      2048 /* to a tenant, of one worker, unread */
