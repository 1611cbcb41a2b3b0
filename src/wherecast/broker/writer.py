"""The writer: one thread that makes all changes. Requests that wait at the same time share one commit.

Theory of operation. The naive way commits each request, and each commit waits for the disk. Here the thread takes whatever has
queued up while the last commit was under way, decides it space by space (`core`), commits once, and only then brings the
engines up to date and answers. A busy broker makes large groups, an idle one answers at once; no timer is involved.

If the commit fails, nobody is answered and no engine has changed. If it is not known whether it failed (the connection broke),
the next group sees it: the version of a space in the store is ahead of its engine, and the engine follows.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlalchemy import Connection, text

from wherecast.broker import clock
from wherecast.broker.core import Answer, Command, Decision, decide, ids_of
from wherecast.broker.engines import SpaceEngine
from wherecast.broker.problems import Problem, not_found, unavailable
from wherecast.broker.store import answers, audit, event_log, spaces, subscriptions
from wherecast.broker.store.answers import StoredAnswer
from wherecast.broker.store.database import BrokerDatabase
from wherecast.errors import WherecastError

if TYPE_CHECKING:
    from asyncio import Future

_log = logging.getLogger(__name__)

#: Jobs of one group, and jobs that may wait.
_GROUP, _BACKLOG = 2_000, 50_000


class OnceKey(NamedTuple):
    """An idempotency key: the same request with the same key is done once, and answered the same."""

    key: str
    request: str  # SHA-256 of what is asked
    write: Callable[[Any], str]  # the answer as JSON


class Repeated(NamedTuple):
    """The answer to a request that was made before."""

    answer: str


class ServedSpace(Protocol):
    """What the writer needs to know of a space."""

    tenant: str
    space: int
    engine: SpaceEngine


class Job(NamedTuple):
    space: ServedSpace
    command: Command
    actor: str
    once: OnceKey | None
    done: Future[Answer | Repeated]


class Transaction(NamedTuple):
    """Any other change: it gets a connection, and its result is told after the commit."""

    change: Callable[[Connection, int], Any]
    done: Future[Any]


class GroupOutcome(NamedTuple):
    """What a group did to one space; told to `on_commit`."""

    space: ServedSpace
    decision: Decision
    before: int  # the version that the group began with


class Writer:
    """Makes changes durable, then visible, then answers."""

    def __init__(
        self, database: BrokerDatabase, on_commit: Callable[[list[GroupOutcome], list[Callable[[], None]]], None]
    ) -> None:
        """`on_commit` is called in the writer's thread, with what happened and the answers to give afterwards."""
        self.database = database
        self._on_commit = on_commit
        self._queue: queue.SimpleQueue[Job | Transaction | None] = queue.SimpleQueue()
        self._later: list[Job | Transaction] = []
        self._thread = threading.Thread(target=self._run, name="wherecast-writer", daemon=True)
        self.group_sizes: Callable[[int], None] = lambda _: None  # for metrics

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued, then end."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    @property
    def backlog(self) -> int:
        return self._queue.qsize()

    def put(self, job: Job | Transaction) -> None:
        """Queue a job; its future is finished by the callables that `on_commit` gets."""
        if self._queue.qsize() >= _BACKLOG:
            raise unavailable("the broker is busy: too many requests wait for the disk")
        self._queue.put(job)

    def _run(self) -> None:
        ended = False
        while not (ended and not self._later):
            jobs, self._later = self._later, []
            while len(jobs) < _GROUP:
                try:
                    job = self._queue.get(block=not jobs and not ended)
                except queue.Empty:
                    break
                if job is None:
                    ended = True
                else:
                    jobs.append(job)
            if jobs:
                self.group_sizes(len(jobs))
                self._commit(jobs)

    def _commit(self, jobs: list[Job | Transaction]) -> None:
        told: list[Callable[[], None]] = []
        outcomes: list[GroupOutcome] = []
        now = clock.now_ms()
        try:
            with self.database.writing() as connection:
                told += [_transact(connection, job, now) for job in jobs if isinstance(job, Transaction)]
                for space, own in self._by_space([job for job in jobs if isinstance(job, Job)]):
                    outcomes += self._decide(connection, space, own, now, told)
                if outcomes and not self.database.is_sqlite:
                    connection.execute(text("SELECT pg_notify('wherecast', '')"))
            for outcome in outcomes:
                self._make_live(outcome)
            self._on_commit(outcomes, told)
        except WherecastError as error:
            _log.warning("commit=failed jobs=%d reason=%s", len(jobs), error)
            self._fail(jobs, unavailable(str(error)))
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not end the thread that everybody waits for
            _log.exception("commit=failed jobs=%d", len(jobs))
            self._fail(jobs, Problem(500, "internal", f"internal error: {type(error).__name__}"))

    def _make_live(self, outcome: GroupOutcome) -> None:
        space, decision, before = outcome
        engine = space.engine  # may be another than the one that matched: a schema that grew brings a new one
        if decision.rows and engine.version == before:
            engine.apply(decision.rows.values(), decision.counters.version)
        elif decision.rows:
            with self.database.reading() as connection:
                engine.follow(connection, space.tenant, space.space)

    def _fail(self, jobs: list[Job | Transaction], problem: Problem) -> None:
        waiting = set(map(id, self._later))
        self._on_commit([], [_failing(job, problem) for job in jobs if id(job) not in waiting])

    def _by_space(self, jobs: list[Job]) -> list[tuple[ServedSpace, list[Job]]]:
        """Jobs by space, in a fixed order of spaces so that processes do not wait for each other in a circle.

        Of several jobs with one idempotency key the first is done; the others find its answer in the next group.
        """
        found: dict[int, tuple[ServedSpace, list[Job]]] = {}
        keys: set[tuple[str, str]] = set()
        for job in jobs:
            if job.once is not None:
                key = (job.space.tenant, job.once.key)
                if key in keys:
                    self._later.append(job)
                    continue
                keys.add(key)
            found.setdefault(job.space.space, (job.space, []))[1].append(job)
        return [found[number] for number in sorted(found)]

    def _decide(
        self, connection: Connection, space: ServedSpace, jobs: list[Job], now: int, told: list[Callable[[], None]]
    ) -> list[GroupOutcome]:
        tenant, number = space.tenant, space.space
        counters = spaces.hold_space(connection, tenant, number)
        if counters is None:
            told += [_telling(job, not_found("space", number)) for job in jobs]
            return []
        jobs = _without_repeated(connection, tenant, jobs, told)
        engine = space.engine
        if counters.version != engine.version:
            engine.follow(connection, tenant, number, counters.version)
        commands = [job.command for job in jobs]
        ids = ids_of(commands)
        known = subscriptions.find_many(connection, tenant, number, ids) if ids else {}
        decision = decide(counters, known, commands, now, engine.find)
        if decision.rows:
            subscriptions.write_many(connection, tenant, number, decision.rows.values(), counters.numbers)
        if decision.entry is not None:
            event_log.append(connection, tenant, number, decision.entry)
        if decision.counters != counters:
            spaces.set_counters(connection, tenant, number, decision.counters)
        for job, answer, note in zip(jobs, decision.answers, decision.notes, strict=True):
            if note is not None:
                audit.write(connection, tenant, now, job.actor, *note)
            if job.once is not None and not isinstance(answer, Problem):
                stored = StoredAnswer(job.once.request, job.once.write(answer))
                answers.keep_answer(connection, tenant, job.once.key, stored, now)
            told.append(_telling(job, answer))
        return [GroupOutcome(space, decision, counters.version)]


