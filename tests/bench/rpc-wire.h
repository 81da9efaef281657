/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions without the library: as many as a case wants, with as many requests under way. One thread
 * alone. What comes is checked as far as a benchmark has to, and any error ends the program.
 */
#pragma once

#include <stdint.h>

#include "proto/message.h"

#define WIRE_HELD_MAX 64

struct wire {
	int socket;
	unsigned held; /* ranges it has */
	size_t start, end;
	uint64_t ranges[WIRE_HELD_MAX][HP_WIRE_RANGE_WORDS];
	uint8_t input[2 * HP_FRAME_MAX];
};

/* A blocking stream socket that is connected to this path; waits for somebody to listen there. */
int wire_connect(const char *path);

/* Connects to the stage's daemon and says hello. */
void wire_open(struct wire *wire);
void wire_close(struct wire *wire);

/* Frames for one send, packed behind each other. Return: bytes written. */
size_t wire_put_alloc(uint8_t *bytes, uint32_t count);
size_t wire_put_free(uint8_t *bytes, const uint64_t range[HP_WIRE_RANGE_WORDS]);

/* All of it. */
void wire_send(int socket, const void *bytes, size_t n);

/* Takes in replies until n requests have been answered; ranges that were granted are held. */
void wire_receive(struct wire *wire, unsigned n);
