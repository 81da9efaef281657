/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts: who may have how many blocks.
 *
 * Blocks are charged, not pages: a single page kept in a block keeps the whole block from
 * everybody else. A guarantee is kept by leaving clean blocks alone, so what all unmet guarantees
 * add up to is counted with each change, and a claim looks at two numbers only.
 */
#include "alloc/pageblock.h"

#include <errno.h>

static bool is_charged(enum hp_block_state state)
{
	return state >= HP_BLOCK_LIVE && state <= HP_BLOCK_LENT;
}

static uint32_t unmet(const struct hp_owner *account)
{
	return account->guarantee > account->held ? account->guarantee - account->held : 0;
}

static void set_held(struct hp_zone *zone, struct hp_owner *account, uint32_t held)
{
	zone->unmet_blocks -= unmet(account);
	account->held = held;
	zone->unmet_blocks += unmet(account);
}

static struct hp_owner *account_of(struct hp_zone *zone, uint32_t owner)
{
	return hp_owner_get(zone, hp_owner_get(zone, owner)->account);
}

void hp_account_charge(struct hp_zone *zone, uint32_t owner, enum hp_block_state state, int change)
{
	struct hp_owner *account = account_of(zone, owner);

	if (!is_charged(state))
		return;
	hp_owner_get(zone, owner)->charged += (uint32_t)change;
	set_held(zone, account, account->held + (uint32_t)change);
}

/* Clean blocks that are not needed for the guarantees of other accounts. */
static uint32_t available(const struct hp_zone *zone, const struct hp_owner *account)
{
	uint32_t reserved = zone->unmet_blocks - unmet(account);
	uint32_t clean = zone->blocks_in[HP_BLOCK_CLEAN];

	return clean > reserved ? clean - reserved : 0;
}

static uint32_t below_limit(const struct hp_owner *account)
{
	return account->limit > account->held ? account->limit - account->held : 0;
}

int hp_account_check(struct hp_zone *zone, uint32_t owner, uint32_t n)
{
	const struct hp_owner *account = account_of(zone, owner);

	if (n > available(zone, account))
		return HP_NO_ROOM;
	return n > below_limit(account) ? HP_OVER_LIMIT : 0;
}

uint32_t hp_account_claimable(struct hp_zone *zone, uint32_t owner)
{
	const struct hp_owner *account = account_of(zone, owner);
	uint32_t a = available(zone, account), b = below_limit(account);

	return a < b ? a : b;
}

uint32_t hp_account_limit(struct hp_zone *zone, uint32_t owner)
{
	uint32_t account = __atomic_load_n(&hp_owner_get(zone, owner)->account, __ATOMIC_RELAXED);

	return __atomic_load_n(&hp_owner_get(zone, account)->limit, __ATOMIC_RELAXED);
}

void hp_zone_owner_set_account(struct hp_zone *zone, uint32_t number, uint32_t account)
{
	if (number >= zone->config.nr_owners || account >= zone->config.nr_owners)
		return;
	hp_zone_lock(zone);
	struct hp_owner *owner = hp_owner_get(zone, number);
	struct hp_owner *from = account_of(zone, number), *to = hp_owner_get(zone, account);

	set_held(zone, from, from->held - owner->charged);
	set_held(zone, to, to->held + owner->charged);
	__atomic_store_n(&owner->account, account, __ATOMIC_RELAXED); /* see below */
	hp_zone_unlock(zone);
}

uint32_t hp_zone_owner_account(const struct hp_zone *zone, uint32_t owner)
{
	const struct hp_owner *o = hp_owner_get((struct hp_zone *)(uintptr_t)zone, owner);

	return __atomic_load_n(&o->account, __ATOMIC_RELAXED);
}

uint32_t hp_zone_owner_blocks(struct hp_zone *zone, uint32_t owner)
{
	uint32_t blocks = 0;

	if (owner >= zone->config.nr_owners)
		return 0;
	hp_zone_lock(zone);
	blocks = hp_owner_get(zone, owner)->charged;
	hp_zone_unlock(zone);
	return blocks;
}

int hp_zone_account_set_quota(struct hp_zone *zone, uint32_t number, uint32_t limit_blocks,
			      uint32_t guarantee_blocks)
{
	if (number >= zone->config.nr_owners || guarantee_blocks > limit_blocks)
		return -EINVAL;
	hp_zone_lock(zone);
	struct hp_owner *account = hp_owner_get(zone, number);
	uint64_t sum = (uint64_t)zone->guaranteed_blocks - account->guarantee + guarantee_blocks;

	if (sum > zone->size_blocks) {
		hp_zone_unlock(zone);
		return HP_BUSY;
	}
	zone->guaranteed_blocks = (uint32_t)sum;
	zone->unmet_blocks -= unmet(account);
	__atomic_store_n(&account->limit, limit_blocks, __ATOMIC_RELAXED);
	account->guarantee = guarantee_blocks;
	zone->unmet_blocks += unmet(account);
	hp_zone_unlock(zone);
	return 0;
}

int hp_zone_set_size(struct hp_zone *zone, uint32_t blocks, uint32_t *ret_guaranteed_blocks)
{
	int r = 0;

	if (blocks > zone->nr_blocks)
		return HP_OUT_OF_RANGE;
	hp_zone_lock(zone);
	*ret_guaranteed_blocks = zone->guaranteed_blocks;
	if (blocks < zone->guaranteed_blocks)
		r = HP_BUSY;
	else
		zone->size_blocks = blocks;
	hp_zone_unlock(zone);
	return r;
}

void hp_zone_account_stats(struct hp_zone *zone, uint32_t number, struct hp_account_stats *ret)
{
	*ret = (struct hp_account_stats){0};
	if (number >= zone->config.nr_owners)
		return;
	hp_zone_lock(zone);
	const struct hp_owner *account = hp_owner_get(zone, number);
	uint32_t a = available(zone, account), b = below_limit(account);

	*ret = (struct hp_account_stats){
		.held_blocks = account->held,
		.limit_blocks = account->limit,
		.guarantee_blocks = account->guarantee,
		.claimable_blocks = a < b ? a : b,
	};
	hp_zone_unlock(zone);
}
