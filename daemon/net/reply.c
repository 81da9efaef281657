/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies are packed where they are sent from. An error costs more than a success: it is the one
 * that somebody reads, so it brings every figure that its reader would otherwise have to go and ask
 * for.
 */
#include "daemon/net/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

void reply(struct session *session, uint8_t type, uint16_t tag, const ProtobufCMessage *message)
{
	int n = hp_message_pack(output_room(session), type, tag, message);

	if (n < 0)
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the %s does not fit a frame", hp_message_type_name(type));
	else
		output_commit(session, (size_t)n);
}

void reply_done(struct session *session, uint16_t tag)
{
	hp_frame_put_header(output_room(session), TYPE(DONE), tag, 0);
	output_commit(session, HP_FRAME_HEADER_BYTES);
}

void reply_grant(struct session *session, uint16_t tag, const struct hp_grant *grants, size_t n)
{
	uint64_t *words = session->worker->scratch.words;
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	for (size_t i = 0; i < n; i++) {
		struct hp_wire_range wire = {
			.page = grants[i].range.pfn,
			.pages = grants[i].range.pages,
			.generation = grants[i].range.generation,
			.zone = grants[i].range.zone,
			.zeroed = grants[i].zeroed,
		};
		hp_wire_put_range(words + i * HP_WIRE_RANGE_WORDS, &wire);
	}
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	reply(session, TYPE(GRANT), tag, &message.base);
}

void reply_retired(struct session *session, const struct pool_zone *zone, uint32_t block,
		   uint64_t generation)
{
	struct hp_wire_block wire = {.index = block, .generation = generation};
	uint64_t word = hp_wire_put_block(wire);
	Hugepool__V1__Blocks message = HUGEPOOL__V1__BLOCKS__INIT;

	message.zone = zone->id;
	message.n_blocks = 1;
	message.blocks = &word;
	reply(session, TYPE(BLOCK_RETIRED), 0, &message.base);
}

void reply_pressure(struct session *session, uint32_t zone_id)
{
	Hugepool__V1__Pressure message = HUGEPOOL__V1__PRESSURE__INIT;

	message.zone = zone_id;
	reply(session, TYPE(PRESSURE), 0, &message.base);
}

Hugepool__V1__Backing reply_backing(const struct pool_zone *zone)
{
	switch (zone->config->backing) {
	case CONFIG_BACKING_HUGETLB:
		return HUGEPOOL__V1__BACKING__BACKING_HUGETLB;
	case CONFIG_BACKING_MEMFD:
		return HUGEPOOL__V1__BACKING__BACKING_MEMFD;
	case CONFIG_BACKING_SHMEM:
		return HUGEPOOL__V1__BACKING__BACKING_SHMEM;
	}
	return HUGEPOOL__V1__BACKING__BACKING_UNSPECIFIED;
}

static ProtobufCBinaryData text(const char *string)
{
	return (ProtobufCBinaryData){
		.len = strlen(string),
		.data = (uint8_t *)(uintptr_t)string,
	};
}

void refuse(struct session *session, uint16_t tag, const struct refusal *refusal,
	    const char *format, ...)
{
	Hugepool__V1__Error message = HUGEPOOL__V1__ERROR__INIT;
	char sentence[HP_MESSAGE_MAX];
	struct tenant_figures figures;
	va_list ap;

	va_start(ap, format);
	vsnprintf(sentence, sizeof(sentence), format, ap);
	va_end(ap);

	worker_count(&session->worker->counters.errors);
	message.code = refusal->code;
	message.message = text(sentence);
	message.asked_pages = refusal->asked_pages;
	message.index = refusal->index;
	message.limit = refusal->limit;
	if (refusal->zone) {
		tenant_get_figures(session->tenant, refusal->zone, &figures);
		message.zone = text(refusal->zone->name);
		message.free_pages = figures.free_pages;
		message.leasable_pages = figures.leasable_pages;
		message.limit_pages = figures.limit_pages;
		message.largest_pages = figures.largest_pages;
	}
	output_commit(session, (size_t)hp_message_pack(output_room(session), TYPE(ERROR), tag,
						       &message.base));
}

void refuse_connection(int fd, Hugepool__V1__Code code, uint64_t limit, const char *sentence)
{
	Hugepool__V1__Error message = HUGEPOOL__V1__ERROR__INIT;
	uint8_t frame[HP_FRAME_MAX];
	int n;

	message.code = code;
	message.message = text(sentence);
	message.limit = limit;
	n = hp_message_pack(frame, TYPE(ERROR), 0, &message.base);
	/* Whoever does not take it learns less about why; that is all. */
	if (n > 0 && send(fd, frame, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}
