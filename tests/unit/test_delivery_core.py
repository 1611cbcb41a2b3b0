"""Delivery on a virtual clock: the real store, receivers that fail, days in a moment."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sqlalchemy import event
from tests.examples import scaled
from tests.unit.delivery_world import START_MS, FaultyReceiver, VirtualDelivery, failed, ok

from wherecast.broker.delivery.core import DeliveryLimits
from wherecast.broker.delivery.kinds.kind import SendOutcome, SendResult
from wherecast.broker.delivery.records import DeliveryState
from wherecast.broker.store import deliveries, subscribers

HOUR_MS = 3_600_000


@pytest.mark.parametrize("seed", range(scaled(2)))
def test_faulty_receivers_get_everything_once(tmp_path, seed):
    """With 30 % errors, 10 % hangs and lost answers: all delivered or dead, one id per delivery, no id that nobody sent."""
    receiver = FaultyReceiver(seed)
    world = VirtualDelivery(tmp_path, receiver, seed=seed, tick_ms=2_000)
    ids = set()
    for n in range(20):
        world.put(f"u{n}", f"host{n % 5}", ordered=n % 4 == 0)
        ids.update(world.add(f"u{n}", range(min(scaled(60), 30))))
    world.run()
    rows = world.rows()
    assert rows.keys() == ids
    assert {row.state for row in rows.values()} <= {DeliveryState.DELIVERED, DeliveryState.DEAD}
    assert all(len(sent) == 1 for sent in receiver.sent.values())
    assert set(receiver.taken) <= ids
    delivered = {id for id, row in rows.items() if row.state is DeliveryState.DELIVERED}
    assert delivered <= set(receiver.taken)  # with the id as key the receiver has each of them once
    assert len(delivered) > 0.99 * len(ids)
    assert max(receiver.taken.values()) > 1  # answers were lost, so some came more than once


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(2)))
def test_crashes_of_the_process_lose_nothing(tmp_path, seed):
    """A process that dies again and again, with tries under way: everything is delivered in the end, under one id."""
    receiver = FaultyReceiver(seed)
    world = VirtualDelivery(tmp_path, receiver, seed=seed)
    ids = set()
    for n in range(5):
        world.put(f"u{n}", f"host{n}", digest_minutes=1 if n == 0 else None)
        ids.update(world.add(f"u{n}", range(30)))
    for n in range(25):
        world.run(until_ms=world.now + 20 + 400 * n)
        world.turn()
        world.restart()
    world.run()
    rows = world.rows()
    assert rows.keys() == ids
    assert {row.state for row in rows.values()} == {DeliveryState.DELIVERED}
    assert all(len(sent) == 1 for sent in receiver.sent.values())
    assert {row.message or row.id for row in rows.values()} <= set(receiver.taken)


@pytest.mark.slow
def test_a_dead_endpoint_ends_in_dead_letters_after_days(tmp_path):
    """Tries go on for three days, seldomer and seldomer; then there are dead letters, and a replay has the same ids."""
    sent = []

    def answer(send, now):
        sent.append((now, send.message_id))
        return (20, ok()) if now > START_MS + 100 * HOUR_MS else (20, failed(500))

    world = VirtualDelivery(tmp_path, answer)
    world.put("ann", "host")
    ids = world.add("ann", range(3))
    world.run()
    assert world.states() == {"dead": 3}
    assert max(t for t, _ in sent) > START_MS + 40 * HOUR_MS
    assert world.now - START_MS <= 72 * HOUR_MS
    assert all(5 <= len([1 for _, id in sent if id == wanted]) <= 20 for wanted in ids)
    world.now = START_MS + 101 * HOUR_MS
    with world.database.writing() as c:
        count, names = deliveries.replay(c, "t", world.now, subscriber="ann")
        subscribers.wake_queues(c, "t", names, world.now)
    assert (count, names) == (3, ["ann"])
    world.run()
    assert world.states() == {"delivered": 3}
    assert {id for _, id in sent} == set(ids)


def test_the_next_route_is_asked_after_some_rounds(tmp_path):
    """A first route that fails is tried twice alone, then the second one delivers; a hiccup does not reach it."""
    sent = []

    def answer(send, now):
        sent.append(send.route.route)
        return (20, ok()) if send.route.route == "r2" or len(sent) == 2 else (20, failed(500))

    world = VirtualDelivery(tmp_path, answer)
    world.put("ann", "host1", "host2")
    world.add("ann", [1])
    world.run()
    assert sent == ["r1", "r1"]
    sent.clear()
    sent += [None, None, None]
    world.add("ann", [2])
    world.run()
    assert sent[3:] == ["r1", "r1", "r1", "r2"]
    assert world.states() == {"delivered": 2}


def test_gone_disables_a_route(tmp_path):
    """After 410 the route is disabled with the reason, the next one delivers, and no message goes to it again."""
    sent = []

    def answer(send, now):
        sent.append(send.route.route)
        return 20, SendOutcome(SendResult.GONE, "410", 410) if send.route.route == "r1" else ok()

    world = VirtualDelivery(tmp_path, answer, limits=DeliveryLimits(per_endpoint=1))
    world.put("ann", "host1", "host2")
    world.add("ann", range(5))
    world.run()
    assert sent == ["r1"] + ["r2"] * 5
    with world.database.reading() as c:
        route = subscribers.find_record(c, "t", "ann").routes[0]
    assert (route.state.value, route.reason) == ("disabled", "410")


def test_without_a_route_deliveries_wait_for_one(tmp_path):
    """A subscriber whose only route is gone keeps its deliveries; a new route gets them."""
    world = VirtualDelivery(tmp_path, lambda send, now: (20, SendOutcome(SendResult.GONE, "410", 410)))
    world.put("ann", "host1")
    world.add("ann", range(3))
    world.run(until_ms=START_MS + HOUR_MS)
    assert world.states() == {"pending": 3}
    assert "r1 is" in next(iter(world.rows().values())).reason
    world.answer = lambda send, now: (20, ok())
    world.put("ann", "host2")
    world.run(until_ms=START_MS + 2 * HOUR_MS)
    assert world.states() == {"delivered": 3}


def test_retry_after_is_honoured(tmp_path):
    """No try comes before the time that the receiver asked for."""
    tries = []

    def answer(send, now):
        tries.append(now)
        return (20, failed(503, 600_000)) if len(tries) == 1 else (20, ok())

    world = VirtualDelivery(tmp_path, answer)
    world.put("ann", "host")
    world.add("ann", [1])
    world.run()
    assert tries[1] - tries[0] >= 600_000


@pytest.mark.slow
def test_order_is_kept_where_asked(tmp_path):
    """An ordered subscriber gets each event after the one before it has ended, whatever fails."""
    receiver = FaultyReceiver(5, hangs=0.05)
    world = VirtualDelivery(tmp_path, receiver)
    world.put("ann", "host", ordered=True)
    ids = world.add("ann", range(60))
    world.run()
    order = [id for _, _, id in receiver.tries]
    firsts = sorted(ids, key=order.index)
    assert firsts == ids
    for one, following in pairwise(ids):
        assert max(n for n, id in enumerate(order) if id == one) < order.index(following)


@pytest.mark.slow
def test_a_breaker_leaves_an_endpoint_alone(tmp_path):
    """An endpoint that hangs gets a handful of tries, not one per delivery; after it works again everything comes."""
    tries = []

    def answer(send, now):
        tries.append(now)
        return (15_000, failed()) if now < START_MS + 600_000 else (20, ok())

    world = VirtualDelivery(tmp_path, answer, tick_ms=2_000)
    world.put("ann", "host")
    world.add("ann", range(300))
    world.run(until_ms=START_MS + 600_000)
    assert len(tries) < 60
    world.run()
    assert world.states() == {"delivered": 300}


@pytest.mark.slow
def test_one_hanging_endpoint_does_not_delay_others(tmp_path):
    """Deliveries to endpoints that work end as quickly beside one that hangs as without it."""

    def end_of(folder, hanging):
        folder.mkdir()
        ends = []

        def answer(send, now):
            if send.queue.record.name == "bad":
                return 15_000, failed()
            ends.append(now + 20)
            return 20, ok()

        world = VirtualDelivery(folder, answer)
        if hanging:
            world.put("bad", "bad")
            world.add("bad", range(500))
        for n in range(10):
            world.put(f"u{n}", f"host{n}")
            world.add(f"u{n}", range(50))
        world.run(until_ms=START_MS + 60_000)
        return max(ends) - START_MS

    assert end_of(tmp_path / "b", True) < 2 * end_of(tmp_path / "a", False)


@pytest.mark.slow
def test_a_hanging_endpoint_costs_few_writes(tmp_path, monkeypatch):
    """Deliveries behind an endpoint that hangs are left alone until it is tried again; a second route is used for all of them at once."""
    rows, settle = [], deliveries.settle
    monkeypatch.setattr(deliveries, "settle", lambda c, tenant, new: settle(c, tenant, rows.extend(new) or list(new)))
    bad = lambda send, now: (15_000, failed()) if send.route.target == "bad" else (20, ok())  # noqa: E731
    world = VirtualDelivery(tmp_path, bad)
    world.put("one", "bad")
    world.add("one", range(1_000))
    world.run(until_ms=START_MS + 16_000)
    assert min(one.next_ms for one in world.rows().values()) > world.now  # what is shown is when the queue is looked at
    world.run(until_ms=START_MS + 120_000)
    assert len(rows) < 40
    assert world.states() == {"pending": 1_000}
    world.put("two", "bad", "good")
    world.add("two", range(100))
    world.run(until_ms=START_MS + 600_000)
    assert sum(one.subscriber == "two" and one.route == "r2" for one in rows) >= 100
    assert world.states() == {"pending": 1_000, "delivered": 100}


def test_due_tenants_are_found_by_index(tmp_path):
    """A look for due queues, which comes several times a second, reads no queue that waits, however many there are."""
    world = VirtualDelivery(tmp_path, lambda *_: (20, ok()), tenants=("t", "u"))
    for name in "ab":
        world.put(name, "host")
    asked = []
    event.listen(world.database.engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
    with world.database.reading() as c:
        assert subscribers.due_tenants(c, world.now) == ["t"]
        (query, values) = asked[-1]
        plan = [row[-1] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any("subscribers_due (tenant=? AND next_ms<?)" in step for step in plan), plan
    assert not any("SCAN subscribers" in step for step in plan), plan


@pytest.mark.slow
def test_tenants_have_fair_shares(tmp_path):
    """A tenant with many slow deliveries does not keep another one waiting."""
    ends = {}

    def answer(send, now):
        name = send.queue.record.tenant
        milliseconds = 5_000 if name == "big" else 20
        ends.setdefault(name, []).append(now + milliseconds)
        return milliseconds, ok()

    world = VirtualDelivery(tmp_path, answer, tenants=("big", "small"), limits=DeliveryLimits(in_all=32))
    for n in range(20):
        world.put(f"b{n}", f"host{n}", tenant="big")
        world.add(f"b{n}", range(20), tenant="big")
    world.turn()
    world.put("s", "host", tenant="small")
    world.add("s", range(20), tenant="small")
    world.run()
    assert len(ends["big"]) == 400
    assert max(ends["small"]) - START_MS < 1_000


def test_digests_group_and_keep_their_id(tmp_path):
    """What comes within the minutes of a digest is one message, whose id and members do not change from try to try."""
    messages = []

    def answer(send, now):
        messages.append((send.message_id, tuple(sorted(one.position for one in send.members))))
        return (20, failed(500)) if len(messages) == 1 else (20, ok())

    world = VirtualDelivery(tmp_path, answer)
    world.put("ann", "host", digest_minutes=30)
    world.add("ann", range(10))
    world.now += 60_000
    world.add("ann", range(10, 15))
    world.run()
    assert messages == [(messages[0][0], tuple(range(15)))] * 2
    assert world.states() == {"delivered": 15}
    world.add("ann", [20])
    world.run()
    assert messages[-1][1] == (20,)
    assert messages[-1][0] != messages[0][0]


def test_mute_holds_and_unmute_delivers(tmp_path):
    """Deliveries of a muted subscriber are held; after unmute they come. A snooze ends by itself."""
    world = VirtualDelivery(tmp_path, lambda send, now: (20, ok()))
    world.put("ann", "host")

    def change(**fields):
        with world.database.writing() as c:
            subscribers.change_record(c, "t", "ann", world.now, **fields)

    change(muted=1)
    world.add("ann", range(3))
    world.run()
    assert world.states() == {"held": 3}
    change(muted=0, snoozed_until_ms=world.now + HOUR_MS)
    world.run(until_ms=world.now + HOUR_MS - 1)
    assert world.states() == {"held": 3}
    world.run()
    assert world.states() == {"delivered": 3}
