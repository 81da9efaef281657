/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the whole configuration can tell: defaults that depend on other keys, sizes that must
 * divide each other, quotas against zones. All mistakes are found in one go, except those that only
 * follow from an earlier one: a zone whose geometry is wrong has no blocks to compare quotas with.
 *
 * Page sizes come from libhugetlbfs, which knows what this kernel offers. The file is checked on
 * the machine that will run it.
 */
#include "daemon/config-internal.h"

#include "alloc/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <hugetlbfs.h>

#define PAGE_SIZES_MAX	      16
#define SHMEM_PAGE_BYTES      (UINT64_C(2) << 20)
#define DEFAULT_BLOCK_BYTES   (UINT64_C(64) << 20)
#define DEFAULT_IDLE_DELAY_MS 10000
#define DEFAULT_GRACE_MS      30000
#define DEFAULT_RECYCLERS_MAX 4
#define DEFAULT_SOCKET_MODE   0660

/* --- [daemon] --------------------------------------------------------------------------------- */

static void default_string(char **field, const char *value)
{
	if (!*field)
		*field = strdup(value); /* checked by its caller's caller: see daemon_defaults() */
}

static void daemon_defaults(struct config_draft *draft)
{
	struct config *config = draft->config;
	const struct config_place whole = {draft->path, 0};

	default_string(&config->socket, "/run/hugepool/hugepool.sock");
	default_string(&config->admin_socket, "/run/hugepool/admin.sock");
	default_string(&config->setup_socket, "/run/hugepool/setup.sock");
	default_string(&config->namespace_path, "/run/hugepool/ns");
	if (!config->socket || !config->admin_socket || !config->setup_socket ||
	    !config->namespace_path)
		config_mistake(draft, whole, "out of memory");
	if (!draft->daemon.key[DAEMON_SOCKET_MODE].file) /* 0 may be meant */
		config->socket_mode = DEFAULT_SOCKET_MODE;
	if (!config->workers)
		config->workers = 1;
	if (!config->recycle_threads) {
		int cpus = get_nprocs();

		config->recycle_threads = cpus < 1			 ? 1
					  : cpus > DEFAULT_RECYCLERS_MAX ? DEFAULT_RECYCLERS_MAX
									 : (unsigned)cpus;
	}
	if (!draft->daemon.key[DAEMON_IDLE_DELAY].file)
		config->idle_delay_ms = DEFAULT_IDLE_DELAY_MS;
	if (!draft->daemon.key[DAEMON_GRACE].file)
		config->grace_ms = DEFAULT_GRACE_MS;
}

/* --- zones ------------------------------------------------------------------------------------ */

static uint32_t nr_blocks(const struct config_zone *zone)
{
	return (uint32_t)(zone->size_bytes / zone->block_bytes);
}

static uint32_t max_blocks(const struct config_zone *zone)
{
	return (uint32_t)(zone->max_bytes / zone->block_bytes);
}

static bool is_power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* The place of a key, or of its section where the key was left out. */
static struct config_place place_of(const struct config_section_draft *section, unsigned key)
{
	return section->key[key].file ? section->key[key] : section->section;
}

/* Adds to a list. Return: the new length, short of size in any case. */
static size_t append(char *list, size_t size, size_t length, const char *between, const char *text)
{
	int n = snprintf(list + length, size - length, "%s%s", length ? between : "", text);

	return n < 0 || (size_t)n >= size - length ? size - 1 : length + (size_t)n;
}

static int machine_page_sizes(long sizes[static PAGE_SIZES_MAX])
{
	int n = gethugepagesizes(sizes, PAGE_SIZES_MAX);

	return n < 0 ? 0 : n;
}

static bool check_hugetlb_page(struct config_draft *draft, struct config_place place,
			       struct config_zone *zone)
{
	char known[PAGE_SIZES_MAX * CONFIG_SIZE_TEXT_MAX] = "", text[CONFIG_SIZE_TEXT_MAX];
	size_t length = 0;
	long sizes[PAGE_SIZES_MAX];
	int n = machine_page_sizes(sizes);

	if (!zone->page_bytes) {
		long normal = gethugepagesize();

		zone->page_bytes = normal > 0 ? (uint64_t)normal : n > 0 ? (uint64_t)sizes[0] : 0;
	}
	for (int i = 0; i < n; i++) {
		if ((uint64_t)sizes[i] == zone->page_bytes)
			return true;
		length = append(known, sizeof(known), length, ", ",
				config_format_size((uint64_t)sizes[i], text));
	}
	config_mistake(draft, place,
		       "page-size = %s: this machine has no huge pages of that size; expected %s%s",
		       config_format_size(zone->page_bytes, text), n ? "one of " : "",
		       n ? known : "backing = shmem");
	return false;
}

