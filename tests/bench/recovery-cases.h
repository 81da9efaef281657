/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of bench-recovery. */
#pragma once

#include "tests/bench/harness.h"

void case_rebuild(struct bench *bench);
void case_durable_cost(struct bench *bench);
void case_restart(struct bench *bench);
void case_gap(struct bench *bench);
