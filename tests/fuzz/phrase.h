/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames made of a fuzzer's bytes: every field that the descriptor of a message names, absent, with
 * a likely value, with what was heard before, or with rubbish; and then perhaps damaged.
 */
#pragma once

#include "tests/fuzz/caller.h"

/* Writes a frame of this type into a buffer of HP_FRAME_MAX bytes. Return: bytes written. */
size_t phrase_frame(uint8_t *frame, uint8_t type, struct dice *dice, const struct heard *heard);
