/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders are done here one after the other, so that nobody has to think of two changes at a time.
 * Only the end of a tenant takes longer: it is leaving until its sessions are gone, or its grace is
 * over; then it is ending, until its workers have ended them; then the order is answered.
 */
#include "daemon/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <event2/event_struct.h>

#include "daemon/log.h"
#include "daemon/net/order.h"
#include "daemon/reload.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

/* A tenant that is being deleted. */
struct leaving {
	TAILQ_ENTRY(leaving) link;
	struct admin *admin;
	struct tenant *tenant;
	struct order *order; /* answered when it is over */
	struct event grace;
	uint32_t sessions, holders; /* when the grace was over */
};

struct admin {
	struct event_base *base;
	const struct config *running;
	const struct net *net;
	struct doors *doors;
	TAILQ_HEAD(, leaving) leaving;
};

/* --- refusals --------------------------------------------------------------------------------- */

static Hugepool__V1__Code code_of(int error)
{
	switch (error) {
	case -EEXIST:
	case -EBUSY:
	case -EADDRINUSE:
		return CODE(BUSY);
	case -EPERM:
		return CODE(PERMISSION);
	case -ENOSPC:
		return CODE(TOO_MANY);
	case -ENOENT:
	case -EINVAL:
	case -EDQUOT:
	case -ENAMETOOLONG:
		return CODE(INVALID);
	default:
		return CODE(INTERNAL);
	}
}

static int find_zone(struct admin *admin, ProtobufCBinaryData name, struct pool_zone **ret,
		     char why[TENANT_WHY_MAX])
{
	struct pool *pool = admin->net->pool;
	size_t n = 0;

	*ret = name.len ? pool_find_zone(pool, (const char *)name.data, name.len, 0) : NULL;
	if (*ret)
		return 0;
	n = (size_t)snprintf(why, TENANT_WHY_MAX, "there is no zone \"%.*s\", but",
			     name.len < HP_NAME_MAX ? (int)name.len : HP_NAME_MAX,
			     name.len ? (const char *)name.data : "");
	for (size_t i = 0; i < pool_nr_zones(pool) && n < TENANT_WHY_MAX; i++)
		n += (size_t)snprintf(why + n, TENANT_WHY_MAX - n, "%s %s", i ? "," : "",
				      pool_zone(pool, i)->name);
	return -ENODEV;
}

static void refuse_order(struct order *order, int error, const char *why)
{
	order_refuse(order, error == -ENODEV ? CODE(NO_ZONE) : code_of(error), 0, "%s", why);
}

/* --- quotas ----------------------------------------------------------------------------------- */

static struct tenant_change change_of(const Hugepool__V1__Quota *quota)
{
	return (struct tenant_change){
		.set_limit = quota->set_limit,
		.set_guarantee = quota->set_guarantee,
		.quota = {quota->limit_blocks, quota->guarantee_blocks},
	};
}

/* Whoever waits may be next, or may have come to wait in vain. */
static void quotas_changed(struct admin *admin)
{
	waits_poke(admin->net->waits, NULL);
	pool_poke(admin->net->pool);
	for (size_t i = 0; i < admin->net->nr_workers; i++)
		worker_look_at_tenants(admin->net->workers[i]);
}

/* A guarantee that was raised needs blocks that others have: until they let go it is not there. */
static void warn_of_unmet(struct admin *admin)
{
	for (size_t i = 0; i < pool_nr_zones(admin->net->pool); i++) {
		const struct pool_zone *zone = pool_zone(admin->net->pool, i);
		struct hp_zone_stats stats;

		hp_zone_stats(zone->zone, &stats);
		if (stats.unmet_guarantee_blocks > stats.clean_blocks)
			log_warning(
				"guarantees wait for blocks that others hold zone=%s unmet=%u clean=%u idle=%u",
				zone->name, stats.unmet_guarantee_blocks, stats.clean_blocks,
				stats.idle_blocks);
	}
}

static void set_quota(struct admin *admin, struct order *order, const ProtobufCMessage *message)
{
	const Hugepool__V1__Quota *quota = (const Hugepool__V1__Quota *)message;
	struct tenant_change change = change_of(quota);
	char why[TENANT_WHY_MAX];
	struct pool_zone *zone;
	int rc;

	if (!quota->set_limit && !quota->set_guarantee) {
		refuse_order(order, -EINVAL, "neither a limit nor a guarantee was given");
		return;
	}
	rc = find_zone(admin, quota->zone, &zone, why);
	if (!rc)
		rc = tenants_set_quota(admin->net->tenants, (const char *)quota->tenant.data,
				       quota->tenant.len, zone, &change, why);
	if (rc) {
		refuse_order(order, rc, why);
		return;
	}
	log_notice("quota set tenant=%.*s zone=%s limit=%s%u guarantee=%s%u",
		   (int)quota->tenant.len, (const char *)quota->tenant.data, zone->name,
		   quota->set_limit ? "" : "unchanged:", quota->limit_blocks,
		   quota->set_guarantee ? "" : "unchanged:", quota->guarantee_blocks);
	quotas_changed(admin);
	warn_of_unmet(admin);
	order_done(order);
}

