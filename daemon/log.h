/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: journal levels, key=value, to stderr (with the <N> prefix that the journal reads when
 * stderr is the journal). One line a call, from any thread.
 */
#pragma once

#include <syslog.h>

/* Messages above this level are dropped: LOG_INFO unless set. */
void log_set_max_level(int level);

/* level: LOG_ERR ... LOG_DEBUG. message: what happened, then key=value pairs, no newline. */
void log_line(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)	 log_line(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_notice(...)	 log_line(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)	 log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	 log_line(LOG_DEBUG, __VA_ARGS__)
