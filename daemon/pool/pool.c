/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: makes the zones, binds their blocks to memory, starts the threads that keep them, and
 * takes it all down again.
 *
 * Zones begin with every block offline. The same recyclers that make a used block clean bring them
 * online, several at once, while requests are served already: a block at a time becomes grantable.
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/*
 * How fast blocks of one owner are recycled, and how much at once: a tenant that takes, leaves and
 * comes back in a loop costs no more zeroing than this.
 */
#define OWNER_RATE_BYTES  (UINT64_C(2) << 30)
#define OWNER_BURST_BYTES (UINT64_C(4) << 30)

#define DEFAULT_MAX_ORDER 10
#define MILLISECOND_NS	  UINT64_C(1000000)

uint64_t pool_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + 1;
}

/* --- zones ------------------------------------------------------------------------------------ */

/* Scratch memory; the durable words lie in the state. */
static void *zone_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void zone_memory_free(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes ? bytes : 1);
}

static uint8_t order_of(uint32_t pages)
{
	return (uint8_t)__builtin_ctz(pages);
}

static int adopt_words(struct bound_zone *zone, struct hp_zone *words,
		       const struct hp_zone_config *config, void *durable);

static struct hp_zone_config words_config(const struct bound_zone *zone)
{
	uint8_t order = order_of(zone->public.block_pages);

	return (struct hp_zone_config){
		.nr_pages = zone->public.nr_blocks * zone->public.block_pages,
		.nr_owners = zone->pool->nr_owners,
		.id = zone->public.id,
		.refcounts = true,
		.pageblock_order = order,
		.max_order = order > DEFAULT_MAX_ORDER ? order : DEFAULT_MAX_ORDER,
	};
}

/* As configured, or larger: a resize may have made it so before we started. */
static void set_size(struct bound_zone *zone)
{
	uint32_t known = resize_known_blocks(zone), guaranteed;

	if (known > zone->public.size_blocks)
		zone->public.size_blocks = known;
	if (hp_zone_set_size(zone->public.zone, zone->public.size_blocks, &guaranteed))
		log_error("size not set zone=%s blocks=%u", zone->public.name,
			  zone->public.size_blocks);
}

/* Anew, or as another daemon left them. Return: 0 or -errno. */
static int make_words(struct bound_zone *zone)
{
	const struct hp_zone_config config = words_config(zone);
	void *durable = state_zone_words(zone->pool->state, zone->public.id);
	size_t struct_bytes = (hp_zone_struct_size() + 63) / 64 * 64;
	struct hp_zone *words;
	int r;

	zone->scratch = zone_memory(zone->scratch_bytes);
	words = aligned_alloc(64, struct_bytes);
	if (!zone->scratch || !words) {
		free(words);
		return -ENOMEM;
	}
	if (state_is_adopted(zone->pool->state))
		r = adopt_words(zone, words, &config, durable);
	else
		r = hp_zone_init(words, &config, durable, zone->scratch);
	if (r < 0) {
		free(words);
		return r;
	}
	zone->public.zone = words;
	set_size(zone);
	return 0;
}

static void init_public(struct pool_zone *zone, uint8_t id, const struct config_zone *config)
{
	zone->id = id;
	zone->name = config->name;
	zone->page_bytes = config->page_bytes;
	zone->block_bytes = config->block_bytes;
	zone->block_pages = (uint32_t)(config->block_bytes / config->page_bytes);
	zone->nr_blocks = (uint32_t)(config->max_bytes / config->block_bytes);
	zone->size_blocks = (uint32_t)(config->size_bytes / config->block_bytes);
	zone->config = config;
	zone->clean_min = config->clean_min;
	zone->clean_low = config->clean_low;
	zone->clean_high = config->clean_high;
}

static const struct backing_ops *const backings[] = {
	[CONFIG_BACKING_HUGETLB] = &backing_hugetlb,
	[CONFIG_BACKING_MEMFD] = &backing_memfd,
	[CONFIG_BACKING_SHMEM] = &backing_shmem,
};

