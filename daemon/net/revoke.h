/* SPDX-License-Identifier: Apache-2.0 */
/* Revocations that an admin session has asked for. Only the session's worker calls these. */
#pragma once

#include "daemon/net/session.h"

/* The session ends: they are called off. */
void revoking_drop(struct session *session);
