/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon, its admin, and clients of many users: the real hugepoold and hugepoolctl, on huge pages of
 * this machine or on ordinary memory. After each test the zones are checked through the admin socket,
 * everything has come back, and the machine's huge pages are as they were.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"
#include "tests/integration/client.h"

#define UID_A 54321
#define UID_B 54322
#define UID_C 54323
#define MIB   (UINT64_C(1) << 20)

/* Zone small: 16 blocks of 4 pages. */
#define BLOCKS	    16
#define BLOCK_PAGES 4
#define PAGES	    (BLOCKS * BLOCK_PAGES)
#define BLOCK_BYTES (BLOCK_PAGES * 2 * MIB)

#define WAIT_TRIES 4000 /* of 5 ms */

/* What many_setup() configures: more of [daemon], and the sections behind the zone. */
#define DAEMON "idle-delay = 100ms\n"
#define TENANTS                                                                     \
	"[tenant sure]\nuid = 54321\nlimit.small = 8\nguarantee.small = 4\n"        \
	"[tenant box]\nsocket = %s/box.sock\nsocket-mode = 0666\nlimit.small = 4\n" \
	"[default]\nlimit.small = 12\n"

struct huge_pages {
	long total, free, reserved, surplus;
};

struct many {
	struct huge_pages before;
	struct program *program;
	struct peer *admin;
	char text[4096]; /* of the configuration at hand, and of what hugepoolctl says */
};

/* Arguments of the program: HUGEPOOLD HUGEPOOLCTL hugetlb|shmem. Return: 0, or its exit status. */
int many_main(int argc, char **argv);

int many_setup(void **state);	      /* a daemon of DAEMON and TENANTS */
int many_setup_stopped(void **state); /* none yet */
int many_teardown(void **state);

/* %s in tenants, at most twice: the directory of the sockets. */
void many_start_daemon(struct many *f, const char *daemon, const char *tenants);
void many_write_config(struct many *f, const char *daemon, const char *tenants);

void many_wait_for_clean(struct many *f, uint64_t pages);
void many_wait_for_log(struct many *f, const char *text);

/* A client at the daemon's socket, and at the one of this name beside it. */
struct client *many_start(struct many *f, uid_t uid);
struct client *many_start_at(struct many *f, const char *name, uid_t uid);

void many_take(struct client *client, size_t number, uint64_t bytes);

/* One by one, from number 0 on, until they are refused with this error. Return: how many. */
size_t many_take_all(struct client *client, uint64_t bytes, int expected);

/* What the admin sees of a tenant in zone small. */
struct many_figures {
	bool there;
	uint64_t held, leased, limit, guarantee; /* blocks, leased: pages */
	uint32_t sessions;
};
struct many_figures many_tenant(struct many *f, const char *name);
void many_wait_until_gone(struct many *f, const char *name);

/* Runs hugepoolctl with these arguments; what it says, on both outputs, is in f->text. Return: status. */
int many_ctl(struct many *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define MANY_CTL(f, status, says, ...)                                                       \
	do {                                                                                 \
		int got = many_ctl(f, __VA_ARGS__);                                          \
		if (got != (status) || !strstr((f)->text, says))                             \
			fail_msg("status %d, expected %d and \"%s\": %s", got, status, says, \
				 (f)->text);                                                 \
	} while (0)
