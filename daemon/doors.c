/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door is an endpoint, which has the path, and a listener, which has the tenant. A new configuration
 * is prepared with endpoints alone: taking a path is what may fail, and can be undone. A door whose
 * path stays is kept as it is, so that who waits there is not turned away.
 */
#include "daemon/doors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/endpoint.h"
#include "daemon/log.h"

#define MADE_MODE 0666 /* who may connect is asked for when he does */

struct door {
	TAILQ_ENTRY(door) link;
	char *path;
	struct endpoint *endpoint;
	struct listener *listener;	   /* NULL: nobody's yet */
	char tenant_name[HP_NAME_MAX + 1]; /* the tenant itself may be gone when we look */
	const struct tenant *tenant;
	bool made, kept;
};

struct doors {
	TAILQ_HEAD(, door) list;
	struct event_base *base;
	struct acceptor *acceptor;
	bool serving;
};

/* --- one door --------------------------------------------------------------------------------- */

static void door_close(struct doors *doors, struct door *door)
{
	char *slash;

	TAILQ_REMOVE(&doors->list, door, link);
	listener_free(door->listener);
	endpoint_close(door->endpoint);
	/* The first of those made at run time made their directory, the last one takes it away. */
	if (door->made && door->path && (slash = strrchr(door->path, '/'))) {
		*slash = 0;
		(void)rmdir(door->path);
	}
	free(door->path);
	free(door);
}

static int door_open(struct doors *doors, const char *path, mode_t mode, const char *group,
		     struct door **ret)
{
	struct door *door = calloc(1, sizeof(*door));
	int rc = -ENOMEM;

	if (!door)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(&doors->list, door, link);
	door->path = strdup(path);
	if (door->path)
		rc = endpoint_open(&door->endpoint, path, SOCK_STREAM, mode, group);
	if (rc) {
		door_close(doors, door);
		return rc;
	}
	*ret = door;
	return 0;
}

/* Return: 0 or -ENOMEM. */
static int door_give(struct doors *doors, struct door *door, struct tenant *tenant, bool made)
{
	struct listener *listener;
	int rc = listener_new(&listener, doors->base, endpoint_fd(door->endpoint), SOCKET_DATA,
			      tenant, doors->acceptor);

	if (rc)
		return rc;
	listener_free(door->listener);
	door->listener = listener;
	door->tenant = tenant;
	door->made = made;
	snprintf(door->tenant_name, sizeof(door->tenant_name), "%s", tenant->name);
	return doors->serving ? listener_start(listener) : 0;
}

static struct door *find_path(struct doors *doors, const char *path)
{
	struct door *door;

	TAILQ_FOREACH (door, &doors->list, link)
		if (strcmp(door->path, path) == 0)
			return door;
	return NULL;
}

/* --- of the configuration --------------------------------------------------------------------- */

int doors_prepare(struct doors *doors, const struct config *config, struct doors_plan *ret_plan,
		  size_t *ret_index)
{
	struct doors_plan *plan = ret_plan;
	int rc = 0;

	memset(plan, 0, sizeof(*plan));
	for (size_t i = 0; i < config->nr_tenants; i++) {
		const struct config_tenant *own = &config->tenants[i];

		if (!own->socket)
			continue;
		plan->door[i] = find_path(doors, own->socket);
		if (plan->door[i])
			continue;
		rc = door_open(doors, own->socket, own->socket_mode, own->socket_group,
			       &plan->door[i]);
		if (rc) {
			*ret_index = i;
			doors_abandon(doors, config, plan);
			return rc;
		}
		plan->fresh[i] = true;
	}
	return 0;
}

void doors_abandon(struct doors *doors, const struct config *config, struct doors_plan *plan)
{
	for (size_t i = 0; i < config->nr_tenants; i++)
		if (plan->fresh[i])
			door_close(doors, plan->door[i]);
}

static bool has_tenant(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->nr_tenants; i++)
		if (strcmp(config->tenants[i].name, name) == 0)
			return true;
	return false;
}

/* Doors of tenants that the configuration does not have, or no longer gives a door. */
static void close_others(struct doors *doors, const struct config *config)
{
	struct door *door, *next;

	for (door = TAILQ_FIRST(&doors->list); door; door = next) {
		next = TAILQ_NEXT(door, link);
		if (!door->kept && !(door->made && !has_tenant(config, door->tenant_name)))
			door_close(doors, door);
	}
}

void doors_commit(struct doors *doors, const struct config *config, struct doors_plan *plan,
		  struct tenants *tenants)
{
	struct door *door;

	TAILQ_FOREACH (door, &doors->list, link)
		door->kept = false;
	for (size_t i = 0; i < config->nr_tenants; i++) {
		const struct config_tenant *own = &config->tenants[i];
		struct tenant *tenant = tenants_find(tenants, own->name, strlen(own->name));

		if (!plan->door[i] || !tenant)
			continue;
		if (!plan->fresh[i])
			endpoint_set_access(plan->door[i]->endpoint, own->socket_mode,
					    own->socket_group);
		if (door_give(doors, plan->door[i], tenant, false))
			log_error("socket not served: no memory tenant=%s path=%s", own->name,
				  own->socket);
		else
			plan->door[i]->kept = true;
	}
	close_others(doors, config);
}

/* --- of tenants that were made ---------------------------------------------------------------- */

int doors_open_made(struct doors *doors, const char *path, struct tenant *tenant)
{
	struct door *door;
	int rc = door_open(doors, path, MADE_MODE, NULL, &door);

	if (rc)
		return rc;
	rc = door_give(doors, door, tenant, true);
	if (rc)
		door_close(doors, door);
	return rc;
}

void doors_close_made(struct doors *doors, const struct tenant *tenant)
{
	struct door *door, *next;

	for (door = TAILQ_FIRST(&doors->list); door; door = next) {
		next = TAILQ_NEXT(door, link);
		if (door->made && door->tenant == tenant)
			door_close(doors, door);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

int doors_new(struct doors **ret, struct event_base *base, struct acceptor *acceptor)
{
	struct doors *doors = calloc(1, sizeof(*doors));

	if (!doors)
		return -ENOMEM;
	TAILQ_INIT(&doors->list);
	doors->base = base;
	doors->acceptor = acceptor;
	*ret = doors;
	return 0;
}

int doors_serve(struct doors *doors)
{
	struct door *door;
	int rc = 0;

	doors->serving = true;
	TAILQ_FOREACH (door, &doors->list, link)
		if (!rc && door->listener)
			rc = listener_start(door->listener);
	return rc;
}

struct doors *doors_free(struct doors *doors)
{
	struct door *door;

	if (!doors)
		return NULL;
	while ((door = TAILQ_FIRST(&doors->list)))
		door_close(doors, door);
	free(doors);
	return NULL;
}