/* --- made ------------------------------------------------------------------------------------- */

/* In a directory beside the daemon's own socket. Return: 0 or -ENAMETOOLONG. */
static int path_of(const struct admin *admin, const char *name, char path[static 108])
{
	const char *own = admin->running->socket, *slash = strrchr(own, '/');
	int n = snprintf(path, 108, "%.*stenants/%s.sock", slash ? (int)(slash - own + 1) : 0, own,
			 name);

	return n < 0 || n >= 108 ? -ENAMETOOLONG : 0;
}

static int take_changes(struct admin *admin, const Hugepool__V1__TenantCreate *create,
			struct tenant_change change[HP_ZONES_MAX], char why[TENANT_WHY_MAX])
{
	for (size_t i = 0; i < create->n_quotas; i++) {
		struct pool_zone *zone;
		int rc = find_zone(admin, create->quotas[i]->zone, &zone, why);

		if (rc)
			return rc;
		if (change[zone->id].set_limit || change[zone->id].set_guarantee) {
			snprintf(why, TENANT_WHY_MAX, "quotas: zone %s is given twice", zone->name);
			return -EINVAL;
		}
		change[zone->id] = change_of(create->quotas[i]);
	}
	return 0;
}

/* Return: 0 and the path of its socket, or a refusal. */
static int make_tenant(struct admin *admin, const Hugepool__V1__TenantCreate *create,
		       char path[static 108], char why[TENANT_WHY_MAX])
{
	struct tenant_change change[HP_ZONES_MAX] = {{.set_limit = false}};
	char name[HP_NAME_MAX + 1] = "";
	struct tenant *tenant;
	int rc;

	if (create->name.len <= HP_NAME_MAX && create->name.len &&
	    !memchr(create->name.data, 0, create->name.len))
		memcpy(name, create->name.data, create->name.len);
	rc = take_changes(admin, create, change, why);
	if (!rc)
		rc = tenants_make(admin->net->tenants, name, create->uid, create->any_user, change,
				  &tenant, why);
	if (rc)
		return rc;
	rc = path_of(admin, name, path);
	if (!rc)
		rc = doors_open_made(admin->doors, path, tenant);
	if (rc) {
		snprintf(why, TENANT_WHY_MAX, "socket %s cannot be made: %s", path, strerror(-rc));
		tenants_forget(admin->net->tenants, tenant);
	}
	return rc;
}

static void create_tenant(struct admin *admin, struct order *order, const ProtobufCMessage *message)
{
	const Hugepool__V1__TenantCreate *create = (const Hugepool__V1__TenantCreate *)message;
	Hugepool__V1__TenantCreated created = HUGEPOOL__V1__TENANT_CREATED__INIT;
	char why[TENANT_WHY_MAX], path[108];
	int rc = make_tenant(admin, create, path, why);

	if (rc) {
		refuse_order(order, rc, why);
		return;
	}
	log_notice("tenant made name=%.*s socket=%s user=%s%u", (int)create->name.len,
		   (const char *)create->name.data, path, create->any_user ? "any:" : "",
		   create->uid);
	warn_of_unmet(admin);
	created.socket.data = (uint8_t *)path;
	created.socket.len = strlen(path);
	order_answer(order, TYPE(TENANT_CREATED), &created.base);
}

struct made {
	char name[HP_TENANTS_MADE_MAX][HP_NAME_MAX + 1];
	size_t nr;
};

static int note_made(void *userdata, const struct tenant *tenant)
{
	struct made *made = userdata;

	if (tenant->origin == TENANT_MADE && tenant_is_live(tenant) &&
	    made->nr < HP_TENANTS_MADE_MAX)
		snprintf(made->name[made->nr++], sizeof(made->name[0]), "%s", tenant->name);
	return 0;
}

void admin_restore(struct admin *admin)
{
	struct made *made = calloc(1, sizeof(*made));

	if (!made) {
		log_error("sockets of tenants made at run time not opened: no memory");
		return;
	}
	tenants_look(admin->net->tenants, 1, note_made, made);
	for (size_t i = 0; i < made->nr; i++) {
		struct tenant *tenant =
			tenants_find(admin->net->tenants, made->name[i], strlen(made->name[i]));
		char path[108];

		if (tenant && path_of(admin, made->name[i], path) == 0 &&
		    doors_open_made(admin->doors, path, tenant) == 0)
			log_notice("tenant taken over name=%s socket=%s", made->name[i], path);
		else
			log_error("tenant taken over, without its socket name=%s", made->name[i]);
	}
	free(made);
}

