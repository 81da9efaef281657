/* SPDX-License-Identifier: Apache-2.0 */
/* REVOKED: ranges that are wanted back, or that were taken. The caller has the handle's mutex. */
#pragma once

#include "client/handle.h"

/* Return: 0; -EPROTO if it makes no sense. */
int revoked_take(struct hugepool *pool, const Hugepool__V1__Revoked *revoked);
