/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list that is told decides what is kept: a range whose FREE has had no reply is not on it, and so
 * it is free then, whether it was before or not; a grant that never arrived is not on it either. So
 * whoever waits for the reply to a FREE may take it as done, and whoever waits for a GRANT asks again.
 *
 * Attempts are made with back-off until the daemon's patience, or the program's, is over. What the
 * daemon then does not know is lost and marked so: it may be somebody else's by now.
 */
#include "client/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "client/handle.h"
#include "client/request.h"

#define DELAY_FIRST_MS 1
#define DELAY_LAST_MS  100
#define NS_PER_MS      UINT64_C(1000000)

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

int resume_init(struct resume *resume, const char *path, const char *name, int timeout_ms)
{
	resume->path = strdup(path);
	if (!resume->path)
		return -ENOMEM;
	memcpy(resume->name, name, strnlen(name, HP_NAME_MAX));
	resume->timeout_ms = timeout_ms;
	return 0;
}

void resume_deinit(struct resume *resume)
{
	free(resume->path);
	resume->path = NULL;
}

void resume_note_welcome(struct resume *resume, const Hugepool__V1__Welcome *welcome)
{
	resume->grace_ms = welcome->grace_ms;
	resume->durable = welcome->durable;
	resume->token_bytes = 0;
	if (welcome->token.len > sizeof(resume->token) || !welcome->grace_ms)
		return;
	if (welcome->token.len)
		memcpy(resume->token, welcome->token.data, welcome->token.len);
	resume->token_bytes = welcome->token.len;
}

bool resume_is_possible(const struct hugepool *pool)
{
	const struct resume *resume = &pool->resume;

	return pool->connection.broken == -ECONNRESET && resume->token_bytes && resume->path &&
	       resume->timeout_ms >= 0 && !resume->under_way;
}

/* --- the list --------------------------------------------------------------------------------- */

struct list {
	struct hp_wire_range *ranges; /* nr_leases of them, then shared ones */
	size_t n, nr_leases, sent;
	size_t window, block; /* the next one to be looked at */
};

static int by_place(const void *a, const void *b)
{
	const struct hp_wire_range *x = a, *y = b;
	uint64_t at = (uint64_t)x->zone << 32 | x->page, other = (uint64_t)y->zone << 32 | y->page;

	return at < other ? -1 : at > other;
}

static void list_part(struct list *list, const struct held_range *held, uint32_t offset,
		      uint32_t pages)
{
	if (pages)
		list->ranges[list->n++] = (struct hp_wire_range){
			.zone = held->zone,
			.page = held->page + offset,
			.pages = pages,
			.generation = held->generation,
		};
}

static void list_leases(const struct range_table *table, struct list *list)
{
	for (size_t i = 0; i < table->capacity; i++) {
		const struct held_range *held = &table->slots[i];
		uint32_t behind = held->cut_offset + held->cut_pages;

		if (held->pages == 0 || held->leaving || held->shared || held->lost)
			continue;
		if (held->cut_pages)
			list_part(list, held, 0, held->cut_offset);
		list_part(list, held, held->cut_pages ? behind : 0,
			  held->cut_pages ? held->pages - behind : held->pages);
	}
	list->nr_leases = list->n;
}

static void list_shared(const struct range_table *table, struct list *list)
{
	for (size_t i = 0; i < table->capacity; i++) {
		const struct held_range *held = &table->slots[i];

		if (held->shared && !held->leaving && !held->lost)
			list_part(list, held, 0, held->pages);
	}
}

/* What is kept: not what is leaving, nor the part of a range that is. Return: 0 or -ENOMEM. */
static int make_list(struct hugepool *pool, struct list *list)
{
	const struct range_table *table = &pool->ranges;

	*list = (struct list){.ranges = calloc(table->nr + 1, 2 * sizeof(*list->ranges))};
	if (!list->ranges)
		return -ENOMEM;
	list_leases(table, list);
	list_shared(table, list);
	qsort(list->ranges, list->nr_leases, sizeof(*list->ranges), by_place);
	return 0;
}

/* Up to a frame's worth of the blocks of one zone that are mapped. */
static size_t next_blocks(struct hugepool *pool, struct list *list, uint64_t *words,
			  uint32_t *ret_zone)
{
	size_t n = 0;

	while (n == 0 && list->window < pool->nr_windows) {
		const struct window *window = &pool->windows[list->window];

		*ret_zone = window->id;
		for (; list->block < window->nr_blocks && n < HP_BLOCKS_MAX; list->block++) {
			const struct block *block = &window->blocks[list->block];

			if (block->state == BLOCK_MAPPED)
				words[n++] = hp_wire_put_block(
					(struct hp_wire_block){.index = (uint32_t)list->block,
							       .generation = block->generation});
		}
		if (list->block == window->nr_blocks) {
			list->window++;
			list->block = 0;
		}
	}
	return n;
}

