/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEQPACKET, because a descriptor and the words that say what it is must not come apart; this is no
 * hot path. Every message has the same size, so that there is nothing to parse and only one length
 * to check.
 */
#include "daemon/setup/directories.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ERRNO_MAX 4095 /* the kernel's */

enum message_type { MESSAGE_BLOCKS = 1, MESSAGE_END };

struct message {
	uint32_t version, type;
	char zone[CONFIG_NAME_MAX + 1];
	uint32_t nr, blocks[HP_BLOCKS_MAX];
	int32_t error;
	char text[DIRECTORIES_TEXT_MAX];
};

struct plan_message {
	uint32_t version;
	struct setup_plan plan;
};

union control {
	char buffer[CMSG_SPACE(HP_BLOCKS_MAX * sizeof(int))];
	struct cmsghdr align;
};

static int send_all(int socket, const void *data, size_t bytes, const int *fds, size_t nr_fds)
{
	struct iovec iov = {.iov_base = (void *)data, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
	union control control;
	ssize_t n;

	if (nr_fds) {
		struct cmsghdr *cmsg;

		memset(&control, 0, sizeof(control));
		header.msg_control = control.buffer;
		header.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&header);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, nr_fds * sizeof(int));
	}
	do
		n = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void close_all(const int *fds, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		close(fds[i]);
}

/* --- sending ---------------------------------------------------------------------------------- */

void directories_sender_init(struct directories_sender *sender, int socket)
{
	memset(sender, 0, sizeof(*sender));
	sender->socket = socket;
}

void directories_sender_deinit(struct directories_sender *sender)
{
	close_all(sender->fds, sender->nr);
	sender->nr = 0;
}

static int flush(struct directories_sender *sender)
{
	struct message message = {.version = DIRECTORIES_VERSION, .type = MESSAGE_BLOCKS};
	int r;

	if (!sender->nr)
		return 0;
	memcpy(message.zone, sender->zone, sizeof(message.zone));
	message.nr = sender->nr;
	memcpy(message.blocks, sender->blocks, sender->nr * sizeof(message.blocks[0]));
	r = send_all(sender->socket, &message, sizeof(message), sender->fds, sender->nr);
	directories_sender_deinit(sender);
	return r;
}

int directories_send_consume_fd(struct directories_sender *sender, const char *zone, uint32_t block,
				int fd)
{
	int r = strlen(zone) < sizeof(sender->zone) ? 0 : -ENAMETOOLONG;

	if (r == 0 &&
	    (sender->nr == HP_BLOCKS_MAX || (sender->nr && strcmp(sender->zone, zone) != 0)))
		r = flush(sender);
	if (r < 0) {
		close(fd);
		return r;
	}
	memcpy(sender->zone, zone, strlen(zone) + 1);
	sender->blocks[sender->nr] = block;
	sender->fds[sender->nr++] = fd;
	return 0;
}

int directories_send_end(struct directories_sender *sender, int error, const char *text)
{
	struct message message = {
		.version = DIRECTORIES_VERSION, .type = MESSAGE_END, .error = error};
	int r = flush(sender);

	(void)snprintf(message.text, sizeof(message.text), "%s", text);
	return r < 0 ? r : send_all(sender->socket, &message, sizeof(message), NULL, 0);
}

int directories_send_plan(int socket, const struct setup_plan *plan)
{
	struct plan_message message = {.version = DIRECTORIES_VERSION, .plan = *plan};

	return send_all(socket, &message, sizeof(message), NULL, 0);
}

int directories_receive_plan(int socket, struct setup_plan *ret)
{
	struct plan_message message;
	ssize_t n;

	do
		n = recv(socket, &message, sizeof(message), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	if (n != sizeof(message) || message.version != DIRECTORIES_VERSION ||
	    !setup_plan_is_valid(&message.plan))
		return -EPROTO;
	*ret = message.plan;
	return 0;
}

/* --- receiving -------------------------------------------------------------------------------- */

/*
 * A descriptor that is readable while SIGTERM or SIGINT pends, if they are blocked: whoever has them
 * blocked cannot be interrupted, and making huge pages may take minutes. Nothing is read from it, so
 * that the signal goes on pending for its owner.
 */
static int open_pending_signals(void)
{
	static const int numbers[] = {SIGTERM, SIGINT};
	sigset_t blocked, watched;

	sigemptyset(&watched);
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigismember(&blocked, numbers[i]) == 1)
			sigaddset(&watched, numbers[i]);
	return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* As long as the socket itself would wait. Return: 0 if there is something to receive. */
static int wait_for_message(int socket, int signals)
{
	struct pollfd polled[] = {{.fd = socket, .events = POLLIN},
				  {.fd = signals, .events = POLLIN}};
	struct timeval tv = {0};
	socklen_t size = sizeof(tv);
	int timeout_ms, n;

	if (getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &tv, &size) < 0)
		return -errno;
	timeout_ms = (int)(tv.tv_sec * 1000 + tv.tv_usec / 1000);
	do
		n = poll(polled, 2, timeout_ms ? timeout_ms : -1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -EAGAIN;
	return polled[1].revents ? -ECANCELED : 0;
}

/* Return: 0 with up to HP_BLOCKS_MAX descriptors, or an error with none. */
static int receive(int socket, struct message *ret, int fds[static HP_BLOCKS_MAX], size_t *ret_nr)
{
	struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
	union control control;
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.buffer,
				.msg_controllen = sizeof(control.buffer)};
	size_t nr = 0;
	ssize_t n;

	do
		n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		memcpy(fds + nr, CMSG_DATA(c), here * sizeof(int));
		nr += here; /* the buffer has room for HP_BLOCKS_MAX in all */
	}
	if (n == sizeof(*ret) && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		*ret_nr = nr;
		return 0;
	}
	close_all(fds, nr);
	return n == 0 ? -ECONNRESET : header.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
}

static bool is_valid(const struct message *message, size_t nr_fds)
{
	if (message->version != DIRECTORIES_VERSION)
		return false;
	if (message->type == MESSAGE_END)
		return nr_fds == 0 && message->error >= 0 && message->error <= ERRNO_MAX &&
		       memchr(message->text, '\0', sizeof(message->text));
	return message->type == MESSAGE_BLOCKS && message->nr == nr_fds && nr_fds > 0 &&
	       memchr(message->zone, '\0', sizeof(message->zone));
}

static int receive_all(int socket, int signals, directories_fn fn, void *userdata,
		       char text[DIRECTORIES_TEXT_MAX])
{
	int fds[HP_BLOCKS_MAX];
	struct message message;
	size_t nr = 0;
	int r;

	for (;;) {
		r = wait_for_message(socket, signals);
		if (r == 0)
			r = receive(socket, &message, fds, &nr);
		if (r < 0)
			return r;
		if (!is_valid(&message, nr)) {
			close_all(fds, nr);
			return -EPROTO;
		}
		if (message.type == MESSAGE_END)
			break;
		for (size_t i = 0; i < nr; i++) {
			r = fn(userdata, message.zone, message.blocks[i], fds[i]);
			if (r < 0) {
				close_all(fds + i + 1, nr - i - 1);
				return r;
			}
		}
	}
	memcpy(text, message.text, DIRECTORIES_TEXT_MAX);
	return -message.error;
}

int directories_receive(int socket, directories_fn fn, void *userdata,
			char text[DIRECTORIES_TEXT_MAX])
{
	int signals = open_pending_signals(), r;

	*text = '\0';
	if (signals < 0)
		return -errno;
	r = receive_all(socket, signals, fn, userdata, text);
	close(signals);
	return r;
}
