"""A dictionary of symbols or a Bloom filter at the dispatcher: time, bytes, false positives and messages per second.

The paper's reckoning (section III.B): the link takes 100 us for a message of 1 KB, so a dispatcher sends a message every 100 us
that passes, unless its processor needs longer for a test. One summary holds all symbols; 55 % of the events are of one of
them. The paper does not say how its dictionary was searched. Ours is a hash table; a list that is searched from the front stands
beside it: that is the kind of search whose time is of the order of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wherecast.bench.measure import Contestant, WrongCountError, time_in_turns
from wherecast.kernels.arrays import Bools
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
from wherecast.partition.dispatch import Dispatcher
from wherecast.partition.signatures import sign_events
from wherecast.partition.summary import Bloom, Dictionary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-dictionary-or-bloom"
LINK_US = 100  # per message
PAPER_SYMBOLS = 100_000
PAPER_US = {"bloom": (3.1, 4.7), "dictionary": (653.0, 653.0)}
PAPER_MESSAGES = {"bloom": 18_181, "dictionary": 1_531}
#: Ways to test a symbol: the product's two, and a list searched from the front.
BLOOM, DICTIONARY, LIST = "bloom", "dictionary", "list"
SCHEMA = Schema.of({"symbol": "string"})


@dataclass(frozen=True, slots=True)
class DictionaryOrBloomSettings:
    """The paper's measurement, and others with fewer and more symbols."""

    symbols: tuple[int, ...] = (1_000, 10_000, PAPER_SYMBOLS, 1_000_000)
    wanted: float = 0.55
    n_events: int = 10_000
    rounds: int = 11


def run(settings: DictionaryOrBloomSettings, progress: Progress) -> list[Row]:
    """Every way at every number of symbols."""
    rows: list[Row] = []
    for n in settings.symbols:
        progress(f"{NAME}: {n:,} symbols")
        rows += _compare(n, settings)
    return rows


def _compare(n: int, settings: DictionaryOrBloomSettings) -> list[Row]:
    rng = np.random.default_rng(n)
    symbols = [f"S{i:08d}" for i in rng.choice(10**8, 2 * n, replace=False).tolist()]
    kept, others = symbols[:n], symbols[n:]
    wanted = rng.permutation(settings.n_events) < round(settings.wanted * settings.n_events)
    chosen = rng.integers(0, n, settings.n_events).tolist()
    names = [(kept if is_wanted else others)[i] for i, is_wanted in zip(chosen, wanted.tolist(), strict=True)]
    events = pa.record_batch({"symbol": names})
    signatures = sign_events(EventBatch.read(SCHEMA, pa.record_batch({"symbol": kept})), [0], 0)
    dictionary = Dictionary.empty()
    dictionary.insert(signatures)
    dispatchers = {BLOOM: _dispatcher(Bloom.build(signatures)), DICTIONARY: _dispatcher(dictionary)}
    passed = {way: _passed(dispatcher, events) for way, dispatcher in dispatchers.items()}
    held = set(kept)  # the answers of a list, sooner
    passed[LIST] = np.array([name in held for name in names])
    _check(passed, wanted)
    contestants = [
        *(Contestant(way, _router(dispatcher, events)) for way, dispatcher in dispatchers.items()),
        Contestant(LIST, lambda count: sum(name in kept for name in names[:count])),
    ]
    timings = time_in_turns(contestants, settings.n_events, rounds=settings.rounds, budget_s=0.1)
    sizes = {way: dispatcher.nbytes for way, dispatcher in dispatchers.items()} | {LIST: kept.__sizeof__()}
    return [
        _row(n, way, timing.us_per_event, timing.events, sizes[way], passed[way], wanted)
        for way, timing in timings.items()
    ]


def _row(n: int, way: str, us: float, timed: int, nbytes: int, passed: Bools, wanted: Bools) -> Row:
    return {
        "symbols": n,
        "way": way,
        "us_per_event": us,
        "events_timed": timed,
        "bytes": nbytes,
        "passed_percent": 100 * float(passed.mean()),
        "false_positive_percent": 100 * float(passed[~wanted].mean()),
        "messages_per_s": 1e6 / max(us, LINK_US * float(passed.mean())),
    }


def _dispatcher(summary: Bloom | Dictionary) -> Dispatcher:
    """One server, and one bucket with all symbols."""
    return Dispatcher((0,), 0, np.zeros(1, np.int32), summary, None)


def _router(dispatcher: Dispatcher, events: pa.RecordBatch) -> Callable[[int], int]:
    return lambda count: dispatcher.route(EventBatch.read(SCHEMA, events.slice(0, count))).servers.size


