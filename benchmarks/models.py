"""Topics, words, vectors and similar texts against throw-away prototypes, in one run and one thread.

    python benchmarks/models.py topics|words|vectors|texts [--subscriptions N] [--rounds N]

A million `topic MATCHES '...'` or `KEYWORDS(body, ...)` by default. The prototypes know nothing else: that of topics is given
levels as numbers and no text, both only count. Wherecast hands out ids. Contestants take turns; a line has the median of each in
processor time, microseconds per event, and what both found.

The prototype of vectors is NumPy's matrix product of all events and all vectors, 100,000 of 384 numbers by default, and nothing else: what it finds is
counted once, outside the measurement. `--law` says how they are drawn: `sphere` (independent normal numbers), `clusters` (embeddings: near 500 centres), and `guarded`
(as sphere, with one of 1,000 symbols beside each).

`words --form` has other sets of words: `short` (texts of 5 to 20 words), `long` (1,000 to 3,000), `flat` (filters ask for all words alike), `steep` (for common words), `any` (ANY_KEYWORD) and
`phrases` (two words that follow each other). The prototype counts the first four; of the others it has the texts cut and looked up only.

`texts` are 100,000 `SIMILAR(body, 'words') >= 0.3` of three to six words. The prototype is given words as numbers, and adds weights in inverted lists.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa

from wherecast import Engine


class Workload(NamedTuple):
    """Filters and events of one kind, and the prototype: how many matches it finds among all events."""

    schema: dict[str, str]
    filters: list[str]
    events: pa.Table
    count: Callable[[], int]
    found: int | None = None  # where the prototype does not count


# -- topics -------------------------------------------------------------------------------------------------------------

_DEEP, _FAN = 7, (20, 50, 200, 20, 10, 10, 5)


def topics(n: int) -> Workload:
    """Names of up to 7 levels, + for one level and # for the rest."""
    rng, m = np.random.default_rng(15), 2_000
    depth = rng.integers(3, _DEEP + 1, n)

    def draw(k: int) -> Any:
        return np.stack([(f * rng.random(k) ** 2).astype(np.int64) for f in _FAN], 1)

    levels = draw(n)
    levels[np.arange(_DEEP) >= depth[:, None]] = -9
    levels[(rng.random((n, _DEEP)) < 0.05) & (levels >= 0)] = -1
    is_open = rng.random(n) < 0.3
    levels[np.arange(n)[is_open], depth[is_open] - 1] = -2
    event_depth, names = rng.integers(3, _DEEP + 1, m), draw(m)
    names[np.arange(_DEEP) >= event_depth[:, None]] = -9
    signs = {-1: "+", -2: "#"}

    def show(row: list[int]) -> str:
        return "/".join(signs.get(v) or f"n{v}" for v in row if v != -9)

    filters = [f"topic MATCHES '{show(row)}'" for row in levels.tolist()]
    table, at_end, at_rest = _topic_trie(levels)
    events = pa.table({"topic": [show(row) for row in names.tolist()]})
    return Workload({"topic": "string"}, filters, events, lambda: _search_topics(names, table, at_end, at_rest))


def _topic_trie(levels: Any) -> tuple[Any, Any, Any]:
    n, nodes = len(levels), 1
    is_done, node = np.zeros(n, bool), np.zeros(n, np.int64)
    ends, rest, edges = [], [], []
    for level in range(_DEEP + 1):
        here = levels[:, level] if level < _DEEP else np.full(n, -9)
        stops, tails = ~is_done & (here == -9), ~is_done & (here == -2)
        ends.append(node[stops])
        rest.append(node[tails])
        is_done |= stops | tails
        if is_done.all():
            break
        go = ~is_done
        key, back = np.unique(node[go] * 512 + here[go] + 1, return_inverse=True)
        edges.append(np.stack([key, nodes + np.arange(key.size)], 1))
        node[go] = nodes + back
        nodes += key.size
    found = np.concatenate(edges)
    table = np.full((1 << int(2 * len(found)).bit_length(), 2), -1, np.int64)
    _fill_edges(found, table)
    return table, *(np.bincount(np.concatenate(at), minlength=nodes) for at in (ends, rest))


@nb.njit
def _slot(table: Any, key: Any) -> Any:
    at = (key * 0x9E3779B97F4A7C1) % table.shape[0]
    while table[at, 0] >= 0 and table[at, 0] != key:
        at = (at + 1) % table.shape[0]
    return at


@nb.njit
def _fill_edges(edges: Any, table: Any) -> Any:
    for i in range(edges.shape[0]):
        table[_slot(table, edges[i, 0])] = edges[i]


@nb.njit
def _search_topics(names: Any, table: Any, at_end: Any, at_rest: Any) -> Any:
    found, here, there = 0, np.empty(256, np.int64), np.empty(256, np.int64)
    for e in range(names.shape[0]):
        k = 1
        here[0] = 0
        for level in range(names.shape[1] + 1):
            v = names[e, level] if level < names.shape[1] else -9
            w = 0
            for i in range(k):
                found += at_rest[here[i]]
                if v == -9:
                    found += at_end[here[i]]
                    continue
                for x in (v, -1):
                    at = _slot(table, here[i] * 512 + x + 1)
                    if table[at, 0] >= 0:
                        there[w] = table[at, 1]
                        w += 1
            if v == -9:
                break
            here, there, k = there, here, w
    return found