def _without_repeated(
    connection: Connection, tenant: str, jobs: Sequence[Job], told: list[Callable[[], None]]
) -> list[Job]:
    """Answer what was answered before; the others are left to do."""
    keys = [job.once.key for job in jobs if job.once is not None]
    before = answers.find_answers(connection, tenant, keys) if keys else {}
    left = []
    for job in jobs:
        stored = before.get(job.once.key) if job.once is not None else None
        if stored is None or job.once is None:
            left.append(job)
        elif stored.request == job.once.request:
            told.append(_telling(job, Repeated(stored.answer)))
        else:
            problem = Problem(
                422, "idempotency-key", "the idempotency key was used for another request; take a new one"
            )
            told.append(_telling(job, problem))
    return left


def _transact(connection: Connection, job: Transaction, now: int) -> Callable[[], None]:
    try:
        with connection.begin_nested():
            result = job.change(connection, now)
    except Problem as problem:
        return _failing(job, problem)
    return lambda: _finish(job.done, result)


def _telling(job: Job, answer: Answer | Repeated) -> Callable[[], None]:
    return lambda: _finish(job.done, answer)


def _failing(job: Job | Transaction, problem: Problem) -> Callable[[], None]:
    def fail() -> None:
        if not job.done.done():
            job.done.set_exception(problem)

    return fail


def _finish(future: Future[Any], result: Any) -> None:
    if not future.done():  # its request may have gone away
        future.set_result(result)
