/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions come one after the other, so that the state needs no locks: what a test looks at is
 * atomic, the rest is the thread's. Everything waits with a limit.
 */
#include "tests/client/fake.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Not assert(): the tests are to fail in a release build as well. */
#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

static uint64_t block_bytes(const struct fake *fake)
{
	return fake->page_bytes * FAKE_BLOCK_PAGES;
}

uint64_t fake_generation(uint32_t index)
{
	return (UINT64_C(1) << 39) + index;
}

/* --- sending ---------------------------------------------------------------------------------- */

void fake_send_bytes(struct fake *fake, const void *bytes, size_t n, const int *fds, size_t nr_fds)
{
	/* A client that has gone is no concern of the daemon's. */
	(void)hp_fds_send(fake->session, bytes, n, fds, nr_fds);
}

void fake_send(struct fake *fake, uint8_t type, uint16_t tag, const ProtobufCMessage *message)
{
	uint8_t buffer[HP_FRAME_MAX];
	int n = hp_message_pack(buffer, type, tag, message);

	CHECK(n > 0);
	fake_send_bytes(fake, buffer, (size_t)n, NULL, 0);
}

void fake_done(struct fake *fake, uint16_t tag)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;

	fake_send(fake, TYPE(DONE), tag, &empty.base);
}

void fake_error(struct fake *fake, uint16_t tag, Hugepool__V1__Code code)
{
	Hugepool__V1__Error error = HUGEPOOL__V1__ERROR__INIT;

	error.code = code;
	error.message.data = (uint8_t *)"a reason\nwith a control character";
	error.message.len = strlen((char *)error.message.data);
	error.zone.data = (uint8_t *)FAKE_ZONE_NAME;
	error.zone.len = strlen(FAKE_ZONE_NAME);
	error.asked_pages = 1;
	error.free_pages = 2;
	error.leasable_pages = 3;
	error.limit_pages = 4;
	error.largest_pages = 5;
	error.index = 6;
	fake_send(fake, TYPE(ERROR), tag, &error.base);
}

void fake_grant(struct fake *fake, uint16_t tag, const struct hp_wire_range *ranges, size_t n)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	for (size_t i = 0; i < n; i++)
		hp_wire_put_range(words + i * HP_WIRE_RANGE_WORDS, &ranges[i]);
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	fake_send(fake, TYPE(GRANT), tag, &message.base);
}

void fake_blocks(struct fake *fake, uint8_t type, uint32_t index, uint64_t generation, int fd)
{
	uint64_t word =
		hp_wire_put_block((struct hp_wire_block){.index = index, .generation = generation});
	Hugepool__V1__Blocks message = HUGEPOOL__V1__BLOCKS__INIT;
	uint8_t buffer[HP_FRAME_MAX];
	int n;

	message.zone = FAKE_ZONE;
	message.n_blocks = 1;
	message.blocks = &word;
	n = hp_message_pack(buffer, type, 0, &message.base);
	CHECK(n > 0);
	fake_send_bytes(fake, buffer, (size_t)n, &fd, fd >= 0);
	fake->blocks_sent++;
}

Hugepool__V1__Zone fake_zone(const struct fake *fake)
{
	Hugepool__V1__Zone zone = HUGEPOOL__V1__ZONE__INIT;

	zone.id = FAKE_ZONE;
	zone.name.data = (uint8_t *)FAKE_ZONE_NAME;
	zone.name.len = strlen(FAKE_ZONE_NAME);
	zone.page_size = fake->page_bytes;
	zone.block_size = block_bytes(fake);
	zone.node = -1;
	zone.backing = HUGEPOOL__V1__BACKING__BACKING_MEMFD;
	zone.pages = FAKE_PAGES;
	zone.blocks = FAKE_BLOCKS;
	return zone;
}

void fake_welcome(struct fake *fake, uint16_t tag, const Hugepool__V1__Zone *zone, size_t copies)
{
	Hugepool__V1__Welcome welcome = HUGEPOOL__V1__WELCOME__INIT;
	Hugepool__V1__Zone *zones[HP_ZONES_MAX + 1];

	CHECK(copies <= HP_ZONES_MAX + 1);
	for (size_t i = 0; i < copies; i++)
		zones[i] = (Hugepool__V1__Zone *)zone;
	welcome.protocol = HP_PROTOCOL_VERSION;
	welcome.n_zones = copies;
	welcome.zones = zones;
	if (fake->resumable) {
		welcome.token.data = (uint8_t *)"token";
		welcome.token.len = strlen("token");
		welcome.grace_ms = 60000;
		welcome.durable = true;
	}
	fake_send(fake, TYPE(WELCOME), tag, &welcome.base);
}