static bool check_page(struct config_draft *draft, const struct config_section_draft *at,
		       struct config_zone *zone)
{
	struct config_place place = place_of(at, ZONE_PAGE_SIZE);
	char text[CONFIG_SIZE_TEXT_MAX];

	if (zone->backing != CONFIG_BACKING_SHMEM)
		return check_hugetlb_page(draft, place, zone);
	if (!at->key[ZONE_PAGE_SIZE].file)
		zone->page_bytes = SHMEM_PAGE_BYTES;
	if (is_power_of_two(zone->page_bytes) &&
	    zone->page_bytes % (uint64_t)sysconf(_SC_PAGESIZE) == 0)
		return true;
	config_mistake(draft, place,
		       "page-size = %s: expected a power of two, at least this machine's %ld",
		       config_format_size(zone->page_bytes, text), sysconf(_SC_PAGESIZE));
	return false;
}

static bool check_block(struct config_draft *draft, const struct config_section_draft *at,
			struct config_zone *zone)
{
	char block[CONFIG_SIZE_TEXT_MAX], page[CONFIG_SIZE_TEXT_MAX], most[CONFIG_SIZE_TEXT_MAX];

	if (!at->key[ZONE_BLOCK_SIZE].file)
		zone->block_bytes = zone->page_bytes > DEFAULT_BLOCK_BYTES ? zone->page_bytes
									   : DEFAULT_BLOCK_BYTES;
	if (zone->block_bytes % zone->page_bytes == 0 &&
	    is_power_of_two(zone->block_bytes / zone->page_bytes) &&
	    zone->block_bytes / zone->page_bytes <= UINT64_C(1) << HP_MAX_ORDER)
		return true;
	config_mistake(
		draft, place_of(at, ZONE_BLOCK_SIZE),
		"block-size = %s: expected the page size (%s) times a power of two, at most %s",
		config_format_size(zone->block_bytes, block),
		config_format_size(zone->page_bytes, page),
		config_format_size(zone->page_bytes << HP_MAX_ORDER, most));
	return false;
}

static uint64_t block_that_would_do(const struct config_zone *zone)
{
	uint64_t block = zone->block_bytes;

	while (zone->max_bytes / block > HP_ZONE_BLOCKS_MAX)
		block *= 2;
	return block;
}

/* Tables are made for the most that it may become. */
static bool check_max_size(struct config_draft *draft, const struct config_section_draft *at,
			   struct config_zone *zone)
{
	bool given = at->key[ZONE_MAX_SIZE].file;
	struct config_place place = place_of(at, given ? ZONE_MAX_SIZE : ZONE_SIZE);
	const char *what = given ? "max-size" : "size";
	char max[CONFIG_SIZE_TEXT_MAX], block[CONFIG_SIZE_TEXT_MAX], other[CONFIG_SIZE_TEXT_MAX];

	config_format_size(zone->max_bytes, max);
	config_format_size(zone->block_bytes, block);
	if (zone->max_bytes % zone->block_bytes || zone->max_bytes < zone->size_bytes) {
		config_mistake(
			draft, place,
			"max-size = %s: expected a multiple of the block size of %s, not below "
			"the size of %s",
			max, block, config_format_size(zone->size_bytes, other));
		return false;
	}
	if (zone->max_bytes / zone->block_bytes > HP_ZONE_BLOCKS_MAX) {
		config_mistake(
			draft, place,
			"%s = %s: %" PRIu64
			" blocks of %s; expected at most %d blocks: block-size = %s would do",
			what, max, zone->max_bytes / zone->block_bytes, block, HP_ZONE_BLOCKS_MAX,
			config_format_size(block_that_would_do(zone), other));
		return false;
	}
	if (zone->max_bytes / zone->page_bytes > HP_ZONE_MAX_PAGES) {
		config_mistake(draft, place, "%s = %s: expected at most %u pages", what, max,
			       HP_ZONE_MAX_PAGES);
		return false;
	}
	return true;
}

static bool check_size(struct config_draft *draft, const struct config_section_draft *at,
		       struct config_zone *zone)
{
	struct config_place place = place_of(at, ZONE_SIZE);
	char size[CONFIG_SIZE_TEXT_MAX], block[CONFIG_SIZE_TEXT_MAX];