/* The daemon does not have it for us any more. */
static void lose(struct hugepool *pool, const struct hp_wire_range *wire)
{
	for (size_t i = 0; i < pool->ranges.capacity; i++) {
		struct held_range *held = &pool->ranges.slots[i];

		if (!held->pages || held->zone != wire->zone || wire->page < held->page ||
		    wire->page - held->page >= held->pages || held->lost)
			continue;
		held->lost = true;
		window_drain_caches(handle_window(pool, held->zone));
		if (held->revoked)
			continue; /* that is known */
		event_log(pool, LOG_ERR, "a range of %u pages did not outlive the break",
			  held->pages);
	}
}

/* Of what was told in one frame, what is not in the reply is lost. Return: 0 or -EPROTO. */
static int take_verdict(struct hugepool *pool, const struct hp_wire_range *told, size_t n,
			const Hugepool__V1__Ranges *kept)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t words[HP_WIRE_RANGE_WORDS];

		hp_wire_put_range(words, &told[i]);
		if (at + HP_WIRE_RANGE_WORDS <= kept->n_ranges &&
		    memcmp(kept->ranges + at, words, sizeof(words)) == 0)
			at += HP_WIRE_RANGE_WORDS;
		else
			lose(pool, &told[i]);
	}
	return at == kept->n_ranges ? 0 : -EPROTO;
}

static int send_frame(struct hugepool *pool, struct list *list, bool *ret_last)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS], blocks[HP_BLOCKS_MAX];
	Hugepool__V1__Resume message = HUGEPOOL__V1__RESUME__INIT;
	Hugepool__V1__Blocks known = HUGEPOOL__V1__BLOCKS__INIT, *knowns = &known;
	const struct hp_wire_range *told = list->ranges + list->sent;
	size_t n = list->n - list->sent, nr_leases;
	const ProtobufCMessage *reply;
	int r;

	if (n > HP_RANGES_MAX)
		n = HP_RANGES_MAX;
	for (size_t i = 0; i < n; i++)
		hp_wire_put_range(words + i * HP_WIRE_RANGE_WORDS, &told[i]);
	nr_leases = list->nr_leases > list->sent ? list->nr_leases - list->sent : 0;
	if (nr_leases > n)
		nr_leases = n;
	list->sent += n;
	known.blocks = blocks;
	known.n_blocks = next_blocks(pool, list, blocks, &known.zone);
	message.token.data = pool->resume.token;
	message.token.len = pool->resume.token_bytes;
	message.ranges = words;
	message.n_ranges = nr_leases * HP_WIRE_RANGE_WORDS;
	message.attachments = words + message.n_ranges;
	message.n_attachments = (n - nr_leases) * HP_WIRE_RANGE_WORDS;
	message.known = &knowns;
	message.n_known = known.n_blocks > 0;
	message.last = *ret_last = list->sent == list->n && list->window == pool->nr_windows;
	r = request_exchange_once(pool, TYPE(RESUME), &message.base, 0, TYPE(RESUMED), &reply);
	if (r < 0)
		return r;
	return take_verdict(pool, told, n, (const Hugepool__V1__Ranges *)reply);
}

static int tell_list(struct hugepool *pool)
{
	bool last = false;
	struct list list;
	int r = make_list(pool, &list);

	while (r == 0 && !last)
		r = send_frame(pool, &list, &last);
	free(list.ranges);
	return r;
}

/* --- an attempt ------------------------------------------------------------------------------- */

int resume_say_hello(struct hugepool *pool, const Hugepool__V1__Welcome **ret)
{
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;
	const ProtobufCMessage *reply;
	int r;

	hello.protocol = HP_PROTOCOL_VERSION;
	hello.name.data = (uint8_t *)pool->resume.name;
	hello.name.len = strlen(pool->resume.name);
	r = request_exchange_once(pool, TYPE(HELLO), &hello.base, 0, TYPE(WELCOME), &reply);
	if (r < 0)
		return r;
	*ret = (const Hugepool__V1__Welcome *)reply;
	if ((*ret)->protocol != HP_PROTOCOL_VERSION)
		return handle_fail(pool, -EPROTO, "the daemon speaks protocol %u, this library %d",
				   (*ret)->protocol, HP_PROTOCOL_VERSION);
	return 0;
}

/* Zones of which we have something have to be what they were. */
static bool zones_fit(const struct hugepool *pool, const Hugepool__V1__Welcome *welcome)
{
	for (size_t i = 0; i < pool->nr_windows; i++) {
		const struct window *window = &pool->windows[i];
		bool fits = false;

		for (size_t z = 0; z < welcome->n_zones; z++) {
			const Hugepool__V1__Zone *zone = welcome->zones[z];

			fits |= zone->id == window->id && zone->page_size == window->page_bytes &&
				zone->block_size == window->block_bytes &&
				zone->name.len == strlen(window->name) &&
				memcmp(zone->name.data, window->name, zone->name.len) == 0;
		}
		if (!fits)
			return false;
	}
	return true;
}

/* What is being given back at this moment does not count. */
static bool keeps_nothing(const struct hugepool *pool)
{
	for (size_t i = 0; i < pool->ranges.capacity; i++) {
		const struct held_range *held = &pool->ranges.slots[i];

		if (held->pages && !held->leaving && held->cut_pages < held->pages)
			return false;
	}
	return true;
}