/* --- leases ----------------------------------------------------------------------------------- */

/* First fit. Return: first page, or -1. */
static int find_room(const struct fake *fake, uint32_t pages, uint32_t align)
{
	for (uint32_t first = 0; pages <= FAKE_PAGES && first <= FAKE_PAGES - pages;
	     first += align) {
		uint32_t i = 0;

		while (i < pages && !fake->pages[first + i].used)
			i++;
		if (i == pages)
			return (int)first;
	}
	return -1;
}

static void set_used(struct fake *fake, uint32_t first, uint32_t pages, bool used)
{
	for (uint32_t i = 0; i < pages; i++)
		fake->pages[first + i].used = used;
	fake->leased_pages += used ? pages : -pages;
}

static struct hp_wire_range lease(struct fake *fake, uint32_t first, uint32_t pages)
{
	fake->next_generation = (fake->next_generation + 1) & 0xffffff;
	fake->pages[first].length = pages;
	fake->pages[first].generation = fake->next_generation;
	set_used(fake, first, pages, true);
	return (struct hp_wire_range){.page = first,
				      .pages = pages,
				      .generation = fake->next_generation,
				      .zone = FAKE_ZONE,
				      .zeroed = fake->claim_zeroed};
}

static void unlease(struct fake *fake, uint32_t first)
{
	set_used(fake, first, fake->pages[first].length, false);
	fake->pages[first].length = 0;
}

static void answer_alloc(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Alloc *alloc = fake_unpack(fake, frame);
	uint32_t align = alloc->align_pages ? alloc->align_pages : 1;
	size_t count = alloc->count ? alloc->count : 1;
	struct hp_wire_range ranges[HP_RANGES_MAX];

	CHECK(count <= HP_RANGES_MAX);
	if (alloc->exclusive && align < FAKE_BLOCK_PAGES)
		align = FAKE_BLOCK_PAGES;
	for (size_t i = 0; i < count; i++) {
		int first = find_room(fake, alloc->pages, align);

		if (first < 0) {
			while (i > 0)
				unlease(fake, ranges[--i].page);
			fake_error(fake, frame->tag, CODE(NO_MEMORY));
			return;
		}
		ranges[i] = lease(fake, (uint32_t)first, alloc->pages);
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t last = (ranges[i].page + ranges[i].pages - 1) / FAKE_BLOCK_PAGES;

		for (uint32_t b = ranges[i].page / FAKE_BLOCK_PAGES; b <= last; b++) {
			if (!fake->sent[b])
				fake_blocks(fake, TYPE(BLOCKS), b, fake_generation(b),
					    fake->files[b]);
			fake->sent[b] = true;
		}
	}
	fake_grant(fake, frame->tag, ranges, count);
}

/* Return: whether a lease of that name is there. */
static bool find_lease(const struct fake *fake, const uint64_t *words, struct hp_wire_range *ret)
{
	return hp_wire_get_range(words, ret) == 0 && ret->zone == FAKE_ZONE &&
	       ret->page < FAKE_PAGES && fake->pages[ret->page].length == ret->pages &&
	       fake->pages[ret->page].generation == ret->generation;
}

static void answer_free(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Ranges *ranges = fake_unpack(fake, frame);

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < ranges->n_ranges; i += HP_WIRE_RANGE_WORDS) {
			struct hp_wire_range range;

			if (!find_lease(fake, ranges->ranges + i, &range)) {
				fake_error(fake, frame->tag, CODE(NOT_LEASED));
				return;
			}
			if (pass == 1)
				unlease(fake, range.page);
		}
	fake_done(fake, frame->tag);
}

