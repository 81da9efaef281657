/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: clients and admins in conversation with one daemon. Bytes choose who speaks, the type
 * of the message and every field of it; what was granted comes back in later ones.
 *
 * The main thread's part is played here: orders are done, refused, or left.
 */
#include "tests/fuzz/phrase.h"

#include <stdlib.h>

#define CALLERS	  4
#define STEPS_MAX 200u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct talk {
	struct dice dice;
	struct rig *rig;
	struct heard heard;
	struct caller callers[CALLERS]; /* the last one is an admin to begin with */
};

static const uint8_t data_types[] = {TYPE(ALLOC),  TYPE(FREE),	 TYPE(FREE_PART),     TYPE(SHARE),
				     TYPE(ATTACH), TYPE(RESUME), TYPE(DETACH),	      TYPE(CANCEL),
				     TYPE(ACK),	   TYPE(LIST),	 TYPE(RELEASE_BLOCK), TYPE(STATS),
				     TYPE(HELLO),  TYPE(GOODBYE)};
static const uint8_t admin_types[] = {
	TYPE(REVOKE), TYPE(LIST),  TYPE(QUOTA),	 TYPE(TENANT_CREATE), TYPE(TENANT_DELETE),
	TYPE(ADOPT),  TYPE(CHECK), TYPE(FLUSH),	 TYPE(OFFLINE),	      TYPE(RELOAD),
	TYPE(STATS),  TYPE(HELLO), TYPE(GOODBYE)};

static void connect_one(struct talk *talk, struct caller *caller, enum socket_kind kind)
{
	caller_hang_up(caller);
	caller_connect(caller, talk->rig, kind, &talk->heard);
	if (!dice_one_in(&talk->dice, 8))
		caller_hello(caller);
}

static void say(struct talk *talk, struct caller *caller, const uint8_t *types, uint32_t nr_types)
{
	uint8_t frame[HP_FRAME_MAX];
	uint8_t type = types[dice_roll(&talk->dice, nr_types)];
	size_t n = phrase_frame(frame, type, &talk->dice, &talk->heard);

	caller_send(caller, frame, n);
}

static void say_any(struct talk *talk, struct caller *caller)
{
	uint8_t type = (uint8_t)dice_roll(&talk->dice, 256);

	say(talk, caller, &type, 1);
}

static void step(struct talk *talk)
{
	struct caller *caller = &talk->callers[dice_roll(&talk->dice, CALLERS)];
	uint32_t what = dice_roll(&talk->dice, 16);

	switch (what) {
	case 8:
		connect_one(talk, caller, dice_one_in(&talk->dice, 4) ? SOCKET_ADMIN : SOCKET_DATA);
		break;
	case 9:
		caller_hang_up(caller);
		rig_turn(talk->rig);
		break;
	case 10:
		caller->deaf = !caller->deaf;
		break;
	case 11:
		caller_answer_orders(talk->rig, &talk->dice);
		break;
	case 12:
		say_any(talk, caller);
		break;
	case 13:
	case 14:
		say(talk, &talk->callers[CALLERS - 1], admin_types, sizeof(admin_types));
		break;
	case 15:
		for (unsigned i = 0; i < CALLERS; i++)
			caller_listen(&talk->callers[i]);
		rig_turn(talk->rig);
		break;
	default:
		say(talk, caller, data_types, sizeof(data_types));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct talk talk = {.dice = dice_bytes(bytes, size)};

	talk.rig = caller_rig();
	for (unsigned i = 0; i < CALLERS; i++) {
		caller_connect(&talk.callers[i], talk.rig,
			       i == CALLERS - 1 ? SOCKET_ADMIN : SOCKET_DATA, &talk.heard);
		caller_hello(&talk.callers[i]);
	}
	for (unsigned i = 0; i < STEPS_MAX && !dice_spent(&talk.dice); i++)
		step(&talk);
	for (unsigned i = 0; i < CALLERS; i++)
		caller_hang_up(&talk.callers[i]);
	caller_rig_done(talk.rig);
	return 0;
}