/* Of blocks that were being let go of nobody will hear any more: they are not known. */
static void drop_leaving(struct hugepool *pool)
{
	for (size_t w = 0; w < pool->nr_windows; w++)
		for (uint32_t i = 0; i < pool->windows[w].nr_blocks; i++) {
			struct block *block = &pool->windows[w].blocks[i];

			if (!block->leaving)
				continue;
			block->leaving = 0;
			if (block->ranges == 0)
				(void)window_drop_block(&pool->windows[w], i);
		}
}

/*
 * A new session does not know what is mapped, and one block that it does not know would spoil a whole
 * RELEASE_BLOCK.
 */
static void drop_idle(struct hugepool *pool)
{
	for (size_t w = 0; w < pool->nr_windows; w++)
		for (uint32_t i = 0; i < pool->windows[w].nr_blocks; i++)
			if (pool->windows[w].blocks[i].state == BLOCK_MAPPED &&
			    pool->windows[w].blocks[i].ranges == 0)
				(void)window_drop_block(&pool->windows[w], i);
}

/* Return: 0; -ESTALE: never more; other -errno: perhaps later. */
static int attempt(struct hugepool *pool)
{
	struct resume *resume = &pool->resume;
	int timeout_ms = pool->connection.timeout_ms, r;
	const Hugepool__V1__Welcome *welcome;
	struct resume fresh;

	loop_unwatch(pool);
	connection_deinit(&pool->connection);
	r = connection_init(&pool->connection, resume->path, timeout_ms);
	if (r < 0)
		return r;
	r = resume_say_hello(pool, &welcome);
	if (r < 0)
		return r;
	if (!zones_fit(pool, welcome))
		return handle_fail(pool, -ESTALE, "the daemon's zones are others than before");
	fresh = *resume;
	resume_note_welcome(&fresh, welcome);
	drop_leaving(pool);
	r = tell_list(pool);
	/* A session that holds nothing is not kept: a new one is as good. */
	if (r == -ESTALE && keeps_nothing(pool)) {
		memcpy(resume->token, fresh.token, sizeof(resume->token));
		resume->token_bytes = fresh.token_bytes;
		drop_idle(pool);
		r = 0;
	}
	if (r == 0) {
		resume->grace_ms = fresh.grace_ms;
		resume->durable = fresh.durable;
	}
	return r;
}

static void begin(struct hugepool *pool)
{
	struct resume *resume = &pool->resume;
	uint32_t ms = resume->timeout_ms ? (uint32_t)resume->timeout_ms : resume->grace_ms;

	resume->next_ns = connection_now_ns();
	resume->until_ns = resume->next_ns + ms * NS_PER_MS;
	resume->delay_ms = DELAY_FIRST_MS;
}

/* Where memory ends with its daemon, there is nothing to wait for once that is gone. */
static bool is_hopeless(const struct resume *resume, int error)
{
	return error == -ESTALE ||
	       (!resume->durable && (error == -ECONNREFUSED || error == -ENOENT));
}

static int give_up(struct hugepool *pool, int error)
{
	struct resume *resume = &pool->resume;

	resume->token_bytes = 0;
	resume->until_ns = 0;
	pool->connection.broken = error == -ESTALE ? -ESTALE : -ECONNRESET;
	return request_fail_broken(pool, pool->connection.broken);
}

static int again_later(struct hugepool *pool, uint64_t now)
{
	struct resume *resume = &pool->resume;

	pool->connection.broken = -ECONNRESET;
	resume->next_ns = now + resume->delay_ms * NS_PER_MS;
	resume->delay_ms *= 2;
	if (resume->delay_ms > DELAY_LAST_MS)
		resume->delay_ms = DELAY_LAST_MS;
	loop_wake_at(pool, resume->next_ns);
	return -EAGAIN;
}

int resume_try(struct hugepool *pool)
{
	struct resume *resume = &pool->resume;
	uint64_t now = connection_now_ns();
	int r;

	if (!resume->until_ns)
		begin(pool);
	if (now < resume->next_ns) {
		loop_wake_at(pool, resume->next_ns);
		return -EAGAIN;
	}
	resume->under_way = true;
	r = attempt(pool);
	resume->under_way = false;
	now = connection_now_ns();
	if (is_hopeless(resume, r) || (r < 0 && now >= resume->until_ns))
		return give_up(pool, r);
	if (r < 0)
		return again_later(pool, now);
	resume->until_ns = 0;
	pool->break_logged = false;
	loop_watch(pool);
	pending_requeue(pool);
	event_resumed(pool);
	return 0;
}

int resume_wait(struct hugepool *pool)
{
	int r;

	while ((r = resume_try(pool)) == -EAGAIN) {
		uint64_t now = connection_now_ns(), next = pool->resume.next_ns;
		struct timespec t = {.tv_sec = 0};

		if (next > now) {
			t.tv_sec = (time_t)((next - now) / (1000 * NS_PER_MS));
			t.tv_nsec = (long)((next - now) % (1000 * NS_PER_MS));
		}
		nanosleep(&t, NULL);
	}
	return r;
}