/* What is left gets new names. */
static void answer_free_part(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__FreePart *part = fake_unpack(fake, frame);
	struct hp_wire_range range, left[2];
	size_t n = 0;
	uint32_t behind;

	CHECK(part->n_range == HP_WIRE_RANGE_WORDS);
	if (!find_lease(fake, part->range, &range)) {
		fake_error(fake, frame->tag, CODE(NOT_LEASED));
		return;
	}
	CHECK(part->pages > 0 && part->offset < range.pages &&
	      part->pages <= range.pages - part->offset);
	behind = part->offset + part->pages;
	unlease(fake, range.page);
	if (part->offset > 0)
		left[n++] = lease(fake, range.page, part->offset);
	if (behind < range.pages)
		left[n++] = lease(fake, range.page + behind, range.pages - behind);
	fake_grant(fake, frame->tag, left, n);
}

static void answer_release(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Blocks *blocks = fake_unpack(fake, frame);

	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block block = hp_wire_get_block(blocks->blocks[i]);

		CHECK(block.index < FAKE_BLOCKS);
		for (uint32_t p = 0; p < FAKE_BLOCK_PAGES; p++)
			if (fake->pages[block.index * FAKE_BLOCK_PAGES + p].used) {
				fake_error(fake, frame->tag, CODE(BUSY));
				return;
			}
		fake->sent[block.index] = false;
	}
	fake_done(fake, frame->tag);
}

static void answer_hello(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Hello *hello = fake_unpack(fake, frame);
	Hugepool__V1__Zone zone = fake_zone(fake);

	CHECK(hello->protocol == HP_PROTOCOL_VERSION && hello->name.len <= HP_NAME_MAX);
	memset(fake->name, 0, sizeof(fake->name));
	memcpy(fake->name, hello->name.data, hello->name.len);
	fake_welcome(fake, frame->tag, &zone, 1);
}

/* Whether a range is (part of) a lease of that generation. */
static bool find_part(const struct fake *fake, const uint64_t *words, struct hp_wire_range *ret)
{
	if (hp_wire_get_range(words, ret) || ret->zone != FAKE_ZONE || ret->page >= FAKE_PAGES)
		return false;
	for (uint32_t head = 0; head <= ret->page; head++)
		if (fake->pages[head].generation == ret->generation &&
		    head + fake->pages[head].length >= ret->page + ret->pages)
			return true;
	return false;
}

/* What was not named is free now; the rest keeps its generation. */
static void keep_named(struct fake *fake)
{
	uint32_t generation = 0, end = 0;

	for (uint32_t page = 0; page < FAKE_PAGES; page++) {
		if (fake->pages[page].length) {
			generation = fake->pages[page].generation;
			unlease(fake, page);
		}
		if (fake->kept[page]) {
			fake->pages[page].length = fake->kept[page];
			fake->pages[page].generation = generation;
			end = page + fake->kept[page];
		}
		fake->pages[page].used = page < end;
		fake->leased_pages += page < end;
	}
}

static void answer_resume(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Resume *resume = fake_unpack(fake, frame);
	Hugepool__V1__Ranges kept = HUGEPOOL__V1__RANGES__INIT;
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];

	kept.ranges = words;
	for (size_t i = 0; i < resume->n_ranges; i += HP_WIRE_RANGE_WORDS) {
		struct hp_wire_range range;

		if (!find_part(fake, resume->ranges + i, &range))
			continue;
		fake->kept[range.page] = range.pages;
		memcpy(words + kept.n_ranges, resume->ranges + i, 2 * sizeof(words[0]));
		kept.n_ranges += HP_WIRE_RANGE_WORDS;
	}
	for (size_t i = 0; i < resume->n_known; i++)
		for (size_t j = 0; j < resume->known[i]->n_blocks; j++)
			fake->sent[hp_wire_get_block(resume->known[i]->blocks[j]).index] = true;
	if (resume->last)
		keep_named(fake);
	fake_send(fake, TYPE(RESUMED), frame->tag, &kept.base);
}

void fake_answer(struct fake *fake, const struct hp_frame *frame)
{
	switch (frame->type) {
	case TYPE(HELLO):
		answer_hello(fake, frame);
		break;
	case TYPE(ALLOC):
		answer_alloc(fake, frame);
		break;
	case TYPE(FREE):
		answer_free(fake, frame);
		break;
	case TYPE(FREE_PART):
		answer_free_part(fake, frame);
		break;
	case TYPE(RELEASE_BLOCK):
		answer_release(fake, frame);
		break;
	case TYPE(RESUME):
		if (fake->resumable)
			answer_resume(fake, frame);
		else
			fake_error(fake, frame->tag, CODE(NOT_SUPPORTED));
		break;
	case TYPE(GOODBYE):
		fake_done(fake, frame->tag);
		break;
	default:
		fake_error(fake, frame->tag, CODE(UNKNOWN_TYPE));
	}
}