/* --- deleted ---------------------------------------------------------------------------------- */

static void end_tenant(struct leaving *leaving)
{
	const struct net *net = leaving->admin->net;

	evtimer_del(&leaving->grace);
	leaving->sessions = leaving->tenant->sessions;
	leaving->holders = leaving->tenant->holders;
	tenants_end(net->tenants, leaving->tenant);
	for (size_t i = 0; i < net->nr_workers; i++)
		worker_look_at_tenants(net->workers[i]);
}

static void on_grace_over(evutil_socket_t fd, short what, void *userdata)
{
	(void)fd;
	(void)what;
	end_tenant(userdata);
}

static void finish(struct leaving *leaving)
{
	struct admin *admin = leaving->admin;

	log_notice("tenant deleted name=%s sessions_ended=%u holders_ended=%u",
		   leaving->tenant->name, leaving->sessions, leaving->holders);
	TAILQ_REMOVE(&admin->leaving, leaving, link);
	tenants_forget(admin->net->tenants, leaving->tenant);
	order_done(leaving->order);
	free(leaving);
}

/* Who has nothing any more need not wait for the end of the grace. */
static void look_at_leaving(struct admin *admin)
{
	struct leaving *leaving, *next;

	for (leaving = TAILQ_FIRST(&admin->leaving); leaving; leaving = next) {
		next = TAILQ_NEXT(leaving, link);
		if (leaving->tenant->sessions || leaving->tenant->holders)
			continue;
		if (leaving->tenant->state == TENANT_LEAVING)
			end_tenant(leaving);
		finish(leaving);
	}
}

static void delete_tenant(struct admin *admin, struct order *order, const ProtobufCMessage *message)
{
	const Hugepool__V1__TenantDelete *request = (const Hugepool__V1__TenantDelete *)message;
	struct leaving *leaving;
	struct timeval grace = {
		.tv_sec = request->grace_ms / 1000,
		.tv_usec = (suseconds_t)(request->grace_ms % 1000) * 1000,
	};
	char why[TENANT_WHY_MAX];
	int rc;

	if (request->grace_ms > HP_DEADLINE_MAX_MS) {
		order_refuse(order, CODE(INVALID), HP_DEADLINE_MAX_MS,
			     "grace_ms: %u, but at most %u", request->grace_ms, HP_DEADLINE_MAX_MS);
		return;
	}
	leaving = calloc(1, sizeof(*leaving));
	if (!leaving) {
		refuse_order(order, -ENOMEM, "the daemon is out of memory");
		return;
	}
	rc = tenants_delete(admin->net->tenants, (const char *)request->name.data,
			    request->name.len, &leaving->tenant, why);
	if (rc) {
		free(leaving);
		refuse_order(order, rc, why);
		return;
	}
	leaving->admin = admin;
	leaving->order = order;
	TAILQ_INSERT_TAIL(&admin->leaving, leaving, link);
	evtimer_assign(&leaving->grace, admin->base, on_grace_over, leaving);
	doors_close_made(admin->doors, leaving->tenant);
	log_notice("tenant leaves name=%s sessions=%u holders=%u grace_ms=%u",
		   leaving->tenant->name, leaving->tenant->sessions, leaving->tenant->holders,
		   request->grace_ms);
	quotas_changed(admin);
	if (!request->grace_ms || evtimer_add(&leaving->grace, &grace))
		end_tenant(leaving);
	look_at_leaving(admin);
}

/* --- a new configuration ---------------------------------------------------------------------- */

static int do_reload(struct admin *admin, struct reload_outcome *outcome)
{
	int rc = reload(admin->running, admin->net->pool, admin->net->tenants, admin->doors,
			outcome);

	if (!rc) {
		quotas_changed(admin);
		warn_of_unmet(admin);
	}
	return rc;
}

void admin_reload(struct admin *admin)
{
	struct reload_outcome outcome;

	(void)do_reload(admin, &outcome);
}

static void reload_ordered(struct admin *admin, struct order *order,
			   const ProtobufCMessage *message)
{
	Hugepool__V1__Reloaded reloaded = HUGEPOOL__V1__RELOADED__INIT;
	ProtobufCBinaryData restart[RELOAD_RESTART_MAX];
	struct reload_outcome outcome;

	(void)message;
	if (do_reload(admin, &outcome)) {
		order_refuse(order, CODE(INVALID), outcome.nr_mistakes,
			     "nothing has changed, mistakes: %u; %s", outcome.nr_mistakes,
			     outcome.mistake);
		return;
	}
	reloaded.restart = restart;
	while (reloaded.n_restart < outcome.nr_restart && reloaded.n_restart < RELOAD_RESTART_MAX) {
		char *name = outcome.restart[reloaded.n_restart];

		restart[reloaded.n_restart++] =
			(ProtobufCBinaryData){.data = (uint8_t *)name, .len = strlen(name)};
	}
	reloaded.nr_restart = outcome.nr_restart;
	reloaded.tenants = outcome.nr_tenants;
	order_answer(order, TYPE(RELOADED), &reloaded.base);
}

