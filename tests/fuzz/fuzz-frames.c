/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: bytes as a daemon receives them, in pieces of any length.
 *
 * The first byte says which socket, whether a valid HELLO comes first and whether the answers are
 * read; the second is the seed of where the stream is cut. The rest is the stream.
 */
#include "tests/fuzz/caller.h"

#include <stdlib.h>

#define ADMIN	    0x01
#define HELLO_FIRST 0x02
#define DEAF	    0x04 /* reads nothing until all is sent */

#define PIECE_SMALL 16
#define PIECE_LARGE 20000 /* more than the daemon receives at once */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static size_t roll_piece(struct dice *dice, size_t left)
{
	size_t n = 1 + dice_roll(dice, dice_one_in(dice, 4) ? PIECE_LARGE : PIECE_SMALL);

	return n < left ? n : left;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct heard heard = {0};
	struct caller caller;
	struct rig *rig;
	struct dice dice;
	uint8_t how;

	if (size < 2)
		return 0;
	how = bytes[0];
	dice = dice_seeded(bytes[1]);
	bytes += 2;
	size -= 2;
	rig = caller_rig();
	caller_connect(&caller, rig, how & ADMIN ? SOCKET_ADMIN : SOCKET_DATA, &heard);
	if (how & HELLO_FIRST)
		caller_hello(&caller);
	caller.deaf = how & DEAF;
	while (size) {
		size_t n = roll_piece(&dice, size);

		caller_send(&caller, bytes, n);
		bytes += n;
		size -= n;
	}
	caller_answer_orders(rig, &dice);
	caller_listen(&caller);
	caller_hang_up(&caller);
	caller_rig_done(rig);
	return 0;
}
