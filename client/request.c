/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call at a time; the daemon's unasked words, and replies to requests that nobody waits for, are
 * handled on the way to its reply, in the order they came, because a grant counts on the blocks named
 * before it.
 *
 * Letting go of a block races with a grant in it. Where no grant can come the block is unmapped, then
 * RELEASE_BLOCK is sent, and nobody waits for the answer. Where one can, the block stays mapped until
 * the daemon says DONE; if a grant was faster the daemon says that the block is busy, and it stays.
 */
#include "client/request.h"

#include <errno.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "client/revoked.h"

#define TAG_REQUEST_MAX (PENDING_TAG - 1)
#define TAG_RELEASE	(REQUEST_TAG_NOBODY + 1) /* and up: blocks that are let go of later */
#define TAG_RELEASES	0x7fffu

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int request_errno(Hugepool__V1__Code code)
{
	switch (code) {
	case HUGEPOOL__V1__CODE__CODE_NO_MEMORY:
		return -ENOMEM;
	case HUGEPOOL__V1__CODE__CODE_OVER_LIMIT:
		return -EDQUOT;
	case HUGEPOOL__V1__CODE__CODE_NO_ZONE:
		return -ENODEV;
	case HUGEPOOL__V1__CODE__CODE_NO_SESSION:
		return -ESTALE;
	case HUGEPOOL__V1__CODE__CODE_NO_SHARE:
		return -ENOENT;
	case HUGEPOOL__V1__CODE__CODE_NOT_SUPPORTED:
	case HUGEPOOL__V1__CODE__CODE_UNKNOWN_TYPE:
		return -EOPNOTSUPP;
	case HUGEPOOL__V1__CODE__CODE_INVALID:
	case HUGEPOOL__V1__CODE__CODE_OUT_OF_RANGE:
	case HUGEPOOL__V1__CODE__CODE_NOT_LEASED:
	case HUGEPOOL__V1__CODE__CODE_WRONG_HOLDER:
	case HUGEPOOL__V1__CODE__CODE_WRONG_LENGTH:
	case HUGEPOOL__V1__CODE__CODE_STALE:
		return -EINVAL;
	case HUGEPOOL__V1__CODE__CODE_TOO_MANY:
		return -EUSERS;
	case HUGEPOOL__V1__CODE__CODE_REVOKED:
		return -EOWNERDEAD;
	case HUGEPOOL__V1__CODE__CODE_BUSY:
		return -EBUSY;
	case HUGEPOOL__V1__CODE__CODE_PERMISSION:
		return -EACCES;
	case HUGEPOOL__V1__CODE__CODE_TIMED_OUT:
		return -ETIMEDOUT;
	case HUGEPOOL__V1__CODE__CODE_CANCELLED:
		return -ECANCELED;
	case HUGEPOOL__V1__CODE__CODE_SHUTTING_DOWN:
		return -ESHUTDOWN;
	case HUGEPOOL__V1__CODE__CODE_INTERNAL:
		return -EIO;
	default:
		return -EPROTO;
	}
}

/* --- errors ----------------------------------------------------------------------------------- */

/* The daemon's words become a C string: cut to size, without control characters. */
static void copy_text(char *to, size_t size, ProtobufCBinaryData from)
{
	size_t n = from.len < size - 1 ? from.len : size - 1;

	for (size_t i = 0; i < n; i++)
		to[i] = from.data[i] < ' ' || from.data[i] == 0x7f ? '?' : (char)from.data[i];
	to[n] = '\0';
}

int request_fail_as_told(struct hugepool *pool, const Hugepool__V1__Error *told)
{
	struct hugepool_error *error = &pool->error;
	uint64_t page_bytes = 0;
	int r = request_errno(told->code);

	*error = (struct hugepool_error){.error = -r, .index = told->index};
	copy_text(error->message, sizeof(error->message), told->message);
	if (!error->message[0])
		handle_note(pool, r, "the daemon answers: %s", hp_message_code_name(told->code));
	copy_text(error->zone, sizeof(error->zone), told->zone);
	for (size_t i = 0; i < pool->nr_windows; i++)
		if (strcmp(pool->windows[i].name, error->zone) == 0)
			page_bytes = pool->windows[i].page_bytes;
	error->asked_bytes = told->asked_pages * page_bytes;
	error->free_bytes = told->free_pages * page_bytes;
	error->leasable_bytes = told->leasable_pages * page_bytes;
	error->limit_bytes = told->limit_pages * page_bytes;
	error->largest_bytes = told->largest_pages * page_bytes;
	return r;
}