def _passed(dispatcher: Dispatcher, events: pa.RecordBatch) -> Bools:
    passed = np.zeros(events.num_rows, np.bool_)
    passed[dispatcher.route(EventBatch.read(SCHEMA, events)).event_ids] = True
    return passed


def _check(passed: dict[str, Bools], wanted: Bools) -> None:
    for way, found in passed.items():
        if (wanted & ~found).any():
            raise WrongCountError(f"{way}: an event that somebody wants is dropped; nothing is timed")
        if way != BLOOM and (found & ~wanted).any():
            raise WrongCountError(f"{way}: an event that nobody wants passes; nothing is timed")


def _find(rows: Rows, way: str, column: str) -> float:
    return float(choose(rows, symbols=PAPER_SYMBOLS, way=way)[0][column])


def _judge_bloom_time(rows: Rows) -> Finding:
    us = _find(rows, BLOOM, "us_per_event")
    return Finding(f"{show_number(us)} us", us <= PAPER_US[BLOOM][1])


def _judge_false_positives(rows: Rows) -> Finding:
    found = _find(rows, BLOOM, "false_positive_percent")
    return Finding(f"{show_number(found)} % of unwanted events", found < 1)


def _judge_dictionary(rows: Rows) -> Finding:
    us = _find(rows, DICTIONARY, "us_per_event")
    passed = _find(rows, DICTIONARY, "passed_percent") / 100
    return Finding(f"{show_number(us)} us, the link {show_number(LINK_US * passed)} us", us > LINK_US * passed)


def _judge_messages(rows: Rows, other: str) -> Finding:
    bloom, slow = (_find(rows, way, "messages_per_s") for way in (BLOOM, other))
    return Finding(f"{bloom / slow:.3g} times: {bloom:,.0f} against {slow:,.0f} a second", bloom > 10 * slow)


def plot(rows: Rows, axes: Axes) -> None:
    """Both axes logarithmic; the paper's figures at its number of symbols."""
    for (way, own), color in zip(group(rows, "way"), PALETTE, strict=False):
        axes.plot(numbers(own, "symbols"), numbers(own, "us_per_event"), "o-", color=color, label=str(way))
        if way in PAPER_US:
            figures = PAPER_US[str(way)]
            axes.plot([PAPER_SYMBOLS] * 2, figures, "v:", color=color, label=f"the paper's {way}")
    axes.axhline(LINK_US * 0.55, linestyle="--", color=REFERENCE, label="the link, per event")
    axes.set(xscale="log", yscale="log", xlabel="symbols in the summary", ylabel="time per event (us)")


def plot_bytes(rows: Rows, axes: Axes) -> None:
    """Memory; both axes logarithmic."""
    shown = [row for row in rows if row["way"] != LIST]  # its strings are not counted
    for (way, own), color in zip(group(shown, "way"), PALETTE, strict=False):
        axes.plot(numbers(own, "symbols"), numbers(own, "bytes") / 1024, "o-", color=color, label=str(way))
    axes.set(xscale="log", yscale="log", xlabel="symbols in the summary", ylabel="size at the dispatcher (KB)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Dictionary or Bloom filter: time to test an event",
    {
        "small": DictionaryOrBloomSettings(symbols=(1_000, PAPER_SYMBOLS), rounds=3),
        "paper": DictionaryOrBloomSettings(),
        "large": DictionaryOrBloomSettings(symbols=(10_000, PAPER_SYMBOLS, 1_000_000, 10_000_000)),
    },
    run,
    (
        Claim(PAPER, NAME, "Bloom: 100,000 symbols are tested in microseconds.", "3.1 to 4.7 us", _judge_bloom_time),
        Claim(PAPER, NAME, "Bloom: very few unwanted events pass.", "extremely low", _judge_false_positives),
        Claim(
            PAPER, NAME, "Dictionary: with 100,000 symbols the processor holds up the link.", "653 us", _judge_dictionary,
            why_not="Our dictionary is a hash table, whose look-up takes about as long as a Bloom filter's whatever its size.",
        ),
        Claim(
            PAPER, NAME, "Bloom filters let through more than ten times the messages of a dictionary.",
            "11.9 times: 18,181 against 1,531 a second", lambda rows: _judge_messages(rows, DICTIONARY),
            why_not="With a hash table both are as fast as the link. What a Bloom filter saves is memory.",
        ),
        Claim(
            PAPER, NAME, "The same, of a dictionary that is searched from the front.",
            "11.9 times: 18,181 against 1,531 a second", lambda rows: _judge_messages(rows, LIST),
        ),
    ),
    plot,
    more_drawings=(Drawing(f"{NAME}-bytes", "Dictionary or Bloom filter: memory", plot_bytes),),
    seconds={"small": 3, "paper": 25},
)  # fmt: skip