static int init_zone(struct pool *pool, size_t id)
{
	struct bound_zone *zone = &pool->zones[id];
	const struct config_zone *config = &pool->config->zones[id];
	struct hp_zone_config words;

	init_public(&zone->public, (uint8_t)id, config);
	zone->pool = pool;
	zone->backing = backings[config->backing];
	pthread_mutex_init(&zone->open_lock, NULL);
	pool->nr_zones++; /* free_zone() takes it from here */
	zone->blocks = calloc(zone->public.nr_blocks, sizeof(*zone->blocks));
	if (!zone->blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < zone->public.nr_blocks; i++) {
		struct pool_block *block = &zone->blocks[i];

		block->zone = zone;
		block->index = i;
		block->backing.fd = -1;
		block->since_ns = pool_now_ns();
		if (zone->backing != &backing_hugetlb && i < zone->public.size_blocks)
			life_set_stage(block, STAGE_RETIRING, "");
		else
			(void)snprintf(block->reason, sizeof(block->reason),
				       i < zone->public.size_blocks ? "no huge pages for it"
								    : "beyond the zone's size");
	}
	words = words_config(zone);
	return hp_zone_sizes(&words, &zone->durable_bytes, &zone->scratch_bytes);
}

static void free_zone(struct bound_zone *zone)
{
	for (uint32_t i = 0; zone->blocks && i < zone->public.nr_blocks; i++) {
		if (zone->pool->keeps)
			zone->backing->leave(&zone->blocks[i]);
		else
			zone->backing->drop(&zone->blocks[i]);
	}
	free(zone->blocks);
	if (zone->public.zone)
		hp_zone_deinit(zone->public.zone);
	free(zone->public.zone);
	zone_memory_free(zone->scratch, zone->scratch_bytes);
	pthread_mutex_destroy(&zone->open_lock);
}

/* --- taking over ------------------------------------------------------------------------------ */

static uint32_t owner_of_slot(void *userdata, uint32_t slot)
{
	const struct bound_zone *zone = userdata;

	return state_owner_of_slot(zone->pool->state, slot);
}

/* Its directory was handed to us, and its file is there and has all its pages. */
static bool block_whole(void *userdata, uint32_t index, struct hp_block_word word)
{
	struct bound_zone *zone = userdata;
	struct pool_block *block = &zone->blocks[index];
	char reason[BACKING_REASON_MAX] = "";
	uint64_t began_ns;
	int r;

	if (word.state == HP_BLOCK_ISOLATED) /* to be recycled from the beginning in any case */
		return true;
	began_ns = pool_now_ns();
	r = block->stage == STAGE_ABSENT ? BACKING_BARE
					 : zone->backing->adopt(block, word.generation, reason);
	zone->opening_ns += pool_now_ns() - began_ns;
	if (r == 0)
		return true;
	if (r == BACKING_BARE)
		(void)snprintf(reason, sizeof(reason), "no huge pages for it");
	else if (r < 0)
		(void)snprintf(reason, sizeof(reason), "%s", strerror(-r));
	log_warning("block is not taken over zone=%s block=%u generation=%" PRIu64 " reason=\"%s\"",
		    zone->public.name, index, word.generation, reason);
	return false;
}

static void report(void *userdata, const char *message)
{
	const struct bound_zone *zone = userdata;

	log_warning("taking over: %s zone=%s", message, zone->public.name);
}

/* What the words say of a block is where its memory stands. */
static void take_over_block(struct pool_block *block, struct hp_block_word word)
{
	struct bound_zone *zone = block->zone;

	if (block->backing.generation < word.generation)
		block->backing.generation = word.generation;
	block->seen_state = word.state;
	if (word.state != HP_BLOCK_OFFLINE && block->stage != STAGE_ABSENT)
		zone->online_blocks++;
	if (block->stage != STAGE_ABSENT &&
	    (word.state == HP_BLOCK_CLEAN || word.state == HP_BLOCK_LIVE ||
	     word.state == HP_BLOCK_FAILING))
		life_set_stage(block, STAGE_READY, "");
}

