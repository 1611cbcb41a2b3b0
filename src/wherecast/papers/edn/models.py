"""Subscriptions of the six kinds that the Event Distribution Network paper asks for (section II), over one kind of event.

An event is a document with a channel, a topic of four levels, a price of a symbol, about 60 words and a vector of numbers that says what it is about.
Each kind has its own subscriptions, and each subscription says in Python what it means (`Subscription.holds`): that is the naive evaluator, which knows
nothing of the index. Everything popular is so by a law like Zipf's.

| kind | subscription |
|---|---|
| channel | `channel = 'c17'` |
| topic | `topic MATCHES 'a3/+/c5/#'` |
| attribute | `symbol = 's8' AND price < 31.4` |
| keyword | `KEYWORDS(body, 'w12', 'w340')` |
| similarity | `SIMILAR(about, ARRAY(...)) >= 0.7` |
| pattern | `PATTERN (symbol = 's8' AND price < 20 THEN symbol = 's8' AND price > 80 WITHIN INTERVAL 5 MINUTES)` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.kernels.arrays import Longs

KINDS = ("channel", "topic", "attribute", "keyword", "similarity", "pattern")
DIMENSIONS = 64
SCHEMA = {
    "ts": "timestamp",
    "channel": "string",
    "topic": "string",
    "symbol": "string",
    "price": "double",
    "body": "string",
    "about": f"vector({DIMENSIONS})",
}
#: Different channels, names of a level, symbols, words; and subjects that vectors are near to.
CHANNELS, NAMES, SYMBOLS, WORDS, SUBJECTS = 2_000, (10, 20, 40, 40), 2_000, 20_000, 200
#: Seconds between two events, and those of a pattern's window.
STEP_S, WINDOW_S = 1, 300
_FIRST_S = 1_800_000_000
#: A vector's distance from its subject, and the similarity that is asked for.
_SPREAD, _LIMIT = 0.6, 0.7

Event = dict[str, Any]


class Subscription(NamedTuple):
    """A subscription, and what it means."""

    text: str
    holds: Callable[[Event], bool]  # of a pattern: whether the event is its first step
    then: Callable[[Event], bool] | None = None  # of a pattern: whether it is its second step


def _popular(rng: np.random.Generator, n: int, size: Any, slope: float = 1.0) -> Longs:
    """Numbers below n, the first ones most often."""
    chances = np.arange(1, n + 1) ** -slope
    found: Longs = rng.choice(n, size, p=chances / chances.sum())
    return found


def _vectors(rng: np.random.Generator, n: int, subjects: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    near = subjects[_popular(rng, SUBJECTS, n)] + _SPREAD * rng.normal(size=(n, DIMENSIONS))
    return near.astype(np.float32)


def make_events(n: int, seed: int) -> pa.Table:
    """A stream of events, one each second."""
    rng = np.random.default_rng((seed, 1))
    texts = (_popular(rng, WORDS, size) for size in rng.integers(30, 91, n).tolist())
    topics = np.stack([_popular(rng, fan, n) for fan in NAMES], 1).tolist()
    about = _vectors(rng, n, _subjects(seed))
    ts = (_FIRST_S + STEP_S * np.arange(n)) * 1_000_000
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "channel": [f"c{i}" for i in _popular(rng, CHANNELS, n).tolist()],
            "topic": ["/".join(f"{level}{i}" for level, i in zip("abcd", row, strict=True)) for row in topics],
            "symbol": [f"s{i}" for i in _popular(rng, SYMBOLS, n).tolist()],
            "price": np.round(100 * rng.random(n), 2),
            "body": [" ".join(f"w{i}" for i in text.tolist()) for text in texts],
            "about": pa.FixedSizeListArray.from_arrays(pa.array(about.ravel()), DIMENSIONS),
        }
    )


def _subjects(seed: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng((seed, 0)).normal(size=(SUBJECTS, DIMENSIONS))


def make_subscriptions(kind: str, n: int, seed: int) -> list[Subscription]:
    """Subscriptions of one kind."""
    rng = np.random.default_rng((seed, 2 + KINDS.index(kind)))
    if kind == "similarity":
        return [_similar(vector) for vector in _vectors(rng, n, _subjects(seed))]
    make = {"channel": _channel, "topic": _topic, "attribute": _attribute, "keyword": _keyword, "pattern": _pattern}[
        kind
    ]
    return [make(rng) for _ in range(n)]


def _channel(rng: np.random.Generator) -> Subscription:
    name = f"c{_popular(rng, CHANNELS, 1, 0.5)[0]}"
    return Subscription(f"channel = '{name}'", lambda event: event["channel"] == name)


def _topic(rng: np.random.Generator) -> Subscription:
    """Two to four levels, some of them `+`, and `#` behind two or three."""
    depth = int(rng.integers(2, 5))
    levels = [f"{level}{rng.integers(fan)}" for level, fan in zip("abcd", NAMES, strict=True)][:depth]
    levels = ["+" if rng.random() < 0.15 else level for level in levels]
    is_open = depth < len(NAMES)

    def holds(event: Event) -> bool:
        own = event["topic"].split("/")
        pairs = zip(levels, own, strict=False)
        return (len(own) == depth or is_open) and all(level in ("+", name) for level, name in pairs)

    return Subscription(f"topic MATCHES '{'/'.join([*levels, '#'] if is_open else levels)}'", holds)


def _attribute(rng: np.random.Generator) -> Subscription:
    symbol, limit = f"s{_popular(rng, SYMBOLS, 1, 0.5)[0]}", round(float(100 * rng.random()), 2)
    return Subscription(
        f"symbol = '{symbol}' AND price < {limit}",
        lambda event: event["symbol"] == symbol and event["price"] < limit,
    )


def _keyword(rng: np.random.Generator) -> Subscription:
    words = {f"w{i}" for i in _popular(rng, WORDS, int(rng.integers(1, 4)), 0.4).tolist()}
    listed = ", ".join(f"'{word}'" for word in sorted(words))
    return Subscription(f"KEYWORDS(body, {listed})", lambda event: words <= set(event["body"].split()))


def _similar(vector: npt.NDArray[np.float32]) -> Subscription:
    wanted = vector.astype(np.float64)
    wanted /= np.linalg.norm(wanted)

    def holds(event: Event) -> bool:
        own = np.asarray(event["about"], np.float64)
        return bool(own @ wanted >= _LIMIT * np.linalg.norm(own))

    return Subscription(f"SIMILAR(about, ARRAY({','.join(map(str, vector.tolist()))})) >= {_LIMIT}", holds)


def _pattern(rng: np.random.Generator) -> Subscription:
    """A price that is low, then high."""
    symbol, low = f"s{_popular(rng, SYMBOLS, 1)[0]}", round(float(50 * rng.random()), 2)
    high = round(50 + low, 2)
    steps = f"symbol = '{symbol}' AND price < {low} THEN symbol = '{symbol}' AND price > {high}"
    return Subscription(
        f"PATTERN ({steps} WITHIN INTERVAL {WINDOW_S} SECONDS)",
        lambda event: event["symbol"] == symbol and event["price"] < low,
        lambda event: event["symbol"] == symbol and event["price"] > high,
    )


def find_naively(subscriptions: list[Subscription], events: list[Event]) -> set[tuple[int, int]]:
    """Pairs of event and subscription, by trying each subscription on each event; of a pattern, the event that completes it."""
    found = set()
    for number, (_, holds, then) in enumerate(subscriptions):
        begun = None  # when the last event came that may begin a match
        for at, event in enumerate(events):
            if then is None:
                if holds(event):
                    found.add((at, number))
            elif begun is not None and then(event) and event["ts"].timestamp() - begun <= WINDOW_S:
                found.add((at, number))
                begun = None
            elif holds(event):
                begun = event["ts"].timestamp()
    return found
