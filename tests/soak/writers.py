"""Writers: each changes its own subscriptions of a shared engine, while faults strike the calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.faults import Fault, faulty
from tests.soak.filters import BAD, POOL, SCHEMA, Filter, draw_filter
from tests.soak.history import History, Model
from tests.soak.tally import Tally

from wherecast import Engine, SubscriptionError, UnknownIdError

#: Ids that one writer may use: this bounds what is subscribed.
IDS = 60
#: Writers of an engine.
WRITERS = 3
#: How often a fault is prepared. It does not strike if the call is over before.
_FAULTY = 0.5


def owner(id: Any) -> int:
    """The writer that an id belongs to."""
    return int(id.partition(":")[0]) if isinstance(id, str) else id % WRITERS


def split(lists: list[list[Any]], numbers: list[int]) -> list[Model]:
    """The answer for some events of the pool, as a model for each writer. Raises AssertionError if an id is there twice."""
    found: list[Model] = [{} for _ in range(WRITERS)]
    for number, ids in zip(numbers, lists, strict=True):
        assert len(ids) == len(set(ids)), f"event {number}: an id is there twice: {sorted(ids, key=str)}"
        for id in ids:
            part = found[owner(id)]
            part[id] = part.get(id, 0) | (1 << number)
    return found


def cut(model: Model, mask: int) -> Model:
    """What an answer for some events shows of a model."""
    return {id: known & mask for id, known in model.items() if known & mask}


class Injector:
    """Prepares a fault at a random step of a call; learns from calls that get through how many steps they have."""

    def __init__(self, rng: random.Random, tally: Tally) -> None:
        self._rng, self._tally = rng, tally
        self._steps: dict[tuple[str, str], int] = {}

    @contextmanager
    def striking(self, operation: str) -> Iterator[None]:
        """A fault may strike in the block, and then leaves it."""
        rng = self._rng
        self._tally.count("operations")
        if rng.random() >= _FAULTY:
            yield
            return
        error = rng.choice([MemoryError, KeyboardInterrupt])
        step: Any = "call" if error is MemoryError else "line"
        known = self._steps.get((operation, step), 40)
        # Every other one near the end, where a change is published.
        fault = Fault(step, max(1, known - rng.randint(0, 8)) if rng.random() < 0.5 else rng.randint(1, known), error)
        try:
            with faulty(fault):
                yield
        finally:
            if fault.steps >= fault.at:
                self._tally.struck(operation)
                self._steps[operation, step] = known + 1  # in case calls have become longer
            else:
                self._steps[operation, step] = max(fault.steps, 1)


class Writer:
    """One writer: it knows what it has."""

    def __init__(self, number: int, engine: Engine, history: History, rng: random.Random, tally: Tally) -> None:
        self.number, self.engine, self.history = number, engine, history
        self._rng, self._tally = rng, tally
        self._injector = Injector(rng, tally)
        self._operations = [
            *(self.subscribe, self.replace, self.unsubscribe, self.unsubscribe, self.subscribe_many),
            *(self.replace_many, self.apply, self.apply_clashing),
        ]

    def step(self) -> None:
        """Make one change."""
        self._rng.choice(self._operations)()

    def _id(self) -> Any:
        n = self._rng.randrange(IDS)
        return n * WRITERS + self.number if n % 3 else f"{self.number}:{n}"

    def _some(self, most: int) -> dict[Any, Filter]:
        return {self._id(): draw_filter(self._rng) for _ in range(self._rng.randint(1, most))}

    # -- the calls ------------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        id, filter = self._id(), draw_filter(self._rng)
        wanted = SubscriptionError if id in self.history.model else None
        after = self.history.model if wanted else self.history.model | {id: filter.mask}
        self._run("subscribe", lambda: self.engine.subscribe(id, filter.text), after, wanted)

    def replace(self) -> None:
        id, filter = self._id(), draw_filter(self._rng)
        after = self.history.model | {id: filter.mask}
        self._run("replace", lambda: self.engine.subscribe(id, filter.text, replace=True), after)

    def unsubscribe(self) -> None:
        id, model = self._id(), self.history.model
        after = {known: mask for known, mask in model.items() if known != id}
        self._run("unsubscribe", lambda: self.engine.unsubscribe(id), after, None if id in model else UnknownIdError)

    def subscribe_many(self) -> None:
        """Also with rows that are refused: bad filters, ids that are taken, ids that are none."""
        model, some = self.history.model, self._some(12)
        rows: list[tuple[Any, Any]] = [(id, filter.text) for id, filter in some.items()]
        bad = [(f"{self.number}:bad{n}", self._rng.choice(BAD)) for n in range(self._rng.randint(0, 3))]
        bad += [(None, "a = 1")] * self._rng.randint(0, 1)
        rows += bad
        self._rng.shuffle(rows)
        new = {id: filter.mask for id, filter in some.items() if id not in model}
        refused = len(rows) - len(new)

        def work() -> None:
            outcome = self.engine.subscribe_many(rows)
            found = (outcome.registered, len(outcome.quarantined))
            self._tally.check(
                found == (len(new), refused), f"subscribe_many of {rows}: {found}, not {len(new), refused}"
            )

        self._run("subscribe_many", work, model | new)

    def replace_many(self) -> None:
        some = self._some(12)
        rows = {id: filter.text for id, filter in some.items()}

        def work() -> None:
            outcome = self.engine.subscribe_many(rows, replace=True)
            self._tally.check(outcome == (len(rows), []), f"subscribe_many with replace of {rows}: {outcome}")

        masks = {id: filter.mask for id, filter in some.items()}
        self._run("subscribe_many with replace", work, self.history.model | masks)

    def apply(self) -> None:
        some, gone = self._some(8), {self._id() for _ in range(self._rng.randint(0, 4))}
        delta = self._delta(some)
        left = {id: mask for id, mask in self.history.model.items() if id not in gone}
        after = left | {id: filter.mask for id, filter in some.items()}
        self._run("apply", lambda: self.engine.apply(delta, [*gone, *some]), after)

    def apply_clashing(self) -> None:
        """Ids that are in both engines and not among the removed ones are refused."""
        some = self._some(4)
        delta = self._delta(some)
        taken = some.keys() & self.history.model.keys()
        after = self.history.model if taken else self.history.model | {id: f.mask for id, f in some.items()}
        self._run("apply", lambda: self.engine.apply(delta), after, SubscriptionError if taken else None)

    def _delta(self, some: dict[Any, Filter]) -> Engine:
        delta = Engine(SCHEMA, matcher=self.engine.matcher)
        delta.subscribe_many({id: filter.text for id, filter in some.items()})
        return delta

    # -- how they are made ----------------------------------------------------------------------------------------

    def _run(self, name: str, work: Callable[[], None], after: Model, wanted: type[Exception] | None = None) -> None:
        """Make a change, perhaps with a fault in it; then it was made or not, and nothing in between."""
        self.history.begin(after)
        raised: BaseException | None = None
        try:
            with self._injector.striking(name):
                work()
        except (MemoryError, KeyboardInterrupt, SubscriptionError) as error:
            raised = error
        done = raised is None or self._is_done(after, raised, name)
        self.history.settle(done=done and wanted is None)
        struck = isinstance(raised, MemoryError | KeyboardInterrupt)
        if not struck:
            told = None if raised is None else type(raised)
            self._tally.check(told is wanted, f"{name}: raised {raised!r}, expected {wanted}")
        if self._rng.random() < 0.1:
            found = self._look()
            self._tally.check(found == self.history.model, f"after {name}: {found}, not {self.history.model}")

    def _is_done(self, after: Model, raised: BaseException, name: str) -> bool:
        """Whether a call that raised has made its change all the same. Only Ctrl-C may come when all is done."""
        before, found = self.history.model, self._look()
        allowed = [before, after] if isinstance(raised, KeyboardInterrupt) else [before]
        self._tally.check(found in allowed, f"{name} raised {raised!r}: {found}, not {before} or {after}")
        return found == after

    def _look(self) -> Model:
        """What the engine has of this writer, who is changing nothing now."""
        model = dict.fromkeys((id for id in self.engine if owner(id) == self.number), 0)
        return model | split(self.engine.match_batch(POOL).to_lists(), list(range(len(POOL))))[self.number]
