"""`wherecast warm`: compile the kernels and archive Spark's classes now, so that the first match and the first session do not wait.

Theory of operation
-------------------
Numba compiles a kernel when it is first called, and keeps the code on disk. The naive way to compile all that engines usually need
is to use one; on one core that takes a minute. So two processes share the work: one goes from texts to filters and servers, the other from
boxes to a matcher and matches. Neither calls what the other compiles. Then an engine is used in earnest by one process: it finds nearly
everything on disk and compiles what lies between. The other compiles meanwhile what only some filters ask for: arithmetic, texts, words, topics,
and filters of many shapes. Whoever is ready first compiles what small sets of filters ask for.

Similar vectors and patterns over several events are left to their first use.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

_SCHEMA = {"symbol": "string", "price": "double", "volume": "bigint", "day": "date", "tags": "array<string>"}
#: More than the size from which on kernels are compiled at all.
_FILTERS = 400
#: Filters, events and values of an index that is matched leaf by leaf.
_LARGE = 40_000, 6_000, 1_000


def compile_kernels() -> None:
    """Compile what engines usually need; takes a moment if it is on disk."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for parts in (PARTS, (use_an_engine, use_rarer_filters, use_small_engines)):
            for done in [pool.submit(part) for part in parts]:
                done.result()


def archive_classes() -> str:
    """Have Java keep the classes of Spark, see `wherecast.class_archive`. Returns a sentence about the outcome: nothing depends on it."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed, so no classes of it are kept"
    from wherecast.class_archive import make_archive
    from wherecast.spark.session import SessionError, class_archive, find_java

    try:
        java = find_java()
        archive = class_archive(java)
        make_archive(java.home, archive)
    except (OSError, subprocess.SubprocessError, SessionError) as error:
        return f"Spark's classes are not kept, so sessions start more slowly: {error}"
    if not archive.exists():
        return f"Spark's classes are not kept, so sessions start more slowly: {java.home} cannot write an archive"
    return f"Spark's classes are kept in {archive}"


def compile_filters() -> None:
    """From texts to boxes and servers, and from events to codes."""
    from wherecast.engine.engine import Engine
    from wherecast.language.filters.compile import Compiler
    from wherecast.language.filters.numbered import number_filters
    from wherecast.partition.plan import Plan

    engine = Engine(_SCHEMA, matcher="scan")
    engine.subscribe_many(list(enumerate(_texts())))
    engine.match_batch(_events())
    found = Compiler(engine.schema).compile_many([f"symbol = 'S{n % 50}' AND price > {n}" for n in range(_FILTERS)])
    Plan.build(found.filters, np.ones(found.filters.n_filters, np.int64), engine.schema, 4)
    number_filters(found.filters, anyway=True)


def build_matcher() -> None:
    """From boxes to a matcher, and from codes to matches."""
    from wherecast.index.boxes import Boxes, EventCodes
    from wherecast.matchers.adaptive import AdaptiveMatcher

    def draw(n: int, n_events: int, width: int) -> tuple[Boxes, EventCodes]:
        clause, widths = np.arange(n), np.full(4, width, np.int32)
        attr = np.stack((clause % 3, np.full(n, 3)), 1).ravel().astype(np.int16)
        lo = np.stack((clause % (width - 3), clause % (width - 5)), 1).ravel().astype(np.int32)
        hi = np.stack((clause % (width - 3) + clause % 2, np.full(n, width - 1)), 1).ravel().astype(np.int32)
        none = np.full(n, -1, np.int32)
        boxes = Boxes(clause.astype(np.int32), 2 * np.arange(n + 1), attr, lo, hi, none, n, widths)
        codes = np.stack([np.arange(n_events) % (width - less) for less in (1, 2, 3, 4)], 1).astype(np.int32)
        return boxes, EventCodes(codes, np.zeros(1, np.int64), np.zeros(0, np.int32))

    boxes, events = draw(_FILTERS, 40, 10)
    for sample in (events, None):
        AdaptiveMatcher.build(boxes, sample).match(events)
    boxes, events = draw(*_LARGE)
    AdaptiveMatcher.build(boxes, events).match(events)


PARTS: tuple[Callable[[], None], ...] = (compile_filters, build_matcher)


def use_an_engine() -> None:
    """As a program would: load, plan, match in each form, change, save and open."""
    from wherecast.engine.engine import Engine

    engine, events = Engine(_SCHEMA), _events()
    engine.subscribe_many(list(enumerate(_texts())))
    engine.plan(events)
    with tempfile.TemporaryDirectory() as folder:
        engine.save(Path(folder) / "engine")
        opened = Engine.open(Path(folder) / "engine")
        for each in (engine, opened):
            each.match_batch(events).pairs()
            each.count(events)
            each.match(events.slice(0, 1).to_pylist()[0])
        engine.unsubscribe(7)
        engine.subscribe("late", "volume > 3")
        engine.match_batch(events).subscription_ids()
    plain = Engine({name: _SCHEMA[name] for name in ("symbol", "price")})
    plain.subscribe_many([(n, f"symbol = 'S{n % 20}' AND price < {n}") for n in range(_FILTERS)])
    plain.match_batch(events.slice(0, 100)).subscription_ids()  # a few events have a kernel of their own


def use_rarer_filters() -> None:
    """Filters of many shapes, over what is computed from events."""
    from wherecast.engine.engine import Engine

    engine = Engine(_SCHEMA | {"note": "string"}, matcher="scan")
    terms = [f"price {op} volume > 7" for op in "+-*/"]
    terms += [
        "symbol MATCHES 'S1/+/#'",
        "symbol NOT MATCHES 'S2/#'",
        "KEYWORDS(note, 'one', 'two')",
        "PHRASE(note, 'one two')",
    ]
    terms += [
        "upper(note) = 'ONE'",
        "trim(note) = 'two'",
        "note LIKE 'o%e_'",
        "note RLIKE 'o+ne'",
        "lpad(note, 9, 'x') = 'x'",
    ]
    terms += [
        "substring(note, 2) = 'x'",
        "split_part(note, ' ', 2) = 'x'",
        "replace(note, 'o', 'x') = 'x'",
        "concat(symbol, note) = 'x'",
        "instr(note, 'x') > 3",
    ]
    terms += [
        "cast(volume AS string) = '7'",
        "try_cast(note AS double) > 3",
        "try_cast(note AS bigint) > 3",
        "round(price) > 3",
    ]
    terms += ["tags[1] = 't1'", "datediff(day, DATE'2026-01-01') > 3"]
    engine.subscribe_many(
        list(enumerate(f"({a}) AND NOT ({b}) OR volume = 9" for a in terms for b in terms if a is not b))
    )
    events = _events()
    engine.match_batch(events.append_column("note", pa.array([f"one two {n}" for n in range(len(events))])))


def use_small_engines() -> None:
    """Filters with few different conditions: their numbers are bytes, and an event may meet all of them."""
    from wherecast.engine.engine import Engine

    events = _events()
    few = Engine({"price": "double"})
    few.subscribe("one", "price > 3")
    few.match({"price": 4.0})
    texts = [f"symbol = 'S{n % 20}' AND price < {n % 10}" for n in range(_FILTERS)]
    sets: list[list[tuple[int | str, str]]] = [
        [(n, f"price > {n % 5}") for n in range(40)],
        list(enumerate(texts)),
        [(f"s{n}", text) for n, text in enumerate(texts)],
    ]
    for filters in sets:
        engine = Engine({"symbol": "string", "price": "double"})
        engine.subscribe_many(filters)
        for some in (events.slice(0, 3), events):
            engine.match_batch(some).subscription_ids()
            engine.count(some)


def _texts() -> list[str]:
    forms = (
        "symbol = 'S{a}' AND price < {n}",
        "symbol = 'S{a}' AND (volume > {n} OR price BETWEEN {a} AND {n} + 0.5)",
        "symbol IN ('S{a}', 'S{n}') AND NOT volume = {n}",
        "symbol LIKE '%x{n}%' OR price > {n} AND day >= DATE'2026-01-01'",
        "lower(symbol) = 's{a}' AND array_contains(tags, 't{a}')",
        "price * volume > {n}",
    )
    return [forms[n % len(forms)].format(a=n % 20, n=n) for n in range(_FILTERS)]


def _events() -> pa.Table:
    rows = range(600)
    return pa.table(
        {
            "symbol": [f"S{n % 25}" for n in rows],
            "price": [n / 3 for n in rows],
            "volume": pa.array([None if n % 7 == 0 else n for n in rows], pa.int64()),
            "day": pa.array([20_000 + n for n in rows], pa.int32()).cast(pa.date32()),
            "tags": [[f"t{n % 20}"] for n in rows],
        }
    )
