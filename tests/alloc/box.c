/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything here ends the program when it fails: a box is what a test stands on, not what it
 * tests.
 */
#include "tests/alloc/box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUBBISH 0xa5

static void die(const char *what)
{
	fprintf(stderr, "box: %s\n", what);
	abort();
}

static void *memory_new(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

	if (!p)
		die("out of memory");
	memset(p, RUBBISH, bytes);
	return p;
}

void box_init_bare(struct box *box, const struct hp_zone_config *config)
{
	*box = (struct box){.config = *config};
	if (hp_zone_sizes(config, &box->durable_bytes, &box->scratch_bytes) != 0)
		die("hp_zone_sizes refused the configuration");
	if (box->durable_bytes % 64 != 0 || box->scratch_bytes % 64 != 0)
		die("sizes are not multiples of 64");
	box->zone = memory_new(hp_zone_struct_size());
	box->durable = memory_new(box->durable_bytes);
	box->scratch = memory_new(box->scratch_bytes);
	memset(box->durable, 0, box->durable_bytes);
	box->nr_blocks = ((config->nr_pages - 1) >> config->pageblock_order) + 1;
	box->blocks = box->durable;
	box->leases = box->blocks + box->nr_blocks;
}

void box_init(struct box *box, const struct hp_zone_config *config)
{
	box_init_bare(box, config);
	memset(box->durable, RUBBISH, box->durable_bytes);
	if (hp_zone_init(box->zone, config, box->durable, box->scratch) != 0)
		die("hp_zone_init failed");
	if (hp_zone_nr_blocks(box->zone) != box->nr_blocks)
		die("hp_zone_nr_blocks is wrong");
}

void box_init_online(struct box *box, const struct hp_zone_config *config)
{
	box_init(box, config);
	for (uint32_t b = 0; b < box->nr_blocks; b++) {
		if (hp_zone_online(box->zone, b, 1) != 0)
			die("hp_zone_online failed");
	}
}

void box_deinit(struct box *box)
{
	hp_zone_deinit(box->zone);
	free(box->zone);
	free(box->durable);
	free(box->scratch);
	*box = (struct box){0};
}

int box_rebuild(struct box *box, const struct hp_rebuild_ops *ops, struct hp_rebuild_stats *ret)
{
	memset(box->scratch, RUBBISH, box->scratch_bytes);
	memset((void *)box->zone, RUBBISH, hp_zone_struct_size());
	return hp_zone_rebuild(box->zone, &box->config, box->durable, box->scratch, ops, ret);
}

static void print_violation(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "hp_zone_check: %s\n", message);
}

unsigned box_check(const struct box *box)
{
	return hp_zone_check(box->zone, print_violation, NULL);
}

struct hp_lease_word box_lease(const struct box *box, hp_pfn_t pfn)
{
	return hp_lease_decode(hp_durable_load(&box->leases[pfn]));
}

struct hp_block_word box_block(const struct box *box, uint32_t block)
{
	return hp_block_decode(hp_durable_load(&box->blocks[block]));
}

struct hp_pcp *box_pcp_new(struct box *box, uint32_t owner)
{
	struct hp_pcp *pcp = NULL;
	void *memory = memory_new(hp_pcp_size(box->zone));

	if (hp_pcp_init(&pcp, memory, box->zone, owner) != 0)
		die("hp_pcp_init failed");
	if ((void *)pcp != memory)
		die("hp_pcp_init gives something else than the memory it was given");
	return pcp;
}

void box_pcp_free(struct hp_pcp *pcp)
{
	hp_pcp_deinit(pcp);
	free(pcp);
}

void box_pcp_forget(struct hp_pcp *pcp)
{
	free(pcp);
}

void box_copy_take(struct box_copy *copy, const struct box *box)
{
	copy->durable = memory_new(box->durable_bytes);
	copy->scratch = memory_new(box->scratch_bytes);
	memcpy(copy->durable, box->durable, box->durable_bytes);
	memcpy(copy->scratch, box->scratch, box->scratch_bytes);
}

/* Says where the first difference is: it is hard to find later. */
static bool same(const char *name, const unsigned char *was, const unsigned char *is, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (was[i] == is[i])
			continue;
		fprintf(stderr, "box: byte %zu of %zu of the %s memory was %02x, is %02x\n", i,
			bytes, name, was[i], is[i]);
		return false;
	}
	return true;
}

bool box_copy_same(const struct box_copy *copy, const struct box *box)
{
	return same("durable", copy->durable, box->durable, box->durable_bytes) &&
	       same("scratch", copy->scratch, box->scratch, box->scratch_bytes);
}

void box_copy_drop(struct box_copy *copy)
{
	free(copy->durable);
	free(copy->scratch);
	*copy = (struct box_copy){0};
}
