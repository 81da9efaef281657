/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory descriptors of blocks on their way from hugepool-setup to hugepoold: over a UNIX
 * SOCK_SEQPACKET socket, one message for up to 253 blocks of one zone, then an end that tells how it
 * went. A guard is first sent the plan. Both ends are of one build; a version is checked all the same.
 */
#pragma once

#include "daemon/setup/plan.h"

#define DIRECTORIES_VERSION	1
#define DIRECTORIES_TEXT_MAX	512
#define DIRECTORIES_TIMEOUT_SEC 30 /* for one message, either way */

/* --- the side of hugepool-setup --------------------------------------------------------------- */

struct directories_sender {
	int socket;			/* borrowed */
	char zone[CONFIG_NAME_MAX + 1]; /* of the blocks collected */
	uint32_t nr;
	uint32_t blocks[HP_BLOCKS_MAX];
	int fds[HP_BLOCKS_MAX];
};

void directories_sender_init(struct directories_sender *sender, int socket);

/*
 * Adds a block; fd is consumed in any case. zone: up to CONFIG_NAME_MAX characters.
 * Return: 0 or -errno, after which the sender is of no more use.
 */
int directories_send_consume_fd(struct directories_sender *sender, const char *zone, uint32_t block,
				int fd);

/* Sends what is left and the end. error: 0 or an errno; text: what a human should know, or "". */
int directories_send_end(struct directories_sender *sender, int error, const char *text);

/* Closes what was not sent. */
void directories_sender_deinit(struct directories_sender *sender);

/* Return: 0, -EPROTO for nonsense or another version, -ECONNRESET at the end of the stream, -errno. */
int directories_receive_plan(int socket, struct setup_plan *ret);

/* --- the side of hugepoold -------------------------------------------------------------------- */

int directories_send_plan(int socket, const struct setup_plan *plan);

/* fd belongs to the callee, whatever it returns. An error ends the reception. */
typedef int (*directories_fn)(void *userdata, const char *zone, uint32_t block, int fd);

/*
 * Receives until the end. text: what the other side had to say. Return: 0; -EPROTO; -EMFILE if
 * descriptors got lost for want of room in this process; the error of the other side or of fn;
 * -ECANCELED if SIGTERM or SIGINT, blocked by the caller, pends, and goes on pending.
 */
int directories_receive(int socket, directories_fn fn, void *userdata,
			char text[DIRECTORIES_TEXT_MAX]);
