/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/steps/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"

/* --- a fake of memory ------------------------------------------------------------------------- */

static int fake_surplus(struct pool_block *block, uint64_t *ret_pages)
{
	(void)block;
	*ret_pages = 0;
	return 0;
}

static int fake_ok(struct pool_block *block)
{
	(void)block;
	return 0;
}

static int fake_release(struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	(void)block;
	(void)reason;
	return 0;
}

static int fake_make(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX])
{
	(void)block;
	(void)generation;
	(void)reason;
	return 0;
}

static int fake_open(struct pool_block *block, uint64_t generation, int access)
{
	(void)block;
	(void)generation;
	(void)access;
	return -ENOENT;
}

static void fake_drop(struct pool_block *block)
{
	(void)block;
}

const struct backing_ops backing_hugetlb = {
	.name = "fake",
	.surplus = fake_surplus,
	.empty = fake_ok,
	.release = fake_release,
	.make = fake_make,
	.adopt = fake_make,
	.open = fake_open,
	.drop = fake_drop,
	.leave = fake_drop,
};

int source_open(struct pool *pool)
{
	for (size_t z = 0; z < pool->nr_zones; z++)
		for (uint32_t i = 0; i < pool->zones[z].public.nr_blocks; i++)
			life_set_stage(&pool->zones[z].blocks[i], STAGE_RETIRING, "");
	pool->pinned = true;
	return 0;
}

/* Zones of this world stay as they are. */
int source_adopt(struct bound_zone *zone, uint32_t blocks, char text[POOL_REASON_MAX])
{
	(void)zone;
	(void)blocks;
	(void)text;
	return -ENOSYS;
}

int source_give_up(struct bound_zone *zone, char text[POOL_REASON_MAX])
{
	(void)zone;
	(void)text;
	return 0;
}

void source_close(struct pool *pool)
{
	(void)pool;
}

/* --- kills ------------------------------------------------------------------------------------ */

static _Atomic unsigned stores, kill_at;
static _Atomic bool watching;

void hp_durable_hook(hp_word_t *word, uint64_t value)
{
	(void)word;
	(void)value;
	if (watching && ++stores == kill_at)
		_exit(WORLD_KILLED);
}

void world_kill_at(unsigned number)
{
	watching = false;
	stores = 0;
	kill_at = number;
	watching = true;
}

unsigned world_stores(void)
{
	return stores;
}

void world_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

