/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a path to a configuration: a draft is read (config-file.c, config-key.c), checked as a whole
 * (config-check.c), and becomes the configuration only if there was no mistake in it.
 */
#include "daemon/config-internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MESSAGE_MAX 1024

void config_mistake(struct config_draft *draft, struct config_place place, const char *format, ...)
{
	char message[MESSAGE_MAX];
	va_list args;
	int n;

	if (place.line)
		n = snprintf(message, sizeof(message), "%s:%u: ", place.file, place.line);
	else
		n = snprintf(message, sizeof(message), "%s: ", place.file);
	if (n < 0 || (size_t)n >= sizeof(message))
		n = 0;
	va_start(args, format);
	(void)vsnprintf(message + n, sizeof(message) - (size_t)n, format, args);
	va_end(args);
	draft->mistakes++;
	draft->report(draft->userdata, message);
}

static struct config_draft *draft_free(struct config_draft *draft)
{
	if (!draft)
		return NULL;
	config_free(draft->config);
	free(draft->quotas);
	free(draft);
	return NULL;
}

static struct config_draft *draft_new(const char *path, config_report_fn report, void *userdata)
{
	struct config_draft *draft = calloc(1, sizeof(*draft));

	if (!draft)
		return NULL;
	draft->path = path;
	draft->report = report;
	draft->userdata = userdata;
	draft->quotas = calloc(CONFIG_QUOTAS_MAX, sizeof(*draft->quotas));
	draft->config = calloc(1, sizeof(*draft->config));
	if (!draft->quotas || !draft->config)
		return draft_free(draft);
	draft->config->zones = calloc(HP_ZONES_MAX, sizeof(*draft->config->zones));
	draft->config->tenants = calloc(CONFIG_TENANTS_MAX, sizeof(*draft->config->tenants));
	draft->config->files = calloc(CONFIG_FILES_MAX, sizeof(*draft->config->files));
	if (!draft->config->zones || !draft->config->tenants || !draft->config->files)
		return draft_free(draft);
	return draft;
}

int config_load(struct config **ret, const char *path, config_report_fn report, void *userdata)
{
	struct config_draft *draft = draft_new(path, report, userdata);
	int r;

	if (!draft)
		return -ENOMEM;
	r = config_read_files(draft, path);
	if (r == 0)
		config_check(draft);
	if (r == 0 && draft->mistakes)
		r = -EINVAL;
	if (r == 0) {
		*ret = draft->config;
		draft->config = NULL;
	}
	draft_free(draft);
	return r;
}

struct config *config_free(struct config *config)
{
	if (!config)
		return NULL;
	free(config->socket);
	free(config->admin_socket);
	free(config->socket_group);
	free(config->setup_socket);
	free(config->state_path);
	free(config->namespace_path);
	for (size_t i = 0; config->tenants && i < config->nr_tenants; i++) {
		free(config->tenants[i].socket);
		free(config->tenants[i].socket_group);
	}
	for (size_t i = 0; config->files && i < config->nr_files; i++)
		free(config->files[i]);
	free(config->files);
	free(config->zones);
	free(config->tenants);
	free(config);
	return NULL;
}
