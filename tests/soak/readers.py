"""Readers: they ask an engine in every way, and date each answer by the histories of the writers."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.soak.filters import POOL
from tests.soak.history import History, Model, Window
from tests.soak.tally import Tally
from tests.soak.writers import Injector, cut, owner, split

from wherecast import Engine, SubscriptionError

#: Sums of what several writers may have had are enumerated up to here.
_MOST_SUMS = 20_000


class Reader:
    """Asks, and compares."""

    def __init__(self, engine: Engine, histories: list[History], rng: random.Random, tally: Tally) -> None:
        self.engine, self.histories = engine, histories
        self._rng, self._tally = rng, tally
        self._questions = [
            self.match,
            self.match_batch,
            self.match_batch,
            self.count,
            self.explain,
            self.iterate,
            self.size,
        ]

    def step(self) -> None:
        """Ask one question."""
        self._tally.count("operations")
        self._rng.choice(self._questions)()

    @contextmanager
    def _reading(self) -> Iterator[list[Window]]:
        with ExitStack() as stack:
            yield [stack.enter_context(history.reading()) for history in self.histories]

    def _ask(self, ask: Callable[[], Any], windows: list[Window]) -> Any:
        answer = ask()
        for window in windows:
            window.close()
        return answer

    def _events(self) -> list[int]:
        return self._rng.sample(range(len(POOL)), self._rng.choice([1, 5, len(POOL)]))

    def match(self) -> None:
        number = self._rng.randrange(len(POOL))
        with self._reading() as windows:
            ids = self._ask(lambda: self.engine.match(POOL[number]), windows)
            self.compare("match", split([ids], [number]), windows, 1 << number)

    def match_batch(self) -> None:
        numbers, threads = self._events(), self._rng.randint(1, 2)
        with self._reading() as windows:
            first = self.engine.version
            matches = self._ask(lambda: self.engine.match_batch([POOL[n] for n in numbers], threads=threads), windows)
            last = self.engine.version
            lists = matches.to_lists()  # when writers have gone on
            self._tally.check(first <= matches.version <= last, f"version {matches.version}, not {first} to {last}")
            self._tally.check(
                matches.counts().tolist() == [len(ids) for ids in lists], "counts() is not what is listed"
            )
            self.compare("match_batch", split(lists, numbers), windows, sum(1 << n for n in numbers))

    def compare(self, name: str, found: list[Model], windows: list[Window], mask: int) -> None:
        """The part of each writer is what it had at some moment of the read."""
        for part, window in zip(found, windows, strict=True):
            models = [cut(model, mask) for model in window.models()]
            self._tally.check(part in models, f"{name}: {part} is none of {models[-5:]}")

    def count(self) -> None:
        numbers, threads = self._events(), self._rng.randint(1, 2)
        events = [POOL[n] for n in numbers]
        with self._reading() as windows:
            found = self._ask(lambda: self.engine.count(events, threads=threads), windows)
            self._compare_sums("count", tuple(found.tolist()), windows, lambda model: _counts(model, numbers))

    def size(self) -> None:
        with self._reading() as windows:
            found = self._ask(lambda: len(self.engine), windows)
            self._compare_sums("len", (found,), windows, lambda model: (len(model),))

    def _compare_sums(
        self, name: str, found: tuple[int, ...], windows: list[Window], of: Callable[[Model], tuple[int, ...]]
    ) -> None:
        """A sum over all writers, each at some moment of the read."""
        sums = {(0,) * len(found)}
        for window in windows:
            parts = {of(model) for model in window.models()}
            if len(parts) * len(sums) > _MOST_SUMS:
                self._tally.count("unchecked")
                return
            sums = {tuple(map(sum, zip(one, other, strict=True))) for one in sums for other in parts}
        self._tally.check(found in sums, f"{name}: {found} is none of {list(sums)[:5]}")

    def explain(self) -> None:
        known = [id for history in self.histories for id in history.model]
        if not known:
            return
        id, number = self._rng.choice(known), self._rng.randrange(len(POOL))
        with self.histories[owner(id)].reading() as window:
            found = self._ask(lambda: self._explained(id, number), [window])
            wanted = {bool(m[id] >> number & 1) if id in m else None for m in window.models()}
            self._tally.check(found in wanted, f"explain of {id!r} and {POOL[number]}: {found}, not {wanted}")

    def _explained(self, id: Any, number: int) -> bool | None:
        try:
            return self.engine.explain(POOL[number], id).matches
        except SubscriptionError:
            return None

    def iterate(self) -> None:
        with self._reading() as windows:
            ids = self._ask(lambda: list(self.engine), windows)
            self._tally.check(len(ids) == len(set(ids)), f"an id comes twice: {sorted(ids, key=str)}")
            for number, window in enumerate(windows):
                part = {id for id in ids if owner(id) == number}
                wanted = [set(model) for model in window.models()]
                self._tally.check(part in wanted, f"iteration: {part} is none of {wanted[-5:]}")


def _counts(model: Model, numbers: list[int]) -> tuple[int, ...]:
    return tuple(sum(mask >> n & 1 for mask in model.values()) for n in numbers)


class Upkeep(Reader):
    """Merges, plans, saves and opens beside the others, with faults too: no subscription changes by it."""

    def __init__(
        self, engine: Engine, histories: list[History], rng: random.Random, tally: Tally, folder: Path
    ) -> None:
        super().__init__(engine, histories, rng, tally)
        self._injector = Injector(rng, tally)
        self._folder, self._saves = folder, 0
        self._questions = [self.merge, self.merge, self.plan, self.save_and_open]

    def merge(self) -> None:
        everything = self._rng.random() < 0.5
        self._try("merge", lambda: self.engine.merge(everything=everything))

    def plan(self) -> None:
        self._try("plan", lambda: self.engine.plan(POOL))

    def _try(self, name: str, work: Callable[[], object]) -> bool:
        """Whether it got through."""
        try:
            with self._injector.striking(name):
                work()
        except (MemoryError, KeyboardInterrupt):
            return False
        return True

    def save_and_open(self) -> None:
        """Save twice to one place, the second time perhaps with a fault: what is there is whole, the old or the new."""
        place = self._folder / f"snapshot{self._saves}"
        self._saves += 1
        with self._reading() as windows:
            self.engine.save(place)
            self._try("save", lambda: self.engine.save(place))
            for window in windows:
                window.close()
            opened = Engine.open(place)
            found = split(opened.match_batch(POOL).to_lists(), list(range(len(POOL))))
            self.compare("open", found, windows, (1 << len(POOL)) - 1)
            self._tally.check(len(opened) == len(list(opened)), "an opened engine has another size than it lists")
        shutil.rmtree(place)