# -- words --------------------------------------------------------------------------------------------------------------

_VOCABULARY = 100_000


#: By form: words of a text, and the exponent of the law by which filters choose theirs.
_FORMS = {
    "usual": (100, 300, -0.4),
    "short": (5, 20, -0.4),
    "long": (1_000, 3_000, -0.4),
    "flat": (100, 300, 0.0),
    "steep": (100, 300, -0.8),
    "any": (100, 300, -0.4),
    "phrases": (100, 300, -0.4),
}


def words(n: int, form: str) -> Workload:
    """Two to four words that a text of about 200 words must have, by Zipf's law."""
    rng, m = np.random.default_rng(14), 1_000
    least, most, slope = _FORMS[form]
    zipf, chosen = (np.arange(1, _VOCABULARY + 1) ** power for power in (-1.0, slope))
    count = rng.integers(2, 5, n)
    asked = np.where(np.arange(4) < count[:, None], rng.choice(_VOCABULARY, (n, 4), p=chosen / chosen.sum()), -1)
    texts = [rng.choice(_VOCABULARY, int(rng.integers(least, most)), p=zipf / zipf.sum()) for _ in range(m)]
    bodies = pa.array([" ".join(f"t{w}" for w in text) for text in texts])
    if form == "phrases":
        filters = [f"PHRASE(body, 't{a} t{b}')" for a, b in asked[:, :2].tolist()]
    else:
        call = "ANY_KEYWORD" if form == "any" else "KEYWORDS"
        listed = [", ".join(f"'t{w}'" for w in row if w >= 0) for row in asked.tolist()]
        filters = [f"{call}(body, {found})" for found in listed]
    rarest = asked.max(1)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(rarest, minlength=_VOCABULARY))])
    rows = asked[np.argsort(rarest, kind="stable")].astype(np.int32)
    if form in ("any", "phrases"):
        ptr = np.zeros_like(ptr)
    offsets, data = np.frombuffer(bodies.buffers()[1], np.int32), np.frombuffer(bodies.buffers()[2], np.uint8)
    table = _word_table()

    def run() -> int:
        return _search_words(data, offsets, m, table, ptr, rows, np.full(_VOCABULARY, -1))

    return Workload({"body": "string"}, filters, pa.table({"body": bodies}), run)


def _word_table() -> Any:
    table, mask = np.full((1 << 18, 2), -1, np.int64), (1 << 18) - 1
    for w in range(_VOCABULARY):
        h = 1469598103934665603
        for byte in f"t{w}".encode():
            h = ((h ^ byte) * 1099511628211) & 0x7FFFFFFFFFFFFFFF
        at = h & mask
        while table[at, 0] >= 0:
            at = (at + 1) & mask
        table[at] = h, w
    return table


@nb.njit
def _search_words(data: Any, offsets: Any, n: Any, table: Any, ptr: Any, rows: Any, stamp: Any) -> Any:
    found, mine, mask = 0, np.empty(4096, np.int64), table.shape[0] - 1
    for e in range(n):
        k, h = 0, np.uint64(1469598103934665603)
        for p in range(offsets[e], offsets[e + 1] + 1):
            if p < offsets[e + 1] and data[p] != 32:
                h = ((h ^ np.uint64(data[p])) * np.uint64(1099511628211)) & np.uint64(0x7FFFFFFFFFFFFFFF)
                continue
            key = np.int64(h)
            at = key & mask
            while table[at, 0] >= 0 and table[at, 0] != key:
                at = (at + 1) & mask
            w = table[at, 1]
            if w >= 0 and stamp[w] != e:
                stamp[w] = e
                mine[k] = w
                k += 1
            h = np.uint64(1469598103934665603)
        for i in range(k):
            for j in range(ptr[mine[i]], ptr[mine[i] + 1]):
                ok = True
                for r in range(4):
                    ok = ok and (rows[j, r] < 0 or stamp[rows[j, r]] == e)
                found += ok
    return found


# -- vectors ------------------------------------------------------------------------------------------------------------

_SIZE = 384