void world_pause(unsigned *tries, const char *what, int line)
{
	const struct timespec t = {.tv_nsec = 100000};

	if (++*tries > 300000)
		world_die("line %d: in vain for %s", line, what);
	nanosleep(&t, NULL);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_clean(void *userdata, struct pool_zone *zone)
{
	(void)userdata;
	(void)zone;
}

static void on_retired(void *userdata, struct pool_zone *zone, uint32_t block, uint64_t generation)
{
	(void)userdata;
	(void)zone;
	(void)block;
	(void)generation;
}

static void on_owner_changed(void *userdata, uint32_t owner)
{
	struct world *world = userdata;

	tenants_collect(world->net.tenants, shares_collect(world->net.shares, owner));
}

static void on_filled(void *userdata, uint64_t online_bytes, uint64_t configured_bytes)
{
	struct world *world = userdata;

	(void)online_bytes;
	(void)configured_bytes;
	world->filled = true;
}

static void wake(void *userdata, unsigned worker)
{
	(void)userdata;
	(void)worker;
}

static void report(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

static struct config *configuration(const char *state_path)
{
	char path[] = "/tmp/hugepool-steps-XXXXXX", text[512];
	int fd = mkstemp(path), n;
	struct config *config;

	n = snprintf(text, sizeof(text),
		     "[daemon]\nstate = %s\nidle-delay = 24h\nrecycle-threads = 1\n"
		     "[zone small]\npage-size = 2M\nblock-size = %uM\nsize = %uM\nclean-low = 0\n"
		     "[default]\nlimit.small = %u\n",
		     state_path, 2 * WORLD_BLOCK_PAGES, 2 * WORLD_PAGES, WORLD_BLOCKS);
	if (fd < 0 || write(fd, text, (size_t)n) != n || close(fd) ||
	    config_load(&config, path, report, NULL))
		world_die("no configuration");
	unlink(path);
	return config;
}

static void must(int r, const char *what)
{
	if (r)
		world_die("%s: %d", what, r);
}

void world_open(struct world *world, const char *state_path, bool threads)
{
	struct pool_callbacks callbacks = {
		.clean = on_clean,
		.retired = on_retired,
		.owner_changed = on_owner_changed,
		.filled = on_filled,
		.userdata = world,
	};
	struct net *net = &world->net;

	memset(world, 0, sizeof(*world));
	world->config = configuration(state_path);
	must(pool_new(&net->pool, world->config, HP_OWNERS_MAX, &callbacks), "pool");
	must(tenants_new(&net->tenants, world->config, net->pool), "tenants");
	must(slots_new(&net->slots, net->tenants, net->pool), "slots");
	must(waits_new(&net->waits, net->pool, 1, wake, net), "waits");
	must(shares_new(&net->shares, net->pool, net->tenants), "shares");
	must(leases_new(&net->leases, net->pool, net->slots, net->waits, net->shares), "leases");
	net->workers = world->workers;
	net->nr_workers = 1;
	net->grace_ms = world->config->grace_ms;
	must(worker_new(&world->workers[0], net, 0), "worker");
	must(resume_restore(net), "restore");
	world->threads = threads;
	if (!threads)
		return;
	must(pool_start(net->pool), "threads");
	WORLD_WAIT(world->filled);
}

void world_close(struct world *world)
{
	struct net *net = &world->net;

	net->keep_leases = true;
	worker_end_sessions(world->workers[0]);
	pool_free(net->pool);
	worker_free(world->workers[0]);
	leases_free(net->leases);
	shares_free(net->shares);
	waits_free(net->waits);
	slots_free(net->slots);
	tenants_free(net->tenants);
	config_free(world->config);
}

/* --- what is done in it ----------------------------------------------------------------------- */

struct pool_zone *world_zone(struct world *world)
{
	return pool_zone(world->net.pool, 0);
}

struct slot *world_session(struct world *world, unsigned tenant)
{
	struct process process = {.pid = getppid(), .uid = WORLD_UID + tenant};
	struct tenant *owner;
	struct slot *slot;
	int pidfd;

	/* The test program, which lives longer than any world. */
	must(tenants_enter(world->net.tenants, process.uid, &owner), "tenant");
	must(process_look(&process, &pidfd), "process");
	close(pidfd);
	must(slots_open(world->net.slots, owner, &process, "steps", &slot), "slot");
	return slot;
}

void world_grant(struct world *world, struct slot *slot, uint32_t pages, uint32_t n,
		 struct hp_range *ret)
{
	struct hp_request request = {.pages = pages};
	struct hp_grant grants[HP_RANGES_MAX];

	if (caches_enter(world->workers[0]->caches, slot->tenant->owner))
		world_die("no cache");
	must(leases_grant(world->net.leases, world->workers[0]->caches, slot, world_zone(world),
			  &request, grants, n),
	     "grant");
	for (uint32_t i = 0; i < n; i++)
		ret[i] = grants[i].range;
}

/* --- what there is ---------------------------------------------------------------------------- */

static int note(void *userdata, uint32_t slot, const struct hp_range *range,
		enum hp_lease_state state)
{
	struct facts *facts = userdata;

	for (uint32_t i = 0; i < range->pages; i++)
		facts->page[range->pfn + i] = (struct fact){
			.slot = slot,
			.head = range->pfn,
			.generation = range->generation,
			.pages = range->pages,
			.revoked = state == HP_LEASE_REVOKED,
		};
	return 0;
}

void world_facts(struct world *world, struct facts *ret)
{
	struct share_info share;

	memset(ret, 0, sizeof(*ret));
	hp_zone_for_each_lease(world_zone(world)->zone, note, ret);
	for (uint32_t i = 1; i <= WORLD_SLOTS; i++) {
		const struct slot *slot = slots_find(world->net.slots, i);

		ret->slot[i] = slot;
		ret->owner[i] = slot ? slot->tenant->owner : 0;
		ret->attached_bytes[i] = slot ? slot->attached_bytes : 0;
	}
	if (shares_look(world->net.shares, SHARE_SLOT_FIRST, HP_OWNER_NONE, &share))
		memcpy(ret->share, share.name, sizeof(ret->share));
}
