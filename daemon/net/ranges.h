/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges that a request names. Only the session's worker calls these.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/net/session.h"

/* Puts them into worker->scratch.ranges. Return: how many, at least 1; or -1: refused. */
int ranges_get(struct session *session, uint16_t tag, const uint64_t *words, size_t nr_words);

/* One of them is not as the client thinks: a condition of hp_zone_free(), or -EINVAL, in words. */
void ranges_refuse(struct session *session, uint16_t tag, int condition,
		   const struct hp_range *range, uint32_t index);
