"""A world for delivery on a virtual clock: the real store and core, receivers that fail, and no waiting."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

from sqlalchemy import event

from wherecast.broker.delivery.core import DeliveryCore, DeliveryLimits
from wherecast.broker.delivery.kinds.kind import SendOutcome, SendResult
from wherecast.broker.delivery.policy import first_try_ms
from wherecast.broker.delivery.queues import look_at, settle_and_lease
from wherecast.broker.delivery.records import (
    Delivery,
    DeliveryState,
    SubscriberRecord,
    SubscriberRoute,
    delivery_id,
)
from wherecast.broker.store import deliveries, spaces, subscribers
from wherecast.broker.store.database import BrokerDatabase
from wherecast.broker.store.deliveries import NewDelivery
from wherecast.broker.store.spaces import Quotas

TIMEOUT_MS = 15_000
START_MS = 1_800_000_000_000


class VirtualDelivery:
    """Delivers on a clock that jumps. `answer(send, now)` gives milliseconds and an outcome."""

    def __init__(self, folder, answer, *, seed=0, tenants=("t",), limits=None, tick_ms=0):
        self.database = BrokerDatabase(f"sqlite:///{folder / 'w.db'}")
        event.listen(self.database.engine, "connect", lambda c, _: c.execute("PRAGMA synchronous=OFF"))  # quick
        self.database.migrate()
        self.answer, self.now, self.random = answer, START_MS, Random(seed)
        self.limits = limits or DeliveryLimits()
        self.starts, self.tick_ms = 0, tick_ms  # what happens within a tick happens together
        with self.database.writing() as c:
            for tenant in tenants:
                spaces.add_tenant(c, tenant, Quotas(), START_MS)
        self.restart()

    def restart(self):
        """A new process: what the old one had in memory is gone, and its tries end unheard."""
        self.starts += 1
        self.owner = f"p{self.starts}"
        self.core = DeliveryCore(self.limits, lambda tenant, route: f"{tenant} {route.target}", self.random)
        self.ending: list = []
        self.count = 0

    def put(self, name, *routes, tenant="t", **fields):
        made = tuple(SubscriberRoute(f"r{n}", "webhook", target) for n, target in enumerate(routes, 1))
        with self.database.writing() as c:
            subscribers.put_record(
                c, SubscriberRecord(tenant, name, **fields, created_ms=self.now, updated_ms=self.now, routes=made)
            )

    def add(self, name, positions, tenant="t"):
        """Deliveries as the follower makes them; their ids."""
        with self.database.writing() as c:
            record = subscribers.find_record(c, tenant, name)
            due = first_try_ms(record, self.now)
            new = [
                Delivery(
                    delivery_id(tenant, 1, 0, position, name),
                    tenant,
                    name,
                    "quotes",
                    position,
                    ("s",),
                    b'{"id":"e","time":"2026-01-01T00:00:00Z","data":{}}',
                    DeliveryState.PENDING,
                    self.now,
                    self.now,
                    due,
                )
                for position in positions
            ]
            deliveries.add_deliveries(c, tenant, [NewDelivery(d, f"{name}-{d.position}") for d in new])
            subscribers.wake_queues(c, tenant, [name], due)
        return [one.id for one in new]

    def turn(self):
        """What the service does once, without I/O but the store."""
        changes = self.core.drain()
        with self.database.writing() as c:
            due = subscribers.due_tenants(c, self.now)
            leased = settle_and_lease(c, changes, due, self.now, self.owner, self.core.room)
        for tenant, numbers in leased.items():
            with self.database.writing() as c:
                for one in look_at(c, tenant, numbers, self.now):
                    one.write(c, tenant)
                    self.core.take(one.number, one.record, one.due, one.not_before_ms)
        for send in self.core.step(self.now):
            milliseconds, outcome = self.answer(send, self.now)
            self.count += 1
            heapq.heappush(self.ending, (self.now + milliseconds, self.count, send, outcome, milliseconds))

    def next_time(self):
        with self.database.reading() as c:
            times = [row[0] for row in c.exec_driver_sql("SELECT min(max(next_ms, lease_ms)) FROM subscribers")]
        return min([t for t in times if t is not None] + [e[0] for e in self.ending[:1]], default=None)

    def run(self, until_ms=None, turns=100_000):
        """Go on until nothing is left to do, or until a time."""
        for _ in range(turns):
            self.turn()
            if self.core.has_changes:
                continue
            at = self.next_time()
            if at is None or (until_ms is not None and at > until_ms):
                self.now = max(self.now, until_ms or 0)
                return
            self.now = max(self.now, at + self.tick_ms)
            while self.ending and self.ending[0][0] <= self.now:
                _, _, send, outcome, milliseconds = heapq.heappop(self.ending)
                self.core.finish(send, outcome, milliseconds, self.now)
        raise AssertionError(f"not finished after {turns} turns, at {(self.now - START_MS) / 1000:.0f} s")

    def states(self, tenant="t"):
        with self.database.reading() as c:
            return Counter(one.state.value for _, one in deliveries.list_deliveries(c, tenant, None, None, None, 10**6))

    def rows(self, tenant="t"):
        with self.database.reading() as c:
            return {one.id: one for _, one in deliveries.list_deliveries(c, tenant, None, None, None, 10**6)}


def ok(status=200):
    return SendOutcome(SendResult.DELIVERED, None, status)


def failed(status=None, retry_after_ms=None):
    return SendOutcome(SendResult.FAILED, f"status {status}", status, retry_after_ms)


class FaultyReceiver:
    """30 % errors, 10 % hangs, and answers that are lost after the message was taken. Keeps every id it took."""

    def __init__(self, seed, *, errors=0.3, hangs=0.1, lost=0.1):
        self.random = Random(seed)
        self.errors, self.hangs, self.lost = errors, hangs, lost
        self.taken: Counter = Counter()  # by id, with repeats
        self.sent: dict[tuple, set] = {}  # ids by the events of the message
        self.tries: list = []

    def __call__(self, send, now):
        self.tries.append((now, send.queue.record.name, send.message_id))
        for one in send.members:
            self.sent.setdefault((one.subscriber, one.position), set()).add(send.message_id)
        luck = self.random.random()
        if luck < self.errors:
            return 20, failed(self.random.choice([500, 503, 404, 429]))
        if luck < self.errors + self.hangs:
            if self.random.random() < 0.5:
                self.taken[send.message_id] += 1
            return TIMEOUT_MS, failed()
        self.taken[send.message_id] += 1
        if luck < self.errors + self.hangs + self.lost:
            return 30, failed()
        return 20, ok()
