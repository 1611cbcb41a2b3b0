"""Which delivery is tried when, and by which route: queues and outcomes in, sends and changes out. No I/O, no clock.

Theory of operation. The naive way sends each delivery as it comes and sleeps between retries: one endpoint that hangs takes all
connections, and a crash forgets who sleeps. Here time is a column of the store, and a process leases the queues of subscribers that
are due (`take`). The core starts what may be started (`step`), hears how it ended (`finish`), and says what is to be written
(`drain`). If the process dies, leases end and somebody else takes the same deliveries, with the same ids.

- Shares: tenants take turns, and so do the queues of a tenant; one tenant has at most half of all tries at a time.
- Endpoints: each has some tries at a time. A queue that waits for one is parked beside it and costs nothing until a try ends.
- Breakers: after some failures in a row an endpoint is left alone for a while; then one try finds out. A delivery that
  meets an open breaker has a round behind it, as if it had failed, so that it goes on to its next route. Where there is none, its whole queue waits until the
  endpoint is tried again: thousands of deliveries behind an endpoint that hangs are neither read nor written meanwhile.
- Order: where asked, a queue has one try at a time, and the next delivery waits until the one before it has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from wherecast.broker.delivery.kinds.kind import SendOutcome, SendResult
from wherecast.broker.delivery.policy import backoff_ms, routes_of_round
from wherecast.broker.delivery.records import (
    NO_ROUTE,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    SubscriberRecord,
    SubscriberRoute,
)

#: Failures in a row that open a breaker; how long it is open at first and at most.
_FAILURES, _OPEN_MS, _LONGEST_OPEN_MS = 5, 5_000, 300_000
#: A feed is about to send it: look again.
_SOON_MS = 200
#: Queues that wait for one endpoint; more are given back, and looked at again after a while.
_PARKED, _AGAIN_MS = 64, 1_000
#: A round that asks all routes.
_LAST_ROUND = 1_000
#: Queues that one process holds.
_QUEUES = 1_024


class DeliveryLimits(NamedTuple):
    """Tries at a time to one endpoint and in all, and how long a delivery is tried."""

    per_endpoint: int = 16
    in_all: int = 256
    lifetime_ms: int = 3 * 86_400_000


class PlannedSend(NamedTuple):
    """A try that is to be made now: the deliveries of one message, by one route."""

    queue: DeliveryQueue
    members: tuple[Delivery, ...]
    route: SubscriberRoute
    endpoint: str | None

    @property
    def message_id(self) -> str:
        return self.members[0].message or self.members[0].id


class DisabledRoute(NamedTuple):
    tenant: str
    subscriber: str
    route: str
    target: str
    reason: str


class ReleasedQueue(NamedTuple):
    tenant: str
    number: int
    not_before_ms: int | None  # None: with the first of its deliveries


class DeliveryChanges(NamedTuple):
    """What is to be written."""

    changed: list[Delivery]
    disabled: list[DisabledRoute]
    released: list[ReleasedQueue]


class DeliveryQueue:
    """The due deliveries of one subscriber, while this process holds its lease."""

    def __init__(self, number: int, record: SubscriberRecord, groups: Iterable[tuple[Delivery, ...]]) -> None:
        self.number, self.record = number, record
        self.groups = deque(groups)
        self.in_flight = 0
        self.is_parked = False  # beside an endpoint
        self.is_in_line = False  # among the ready ones of its tenant
        self.not_before_ms: int | None = None
        self.gone: set[str] = set()  # routes that were disabled since

    @property
    def can_go_on(self) -> bool:
        """Whether a try may be planned."""
        return bool(self.groups) and not self.is_parked and not (self.record.ordered and self.in_flight)

    def routes(self, round: int) -> list[SubscriberRoute]:
        return routes_of_round([route for route in self.record.routes if route.route not in self.gone], round)

    def has_other_routes(self, one: Delivery) -> bool:
        """Whether a delivery has a route left to ask, in this round or a later one."""
        asked = len(self.routes(one.round))
        return one.place + 1 < asked or asked < len(self.routes(_LAST_ROUND))

    def stop_until(self, time_ms: int) -> None:
        """Leave the rest to whoever looks next, at a time."""
        self.groups.clear()
        self.not_before_ms = time_ms


class _Endpoint:
    """Tries under way, queues that wait, and the breaker."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.parked: deque[DeliveryQueue] = deque()
        self.failures = 0
        self.openings = 0
        self.open_until_ms = 0

    def is_open(self, now_ms: int) -> bool:
        """Whether it is left alone. When the time is over, one try finds out, and the others wait for it."""
        return self.failures >= _FAILURES and (now_ms < self.open_until_ms or self.in_flight > 0)

    def note(self, outcome: SendOutcome, now_ms: int, fraction: float) -> None:
        """Count failures of the endpoint; an answer such as 404 is about a path, and says that the endpoint works."""
        status = outcome.status
        is_down = outcome.result is SendResult.FAILED and (status is None or status >= 500 or status in (408, 429))
        if not is_down:
            self.failures = self.openings = 0
            return
        self.failures += 1
        if self.failures >= _FAILURES and now_ms >= self.open_until_ms:
            longest = min(_OPEN_MS << min(self.openings, 10), _LONGEST_OPEN_MS)
            self.open_until_ms = now_ms + int(longest * (0.5 + fraction / 2))
            self.openings += 1


