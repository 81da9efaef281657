/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the admin that the main thread does, which is this test: answered in any order, or when
 * nobody is there any more who asked.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/order.h"
#include "tests/daemon/rig.h"

#define WAIT_TRIES 4000 /* of 5 ms */

struct fixture {
	struct rig *rig;
	struct orders *orders;
	struct peer *admin;
	_Atomic unsigned woken;
};

static void wake(void *userdata)
{
	struct fixture *f = userdata;

	f->woken++;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->rig = rig_new(&(struct rig_options){0});
	assert_int_equal(orders_new(&f->orders, wake, f), 0);
	f->rig->net.orders = f->orders;
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	peer_free(f->admin);
	rig_free(f->rig);
	orders_free(f->orders); /* with whatever nobody fetched */
	free(f);
	return 0;
}

static void send_quota(struct fixture *f, uint16_t tag, const char *tenant)
{
	Hugepool__V1__Quota quota = HUGEPOOL__V1__QUOTA__INIT;

	quota.tenant = peer_text(tenant);
	quota.zone = peer_text("small");
	quota.set_limit = true;
	quota.limit_blocks = tag;
	peer_send(f->admin, TYPE(QUOTA), tag, &quota.base);
}

static struct order *fetch(struct fixture *f)
{
	struct order *order = NULL;

	for (int i = 0; i < WAIT_TRIES && !(order = orders_fetch(f->orders)); i++)
		poll(NULL, 0, 5);
	assert_non_null(order);
	assert_true(f->woken);
	return order;
}

static void test_answers(void **state)
{
	struct fixture *f = *state;
	Hugepool__V1__TenantCreated created = HUGEPOOL__V1__TENANT_CREATED__INIT;
	const Hugepool__V1__TenantCreated *reply;
	const Hugepool__V1__Error *error;
	struct order *orders[3];

	for (uint16_t tag = 1; tag <= 3; tag++)
		send_quota(f, tag, "somebody");
	for (int i = 0; i < 3; i++) {
		const Hugepool__V1__Quota *quota;

		orders[i] = fetch(f);
		quota = (const Hugepool__V1__Quota *)orders_message(f->orders, orders[i]);
		assert_int_equal(orders[i]->type, TYPE(QUOTA));
		assert_int_equal(quota->limit_blocks, i + 1); /* in the order they came */
		assert_memory_equal(quota->tenant.data, "somebody", quota->tenant.len);
	}
	/* answered in another; others are served meanwhile */
	peer_check(f->admin);
	order_refuse(orders[2], CODE(BUSY), 7, "not %s", "now");
	error = peer_expect(f->admin, TYPE(ERROR), 3);
	assert_int_equal(error->code, CODE(BUSY));
	assert_int_equal(error->limit, 7);
	assert_memory_equal(error->message.data, "not now", error->message.len);
	order_done(orders[0]);
	peer_expect(f->admin, TYPE(DONE), 1);
	created.socket = peer_text("/a/path");
	order_answer(orders[1], TYPE(TENANT_CREATED), &created.base);
	reply = peer_expect(f->admin, TYPE(TENANT_CREATED), 2);
	assert_memory_equal(reply->socket.data, "/a/path", reply->socket.len);
}

/* Whoever asked has gone, or has said goodbye: the answer goes nowhere. */
static void test_nobody_there(void **state)
{
	struct fixture *f = *state;
	struct order *order, *other;

	send_quota(f, 1, "x");
	order = fetch(f);
	peer_free(f->admin);
	f->admin = NULL;
	for (int i = 0; i < WAIT_TRIES && f->rig->workers[0]->admin_connections; i++)
		poll(NULL, 0, 5);
	assert_int_equal(f->rig->workers[0]->admin_connections, 0);
	f->admin = rig_connect_hello(f->rig, SOCKET_ADMIN);
	send_quota(f, 2, "y");
	other = fetch(f);
	order_done(order);
	order_done(other);
	peer_expect(f->admin, TYPE(DONE), 2);

	send_quota(f, 3, "z");
	order = fetch(f);
	peer_send(f->admin, TYPE(GOODBYE), 4, NULL);
	peer_expect(f->admin, TYPE(DONE), 4);
	peer_expect_end(f->admin);
	order_done(order);
}

static void test_too_many(void **state)
{
	struct fixture *f = *state;
	const Hugepool__V1__Error *error;
	uint16_t tag;

	for (tag = 1; tag <= HP_ORDERS_PER_SESSION_MAX + 1; tag++)
		send_quota(f, tag, "x");
	error = peer_expect(f->admin, TYPE(ERROR), HP_ORDERS_PER_SESSION_MAX + 1);
	assert_int_equal(error->code, CODE(TOO_MANY));
	assert_int_equal(error->limit, HP_ORDERS_PER_SESSION_MAX);
	order_done(fetch(f));
	peer_expect(f->admin, TYPE(DONE), 1);
	send_quota(f, tag, "x"); /* there is room again; nobody does it */
	peer_check(f->admin);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(answers),
		TEST(nobody_there),
		TEST(too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
