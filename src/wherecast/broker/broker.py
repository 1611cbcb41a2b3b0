"""The broker of one process: spaces with their engines and tails, the writer, and what happens by itself.

Several processes may share a PostgreSQL database. Each has all engines and follows the change log: a notification wakes it, and
it looks every quarter of a second anyway. A publish takes over changes of other processes before it matches (see `writer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from wherecast.broker import clock
from wherecast.broker.core import Answer, Command, MoveSubscription, SubscriptionState
from wherecast.broker.engines import SpaceEngine
from wherecast.broker.log_entries import LoggedEvents
from wherecast.broker.metrics import Metrics
from wherecast.broker.problems import Problem, not_found, unavailable
from wherecast.broker.security import ALL_SCOPES, KnownTokens, Rates
from wherecast.broker.settings import Settings
from wherecast.broker.statistics import Statistics
from wherecast.broker.store import answers, event_log, spaces, subscriptions, tokens
from wherecast.broker.store.checkpoints import Checkpointer
from wherecast.broker.store.database import BrokerDatabase
from wherecast.broker.store.spaces import Quotas, StoredSpace
from wherecast.broker.tail import Tail
from wherecast.broker.writer import GroupOutcome, Job, OnceKey, Repeated, Transaction, Writer
from wherecast.errors import WherecastError
from wherecast.language.events.schema import Schema
from wherecast.language.syntax.limits import Limits

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: How often a process looks for changes of others, for subscriptions that expire, and for what is too old.
_LOOK_S, _EXPIRE_S, _TIDY_S = 0.25, 1.0, 60.0
#: Subscriptions that expire in one go.
_EXPIRE_AT_ONCE = 1_000
DEFAULT_TENANT = "default"


class Space:
    """A space that this process serves."""

    def __init__(self, stored: StoredSpace, engine: SpaceEngine) -> None:
        self.tenant = stored.tenant
        self.space = stored.space
        self.name = stored.name
        self.stored = stored
        self.engine = engine
        self.tail = Tail(stored.head)

    @property
    def schema(self) -> Schema:
        return self.engine.schema


class FeedPlace(Protocol):
    """What is known of an open feed: it has sent every match between two positions of a space."""

    space: Space
    start: int
    sent: int


class Broker:
    """All that one process does; the HTTP application is around it. Its methods are for the event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = BrokerDatabase(settings.database)
        self.limits = Limits()
        self.metrics = Metrics()
        self.statistics = Statistics()
        self.tokens = KnownTokens()
        self.request_rates = Rates(settings.max_requests_per_s)
        self.event_rates = Rates(settings.max_events_per_s)
        self.feeds: dict[str, int] = {}  # open feeds by tenant
        self.readers: dict[tuple[str, str], set[FeedPlace]] = {}  # open feeds by tenant and subscriber
        self.on_entry: Callable[[Space], None] = lambda _: None  # an entry of a space is in its tail
        self.on_feed: Callable[[], None] = lambda: None  # a feed was opened or closed
        self.first_token: str | None = None  # made at the first start, told once
        self.is_ready = False
        self._spaces: dict[tuple[str, str], Space] = {}
        self._loading: dict[tuple[str, str], asyncio.Task[Space]] = {}
        self._threads = ThreadPoolExecutor(8, "wherecast")
        self._writer = Writer(self.database, self._committed)
        self._writer.group_sizes = self.metrics.group_size.observe
        self._checkpointer = Checkpointer(self.database)
        self._tasks: list[asyncio.Task[None]] = []
        self._following = asyncio.Lock()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring the tables up to date and begin to serve; engines are loaded in the background."""
        self._loop = asyncio.get_running_loop()
        await self._in_thread(self.database.migrate)
        self._writer.start()
        self._checkpointer.start()
        self.first_token = await self.run(_make_first_token)
        self._tasks = [
            asyncio.create_task(self._load_all()),
            asyncio.create_task(self._every(_EXPIRE_S, self._expire)),
            asyncio.create_task(self._every(_TIDY_S, self._tidy)),
        ]
        if not self.database.is_sqlite:
            self._tasks.append(asyncio.create_task(self._every(_LOOK_S, self._follow)))
            self._threads.submit(self._listen)

    async def stop(self) -> None:
        """Finish what is queued, save the engines, close."""
        self._ended.set()
        for task in [*self._tasks, *self._loading.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._loading.values(), return_exceptions=True)
        await asyncio.to_thread(self._writer.stop)
        await asyncio.to_thread(self._checkpointer.stop)
        await asyncio.sleep(0)  # the answers of the last group
        with contextlib.suppress(WherecastError, OSError):
            await asyncio.to_thread(self._save, 1)
        await asyncio.to_thread(self._threads.shutdown)
        self.database.close()

    async def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        """Do something again and again; what fails is logged and tried again."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (WherecastError, Problem) as error:
                _log.warning("task=%s failed=%s", work.__name__, error)
            except Exception:  # noqa: BLE001 - it must go on, whatever it is
                _log.exception("task=%s failed", work.__name__)

    # -- doing things -----------------------------------------------------------------------------------------------

    async def do(self, space: Space, command: Command, actor: str, once: OnceKey | None = None) -> Answer | Repeated:
        """Have a command decided, made durable and live. Raises Problem."""
        done: asyncio.Future[Answer | Repeated] = self._loop.create_future()
        self._writer.put(Job(space, command, actor, once, done))
        answer = await done
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def run(self, change: Callable[[Connection, int], T]) -> T:
        """Make any other change, with a connection and the time."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._writer.put(Transaction(change, done))
        return await done

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread."""

        def work() -> T:
            with self.database.reading() as connection:
                return query(connection)

        try:
            return await self._in_thread(work)
        except WherecastError as error:
            raise unavailable(str(error)) from error

    async def compute(self, work: Callable[[], T]) -> T:
        """Run something that takes long in a thread."""
        return await self._in_thread(work)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._threads, work)

    def _committed(self, outcomes: list[GroupOutcome], told: list[Callable[[], None]]) -> None:
        """Called by the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._tell, outcomes, told)

    def _tell(self, outcomes: list[GroupOutcome], told: list[Callable[[], None]]) -> None:
        for space, decision, _ in outcomes:
            assert isinstance(space, Space)
            if decision.entry is not None:
                space.tail.append(decision.entry)
                self.on_entry(space)
                self.metrics.events.inc(len(decision.entry.lines))
                self.metrics.matches.inc(decision.entry.numbers.size)
                self.statistics.count(space.tenant, space.name, len(decision.entry.lines), decision.entry.numbers.size)
            self.metrics.changes.inc(len(decision.rows))
        for tell in told:
            tell()

    # -- spaces -----------------------------------------------------------------------------------------------------

    async def space(self, tenant: str, name: str) -> Space:
        """A space by name; loads it if another process made it. Raises Problem."""
        found = self._spaces.get((tenant, name))
        if found is not None:
            return found
        if (tenant, name) in self._loading:
            raise unavailable(f"the space {name!r} is being loaded")
        stored = await self.read(lambda c: spaces.find_space(c, tenant, name))
        if stored is None:
            raise not_found("space", name)
        return await self._load(stored)

    def served(self) -> list[Space]:
        return list(self._spaces.values())

    async def _load(self, stored: StoredSpace) -> Space:
        key = (stored.tenant, stored.name)
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load_now(stored))
        try:
            return await asyncio.shield(self._loading[key])
        finally:
            self._loading.pop(key, None)

    async def _load_now(self, stored: StoredSpace) -> Space:
        folder = self.settings.snapshot_folder
        engine = await self.read(lambda c: SpaceEngine.load(c, stored, folder, self.limits))
        space = self._spaces.setdefault((stored.tenant, stored.name), Space(stored, engine))
        _log.info(
            "space=%s/%s subscriptions=%d version=%d", space.tenant, space.name, len(engine.engine), engine.version
        )
        return space

    async def _load_all(self) -> None:
        while True:
            try:
                for stored in await self.read(spaces.every_space):
                    await self._load(stored)
                break
            except Problem as error:
                _log.warning("loading failed=%s; trying again", error)
                await asyncio.sleep(1)
        # A look through all of a million subscriptions for garbage stops everybody for a fifth of a second; they are not garbage.
        gc.collect()
        gc.freeze()
        self.is_ready = True

    async def grow_schema(self, space: Space, schema: Schema, write: Callable[[Connection, int], T]) -> T:
        """Give a space a schema with more attributes: build an engine aside, write, then swap.

        Everything else goes on meanwhile; changes of that time are taken over before the swap.
        """
        stored = space.stored._replace(schema=schema.to_json(), schema_version=space.engine.schema_version + 1)

        def build() -> SpaceEngine:
            with self.database.reading() as connection:
                version = spaces.find_space(connection, space.tenant, space.name)
                if version is None:
                    raise not_found("space", space.name)
                return SpaceEngine.build(connection, stored._replace(version=version.version), self.limits)

        new = await self.compute(build)

        result = await self.run(write)
        await self.read(lambda c: new.follow(c, space.tenant, space.space))
        new.marks = space.engine.marks
        space.engine, space.stored = new, stored
        return result

    def forget(self, space: Space) -> None:
        """The space is gone."""
        self._spaces.pop((space.tenant, space.name), None)

    # -- what happens by itself -------------------------------------------------------------------------------------

    async def _expire(self) -> None:
        by_number = {space.space: space for space in self.served()}
        for _, number, id in await self.read(lambda c: subscriptions.due(c, clock.now_ms(), _EXPIRE_AT_ONCE)):
            if number in by_number:
                await self.do(by_number[number], MoveSubscription(id, SubscriptionState.EXPIRED), "expiry")

    async def _tidy(self) -> None:
        now = clock.now_ms()
        await self.run(lambda c, _: answers.forget_answers(c, now - self.settings.answers_ms))
        await self.run(lambda c, _: tokens.forget_sessions(c, now))
        for space in self.served():
            await self.trim(space, now)
        await self._in_thread(lambda: self._save(self.settings.snapshot_every))

    async def trim(self, space: Space, now: int) -> int:
        """Remove events of a space that are too old or too many, and old tombstones."""
        stored = space.stored
        keep_ms = self.settings.retention_ms if stored.retention_ms is None else stored.retention_ms
        keep_bytes = self.settings.retention_bytes if stored.retention_bytes is None else stored.retention_bytes

        def change(connection: Connection, _: int) -> int:
            gone = event_log.trim(connection, space.tenant, space.space, now - keep_ms, keep_bytes)
            subscriptions.purge(connection, space.tenant, space.space, now - self.settings.tombstones_ms)
            return gone

        return await self.run(change)

    def _save(self, least: int) -> None:
        """Write snapshots of the engines with at least so many changes."""
        folder = self.settings.snapshot_folder
        for space in self.served():
            if folder is not None and space.engine.unsaved >= least:
                space.engine.save(space.stored, folder)

    async def _follow(self) -> None:
        """Take over what other processes did. While it is at it, further calls do nothing: it comes again soon."""
        if self._following.locked():
            return
        async with self._following:
            await self._follow_all()

    async def _follow_all(self) -> None:
        now = {(s.tenant, s.name): s for s in await self.read(spaces.every_space)}
        for key in self._spaces.keys() - now.keys():
            self._spaces.pop(key)
        for key, stored in now.items():
            space = self._spaces.get(key)
            if space is None or space.space != stored.space:
                self._spaces.pop(key, None)
                if self.is_ready:
                    await self._load(stored)
                continue
            if stored.schema_version > space.engine.schema_version:
                new = await self.read(partial(SpaceEngine.load, space=stored, folder=None, limits=self.limits))
                new.marks = space.engine.marks
                space.engine, space.stored = new, stored
            if stored.version > space.engine.version:
                await self.read(partial(space.engine.follow, tenant=space.tenant, space=space.space))
            if stored.head > space.tail.end:
                await self._catch_up(space)

    async def _catch_up(self, space: Space) -> None:
        """Bring the tail to the end of the log, which another process has written."""
        end = space.tail.end
        found: list[LoggedEvents] = await self.read(
            lambda c: event_log.read_from(c, space.tenant, space.space, end, 50)
        )
        for entry in found:
            space.tail.append(entry)
            self.on_entry(space)

    def _listen(self) -> None:
        """Wait for notifications of PostgreSQL, in a thread. They only wake up `_follow`: what counts is in the tables."""
        while not self._ended.is_set():
            try:
                with self.database.engine.connect() as connection:
                    raw: Any = connection.connection.driver_connection
                    raw.autocommit = True
                    raw.execute("LISTEN wherecast")
                    while not self._ended.is_set():
                        for _ in raw.notifies(timeout=0.5, stop_after=1):
                            asyncio.run_coroutine_threadsafe(self._follow(), self._loop)
            except Exception as error:  # noqa: BLE001 - the database may be gone for a while
                _log.warning("listening failed=%s; changes of other processes are found by looking", error)
                self._ended.wait(1)


def _make_first_token(connection: Connection, now: int) -> str | None:
    """The default tenant and a token that may do everything, if there is no token yet."""
    if tokens.has_tokens(connection):
        return None
    spaces.add_tenant(connection, DEFAULT_TENANT, Quotas(), now)
    return tokens.add_token(connection, DEFAULT_TENANT, "first", ALL_SCOPES, None, now)[1]