	if (!at->key[ZONE_SIZE].file) {
		config_mistake(draft, place,
			       "[zone %s] has no size: expected size = a multiple of %s",
			       zone->name, config_format_size(zone->block_bytes, block));
		return false;
	}
	config_format_size(zone->size_bytes, size);
	config_format_size(zone->block_bytes, block);
	if (!zone->size_bytes || zone->size_bytes % zone->block_bytes) {
		config_mistake(draft, place,
			       "size = %s: expected a multiple of the block size of %s", size,
			       block);
		return false;
	}
	if (!at->key[ZONE_MAX_SIZE].file)
		zone->max_bytes = zone->size_bytes;
	return check_max_size(draft, at, zone);
}

static void check_node(struct config_draft *draft, const struct config_section_draft *at,
		       const struct config_zone *zone)
{
	char path[64];

	if (zone->node < 0)
		return;
	(void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", zone->node);
	if (access(path, F_OK) < 0)
		config_mistake(
			draft, place_of(at, ZONE_NODE),
			"node = %d: this machine has no such node; see /sys/devices/system/node",
			zone->node);
}

/* Return: false for a size that is not a whole number of blocks, or more than `most`, with a message. */
static bool to_blocks(struct config_draft *draft, const struct config_amount *amount,
		      const char *what, const struct config_zone *zone, uint32_t most,
		      uint32_t *ret)
{
	char value[CONFIG_SIZE_TEXT_MAX], block[CONFIG_SIZE_TEXT_MAX];
	uint64_t blocks = amount->value;

	if (amount->in_bytes) {
		if (amount->value % zone->block_bytes) {
			config_mistake(draft, amount->place,
				       "%s = %s: expected a multiple of zone %s's block size of %s",
				       what, config_format_size(amount->value, value), zone->name,
				       config_format_size(zone->block_bytes, block));
			return false;
		}
		blocks = amount->value / zone->block_bytes;
	}
	if (blocks > most) {
		config_mistake(draft, amount->place,
			       "%s: %" PRIu64 " blocks; expected at most the %u blocks of zone %s",
			       what, blocks, most, zone->name);
		return false;
	}
	*ret = (uint32_t)blocks;
	return true;
}

/* Watermarks that were left out move to make room for those that were not. */
static void check_clean(struct config_draft *draft, size_t z)
{
	static const char *const names[] = {"clean-min", "clean-low", "clean-high"};
	const struct config_section_draft *at = &draft->zones[z];
	struct config_zone *zone = &draft->config->zones[z];
	uint32_t n = nr_blocks(zone), mark[3] = {n / 32, n / 16, n / 8};
	bool given[3];

	if (!mark[1])
		mark[1] = 1;
	if (!mark[2])
		mark[2] = 1;
	for (int i = 0; i < 3; i++) {
		struct config_amount amount = draft->clean[z][i];

		given[i] = at->key[ZONE_CLEAN_MIN + i].file;
		amount.place = at->key[ZONE_CLEAN_MIN + i];
		if (given[i] && !to_blocks(draft, &amount, names[i], zone, n, &mark[i]))
			return;
	}
	for (int i = 1; i < 3; i++)
		if (!given[i] && mark[i] < mark[i - 1])
			mark[i] = mark[i - 1];
	for (int i = 1; i >= 0; i--)
		if (!given[i] && mark[i] > mark[i + 1])
			mark[i] = mark[i + 1];
	for (int i = 0; i < 2; i++) {
		if (mark[i] <= mark[i + 1])
			continue;
		config_mistake(
			draft, place_of(at, ZONE_CLEAN_MIN + (given[i] ? i : i + 1)),
			"%s = %u blocks, %s = %u blocks: expected clean-min <= clean-low <= clean-high",
			names[i], mark[i], names[i + 1], mark[i + 1]);
		return;
	}
	zone->clean_min = mark[0];
	zone->clean_low = mark[1];
	zone->clean_high = mark[2];
}

/* Return: whether the zone has a geometry that quotas can be compared with. */
static bool check_zone(struct config_draft *draft, size_t z)
{
	const struct config_section_draft *at = &draft->zones[z];
	struct config_zone *zone = &draft->config->zones[z];

	if (at->spoiled)
		return false;
	if (zone->backing != CONFIG_BACKING_HUGETLB && zone->grow)
		config_mistake(draft, place_of(at, ZONE_GROW),
			       "grow-nr-hugepages = yes: expected backing = hugetlb in [zone %s]",
			       zone->name);
	check_node(draft, at, zone);
	if (!check_page(draft, at, zone) || !check_block(draft, at, zone) ||
	    !check_size(draft, at, zone))
		return false;
	check_clean(draft, z);
	return true;
}

/* --- tenants ---------------------------------------------------------------------------------- */

/* One tenant for each uid. */
static void check_tenant_uid(struct config_draft *draft, size_t t)
{
	const struct config_tenant *tenants = draft->config->tenants;
	const struct config_section_draft *at = draft->tenants;

	for (size_t i = 0; i < t; i++) {
		if (!tenants[i].has_uid || tenants[i].uid != tenants[t].uid)
			continue;
		config_mistake(
			draft, at[t].key[TENANT_UID],
			"uid = %u is already that of [tenant %s] in %s:%u: expected one tenant for each uid",
			tenants[t].uid, tenants[i].name, at[i].key[TENANT_UID].file,
			at[i].key[TENANT_UID].line);
		return;
	}
}

/* A socket for each tenant, and none of the daemon's own. */
static void check_tenant_socket(struct config_draft *draft, size_t t)
{
	const struct config *config = draft->config;
	const struct config_tenant *tenants = config->tenants;
	const struct config_section_draft *at = draft->tenants;
	const struct {
		const char *path, *key;
	} own[] = {{config->socket, "socket"},
		   {config->admin_socket, "admin-socket"},
		   {config->setup_socket, "setup-socket"}};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i].path && strcmp(own[i].path, tenants[t].socket) == 0) {
			config_mistake(
				draft, at[t].key[TENANT_SOCKET],
				"socket = %s is already the %s of [daemon]: expected a path of its own",
				tenants[t].socket, own[i].key);
			return;
		}
	for (size_t i = 0; i < t; i++) {
		if (!tenants[i].socket || strcmp(tenants[i].socket, tenants[t].socket) != 0)
			continue;
		config_mistake(
			draft, at[t].key[TENANT_SOCKET],
			"socket = %s is already that of [tenant %s] in %s:%u: expected one socket for each tenant",
			tenants[t].socket, tenants[i].name, at[i].key[TENANT_SOCKET].file,
			at[i].key[TENANT_SOCKET].line);
		return;
	}
}

