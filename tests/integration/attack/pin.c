/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attacker that has the kernel hold pages for it, in a pipe or as buffers of an io_uring, and lets
 * go of everything else: file and mappings are gone, so that the daemon finds the file held by nobody
 * and yet not all of its pages back. What was pinned is read afterwards: it has to be the attacker's
 * own still, since a page that is pinned is nobody else's.
 */
#include "tests/integration/attack/attack.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIN_BYTES 4096 /* of each huge page: enough to hold all of it */
#define HOLD_MS	  60   /* longer than a recycle takes */

/* --- a pipe ----------------------------------------------------------------------------------- */

static bool pin_by_pipe(const struct taken *taken, int ret_pipe[2])
{
	struct iovec parts[BLOCK_PAGES];

	for (size_t i = 0; i < BLOCK_PAGES; i++)
		parts[i] = (struct iovec){taken->map + i * PAGE_BYTES, PIN_BYTES};
	if (pipe2(ret_pipe, O_CLOEXEC | O_NONBLOCK))
		return false;
	if (vmsplice(ret_pipe[1], parts, BLOCK_PAGES, 0) == BLOCK_PAGES * PIN_BYTES)
		return true;
	close(ret_pipe[0]);
	close(ret_pipe[1]);
	return false;
}

static void look_at_pipe(int pipe, uint32_t who)
{
	static char page[PIN_BYTES];

	while (read(pipe, page, sizeof(page)) == sizeof(page)) {
		memory_search(page, sizeof(page), who);
		if (memory_is_zero(page, sizeof(page)))
			wrong(WRONG_FOREIGN); /* it was ours and marked */
		hit(HIT_PINS_LOOKED);
	}
}

/* --- an io_uring ------------------------------------------------------------------------------ */

static int pin_by_uring(const struct taken *taken)
{
	struct io_uring_params parameters = {0};
	struct iovec all = {taken->map, PAGE_BYTES}; /* counts against a limit of 8 MiB */
	int ring = (int)syscall(__NR_io_uring_setup, 1, &parameters);

	if (ring < 0)
		return -1;
	if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &all, 1) == 0)
		return ring;
	close(ring);
	return -1;
}

/* --- both ------------------------------------------------------------------------------------- */

/*
 * The file is seen to be truncated by way of the descriptor, which then goes, too; from then on there is
 * nothing but the pin.
 */
static bool give_back_pinned(struct taken *taken)
{
	munmap(taken->map, BLOCK_BYTES);
	taken->map = NULL;
	taken_give_back(taken);
	if (!taken_wait_dead(taken))
		return false;
	taken_drop(taken);
	return true;
}

static void round_with_pipe(uint32_t who)
{
	struct taken taken;
	int pipe[2];

	if (!taken_new(&taken, who))
		return;
	if (!pin_by_pipe(&taken, pipe)) {
		taken_give_back(&taken);
		taken_drop(&taken);
		return;
	}
	if (!give_back_pinned(&taken))
		hold();
	hit(HIT_PINNED_PIPE);
	nap_ms(HOLD_MS);
	if (!attacking())
		hold();
	look_at_pipe(pipe[0], who);
	close(pipe[0]);
	close(pipe[1]);
}

static void round_with_uring(uint32_t who)
{
	struct taken taken;
	int ring;

	if (!taken_new(&taken, who))
		return;
	ring = pin_by_uring(&taken);
	if (ring < 0) {
		taken_give_back(&taken);
		taken_drop(&taken);
		return;
	}
	if (!give_back_pinned(&taken))
		hold();
	hit(HIT_PINNED_URING);
	nap_ms(HOLD_MS);
	if (!attacking())
		hold();
	close(ring);
}

void attacker_pin(uint32_t who)
{
	while (attacking()) {
		round_with_pipe(who);
		round_with_uring(who);
	}
	hold();
}