/* --- sizes of zones --------------------------------------------------------------------------- */

struct resizing {
	struct admin *admin;
	struct order *order;
};

/* pool_resized_fn; answers from the pool's thread, which is as good as ours. */
static void on_resized(void *userdata, struct pool_zone *zone, const struct pool_resized *resized)
{
	struct resizing *resizing = userdata;
	Hugepool__V1__Resized message = HUGEPOOL__V1__RESIZED__INIT;

	waits_poke(resizing->admin->net->waits, zone);
	message.before_blocks = resized->before_blocks;
	message.after_blocks = resized->after_blocks;
	message.wanted_blocks = resized->wanted_blocks;
	message.set_up = resized->set_up;
	message.reason.data = (uint8_t *)(uintptr_t)resized->reason;
	message.reason.len = strlen(resized->reason);
	order_answer(resizing->order, TYPE(RESIZED), &message.base);
	free(resizing);
}

static int begin_resize(struct admin *admin, struct order *order, const ProtobufCMessage *message,
			enum pool_resize_kind kind, char why[TENANT_WHY_MAX])
{
	const Hugepool__V1__Resize *request = (const Hugepool__V1__Resize *)message;
	struct resizing *resizing;
	struct pool_zone *zone;
	int rc = find_zone(admin, request->zone, &zone, why);

	if (rc)
		return rc;
	resizing = calloc(1, sizeof(*resizing));
	if (!resizing)
		return -ENOMEM;
	*resizing = (struct resizing){admin, order};
	rc = pool_resize(zone, kind, request->blocks, on_resized, resizing);
	if (!rc)
		return 0;
	free(resizing);
	if (rc == -EINVAL)
		snprintf(why, TENANT_WHY_MAX,
			 "zone %s: %u blocks were asked for, there is room for %u (max-size)",
			 zone->name, request->blocks, zone->nr_blocks);
	else if (rc == -EBUSY)
		snprintf(why, TENANT_WHY_MAX, "another resize is under way");
	else
		snprintf(why, TENANT_WHY_MAX, "cannot resize: %s", strerror(-rc));
	return rc;
}

static void resize_ordered(struct admin *admin, struct order *order,
			   const ProtobufCMessage *message, enum pool_resize_kind kind)
{
	char why[TENANT_WHY_MAX] = "the daemon is out of memory";
	int rc = begin_resize(admin, order, message, kind, why);

	if (rc)
		refuse_order(order, rc, why);
}

/* --- orders ----------------------------------------------------------------------------------- */

static void do_order(struct admin *admin, struct order *order)
{
	const ProtobufCMessage *message = orders_message(admin->net->orders, order);

	switch (order->type) {
	case TYPE(QUOTA):
		set_quota(admin, order, message);
		break;
	case TYPE(TENANT_CREATE):
		create_tenant(admin, order, message);
		break;
	case TYPE(TENANT_DELETE):
		delete_tenant(admin, order, message);
		break;
	case TYPE(ADOPT):
		resize_ordered(admin, order, message, POOL_ADOPT);
		break;
	case TYPE(OFFLINE):
		resize_ordered(admin, order, message, POOL_GIVE_UP);
		break;
	case TYPE(RELOAD):
		reload_ordered(admin, order, message);
		break;
	default:
		refuse_order(order, -ENOSYS, "nobody here does that");
	}
}

void admin_look(struct admin *admin)
{
	struct order *order;

	while ((order = orders_fetch(admin->net->orders)))
		do_order(admin, order);
	look_at_leaving(admin);
}

int admin_new(struct admin **ret, struct event_base *base, const struct config *running,
	      const struct net *net, struct doors *doors)
{
	struct admin *admin = calloc(1, sizeof(*admin));

	if (!admin)
		return -ENOMEM;
	admin->base = base;
	admin->running = running;
	admin->net = net;
	admin->doors = doors;
	TAILQ_INIT(&admin->leaving);
	*ret = admin;
	return 0;
}

struct admin *admin_free(struct admin *admin)
{
	struct leaving *leaving;

	if (!admin)
		return NULL;
	while ((leaving = TAILQ_FIRST(&admin->leaving))) {
		TAILQ_REMOVE(&admin->leaving, leaving, link);
		evtimer_del(&leaving->grace);
		order_free(leaving->order); /* its session learns that the daemon ends */
		free(leaving);
	}
	free(admin);
	return NULL;
}