static void check_tenant(struct config_draft *draft, size_t t)
{
	struct config_tenant *tenant = &draft->config->tenants[t];
	const struct config_section_draft *at = &draft->tenants[t];

	if (!tenant->sessions)
		tenant->sessions = draft->config->defaults.sessions;
	if (!at->key[TENANT_SOCKET_MODE].file)
		tenant->socket_mode = DEFAULT_SOCKET_MODE;
	if (at->spoiled)
		return;
	tenant->has_uid = at->key[TENANT_UID].file;
	if (!tenant->has_uid && !tenant->socket) {
		config_mistake(
			draft, at->section,
			"[tenant %s] has no uid and no socket: expected uid = a user's number or name, or socket = a path",
			tenant->name);
		return;
	}
	for (unsigned key = TENANT_SOCKET_MODE; key <= TENANT_SOCKET_GROUP; key++)
		if (at->key[key].file && !tenant->socket)
			config_mistake(
				draft, at->key[key],
				"socket-%s: [tenant %s] has no socket of its own; expected socket = a path",
				key == TENANT_SOCKET_MODE ? "mode" : "group", tenant->name);
	if (tenant->has_uid)
		check_tenant_uid(draft, t);
	if (tenant->socket)
		check_tenant_socket(draft, t);
}

static struct config_tenant *tenant_of(struct config_draft *draft,
				       const struct config_quota_draft *quota)
{
	return quota->tenant == CONFIG_TENANT_DEFAULT ? &draft->config->defaults
						      : &draft->config->tenants[quota->tenant];
}

static void unknown_zone(struct config_draft *draft, const struct config_quota_draft *quota)
{
	char known[HP_ZONES_MAX * (CONFIG_NAME_MAX + 2) + 1] = "";
	size_t length = 0;

	for (size_t z = 0; z < draft->config->nr_zones; z++)
		length = append(known, sizeof(known), length, ", ", draft->config->zones[z].name);
	config_mistake(draft, quota->amount.place, "%s%s: unknown zone; expected one of %s",
		       quota->guarantee ? "guarantee." : "limit.", quota->zone,
		       *known ? known : "none: there is no [zone NAME]");
}