def vectors(n: int, law: str) -> Workload:
    """Vectors of 384 numbers, and a limit that few similarities reach."""
    rng, m = np.random.default_rng(16), 1_024

    def draw(k: int) -> Any:
        return rng.normal(size=(k, _SIZE)).astype(np.float32)

    centres = draw(500)
    asked, sent = draw(n), draw(m)
    limit = 0.2
    if law == "clusters":
        asked, sent = (centres[rng.integers(0, 500, len(v))] + 0.4 * v for v in (asked, sent))
        limit = 0.88
    keys = [f" AND symbol = 's{i}'" if law == "guarded" else "" for i in rng.integers(0, 1_000, n)]
    filters = [
        f"SIMILAR(v, ARRAY({','.join(map(str, v))})) >= {limit}{key}" for v, key in zip(asked, keys, strict=True)
    ]
    symbols = [f"s{i}" for i in rng.integers(0, 1_000, m)]
    numbers = pa.array(sent.ravel())
    events = pa.table({"v": pa.FixedSizeListArray.from_arrays(numbers, _SIZE), "symbol": symbols})
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    sent /= np.linalg.norm(sent, axis=1, keepdims=True)
    held = sent @ asked.T >= limit
    if law == "guarded":
        held &= np.array(symbols)[:, None] == np.array([key[15:-1] for key in keys])[None, :]
    out = np.empty((m, n), np.float32)

    def multiply() -> int:
        np.matmul(sent, asked.T, out=out)
        return 0

    return Workload({"v": f"vector({_SIZE})", "symbol": "string"}, filters, events, multiply, int(held.sum()))


# -- similar texts ------------------------------------------------------------------------------------------------------

_LIMIT = 0.3


def texts(n: int) -> Workload:
    """Three to six words, by Zipf's law, and texts of about 40; all words count alike."""
    rng, m = np.random.default_rng(17), 500
    zipf, chosen = (np.arange(1, _VOCABULARY + 1) ** power for power in (-1.0, -0.4))
    asked = [
        np.unique(rng.choice(_VOCABULARY, size, p=chosen / chosen.sum())) for size in rng.integers(3, 7, n).tolist()
    ]
    sent = [rng.choice(_VOCABULARY, size, p=zipf / zipf.sum()) for size in rng.integers(20, 60, m).tolist()]
    filters = [f"SIMILAR(body, '{' '.join(f't{w}' for w in words)}') >= {_LIMIT}" for words in asked]
    owner = np.repeat(np.arange(n), [words.size for words in asked])
    every = np.concatenate(asked)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(every, minlength=_VOCABULARY))])
    lists, sizes = owner[np.argsort(every, kind="stable")], np.sqrt([words.size for words in asked])
    ends = np.concatenate([[0], np.cumsum([text.size for text in sent])])
    numbers = np.concatenate(sent)
    events = pa.table({"body": [" ".join(f"t{w}" for w in text) for text in sent]})

    def run() -> int:
        return _search_texts(numbers, ends, ptr, lists, sizes, np.zeros(_VOCABULARY), np.zeros(n))

    return Workload({"body": "string"}, filters, events, run)


@nb.njit
def _search_texts(numbers: Any, ends: Any, ptr: Any, lists: Any, sizes: Any, weight: Any, dots: Any) -> Any:
    found = 0
    for e in range(ends.size - 1):
        text = numbers[ends[e] : ends[e + 1]]
        for w in text:
            weight[w] += 1
        own = 0.0
        for w in text:
            if weight[w] > 0:
                own += (1 + np.floor(np.log2(weight[w]))) ** 2
                for j in range(ptr[w], ptr[w + 1]):
                    dots[lists[j]] += 1 + np.floor(np.log2(weight[w]))
                weight[w] = -weight[w]
        for w in text:
            if weight[w] < 0:
                for j in range(ptr[w], ptr[w + 1]):
                    found += dots[lists[j]] >= _LIMIT * sizes[lists[j]] * np.sqrt(own)
                    dots[lists[j]] = 0
                weight[w] = 0
    return found


# -- measuring ----------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("topics", "words", "vectors", "texts"))
    parser.add_argument("--subscriptions", type=int)
    parser.add_argument("--law", choices=("sphere", "clusters", "guarded"), default="sphere")
    parser.add_argument("--form", choices=tuple(_FORMS), default="usual")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    n = given.subscriptions or (100_000 if given.kind in ("vectors", "texts") else 1_000_000)
    makers = {
        "topics": topics,
        "words": lambda n: words(n, given.form),
        "vectors": lambda n: vectors(n, given.law),
        "texts": texts,
    }
    workload = makers[given.kind](n)
    engine = Engine(workload.schema)
    start = time.thread_time()
    engine.subscribe_many(pa.table({"id": np.arange(len(workload.filters)), "filter": workload.filters}))
    engine.plan(workload.events)
    loaded = time.thread_time() - start

    def ids() -> int:
        return engine.match_batch(workload.events).to_arrow().num_rows

    contestants = {"prototype": workload.count, "wherecast": ids}
    counts = {name: run() for name, run in contestants.items()}
    if workload.found is not None:
        counts["prototype"] = workload.found
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(given.rounds):
        for name, run in contestants.items():
            start = time.thread_time()
            run()
            times[name].append((time.thread_time() - start) / len(workload.events) * 1e6)
    middle = {name: statistics.median(found) for name, found in times.items()}
    result = {"kind": given.kind, "subscriptions": len(engine), "found": counts, "load_s": round(loaded, 1)}
    result |= {f"{name}_us": round(value, 2) for name, value in middle.items()}
    print(json.dumps(result | {"ratio": round(middle["wherecast"] / middle["prototype"], 2)}))


if __name__ == "__main__":
    main()