static int adopt_words(struct bound_zone *zone, struct hp_zone *words,
		       const struct hp_zone_config *config, void *durable)
{
	const struct hp_rebuild_ops ops = {
		.owner_of_slot = owner_of_slot,
		.block_whole = block_whole,
		.report = report,
		.userdata = zone,
	};
	struct hp_rebuild_stats stats;
	int r = hp_zone_rebuild(words, config, durable, zone->scratch, &ops, &stats);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < zone->public.nr_blocks; i++)
		take_over_block(&zone->blocks[i], hp_zone_block_word(words, i));
	log_notice("zone taken over zone=%s leases=%u revoked=%u quarantined_blocks=%u "
		   "isolated_blocks=%u opening_us=%" PRIu64,
		   zone->public.name, stats.leases, stats.revoked, stats.quarantined_blocks,
		   stats.isolated_blocks, zone->opening_ns / 1000);
	return 0;
}

/* --- life of the pool ------------------------------------------------------------------------- */

static bool needs_huge_pages(const struct pool *pool)
{
	for (size_t z = 0; z < pool->nr_zones; z++)
		if (pool->zones[z].backing == &backing_hugetlb)
			return true;
	return false;
}

/* What is not promised, loudly. */
static void tell_about_zone(const struct bound_zone *zone)
{
	if (zone->backing == &backing_shmem)
		log_warning("zone is made of ordinary memory, nothing of it is guaranteed zone=%s",
			    zone->public.name);
	if (zone->backing == &backing_memfd)
		log_warning(
			"NOTHING IS GUARANTEED in a zone of memfds: pages of a block that is "
			"recycled go to the whole machine and may not come back; and LEASES END "
			"WITH THE DAEMON zone=%s",
			zone->public.name);
}

static void tell_about_backing(const struct pool *pool)
{
	for (size_t z = 0; z < pool->nr_zones; z++)
		tell_about_zone(&pool->zones[z]);
}

/* Those with memory are to be brought up, in order, unless they were taken over as they are. */
static void queue_known_blocks(struct pool *pool)
{
	for (size_t z = 0; z < pool->nr_zones; z++) {
		for (uint32_t i = 0; i < pool->zones[z].public.nr_blocks; i++) {
			struct pool_block *block = &pool->zones[z].blocks[i];

			if (block->stage == STAGE_ABSENT)
				continue;
			pool->nr_known_blocks++;
			if (block->stage == STAGE_READY) {
				block->tried = true;
				continue;
			}
			TAILQ_INSERT_TAIL(&pool->ready, block, queue);
			pool->untried_blocks++;
		}
	}
}

static int allocate_tables(struct pool *pool)
{
	uint64_t now_ns = pool_now_ns();

	pool->nr_recyclers = pool->config->recycle_threads + pool->nr_owners;
	pool->owners = calloc(pool->nr_owners, sizeof(*pool->owners));
	pool->recyclers = calloc(pool->nr_recyclers, sizeof(*pool->recyclers));
	pool->retired = calloc(HP_ZONE_BLOCKS_MAX, sizeof(struct pool_block *));
	if (!pool->owners || !pool->recyclers || !pool->retired)
		return -ENOMEM;
	pool->idle_delay_ns = pool->config->idle_delay_ms * MILLISECOND_NS;
	budget_init(&pool->budget, pool->config->recycle_rate_bytes,
		    pool->config->recycle_rate_bytes, now_ns);
	for (uint32_t i = 0; i < pool->nr_owners; i++)
		budget_init(&pool->owners[i].budget, OWNER_RATE_BYTES, OWNER_BURST_BYTES, now_ns);
	return 0;
}

/*
 * Leases outlive the daemon if their memory does, which is in a namespace that hugepool-setup has
 * pinned.
 */