static void resolve_quota(struct config_draft *draft, const struct config_quota_draft *quota,
			  const bool usable[static HP_ZONES_MAX])
{
	struct config *config = draft->config;
	char what[CONFIG_NAME_MAX + 16];
	uint32_t blocks, most;
	size_t z = 0;

	while (z < config->nr_zones && strcmp(config->zones[z].name, quota->zone) != 0)
		z++;
	if (z == config->nr_zones) {
		unknown_zone(draft, quota);
		return;
	}
	(void)snprintf(what, sizeof(what), "%s%s", quota->guarantee ? "guarantee." : "limit.",
		       quota->zone);
	if (!usable[z])
		return;
	/* a limit may be meant for what the zone will grow to; a guarantee has to hold now */
	most = quota->guarantee ? nr_blocks(&config->zones[z]) : max_blocks(&config->zones[z]);
	if (!to_blocks(draft, &quota->amount, what, &config->zones[z], most, &blocks))
		return;

	struct config_quota *target = &tenant_of(draft, quota)->quota[z];
	target->given = true;
	if (quota->guarantee)
		target->guarantee_blocks = blocks;
	else
		target->limit_blocks = blocks;
}

static const struct config_quota_draft *find_quota(const struct config_draft *draft, size_t tenant,
						   const char *zone, bool guarantee)
{
	for (size_t i = 0; i < draft->nr_quotas; i++) {
		const struct config_quota_draft *quota = &draft->quotas[i];

		if (quota->tenant == tenant && quota->guarantee == guarantee &&
		    strcmp(quota->zone, zone) == 0)
			return quota;
	}
	return NULL;
}

/* The quotas of a zone: defaults where nothing was given, then limits against guarantees. */
static void check_quotas(struct config_draft *draft, size_t z)
{
	struct config *config = draft->config;
	const struct config_zone *zone = &config->zones[z];
	struct config_quota *normal = &config->defaults.quota[z];
	uint64_t guaranteed = 0;

	if (!find_quota(draft, CONFIG_TENANT_DEFAULT, zone->name, false))
		normal->limit_blocks = nr_blocks(zone) > 1 ? nr_blocks(zone) / 2 : 1;
	for (size_t t = 0; t < config->nr_tenants; t++) {
		struct config_quota *quota = &config->tenants[t].quota[z];
		const struct config_quota_draft *guarantee = find_quota(draft, t, zone->name, true);
		bool limited = find_quota(draft, t, zone->name, false);

		if (!limited)
			quota->limit_blocks = normal->limit_blocks;
		if (!guarantee)
			continue;
		if (quota->limit_blocks < quota->guarantee_blocks)
			config_mistake(
				draft, guarantee->amount.place,
				"guarantee.%s is %u blocks, limit.%s %u blocks%s: expected a limit not below the guarantee",
				zone->name, quota->guarantee_blocks, zone->name,
				quota->limit_blocks, limited ? "" : " (by default)");
		guaranteed += quota->guarantee_blocks;
		if (guaranteed > nr_blocks(zone) &&
		    guaranteed - quota->guarantee_blocks <= nr_blocks(zone))
			config_mistake(draft, guarantee->amount.place,
				       "guarantee.%s: the guarantees add up to %" PRIu64
				       " blocks with this one; expected at most the zone's %u",
				       zone->name, guaranteed, nr_blocks(zone));
	}
}

void config_check(struct config_draft *draft)
{
	struct config *config = draft->config;
	bool usable[HP_ZONES_MAX] = {false};

	daemon_defaults(draft);
	if (!config->nr_zones && !draft->mistakes)
		config_mistake(draft, (struct config_place){draft->path, 0},
			       "no zone: expected at least one section [zone NAME]");
	for (size_t z = 0; z < config->nr_zones; z++)
		usable[z] = check_zone(draft, z);
	if (!config->defaults.sessions)
		config->defaults.sessions = HP_SESSIONS_PER_TENANT_MAX;
	(void)snprintf(config->defaults.name, sizeof(config->defaults.name), "default");
	for (size_t t = 0; t < config->nr_tenants; t++)
		check_tenant(draft, t);
	for (size_t i = 0; i < draft->nr_quotas; i++)
		resolve_quota(draft, &draft->quotas[i], usable);
	for (size_t z = 0; z < config->nr_zones; z++)
		if (usable[z])
			check_quotas(draft, z);
}