static int note_broken(struct hugepool *pool, int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return handle_fail(pool, error, "no reply from the daemon within %lld ms",
				   (long long)pool->connection.timeout_ms +
					   pool->connection.wait_ms);
	case -ECONNRESET:
		return handle_fail(pool, error, "the connection to the daemon is lost");
	case -ESTALE:
		return handle_fail(
			pool, error,
			"the daemon has not taken this session back: what it holds stays charged until this process ends");
	case -EMSGSIZE:
		return handle_fail(pool, error, "the request is too long for a frame");
	default:
		return handle_fail(pool, error, "the daemon does not keep to the protocol");
	}
}

/* Why it broke is worth a line, once. */
static void log_broken(struct hugepool *pool)
{
	if (!pool->connection.broken || pool->break_logged || pool->resume.under_way)
		return;
	pool->break_logged = true;
	event_log(pool, LOG_ERR, "%s", pool->error.message);
}

int request_fail_broken(struct hugepool *pool, int error)
{
	note_broken(pool, error);
	log_broken(pool);
	return error;
}

int request_fail_protocol(struct hugepool *pool)
{
	return request_fail_broken(pool, connection_break(&pool->connection, -EPROTO));
}

/* --- what comes unasked ----------------------------------------------------------------------- */

static int take_blocks(struct hugepool *pool, const Hugepool__V1__Blocks *blocks)
{
	struct window *window = handle_window(pool, blocks->zone);
	bool keep_fd =
		pool->keep_fds || pool->pendings.exclusive || pool->flags & HUGEPOOL_KEEP_FDS;

	if (!window)
		return -EPROTO;
	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block block = hp_wire_get_block(blocks->blocks[i]);
		int fd = connection_take_fd(&pool->connection), r;

		if (fd < 0 && !pool->connection.fds_lost)
			return -EPROTO;
		if (block.index >= window->nr_blocks) {
			if (fd >= 0)
				close(fd);
			return -EPROTO;
		}
		r = window_add_block(window, block, fd, keep_fd);
		if (r < 0)
			return r;
	}
	return 0;
}

static int retire_blocks(struct hugepool *pool, const Hugepool__V1__Blocks *blocks)
{
	struct window *window = handle_window(pool, blocks->zone);
	struct release release;

	if (!window)
		return -EPROTO;
	request_release_init(&release);
	for (size_t i = 0; i < blocks->n_blocks; i++) {
		struct hp_wire_block wire = hp_wire_get_block(blocks->blocks[i]);

		if (wire.index >= window->nr_blocks)
			return -EPROTO;
		if (window->blocks[wire.index].state == BLOCK_UNKNOWN ||
		    window->blocks[wire.index].generation != wire.generation)
			continue; /* let go of already */
		window->blocks[wire.index].retired = true;
		request_release(pool, &release, window, wire.index * window->block_pages, 1, true);
	}
	request_release_flush(pool, &release);
	return 0;
}

static int take_pressure(struct hugepool *pool, const Hugepool__V1__Pressure *pressure)
{
	struct window *window = handle_window(pool, pressure->zone);

	if (window)
		event_pressure(pool, window);
	return 0;
}

