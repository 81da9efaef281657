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

#include "daemon/log.h"
#include "daemon/pool/state.h"
#include "daemon/tenancy/clock.h"

_Static_assert(HP_SLOTS_MAX <= HP_SLOT_MAX, "a slot's number has to fit the lease word");

struct slots {
	pthread_mutex_t lock;
	struct tenants *tenants;
	struct state *state;
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
	[SLOT_CONDEMNED] = 1 << SLOT_OPEN | 1 << SLOT_CLOSING,
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

int slots_new(struct slots **ret, struct tenants *tenants, struct pool *pool)
{
	struct slots *slots = calloc(1, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	pthread_mutex_init(&slots->lock, NULL);
	slots->tenants = tenants;
	slots->state = pool_state(pool);
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

/* Under the lock. The record follows, or has been written already. */
static void note_state(struct slots *slots, struct slot *slot, enum slot_state state)
{
	slots->in_state[slot->state]--;
	slots->in_state[state]++;
	atomic_store_explicit(&slot->state, state, memory_order_release);
}

/* Under the lock. */
static void set_state(struct slots *slots, struct slot *slot, enum slot_state state)
{
	enum slot_state old = slot->state;

	assert(transitions[old] & 1 << state);
	state_set(slots->state, STATE_SESSIONS, slot->number, state);
	note_state(slots, slot, state);
}

/* --- records ---------------------------------------------------------------------------------- */

static void write_record(struct slots *slots, const struct slot *slot)
{
	struct state_session record = {
		.owner = slot->tenant->owner,
		.number = slot->session,
		.pid_uid = (uint64_t)slot->process.pid << 32 | slot->process.uid,
		.start_ticks = slot->process.start_ticks,
		.pidfd_inode = slot->process.pidfd_inode,
		.opened_ms = slot->opened_ms,
	};

	memcpy(record.token, slot->token, sizeof(record.token));
	state_put_text(record.command, sizeof(record.command) / 8, slot->process.command);
	state_put_text(record.name, STATE_NAME_WORDS, slot->name);
	state_put(slots->state, STATE_SESSIONS, slot->number, &record, SLOT_OPEN);
}

static void read_record(struct slots *slots, struct slot *slot)
{
	const struct state_session *record =
		state_record(slots->state, STATE_SESSIONS, slot->number);
	char text[8 * STATE_NAME_WORDS];

	slot->session = record->number;
	slot->process = (struct process){
		.pid = (pid_t)(record->pid_uid >> 32),
		.uid = (uid_t)record->pid_uid,
		.start_ticks = record->start_ticks,
		.pidfd_inode = record->pidfd_inode,
	};
	state_get_text(text, record->command, sizeof(record->command) / 8);
	snprintf(slot->process.command, sizeof(slot->process.command), "%.*s", PROCESS_COMMAND_MAX,
		 text);
	state_get_text(text, record->name, STATE_NAME_WORDS);
	snprintf(slot->name, sizeof(slot->name), "%.*s", HP_NAME_MAX, text);
	memcpy(slot->token, record->token, sizeof(slot->token));
	slot->opened_ms = record->opened_ms;
}

/* What its record says, or free. Damage has cost the blocks of its leases, which nobody names now. */
static enum slot_state restored_state(struct slots *slots, uint32_t number)
{
	const struct state_session *record = state_record(slots->state, STATE_SESSIONS, number);
	uint32_t state;
	int r = state_get(slots->state, STATE_SESSIONS, number, &state);

	if (r == 0 && state == SLOT_FREE)
		return SLOT_FREE;
	if (r == 0 && state < SLOT_STATES &&
	    state_owner_of_slot(slots->state, number) != HP_OWNER_NONE)
		return state;
	log_warning("taking over: record of a session is damaged, dropped slot=%u number=%llu",
		    number, (unsigned long long)record->number);
	state_set(slots->state, STATE_SESSIONS, number, STATE_FREE);
	return SLOT_FREE;
}

static void restore(struct slots *slots, struct slot *slot, enum slot_state state)
{
	uint32_t owner = state_owner_of_slot(slots->state, slot->number);

	slot->tenant = tenants_hold_restored(slots->tenants, owner);
	read_record(slots, slot);
	if (slot->session > slots->last_session)
		slots->last_session = slot->session;
	note_state(slots, slot, state);
	if (state == SLOT_OPEN)
		set_state(slots, slot, SLOT_CONDEMNED);
}

void slots_restore(struct slots *slots)
{
	enum slot_state state;

	pthread_mutex_lock(&slots->lock);
	for (uint32_t i = HP_SLOTS_MAX; i > 0; i--) {
		state = restored_state(slots, i);
		if (state == SLOT_FREE && !slots->used)
			continue;
		if (!slots->used) {
			slots->used = i;
			slots->in_state[SLOT_FREE] = i;
		}
		slots->slot[i].number = i;
		if (state == SLOT_FREE)
			slots->free[slots->nr_free++] = i;
		else
			restore(slots, &slots->slot[i], state);
	}
	pthread_mutex_unlock(&slots->lock);
}

/* --- one slot --------------------------------------------------------------------------------- */

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
		memcpy(token, &slot->number, sizeof(slot->number)); /* where to look it up */
		slot->session = ++slots->last_session;
		slot->tenant = tenant;
		slot->process = *process;
		memcpy(slot->token, token, sizeof(token));
		snprintf(slot->name, sizeof(slot->name), "%s", name);
		slot->opened_ms = clock_now_ms();
		slot->leases = 0;
		slot->attached_bytes = 0;
		for (size_t i = 0; i < HP_ZONES_MAX; i++)
			slot->pages[i] = slot->revoked_pages[i] = 0;
		slot->connected = true;
		slot->expired = false;
		slot->turn++;
		slot->keeper = NULL;
		write_record(slots, slot);
		note_state(slots, slot, SLOT_OPEN);
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

struct slot *slots_find(struct slots *slots, uint32_t number)
{
	struct slot *slot = NULL;

	pthread_mutex_lock(&slots->lock);
	if (number && number <= slots->used && slots->slot[number].state != SLOT_FREE)
		slot = &slots->slot[number];
	pthread_mutex_unlock(&slots->lock);
	return slot;
}

void slots_break(struct slots *slots, struct slot *slot, unsigned worker, void *keeper)
{
	pthread_mutex_lock(&slots->lock);
	if (slot->state == SLOT_OPEN)
		set_state(slots, slot, SLOT_CONDEMNED);
	slot->connected = false;
	slot->keeper_worker = worker;
	slot->keeper = keeper;
	pthread_mutex_unlock(&slots->lock);
}

/* Takes as long whatever the first byte is that differs. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
	uint8_t differs = 0;

	for (size_t i = 0; i < SLOT_TOKEN_BYTES; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* By policy each connection may be a tenant of its own. */
static bool may_be_of(const struct tenant *tenant, const struct slot *slot)
{
	return slot->tenant == tenant ||
	       (slot->tenant->origin == TENANT_OF_SESSION && tenant->origin == TENANT_OF_SESSION &&
		slot->tenant->uid == tenant->uid);
}

/* Under the lock. */
static int may_resume(const struct slot *slot, const uint8_t token[SLOT_TOKEN_BYTES],
		      const struct tenant *tenant, const struct process *process)
{
	if (slot->state == SLOT_FREE || slot->state == SLOT_CLOSING ||
	    !same_token(slot->token, token) || !may_be_of(tenant, slot))
		return SLOT_UNKNOWN;
	if (slot->state == SLOT_ORPHANED ? slot->process.uid != process->uid
					 : !process_is_same(&slot->process, process))
		return SLOT_UNKNOWN;
	if (slot->connected)
		return SLOT_CONNECTED;
	return slot->expired ? SLOT_EXPIRED : 0;
}

int slots_resume(struct slots *slots, const uint8_t token[SLOT_TOKEN_BYTES],
		 const struct tenant *tenant, const struct process *process, struct slot **ret,
		 unsigned *ret_worker, void **ret_keeper)
{
	int rc = SLOT_UNKNOWN;
	uint32_t number;

	memcpy(&number, token, sizeof(number));
	pthread_mutex_lock(&slots->lock);
	if (number && number <= slots->used)
		rc = may_resume(&slots->slot[number], token, tenant, process);
	if (!rc) {
		struct slot *slot = &slots->slot[number];

		if (slot->state == SLOT_CONDEMNED)
			set_state(slots, slot, SLOT_OPEN);
		slot->connected = true;
		slot->turn++;
		*ret_worker = slot->keeper_worker;
		*ret_keeper = slot->keeper;
		slot->keeper = NULL;
		*ret = slot;
	}
	pthread_mutex_unlock(&slots->lock);
	return rc;
}

bool slots_take(struct slots *slots, struct slot *slot, uint32_t turn)
{
	bool taken;

	pthread_mutex_lock(&slots->lock);
	taken = slot->turn == turn && slot->state != SLOT_FREE;
	if (taken && slot->state != SLOT_CLOSING)
		set_state(slots, slot, SLOT_CLOSING);
	pthread_mutex_unlock(&slots->lock);
	return taken;
}

bool slots_expire(struct slots *slots, struct slot *slot, uint32_t turn)
{
	bool expired;

	pthread_mutex_lock(&slots->lock);
	expired = slot->turn == turn && slot->state != SLOT_FREE;
	if (expired)
		slot->expired = true;
	pthread_mutex_unlock(&slots->lock);
	return expired;
}

bool slots_is_turn(struct slots *slots, const struct slot *slot, uint32_t turn)
{
	bool is;

	pthread_mutex_lock(&slots->lock);
	is = slot->turn == turn && slot->state != SLOT_FREE;
	pthread_mutex_unlock(&slots->lock);
	return is;
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

struct slot *slots_get(struct slots *slots, uint32_t number)
{
	assert(number && number <= HP_SLOTS_MAX);
	return &slots->slot[number];
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
