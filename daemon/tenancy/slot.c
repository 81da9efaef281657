/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An array by number, because a lease word has 18 bits for its holder and no pointer; numbers that
 * are free wait on a stack, the last one used on top, so that a daemon with few sessions touches
 * little of it. States are counted as they change: looks at the whole table are for lists only.
 */
#include "daemon/tenancy/slot.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/tenancy/clock.h"
_Static_assert(HP_SLOTS_MAX <= HP_SLOT_MAX, "a slot's number has to fit the lease word");

struct slots {
	pthread_mutex_t lock;
	struct tenants *tenants;
	uint64_t last_session;
	uint32_t in_state[SLOT_STATES]; /* how many slots up to `used` */
	uint32_t used;			/* slots above this number were never in use */
	uint32_t nr_free;		/* on the stack */
	uint32_t free[HP_SLOTS_MAX];
	struct slot slot[HP_SLOTS_MAX + 1]; /* [0] is nobody */
};

static const uint8_t transitions[SLOT_STATES] = {
	[SLOT_FREE] = 1 << SLOT_OPEN,
	[SLOT_OPEN] = 1 << SLOT_CONDEMNED | 1 << SLOT_ORPHANED | 1 << SLOT_CLOSING,
	[SLOT_CONDEMNED] = 1 << SLOT_CLOSING,
	[SLOT_ORPHANED] = 1 << SLOT_CLOSING,
	[SLOT_CLOSING] = 1 << SLOT_FREE,
};

const char *slot_state_name(enum slot_state state)
{
	static const char *const names[SLOT_STATES] = {
		[SLOT_FREE] = "free",		[SLOT_OPEN] = "open",
		[SLOT_CONDEMNED] = "condemned", [SLOT_ORPHANED] = "orphaned",
		[SLOT_CLOSING] = "closing",
	};

	return names[state];
}

int slots_new(struct slots **ret, struct tenants *tenants)
{
	struct slots *slots = calloc(1, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	pthread_mutex_init(&slots->lock, NULL);
	slots->tenants = tenants;
	*ret = slots;
	return 0;
}

struct slots *slots_free(struct slots *slots)
{
	if (!slots)
		return NULL;
	pthread_mutex_destroy(&slots->lock);
	free(slots);
	return NULL;
}

/* Under the lock. */
static void set_state(struct slots *slots, struct slot *slot, enum slot_state state)
{
	enum slot_state old = slot->state;

	assert(transitions[old] & 1 << state);
	slots->in_state[old]--;
	slots->in_state[state]++;
	atomic_store_explicit(&slot->state, state, memory_order_release);
}

/* Under the lock. Return: NULL if all are in use. */
static struct slot *take_free(struct slots *slots)
{
	if (slots->nr_free)
		return &slots->slot[slots->free[--slots->nr_free]];
	if (slots->used == HP_SLOTS_MAX)
		return NULL;
	slots->in_state[SLOT_FREE]++;
	return &slots->slot[++slots->used];
}

int slots_open(struct slots *slots, struct tenant *tenant, const struct process *process,
	       const char *name, struct slot **ret)
{
	uint8_t token[SLOT_TOKEN_BYTES];
	struct slot *slot;

	if (getrandom(token, sizeof(token), 0) != sizeof(token))
		return -EIO;
	if (tenants_hold(slots->tenants, tenant))
		return SLOT_TOO_MANY_OF_TENANT;

	pthread_mutex_lock(&slots->lock);
	slot = take_free(slots);
	if (slot) {
		slot->number = (uint32_t)(slot - slots->slot);
		slot->session = ++slots->last_session;
		slot->tenant = tenant;
		slot->process = *process;
		memcpy(slot->token, token, sizeof(token));
		snprintf(slot->name, sizeof(slot->name), "%s", name);
		slot->opened_ms = clock_now_ms();
		slot->leases = 0;
		slot->attached_bytes = 0;
		for (size_t i = 0; i < HP_ZONES_MAX; i++)
			slot->pages[i] = 0;
		set_state(slots, slot, SLOT_OPEN);
		*ret = slot;
	}
	pthread_mutex_unlock(&slots->lock);
	if (!slot) {
		tenants_unhold(slots->tenants, tenant);
		return SLOT_TOO_MANY;
	}
	return 0;
}

void slots_set_state(struct slots *slots, struct slot *slot, enum slot_state state)
{
	pthread_mutex_lock(&slots->lock);
	set_state(slots, slot, state);
	pthread_mutex_unlock(&slots->lock);
}

void slots_close(struct slots *slots, struct slot *slot)
{
	struct tenant *tenant = slot->tenant;

	pthread_mutex_lock(&slots->lock);
	set_state(slots, slot, SLOT_FREE);
	slots->free[slots->nr_free++] = slot->number;
	pthread_mutex_unlock(&slots->lock);
	tenants_unhold(slots->tenants, tenant);
}

uint32_t slots_count(struct slots *slots, enum slot_state state)
{
	uint32_t count;

	pthread_mutex_lock(&slots->lock);
	count = slots->in_state[state];
	pthread_mutex_unlock(&slots->lock);
	return count;
}

uint64_t slots_condemned_pages(struct slots *slots, size_t zone_id)
{
	uint64_t pages = 0;

	pthread_mutex_lock(&slots->lock);
	for (uint32_t i = 1; slots->in_state[SLOT_CONDEMNED] && i <= slots->used; i++)
		if (slots->slot[i].state == SLOT_CONDEMNED)
			pages += slots->slot[i].pages[zone_id];
	pthread_mutex_unlock(&slots->lock);
	return pages;
}

int slots_look(struct slots *slots, uint32_t from, slot_look_fn fn, void *userdata)
{
	int rc = 0;

	pthread_mutex_lock(&slots->lock);
	for (uint32_t i = from ? from : 1; i <= slots->used && !rc; i++)
		if (slots->slot[i].state != SLOT_FREE)
			rc = fn(userdata, &slots->slot[i]);
	pthread_mutex_unlock(&slots->lock);
	return rc;
}

int slots_look_one(struct slots *slots, uint32_t number, slot_look_fn fn, void *userdata)
{
	int rc = 0;

	pthread_mutex_lock(&slots->lock);
	if (number && number <= slots->used && slots->slot[number].state != SLOT_FREE)
		rc = fn(userdata, &slots->slot[number]);
	pthread_mutex_unlock(&slots->lock);
	return rc;
}
