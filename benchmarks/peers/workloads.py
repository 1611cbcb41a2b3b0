"""The ten reference workloads in a form that every peer can be given: filters as ORs of ANDs of tests, events as mappings.

The five of numbers come from `wherecast.bench`; the five of texts, many attributes, ORs, words and topics are drawn here. The same name and size give
the same filters and events everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.bench.workloads.catalogue import find_entry
from wherecast.bench.workloads.form import OPERATORS

EVENTS = 1_000
SIGNS = {"=": "is", "<>": "not", "<": "below", ">": "above"}


class Test(NamedTuple):
    """One condition on one attribute.

    Kinds: is, not, below, above, within (a pair, both ends in); has, lacks, ends, starts (of texts); word; topic (a pattern).
    """

    kind: str
    attribute: str
    value: Any


Clause = list[Test]


@dataclass(frozen=True, slots=True)
class PeerWorkload:
    """Filters and events over one schema; ids are 0, 1, 2, ..."""

    name: str
    schema: dict[str, str]
    filters: list[list[Clause]]  # of each filter, its alternatives
    texts: list[str]  # the same as SQL
    events: list[dict[str, Any]]

    def table(self) -> pa.Table:
        """The events as Arrow."""
        types = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
        fields = [(name, types[type_name]) for name, type_name in self.schema.items()]
        return pa.Table.from_pylist(self.events, pa.schema(fields))


def make(name: str, n: int) -> PeerWorkload:
    """The workload of this name with n filters."""
    return TEXTS[name](n) if name in TEXTS else numbers(name, n)


def numbers(name: str, n: int) -> PeerWorkload:
    """A workload of conjunctions over numbers (and the symbol of stock)."""
    entry, _ = find_entry(name)
    made = entry.make(n)
    ptr, attr, op, value = (part.tolist() for part in made.predicates)
    read = {"string": lambda v: f"S{int(v):05d}", "long": int, "double": float}
    reads = [read[type_name] for type_name in made.types]
    rows = [Test(SIGNS[OPERATORS[o]], made.attributes[a], reads[a](v)) for a, o, v in zip(attr, op, value, strict=True)]
    filters = [[rows[start:end]] for start, end in pairwise(ptr)]
    events = made.event_batch().slice(0, EVENTS).to_pylist()
    return PeerWorkload(name, {k: str(v) for k, v in made.schema.items()}, filters, made.filter_texts(), events)


# -- as people write them ---------------------------------------------------------------------------------------------


def rules(n: int) -> PeerWorkload:
    """Detection rules over a log."""
    rng = np.random.default_rng(11)
    words = [f"w{k:04d}" for k in range(3_000)]
    filters, texts = [], []
    for _ in range(n):
        kind, (a, b, c) = rng.integers(5), (words[k] for k in rng.integers(3_000, size=3))
        i, j = rng.integers(1, 50, 2).tolist()
        user, host = f"u{rng.integers(1_000)}", f"srv{rng.integers(50)}"
        if kind == 0:
            found = [[Test("has", "image", a), Test("has", "cmd", b)]]
            text = f"image LIKE '%{a}%' AND cmd LIKE '%{b}%'"
        elif kind == 1:
            found = [[Test("ends", "image", f"{w}.exe"), Test("lacks", "parent", c)] for w in (a, b)]
            text = f"(image LIKE '%{a}.exe' OR image LIKE '%{b}.exe') AND NOT parent LIKE '%{c}%'"
        elif kind == 2:
            found = [[Test("is", "event_id", i), Test("has", "cmd", a), Test("has", "cmd", b)]]
            text = f"event_id = {i} AND cmd LIKE '%{a}%' AND cmd LIKE '%{b}%'"
        elif kind == 3:
            found = [[Test("is", "user", user), Test("starts", "host", host)]]
            text = f"user = '{user}' AND host LIKE '{host}%'"
        else:
            either = (Test("has", "cmd", a), Test("has", "parent", b))
            found = [[Test("is", "event_id", k), test] for k in (i, j) for test in either]
            text = f"event_id IN ({i}, {j}) AND (cmd LIKE '%{a}%' OR parent LIKE '%{b}%')"
        filters.append(found)
        texts.append(text)
    events = [
        {
            "image": f"C:\\Windows\\System32\\{words[rng.integers(3_000)]}.exe",
            "cmd": " ".join(words[k] for k in rng.integers(0, 3_000, 12)),
            "parent": f"C:\\Windows\\{words[rng.integers(3_000)]}.exe",
            "event_id": int(rng.integers(1, 50)),
            "user": f"u{rng.integers(1_000)}",
            "host": f"srv{rng.integers(50)}-{rng.integers(50)}",
        }
        for _ in range(EVENTS)
    ]
    return PeerWorkload("rules", dict.fromkeys(events[0], "string") | {"event_id": "long"}, filters, texts, events)


def wide(n: int) -> PeerWorkload:
    """Three conditions over 200 optional attributes; an event has 40."""
    rng, attributes = np.random.default_rng(12), 200
    weights = np.arange(1, attributes + 1) ** -0.8
    weights /= weights.sum()

    def test(a: int) -> Test:
        low = int(rng.integers(100 if a % 2 == 0 else 1_000))
        if a % 2 == 0:
            return Test("is", f"a{a}", low)
        return Test("within", f"a{a}", (low, low + int(rng.integers(1, 60))))

    filters = [[[test(a) for a in rng.choice(attributes, 3, replace=False, p=weights).tolist()]] for _ in range(n)]
    events = [
        {f"a{a}": int(rng.integers(100 if a % 2 == 0 else 1_000)) for a in rng.choice(attributes, 40, False, weights)}
        for _ in range(EVENTS)
    ]
    texts = [" AND ".join(map(sql, filter[0])) for filter in filters]
    return PeerWorkload("wide", {f"a{a}": "long" for a in range(attributes)}, filters, texts, events)


def either(n: int) -> PeerWorkload:
    """An OR of four ANDs, with a <> around every third."""
    rng = np.random.default_rng(13)
    filters, texts = [], []
    for number in range(n):
        clauses = []
        for _ in range(4):
            a, b = rng.choice(10, 2, replace=False).tolist()
            equal, bound = int(rng.integers(200)), int(rng.integers(150, 200))
            clauses.append([Test("is", f"b{a}", equal), Test("above", f"b{b}", bound)])
        text = " OR ".join(f"({' AND '.join(map(sql, clause))})" for clause in clauses)
        if number % 3 == 0:
            barred = Test("not", f"b{rng.integers(10)}", int(rng.integers(200)))
            text = f"({text}) AND {sql(barred)}"
            clauses = [[*clause, barred] for clause in clauses]
        filters.append(clauses)
        texts.append(text)
    events = [{f"b{a}": v for a, v in enumerate(row)} for row in rng.integers(0, 200, (EVENTS, 10)).tolist()]
    return PeerWorkload("either", dict.fromkeys(events[0], "long"), filters, texts, events)


def words(n: int) -> PeerWorkload:
    """Two to four words that a text must have."""
    rng, vocabulary = np.random.default_rng(14), 100_000
    often, asked = (np.arange(1, vocabulary + 1) ** -power for power in (1.0, 0.4))
    often, asked = often / often.sum(), asked / asked.sum()
    sizes = rng.integers(2, 5, n).tolist()
    drawn = iter(rng.choice(vocabulary, sum(sizes), p=asked).tolist())
    filters = [[[Test("word", "body", f"t{next(drawn)}") for _ in range(size)]] for size in sizes]
    texts = [f"KEYWORDS(body, {', '.join(repr(test.value) for test in filter[0])})" for filter in filters]
    events = [
        {"body": " ".join(f"t{w}" for w in rng.choice(vocabulary, int(rng.integers(100, 300)), p=often))}
        for _ in range(EVENTS)
    ]
    return PeerWorkload("words", {"body": "string"}, filters, texts, events)


def topics(n: int) -> PeerWorkload:
    """Names of up to seven levels; `+` is one level, `#` the rest."""
    rng, fan = np.random.default_rng(15), np.array([20, 50, 200, 20, 10, 10, 5])

    def name(depth: int) -> list[str]:
        return [f"n{int(f * u * u)}" for f, u in zip(fan[:depth], rng.random(depth), strict=True)]

    def pattern() -> str:
        levels = ["+" if rng.random() < 0.05 else level for level in name(int(rng.integers(3, 8)))]
        return "/".join([*levels[:-1], "#"] if rng.random() < 0.3 else levels)

    filters = [[[Test("topic", "topic", pattern())]] for _ in range(n)]
    texts = [f"topic MATCHES '{filter[0][0].value}'" for filter in filters]
    events = [{"topic": "/".join(name(int(rng.integers(3, 8))))} for _ in range(EVENTS)]
    return PeerWorkload("topics", {"topic": "string"}, filters, texts, events)


def sql(test: Test) -> str:
    """A comparison as SQL."""
    if test.kind == "within":
        return f"{test.attribute} BETWEEN {test.value[0]} AND {test.value[1]}"
    sign = next(sign for sign, kind in SIGNS.items() if kind == test.kind)
    return f"{test.attribute} {sign} {test.value}"


TEXTS: dict[str, Callable[[int], PeerWorkload]] = {
    "rules": rules,
    "wide": wide,
    "either": either,
    "words": words,
    "topics": topics,
}
NAMES = ("topss", "stock", "light", "gryphon", "range", *TEXTS)