static int handle_unasked(struct hugepool *pool, const struct hp_frame *frame)
{
	const ProtobufCMessageDescriptor *descriptor = hp_message_descriptor(frame->type);
	const ProtobufCMessage *message;
	int r;

	if (!descriptor)
		return 0; /* of a later protocol */
	r = hp_message_unpack(pool->connection.arena, descriptor, frame, &message);
	if (r < 0)
		return -EPROTO;
	switch (frame->type) {
	case TYPE(BLOCKS):
		return take_blocks(pool, (const Hugepool__V1__Blocks *)message);
	case TYPE(BLOCK_RETIRED):
		return retire_blocks(pool, (const Hugepool__V1__Blocks *)message);
	case TYPE(REVOKED):
		return revoked_take(pool, (const Hugepool__V1__Revoked *)message);
	case TYPE(PRESSURE):
		return take_pressure(pool, (const Hugepool__V1__Pressure *)message);
	case TYPE(ERROR):
		/* Its last word. */
		connection_break(&pool->connection, -ECONNRESET);
		r = request_fail_as_told(pool, (const Hugepool__V1__Error *)message);
		log_broken(pool);
		return r;
	default:
		return 0;
	}
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* The daemon has forgotten the block, unless it has just granted a range there. */
static void release_answered(struct hugepool *pool, const struct hp_frame *frame)
{
	for (size_t w = 0; w < pool->nr_windows; w++)
		for (uint32_t i = 0; i < pool->windows[w].nr_blocks; i++) {
			struct block *block = &pool->windows[w].blocks[i];

			if (block->leaving != frame->tag)
				continue;
			block->leaving = 0;
			if (frame->type == TYPE(DONE) && block->ranges == 0)
				(void)window_drop_block(&pool->windows[w], i);
			return;
		}
}

int request_handle(struct hugepool *pool, const struct hp_frame *frame)
{
	int r;

	if (frame->tag == REQUEST_TAG_NOBODY || pool->closing)
		return 0;
	if (frame->tag >= TAG_RELEASE) {
		release_answered(pool, frame);
		return 0;
	}
	if (pending_has_tag(frame->tag))
		return pending_reply(pool, frame);
	if (frame->tag != 0)
		return request_fail_protocol(pool);
	r = handle_unasked(pool, frame);
	return r == -EPROTO ? request_fail_protocol(pool) : r;
}

/* Reads until the reply with this tag is there. */
static int await(struct hugepool *pool, uint16_t tag, struct hp_frame *ret)
{
	for (;;) {
		int r = connection_receive(&pool->connection, ret);

		if (r < 0)
			return request_fail_broken(pool, r);
		if (ret->tag == tag)
			return 0;
		r = request_handle(pool, ret);
		if (r < 0)
			return r;
	}
}

/*
 * The daemon has hung up before we said anything. If it told why, that can still be read. Return: what
 * it said, or -ECONNRESET.
 */
static int read_last_word(struct hugepool *pool)
{
	struct hp_frame frame;
	int r = 0;

	pool->connection.broken = 0;
	while (r == 0) {
		r = connection_receive_nowait(&pool->connection, &frame);
		if (r == 0 && frame.tag == 0)
			r = handle_unasked(pool, &frame);
		else if (r < 0)
			r = -ECONNRESET;
	}
	connection_break(&pool->connection, -ECONNRESET);
	return r == -ECONNRESET || r == -EPROTO ? request_fail_broken(pool, -ECONNRESET) : r;
}

int request_exchange_once(struct hugepool *pool, uint8_t type, const ProtobufCMessage *message,
			  uint32_t wait_ms, uint8_t reply_type, const ProtobufCMessage **ret)
{
	uint16_t tag = pool->last_tag = (uint16_t)(pool->last_tag % TAG_REQUEST_MAX + 1);
	const ProtobufCMessage *reply;
	struct hp_frame frame;
	int r;

	if (pool->connection.broken)
		return request_fail_broken(pool, pool->connection.broken == -ESTALE ? -ESTALE
										    : -ECONNRESET);
	connection_begin(&pool->connection, wait_ms);
	r = connection_send(&pool->connection, type, tag, message);
	if (r < 0)
		return r == -ECONNRESET ? read_last_word(pool) : request_fail_broken(pool, r);
	pool->asking = reply_type == TYPE(GRANT);
	r = await(pool, tag, &frame);
	pool->asking = false;
	if (pool->connection.start != pool->connection.end || pool->connection.broken)
		loop_wake(pool); /* that does not show on the socket any more */
	if (r < 0)
		return r;

	if (frame.type != reply_type && frame.type != TYPE(ERROR))
		return request_fail_protocol(pool);
	r = hp_message_unpack(pool->connection.arena, hp_message_descriptor(frame.type), &frame,
			      &reply);
	if (r < 0)
		return request_fail_protocol(pool);
	if (frame.type == TYPE(ERROR))
		return request_fail_as_told(pool, (const Hugepool__V1__Error *)reply);
	if (ret)
		*ret = reply;
	return 0;
}

/* Done, or to be asked for anew, once the daemon has been told what is held. */
static bool is_settled_by_resume(uint8_t type)
{
	return type == TYPE(ALLOC) || type == TYPE(FREE) || type == TYPE(FREE_PART) ||
	       type == TYPE(ATTACH) || type == TYPE(DETACH);
}

int request_exchange_waiting(struct hugepool *pool, uint8_t type, const ProtobufCMessage *message,
			     uint32_t wait_ms, uint8_t reply_type, const ProtobufCMessage **ret)
{
	for (;;) {
		bool was_broken = resume_is_possible(pool);
		int r = 0;

		if (!was_broken)
			r = request_exchange_once(pool, type, message, wait_ms, reply_type, ret);
		if (!resume_is_possible(pool))
			return r;
		r = resume_wait(pool);
		if (r < 0)
			return r;
		if (is_settled_by_resume(type))
			return REQUEST_RESUMED;
	}
}

/* Whether it is to go: it holds nothing, and nobody wants it to stay. */
static bool leaves(const struct hugepool *pool, const struct block *block, bool unusable)
{
	if (block->ranges || block->leaving)
		return false;
	if (block->state == BLOCK_TAKEN)
		return true;
	if (block->state == BLOCK_MAPPED)
		return block->retired || !(pool->flags & HUGEPOOL_KEEP_BLOCKS);
	return unusable;
}

void request_release_flush(struct hugepool *pool, struct release *release)
{
	Hugepool__V1__Blocks blocks = HUGEPOOL__V1__BLOCKS__INIT;

	if (release->n == 0)
		return;
	blocks.zone = release->window->id;
	blocks.n_blocks = release->n;
	blocks.blocks = release->words;
	/* A failure breaks the connection; the next exchange tells. */
	(void)connection_send(&pool->connection, TYPE(RELEASE_BLOCK), REQUEST_TAG_NOBODY,
			      &blocks.base);
	release->n = 0;
}

/* Asks the daemon first: a grant may be on its way. */
static void release_later(struct hugepool *pool, const struct window *window, uint32_t index)
{
	Hugepool__V1__Blocks blocks = HUGEPOOL__V1__BLOCKS__INIT;
	struct block *block = &window->blocks[index];
	uint64_t word = hp_wire_put_block(
		(struct hp_wire_block){.index = index, .generation = block->generation});

	pool->last_release = (uint16_t)((pool->last_release + 1u) % TAG_RELEASES);
	blocks.zone = window->id;
	blocks.n_blocks = 1;
	blocks.blocks = &word;
	block->leaving = (uint16_t)(TAG_RELEASE + pool->last_release);
	(void)connection_send(&pool->connection, TYPE(RELEASE_BLOCK), block->leaving, &blocks.base);
}

void request_release(struct hugepool *pool, struct release *release, struct window *window,
		     uint32_t page, uint32_t pages, bool unusable)
{
	uint32_t last = (page + pages - 1) / window->block_pages;

	for (uint32_t i = page / window->block_pages; i <= last; i++) {
		const struct hp_wire_block wire = {
			.index = i,
			.generation = window->blocks[i].generation,
		};

		if (!leaves(pool, &window->blocks[i], unusable))
			continue;
		if (pool->asking || pool->pendings.allocs) {
			release_later(pool, window, i);
			continue;
		}
		if (window_drop_block(window, i) < 0)
			continue;
		if (release->n == HP_BLOCKS_MAX || release->window != window)
			request_release_flush(pool, release);
		release->window = window;
		release->words[release->n++] = hp_wire_put_block(wire);
	}
}

void request_drop_blocks(struct window *window, uint32_t page, uint32_t pages)
{
	uint32_t last = (page + pages - 1) / window->block_pages;

	/* One that stays, because the kernel has no memory, is replaced when its descriptor comes again. */
	for (uint32_t i = page / window->block_pages; i <= last; i++)
		if (window->blocks[i].ranges == 0)
			(void)window_drop_block(window, i);
}