const void *fake_unpack(struct fake *fake, const struct hp_frame *frame)
{
	const ProtobufCMessage *message;

	CHECK(hp_message_descriptor(frame->type));
	CHECK(hp_message_unpack(fake->arena, hp_message_descriptor(frame->type), frame, &message) ==
	      0);
	return message;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Return: false when the test wants an end. */
static bool wait_for(const struct fake *fake, int fd)
{
	struct pollfd p[] = {{.fd = fake->stop, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	CHECK(poll(p, 2, 60000) > 0);
	return !p[0].revents;
}

static void serve(struct fake *fake)
{
	static uint8_t input[2 * HP_FRAME_MAX];
	size_t have = 0;

	while (wait_for(fake, fake->session)) {
		struct hp_frame frame;
		size_t used, n_fds;
		bool truncated;
		ssize_t n = hp_fds_recv(fake->session, input + have, sizeof(input) - have, NULL, 0,
					&n_fds, &truncated);

		if (n <= 0)
			return;
		have += (size_t)n;
		while (hp_frame_parse(input, have, &frame, &used) == 0) {
			fake_hook hook = fake->hook;

			fake->seen[frame.type]++;
			if (!hook || !hook(fake, &frame))
				fake_answer(fake, &frame);
			have -= used;
			memmove(input, input + used, have);
		}
	}
}

static void *run(void *userdata)
{
	struct fake *fake = userdata;

	while (wait_for(fake, fake->listener)) {
		fake->session = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
		CHECK(fake->session >= 0);
		fake->connections++;
		serve(fake);
		close(fake->session);
		memset(fake->sent, 0, sizeof(fake->sent));
		memset(fake->kept, 0, sizeof(fake->kept));
		if (fake->resumable)
			continue;
		memset(fake->pages, 0, sizeof(fake->pages));
		fake->leased_pages = 0;
	}
	return NULL;
}

int fake_start(struct fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (!fake->page_bytes)
		fake->page_bytes = 65536;
	for (int i = 0; i < FAKE_BLOCKS; i++) {
		fake->files[i] = memfd_create("fake", MFD_CLOEXEC | fake->memfd_flags);
		if (fake->files[i] < 0 ||
		    fallocate(fake->files[i], 0, 0, (off_t)block_bytes(fake))) {
			for (int j = 0; j <= i; j++)
				close(fake->files[j]);
			return -1;
		}
	}

	strcpy(fake->directory, "/tmp/hugepool-test-XXXXXX");
	CHECK(mkdtemp(fake->directory));
	snprintf(fake->path, sizeof(fake->path), "%s/sock", fake->directory);
	strcpy(address.sun_path, fake->path);
	fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fake->stop = eventfd(0, EFD_CLOEXEC);
	CHECK(fake->listener >= 0 && fake->stop >= 0);
	CHECK(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(listen(fake->listener, 8) == 0);
	CHECK(hp_arena_new(&fake->arena) == 0);
	CHECK(pthread_create(&fake->thread, NULL, run, fake) == 0);
	return 0;
}

void fake_stop(struct fake *fake)
{
	CHECK(eventfd_write(fake->stop, 1) == 0);
	CHECK(pthread_join(fake->thread, NULL) == 0);
	close(fake->listener);
	close(fake->stop);
	for (int i = 0; i < FAKE_BLOCKS; i++)
		close(fake->files[i]);
	fake->arena = hp_arena_free(fake->arena);
	unlink(fake->path);
	rmdir(fake->directory);
}

void fake_await(struct fake *fake, uint8_t type, unsigned n)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < 10000 && fake->seen[type] < n; i++)
		nanosleep(&pause, NULL);
	if (fake->seen[type] < n) {
		fprintf(stderr, "no %s within ten seconds\n", hp_message_type_name(type));
		abort();
	}
}
