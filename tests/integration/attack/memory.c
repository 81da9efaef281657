/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at memory that may be gone ends where SIGBUS says so. Marks stand in every cache line and
 * tell who wrote them and where, so that any line of a secret is enough to know it.
 */
#include "tests/integration/attack/attack.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

#define NOT_SANITIZED __attribute__((no_sanitize("address", "undefined")))

#define MARK	   (UINT64_C(0x5ec7e7) << 40)
#define MARK_MASK  (UINT64_C(0xffffff) << 40)
#define LINE_WORDS 8

static _Thread_local sigjmp_buf escape;
static _Thread_local volatile sig_atomic_t may_fault;

static void on_sigbus(int number)
{
	if (may_fault)
		siglongjmp(escape, 1);
	signal(number, SIG_DFL);
	raise(number);
}

void memory_init(void)
{
	struct sigaction action = {.sa_handler = on_sigbus, .sa_flags = SA_NODEFER};

	sigaction(SIGBUS, &action, NULL);
}

/* Position and writer; never 0. */
static uint64_t mark_of(uint32_t who, uint64_t line)
{
	return MARK | (uint64_t)(who & 0xffff) << 24 | (line & 0xffffff);
}

NOT_SANITIZED bool memory_mark(void *memory, uint64_t bytes, uint32_t who)
{
	volatile uint64_t *words = memory;

	if (sigsetjmp(escape, 0)) {
		may_fault = 0;
		return false;
	}
	may_fault = 1;
	for (uint64_t i = 0; i < bytes / sizeof(*words); i += LINE_WORDS)
		words[i] = mark_of(who, i / LINE_WORDS);
	may_fault = 0;
	return true;
}

NOT_SANITIZED bool memory_is_zero(const void *memory, uint64_t bytes)
{
	const uint64_t *words = memory;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i += LINE_WORDS) {
		uint64_t any = 0;

		for (int k = 0; k < LINE_WORDS; k++)
			any |= words[i + k];
		if (any)
			return false;
	}
	return true;
}

NOT_SANITIZED bool memory_is_marked(const void *memory, uint64_t bytes, uint32_t who)
{
	const uint64_t *words = memory;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i += LINE_WORDS)
		if (words[i] != mark_of(who, i / LINE_WORDS))
			return false;
	return true;
}

NOT_SANITIZED bool memory_search(const void *memory, uint64_t bytes, uint32_t who)
{
	const volatile uint64_t *words = memory;

	if (sigsetjmp(escape, 0)) {
		may_fault = 0;
		return false;
	}
	may_fault = 1;
	for (uint64_t i = 0; i < bytes / sizeof(*words); i += LINE_WORDS) {
		uint64_t word = words[i];

		if ((word & MARK_MASK) == MARK && (word >> 24 & 0xffff) != (who & 0xffff))
			wrong(WRONG_SECRETS);
	}
	may_fault = 0;
	return true;
}

NOT_SANITIZED bool memory_is_there(const void *memory)
{
	const volatile char *byte = memory;

	if (sigsetjmp(escape, 0)) {
		may_fault = 0;
		return false;
	}
	may_fault = 1;
	(void)*byte;
	may_fault = 0;
	return true;
}