class DeliveryCore:
    """The state of one process."""

    def __init__(
        self, limits: DeliveryLimits, endpoint_of: Callable[[str, SubscriberRoute], str | None], random: Random
    ) -> None:
        self.limits = limits
        self._endpoint_of = endpoint_of
        self._random = random
        self._endpoints: dict[str, _Endpoint] = {}
        self._ready: dict[str, deque[DeliveryQueue]] = {}  # by tenant, in the order of turns
        self._tenants: dict[str, int] = {}  # tries under way
        self._queues: dict[int, DeliveryQueue] = {}
        self._changes = DeliveryChanges([], [], [])

    # -- in and out -----------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many queues may be taken."""
        return _QUEUES - len(self._queues)

    @property
    def in_flight(self) -> int:
        return sum(self._tenants.values())

    def tenants(self) -> set[str]:
        """Whose queues are held."""
        return {queue.record.tenant for queue in self._queues.values()}

    def take(
        self, number: int, record: SubscriberRecord, due: Sequence[Delivery], not_before_ms: int | None = None
    ) -> None:
        """Take a leased queue with its due deliveries; those of one message come together.

        A queue that is held already is not taken again: its lease ended before its tries.
        """
        if number in self._queues:
            return
        groups: dict[str, list[Delivery]] = {}
        for one in due:
            groups.setdefault(one.message or one.id, []).append(one)
        queue = DeliveryQueue(number, record, map(tuple, groups.values()))
        queue.not_before_ms = not_before_ms
        self._queues[number] = queue
        self._go_on(queue)

    def drain(self) -> DeliveryChanges:
        """What is to be written now; the next call has what came after."""
        found, self._changes = self._changes, DeliveryChanges([], [], [])
        return found

    def undo(self, changes: DeliveryChanges) -> None:
        """What was drained could not be written; it comes again with the next call of `drain`."""
        new = self._changes
        self._changes = DeliveryChanges(
            changes.changed + new.changed, changes.disabled + new.disabled, changes.released + new.released
        )

    @property
    def has_changes(self) -> bool:
        return any(self._changes)

    # -- starting tries -----------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[PlannedSend]:
        """The tries to begin now: tenants in turn, queues of a tenant in turn."""
        sends: list[PlannedSend] = []
        free = self.limits.in_all - self.in_flight
        share = max(1, self.limits.in_all // 2)
        turns = deque(self._ready)
        while turns and len(sends) < free:
            tenant = turns.popleft()
            if self._tenants.get(tenant, 0) >= share:
                continue
            queue = self._ready[tenant].popleft()
            queue.is_in_line = False
            planned = self._plan(queue, now_ms)
            if planned is not None:
                sends.append(planned)
                queue.in_flight += 1
                self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
                if planned.endpoint is not None:
                    self._endpoints[planned.endpoint].in_flight += 1
            self._go_on(queue)
            if self._ready[tenant]:
                turns.append(tenant)
            else:
                del self._ready[tenant]
        served_last = [tenant for tenant in self._ready if tenant not in turns]
        self._ready = {tenant: self._ready[tenant] for tenant in (*turns, *served_last)}
        return sends

    def _go_on(self, queue: DeliveryQueue) -> None:
        """A queue gets in line, or waits for its tries, or is given back."""
        if queue.is_in_line:
            return
        if queue.can_go_on:
            queue.is_in_line = True
            self._ready.setdefault(queue.record.tenant, deque()).append(queue)
        elif not queue.groups and not queue.in_flight:
            del self._queues[queue.number]
            self._changes.released.append(ReleasedQueue(queue.record.tenant, queue.number, queue.not_before_ms))

    def _plan(self, queue: DeliveryQueue, now_ms: int) -> PlannedSend | None:
        """The next try of a queue. Deliveries that need none are settled on the way."""
        while queue.can_go_on:
            group = queue.groups[0]
            routes = queue.routes(group[0].round)
            if now_ms >= self._deadline_ms(group):
                queue.groups.popleft()
                self._settle(queue, _dead(group, group[0].reason or "it was not tried in time", now_ms))
                continue
            if not routes:
                queue.groups.popleft()
                self._settle(queue, self._without_route(queue, group))
                continue
            route = routes[min(group[0].place, len(routes) - 1)]
            endpoint = self._endpoint_of(queue.record.tenant, route)
            if endpoint is None:
                return PlannedSend(queue, queue.groups.popleft(), route, None)
            state = self._endpoints.setdefault(endpoint, _Endpoint())
            if state.is_open(now_ms) and queue.has_other_routes(group[0]):
                queue.groups.popleft()
                reason = f"{route.route} is left alone after {state.failures} failures in a row"
                failed = self._failed(queue, group, max(state.open_until_ms - now_ms, 0), reason, now_ms)
                self._again(queue, failed, now_ms)
            elif state.is_open(now_ms):
                queue.stop_until(max(state.open_until_ms, now_ms + _AGAIN_MS))
            elif state.in_flight >= self.limits.per_endpoint:
                self._park(queue, state, now_ms)
            else:
                return PlannedSend(queue, queue.groups.popleft(), route, endpoint)
        return None

    def _park(self, queue: DeliveryQueue, state: _Endpoint, now_ms: int) -> None:
        if len(state.parked) >= _PARKED:
            queue.stop_until(now_ms + _AGAIN_MS)
        else:
            queue.is_parked = True
            state.parked.append(queue)

    # -- hearing how they ended -----------------------------------------------------------------------------------------

    def finish(self, send: PlannedSend, outcome: SendOutcome, milliseconds: int, now_ms: int) -> None:
        """A try has ended."""
        queue, tenant = send.queue, send.queue.record.tenant
        queue.in_flight -= 1
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        if send.endpoint is not None:
            self._free(send.endpoint, outcome, now_ms)
        self._again(queue, self._after(send, outcome, milliseconds, now_ms), now_ms)
        self._go_on(queue)

    def _free(self, endpoint: str, outcome: SendOutcome, now_ms: int) -> None:
        state = self._endpoints[endpoint]
        state.in_flight -= 1
        state.note(outcome, now_ms, self._random.random())
        is_open = state.is_open(now_ms)
        while state.parked and (is_open or state.in_flight < self.limits.per_endpoint):
            queue = state.parked.popleft()
            queue.is_parked = False
            self._go_on(queue)
            if not is_open:
                break  # one try has ended, one may begin
        if not state.in_flight and not state.parked and not state.failures:
            del self._endpoints[endpoint]

    def _after(self, send: PlannedSend, outcome: SendOutcome, milliseconds: int, now_ms: int) -> tuple[Delivery, ...]:
        """The deliveries of a try after it."""
        queue, route, result = send.queue, send.route.route, outcome.result
        if result is SendResult.SOON:
            return _all(send.members, next_ms=now_ms + _SOON_MS)
        if result is SendResult.SKIPPED:
            return self._failed(queue, send.members, 0, outcome.reason or "", now_ms)
        attempt = DeliveryAttempt(
            now_ms - milliseconds, route, result.value, outcome.status, outcome.reason, milliseconds
        )
        tried = tuple(
            one._replace(tries=one.tries + 1, route=route, attempts=(*one.attempts, attempt)) for one in send.members
        )
        if result is SendResult.DELIVERED:
            return _all(tried, state=DeliveryState.DELIVERED, finished_ms=now_ms, reason=None)
        reason = outcome.reason or result.value
        if result is SendResult.GONE:
            if route not in queue.gone:
                queue.gone.add(route)
                record = queue.record
                self._changes.disabled.append(
                    DisabledRoute(record.tenant, record.name, route, send.route.target, reason)
                )
            return _all(tried, next_ms=now_ms, reason=reason)
        return self._failed(queue, tried, outcome.retry_after_ms or 0, reason, now_ms)

    def _failed(
        self, queue: DeliveryQueue, group: tuple[Delivery, ...], wait_ms: int, reason: str, now_ms: int
    ) -> tuple[Delivery, ...]:
        """On to the next route of the round, or to the next round, or given up."""
        first = group[0]
        if first.place + 1 < len(queue.routes(first.round)):
            return _all(group, place=first.place + 1, next_ms=now_ms, reason=reason)
        next_ms = now_ms + max(backoff_ms(first.round, self._random.random()), wait_ms)
        if next_ms >= self._deadline_ms(group):
            return _dead(group, reason, now_ms)
        return _all(group, round=first.round + 1, place=0, next_ms=next_ms, reason=reason)

    def _without_route(self, queue: DeliveryQueue, group: tuple[Delivery, ...]) -> tuple[Delivery, ...]:
        """It waits for a route: whoever changes one has it looked at again."""
        told = [f"{route.route} is {route.state.value}" for route in queue.record.routes]
        reason = NO_ROUTE + (f": {', '.join(told)}" if told else "")
        return _all(group, route=None, place=0, next_ms=self._deadline_ms(group), reason=reason)

    def _deadline_ms(self, group: tuple[Delivery, ...]) -> int:
        return min(one.since_ms for one in group) + self.limits.lifetime_ms

    def _again(self, queue: DeliveryQueue, group: tuple[Delivery, ...], now_ms: int) -> None:
        """Try a group again at once, by its next route, or settle it."""
        if group[0].state is DeliveryState.PENDING and group[0].next_ms <= now_ms:
            queue.groups.appendleft(group)
        else:
            self._settle(queue, group)

    def _settle(self, queue: DeliveryQueue, group: tuple[Delivery, ...]) -> None:
        self._changes.changed.extend(group)
        if queue.record.ordered and group[0].state is DeliveryState.PENDING:
            queue.stop_until(group[0].next_ms)


def _all(group: tuple[Delivery, ...], **fields: object) -> tuple[Delivery, ...]:
    return tuple(one._replace(**fields) for one in group)  # type: ignore[arg-type]  # fields of a delivery


def _dead(group: tuple[Delivery, ...], reason: str, now_ms: int) -> tuple[Delivery, ...]:
    return _all(group, state=DeliveryState.DEAD, finished_ms=now_ms, reason=reason)
