"""The library under load: engines with readers, writers and upkeep at the same time, and faults in every write call.

It runs in rounds. A round takes an engine, lets all threads at it, and then, when all is quiet, compares the engine with
the models to the last subscription, saves it, and opens it again for its next round. Engines of several matchers take turns.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.soak.filters import POOL, SCHEMA
from tests.soak.history import History, Model
from tests.soak.memory import compare_fifths, is_level, read_rss_mb
from tests.soak.readers import Reader, Upkeep
from tests.soak.tally import Tally
from tests.soak.writers import WRITERS, Writer, split

import wherecast.engine.segments as segments_module
from wherecast import Engine

#: The default has most of the rounds.
MATCHERS = ["adaptive", "scan", "adaptive", "counting"]
READERS = 3
#: A short log is sealed often, so that there is always something to merge.
_LOG_LIMIT = 12
#: The write calls; each of them must have been struck in the end.
WRITES = [
    *("subscribe", "replace", "unsubscribe", "subscribe_many", "subscribe_many with replace", "apply"),
    *("merge", "plan", "save"),
]
#: Threads that do not end after so long hang.
_LONGEST_S = 300


class Place:
    """An engine between two rounds: a snapshot, and what its writers have."""

    def __init__(self, matcher: str, folder: Path) -> None:
        self.matcher, self.path = matcher, folder
        self.models: list[Model] = [{} for _ in range(WRITERS)]
        Engine(SCHEMA, matcher=matcher).save(folder)


def soak_library(seconds: float, seed: int, report_s: float = 30, round_s: float = 15) -> Tally:
    """Load engines for some time; what was found, memory included."""
    tally, samples_mb = Tally("library"), []
    with _prepared(), tempfile.TemporaryDirectory(prefix="wherecast-soak-") as folder:
        places = [Place(matcher, Path(folder) / f"engine{n}") for n, matcher in enumerate(MATCHERS)]
        begin = reported = time.monotonic()  # kernels may have been compiled until here
        number = 0
        while (left_s := begin + seconds - time.monotonic()) > 0 and not tally.differences:
            run_round(places[number % len(places)], min(left_s, round_s), f"{seed} {number}", tally, samples_mb)
            number += 1
            if time.monotonic() - reported >= report_s:
                reported = time.monotonic()
                print(tally.line(rss_mb=round(samples_mb[-1])), flush=True)
    second, last = compare_fifths(samples_mb)
    tally.check(is_level(samples_mb), f"memory grows: {second:.0f} MB in the second fifth, {last:.0f} MB in the last")
    print(tally.line(rounds=number, rss_mb_second_fifth=round(second), rss_mb_last_fifth=round(last)))
    print("faults by call: " + ", ".join(f"{name} {tally.faults[name]}" for name in WRITES), flush=True)
    return tally


@contextmanager
def _prepared() -> Iterator[None]:
    """Logs are short, and faults make no noise: they are logged as they should be, and some strike a closing generator."""
    logger, hook, log_limit = logging.getLogger("wherecast"), sys.unraisablehook, segments_module.LOG_LIMIT
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda found: None if "fault at" in str(found.exc_value) else hook(found)
    segments_module.LOG_LIMIT = _LOG_LIMIT
    try:
        yield
    finally:
        segments_module.LOG_LIMIT, sys.unraisablehook = log_limit, hook
        logger.setLevel(level)


def run_round(place: Place, seconds: float, seed: str, tally: Tally, samples_mb: list[float]) -> None:
    """One round of an engine."""
    rng = random.Random(seed)
    engine = Engine.open(place.path)
    histories = [History(model) for model in place.models]
    stop = threading.Event()

    def work(who: str, step: Callable[[], None]) -> None:
        with tally.guarding(who):
            while not stop.is_set() and not tally.differences:
                step()

    workers: list[Any] = [
        *(Writer(n, engine, histories[n], random.Random(rng.random()), tally) for n in range(WRITERS)),
        *(Reader(engine, histories, random.Random(rng.random()), tally) for _ in range(READERS)),
    ]
    with tempfile.TemporaryDirectory(prefix="wherecast-soak-") as folder:
        workers.append(Upkeep(engine, histories, random.Random(rng.random()), tally, Path(folder)))
        threads = [threading.Thread(target=work, args=(type(w).__name__, w.step), daemon=True) for w in workers]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0 and not tally.differences:
            time.sleep(min(left_s, 1.0))
            samples_mb.append(read_rss_mb())
        stop.set()
        for thread in threads:
            thread.join(_LONGEST_S)
            tally.check(not thread.is_alive(), f"{thread.name} hangs")
    if not tally.differences:
        place.models = [history.model for history in histories]
        with tally.guarding("the end of a round"):
            _check_quiet(engine, place.models, tally)
            engine.save(place.path)


def _check_quiet(engine: Engine, models: list[Model], tally: Tally) -> None:
    """With nobody at work the engine is what the models are."""
    found = split(engine.match_batch(POOL).to_lists(), list(range(len(POOL))))
    everything = {id: mask for model in models for id, mask in model.items()}
    for part, model in zip(found, models, strict=True):
        wanted = {id: mask for id, mask in model.items() if mask}
        tally.check(part == wanted, f"when all is quiet: {part}, not {wanted}")
    tally.check(set(engine) == set(everything), "when all is quiet the ids differ")
    tally.check(len(engine) == len(everything), "when all is quiet the sizes differ")
    counts = [sum(mask >> n & 1 for mask in everything.values()) for n in range(len(POOL))]
    tally.check(engine.count(POOL).tolist() == counts, "when all is quiet the counts differ")