static int open_state(struct pool *pool)
{
	struct state_zone zones[HP_ZONES_MAX];
	struct state_options options = {
		.path = pool->config->state_path,
		.zones = zones,
		.nr_zones = pool->nr_zones,
		.memory_survives = pool->pinned,
	};

	for (size_t z = 0; z < pool->nr_zones; z++)
		zones[z] = (struct state_zone){
			.name = pool->zones[z].public.name,
			.page_bytes = pool->zones[z].public.page_bytes,
			.block_bytes = pool->zones[z].public.block_bytes,
			.nr_blocks = pool->zones[z].public.nr_blocks,
			.nr_pages =
				pool->zones[z].public.nr_blocks * pool->zones[z].public.block_pages,
			.durable_bytes = pool->zones[z].durable_bytes,
		};
	pool->keeps = options.path && pool->pinned;
	if (options.path && !pool->pinned)
		log_warning("leases will not outlive the daemon, whose memory does not: that needs "
			    "\"hugepool-setup up\" and \"fds\" state=%s",
			    options.path);
	return state_open(&pool->state, &options);
}

static int build(struct pool *pool)
{
	int r = allocate_tables(pool);

	pool->keeper_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r == 0 && pool->keeper_event < 0)
		r = -errno;
	for (size_t z = 0; r == 0 && z < pool->config->nr_zones; z++)
		r = init_zone(pool, z);
	if (r < 0) {
		log_error("zones cannot be made error=\"%s\"", strerror(-r));
		return r;
	}
	pool->keeps = pool->config->state_path; /* whatever goes wrong from here on */
	if (needs_huge_pages(pool))
		r = source_open(pool);
	if (r == 0)
		r = open_state(pool);
	for (size_t z = 0; r == 0 && z < pool->nr_zones; z++)
		r = make_words(&pool->zones[z]);
	if (r < 0)
		return r;
	tell_about_backing(pool);
	queue_known_blocks(pool);
	return 0;
}

int pool_new(struct pool **ret, const struct config *config, uint32_t nr_owners,
	     const struct pool_callbacks *callbacks)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int r;

	if (!pool)
		return -ENOMEM;
	pool->config = config;
	pool->callbacks = *callbacks;
	pool->nr_owners = nr_owners;
	pool->guard_socket = -1;
	pool->keeper_event = -1;
	TAILQ_INIT(&pool->ready);
	TAILQ_INIT(&pool->waiting);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->changed, NULL);
	pool->resize_socket = -1;
	r = build(pool);
	if (r < 0) {
		pool_free(pool);
		return r;
	}
	*ret = pool;
	return 0;
}

void pool_set_tuning(struct pool *pool, const struct config *config,
		     const struct config_zone *const zones[HP_ZONES_MAX])
{
	pthread_mutex_lock(&pool->lock);
	for (size_t z = 0; z < pool->nr_zones; z++) {
		struct pool_zone *zone = &pool->zones[z].public;

		if (!zones[z])
			continue;
		zone->clean_min = zones[z]->clean_min;
		zone->clean_low = zones[z]->clean_low;
		zone->clean_high = zones[z]->clean_high;
	}
	pool->idle_delay_ns = config->idle_delay_ms * MILLISECOND_NS;
	if (pool->budget.rate_bytes != config->recycle_rate_bytes)
		budget_init(&pool->budget, config->recycle_rate_bytes, config->recycle_rate_bytes,
			    pool_now_ns());
	if (pool->started) /* those that wait for the old rate look again */
		pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	pool_poke(pool);
}

static int start_threads(struct pool *pool)
{
	int r = keeper_start(pool);

	if (r < 0)
		return r;
	pool->started = true;
	pthread_mutex_lock(&pool->lock);
	for (unsigned i = 0; r == 0 && i < pool->config->recycle_threads; i++)
		r = recycler_start(pool);
	pthread_mutex_unlock(&pool->lock);
	return r;
}

/* Signals are for the main thread: ours are started with all of them blocked. */
int pool_start(struct pool *pool)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = start_threads(pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		log_error("threads of the pool cannot be started error=\"%s\"", strerror(-r));
	return r;
}

