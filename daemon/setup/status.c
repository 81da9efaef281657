/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup status: what is set up, for whom, whether a daemon uses it, and what was added to
 * the machine's numbers. Looked up where it is true (namespace, locks, sysfs), not in the record.
 */
#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/hugepages.h"
#include "daemon/setup/namespace.h"
#include "daemon/setup/record.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct zone_status {
	char name[CONFIG_NAME_MAX + 1];
	uint64_t page_bytes, block_bytes;
	unsigned blocks, used;
};

struct status {
	bool pinned;
	struct setup_namespace ns;
	struct setup_record record;
	bool recorded;
	struct zone_status zones[HP_ZONES_MAX];
	unsigned nr_zones;
};

static int note_block(void *userdata, const char *name, unsigned block, int fd)
{
	struct status *status = userdata;
	struct zone_status *zone = status->zones + status->nr_zones - 1;
	struct blockfs_info info;
	int r;

	(void)block;
	if (!status->nr_zones || strcmp(zone->name, name) != 0) {
		if (status->nr_zones == HP_ZONES_MAX) {
			close(fd);
			return -E2BIG;
		}
		zone = &status->zones[status->nr_zones++];
		(void)snprintf(zone->name, sizeof(zone->name), "%s", name);
	}
	r = blockfs_info(fd, &info);
	if (r == 0) {
		zone->page_bytes = info.page_bytes;
		zone->block_bytes = info.page_bytes * info.pages;
		zone->blocks++;
		r = blockfs_in_use(fd);
	}
	close(fd);
	if (r > 0)
		zone->used++;
	return r < 0 ? r : 0;
}

static int look(struct status *status)
{
	int r, back;

	r = setup_record_load(&status->record);
	if (r < 0)
		return r;
	status->recorded = r;
	r = namespace_is_pinned(&status->ns);
	if (r <= 0)
		return r;
	status->pinned = true;
	r = namespace_enter(&status->ns);
	if (r < 0)
		return r;
	r = namespace_for_each_block(note_block, status);
	back = namespace_leave(&status->ns);
	return r < 0 ? r : back;
}

static json_t *zones_json(const struct status *status)
{
	json_t *zones = json_array();

	for (unsigned i = 0; i < status->nr_zones; i++) {
		const struct zone_status *z = &status->zones[i];

		json_array_append_new(zones,
				      json_pack("{s:s, s:I, s:I, s:i, s:i}", "name", z->name,
						"page_bytes", (json_int_t)z->page_bytes,
						"block_bytes", (json_int_t)z->block_bytes, "blocks",
						z->blocks, "blocks_in_use", z->used));
	}
	return zones;
}

static json_t *pages_json(const struct status *status)
{
	json_t *pages = json_array();

	for (uint32_t i = 0; i < status->record.nr; i++) {
		const struct setup_change *c = &status->record.changes[i];
		struct hugepages_counts now = {0};

		if (hugepages_read(c->page_bytes, c->node, &now) < 0)
			continue;
		json_array_append_new(pages,
				      json_pack("{s:I, s:i, s:I, s:I, s:I, s:I, s:I}", "page_bytes",
						(json_int_t)c->page_bytes, "node", c->node, "added",
						(json_int_t)c->added, "total",
						(json_int_t)now.total, "free", (json_int_t)now.free,
						"reserved", (json_int_t)now.reserved, "surplus",
						(json_int_t)now.surplus));
	}
	return pages;
}

static int print_json(const struct status *status)
{
	json_t *root =
		json_pack("{s:b, s:s, s:o, s:o}", "up", status->pinned, "namespace", status->ns.pin,
			  "zones", zones_json(status), "pages", pages_json(status));
	int r = -1;

	if (root && status->recorded)
		json_object_set_new(root, "uid", json_integer((json_int_t)status->record.uid));
	if (root)
		r = json_dumpf(root, stdout, JSON_INDENT(2));
	json_decref(root);
	(void)putchar('\n');
	return r < 0 ? setup_fail("out of memory") : 0;
}

static int print_text(const struct status *status)
{
	char block[CONFIG_SIZE_TEXT_MAX], page[CONFIG_SIZE_TEXT_MAX];

	if (!status->pinned)
		(void)printf("not set up: no namespace at %s\n", status->ns.pin);
	else if (!status->recorded)
		(void)printf("set up, but for whom is not recorded: namespace %s\n",
			     status->ns.pin);
	else
		(void)printf("set up for uid %u: namespace %s\n", status->record.uid,
			     status->ns.pin);
	for (unsigned i = 0; i < status->nr_zones; i++) {
		const struct zone_status *z = &status->zones[i];

		(void)printf(
			"zone %s: %u blocks of %s, pages of %s, %u blocks in use by a daemon\n",
			z->name, z->blocks, config_format_size(z->block_bytes, block),
			config_format_size(z->page_bytes, page), z->used);
	}
	for (uint32_t i = 0; i < status->record.nr; i++) {
		const struct setup_change *c = &status->record.changes[i];

		(void)printf("huge pages of %s%s: %" PRIu64 " added\n",
			     config_format_size(c->page_bytes, page),
			     c->node < 0 ? "" : " (one node)", c->added);
	}
	return 0;
}

int setup_status(const struct setup_options *options)
{
	static struct status status; /* once, and large */
	int r;

	r = namespace_open(&status.ns, options->config->namespace_path, NAMESPACE_LOOK);
	if (r < 0 && r != -ENOENT)
		return setup_fail("%s: %s", options->config->namespace_path, strerror(-r));
	if (r == 0) {
		setup_record_init(&status.record, status.ns.dirfd, 0);
		r = look(&status);
		namespace_close(&status.ns);
		if (r < 0)
			return setup_fail("cannot look at the set-up: %s", strerror(-r));
	}
	return options->json ? print_json(&status) : print_text(&status);
}