static void stop_threads(struct pool *pool)
{
	if (!pool->started)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	resize_stop(pool);
	keeper_join(pool);
	recycler_join_all(pool);
}

struct pool *pool_free(struct pool *pool)
{
	if (!pool)
		return NULL;
	stop_threads(pool);
	for (size_t z = 0; z < pool->nr_zones; z++)
		free_zone(&pool->zones[z]);
	pool->state = state_close(pool->state);
	source_close(pool);
	if (pool->keeper_event >= 0) /* not before the last recycler is gone: they all kick */
		close(pool->keeper_event);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->changed);
	pthread_mutex_destroy(&pool->lock);
	free(pool->owners);
	free(pool->recyclers);
	free(pool->retired);
	free(pool);
	return NULL;
}

/* --- what others ask -------------------------------------------------------------------------- */

struct state *pool_state(struct pool *pool)
{
	return pool->state;
}

bool pool_keeps_leases(const struct pool *pool)
{
	return pool->keeps;
}

size_t pool_nr_zones(const struct pool *pool)
{
	return pool->nr_zones;
}

struct pool_zone *pool_zone(struct pool *pool, size_t id)
{
	return id < pool->nr_zones ? &pool->zones[id].public : NULL;
}

struct pool_zone *pool_find_zone(struct pool *pool, const char *name, size_t name_bytes,
				 uint64_t page_bytes)
{
	for (size_t z = 0; z < pool->nr_zones; z++) {
		struct pool_zone *zone = &pool->zones[z].public;

		if (name_bytes ? strlen(zone->name) == name_bytes &&
					 memcmp(zone->name, name, name_bytes) == 0
			       : !page_bytes || zone->page_bytes == page_bytes)
			return zone;
	}
	return NULL;
}

static int open_block(struct pool_zone *zone, uint32_t block, int access, uint64_t *ret_generation)
{
	struct bound_zone *bound = bound_zone(zone);
	struct hp_block_word word;
	int fd;

	if (block >= zone->nr_blocks)
		return -ENOENT;
	word = hp_zone_block_word(zone->zone, block);
	if (word.state != HP_BLOCK_LIVE && word.state != HP_BLOCK_FAILING)
		return -ENOENT;
	fd = bound->backing->open(&bound->blocks[block], word.generation, access);
	if (fd >= 0)
		*ret_generation = word.generation;
	return fd;
}

int pool_open_block(struct pool_zone *zone, uint32_t block, uint64_t *ret_generation)
{
	return open_block(zone, block, O_RDWR, ret_generation);
}

int pool_open_block_read_only(struct pool_zone *zone, uint32_t block, uint64_t *ret_generation)
{
	return open_block(zone, block, O_RDONLY, ret_generation);
}

void pool_zone_get_info(struct pool_zone *zone, struct pool_zone_info *ret)
{
	struct bound_zone *bound = bound_zone(zone);

	pthread_mutex_lock(&bound->pool->lock);
	ret->recycles = bound->recycles;
	ret->online_bytes = bound->online_blocks * zone->block_bytes;
	(void)snprintf(ret->held, sizeof(ret->held), "%s", bound->held);
	pthread_mutex_unlock(&bound->pool->lock);
}

void pool_block_get_info(struct pool_zone *zone, uint32_t index, struct pool_block_info *ret)
{
	struct bound_zone *bound = bound_zone(zone);
	struct pool_block *block;
	enum hp_block_state state;

	memset(ret, 0, sizeof(*ret));
	if (index >= zone->nr_blocks)
		return;
	block = &bound->blocks[index];
	pthread_mutex_lock(&bound->pool->lock);
	state = hp_zone_block_word(zone->zone, index).state;
	if (state != block->seen_state) {
		block->seen_state = state;
		block->since_ns = pool_now_ns();
	}
	ret->age_ms = (pool_now_ns() - block->since_ns) / 1000000;
	(void)snprintf(ret->reason, sizeof(ret->reason), "%s", block->reason);
	pthread_mutex_unlock(&bound->pool->lock);
}
