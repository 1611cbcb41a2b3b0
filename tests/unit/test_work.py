"""How much text filters may read of one event."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine, EventError, Limits
from wherecast.index.residuals import count_reads, text_bytes
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler

SCHEMA = {"cmd": "string", "host": "string", "tags": "array<string>", "price": "double"}
KIB = 1 << 10
SMALL = Limits(value_bytes=64 * KIB, filter_work_bytes=100 * KIB, event_work_bytes=150 * KIB)


@pytest.mark.parametrize(
    ("filter", "reads"),
    [
        ("cmd LIKE '%a%b%'", {0: 1}),
        ("cmd ILIKE '%a%b%' OR cmd ILIKE '%c%d%' OR price > 1", {0: 2}),
        ("lower(cmd) RLIKE 'a+b'", {0: 2}),
        ("NOT (cmd LIKE '%a_' AND host LIKE '%b_')", {0: 1, 1: 1}),
        ("cmd > host", {0: 1, 1: 1}),
        ("price * 2 > price + 1", {}),
    ],
)
def test_reads_are_counted_per_operation(filter, reads):
    """Each operation above a text attribute reads its value once; logic and numbers read none."""
    filters = Compiler(Schema.of(SCHEMA)).compile_many([filter]).filters
    total = {}
    for program in filters.programs:
        for attr, times in count_reads(program.residuals).items():
            total[attr] = total.get(attr, 0) + times
    assert total == reads


def test_bytes_of_texts():
    """Sizes are those of UTF-8; an array counts all its elements, NULLs count nothing, and slices see their own rows."""
    events = {"cmd": ["a", "é", None, ""], "tags": [["ab", None], None, [], ["é", "x"]]}
    batch = EventBatch.read(Schema.of(SCHEMA), pa.table(events))
    assert text_bytes(batch, 0).tolist() == [1, 2, 0, 0]
    assert text_bytes(batch, 2).tolist() == [2, 0, 0, 3]
    assert text_bytes(batch.slice(2, 4), 2).tolist() == [0, 3]


def make_engine(**filters):
    engine = Engine(SCHEMA, limits=SMALL)
    engine.subscribe_many({"plain": "price > 0", **filters})
    return engine


FOUR = " OR ".join(f"cmd ILIKE '%needle{i}_'" for i in range(4))
#: What a text must contain for its order to be looked at.
NEEDLES = "needle0 needle1 needle2 needle3"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"cmd": NEEDLES + "x" * 65 * KIB}, r"'cmd' has 0.1 MiB of text.*Limits.value_bytes"),
        (
            {"cmd": NEEDLES + "x" * 30 * KIB},
            r"one filter would read 0.1 MiB.*subscription 'four'.*Limits.filter_work_bytes",
        ),
        ({"host": "0 1 2" + "y" * 60 * KIB}, r"all filters together would read 0.2 MiB.*Limits.event_work_bytes"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_event_beyond_a_limit_is_refused_and_the_others_matched(event, reason, threads):
    """Beyond a limit the event raises, or is left out and listed under its own row; its neighbours are matched."""
    hosts = {f"h{i}": f"host LIKE '%{i}_'" for i in range(3)}
    engine = make_engine(four=FOUR, **hosts)
    good = {"cmd": "a needle2!", "price": 1.0}
    events = [good] * 300 + [{**event, "price": 1.0}] + [good] * 300
    with pytest.raises(EventError, match=reason) as caught:
        engine.match_batch(events, threads=threads)
    assert caught.value.row == 300
    matches = engine.match_batch(events, on_error="skip", threads=threads)
    assert [error.row for error in matches.errors] == [300]
    assert matches.rows.tolist() == [*range(300), *range(301, 601)]
    assert all(sorted(ids) == ["four", "plain"] for ids in matches.to_lists())
    assert engine.count(events, on_error="skip", threads=threads).tolist() == [2] * 600
    with pytest.raises(EventError, match=reason):
        engine.match(events[300])


def test_a_bad_value_and_a_long_text_are_both_listed():
    """Errors of reading and of too much work stand in one list, by row."""
    engine = make_engine(four=FOUR)
    events = [{"cmd": NEEDLES + "x" * 30 * KIB}, {"price": "high"}, {"cmd": "needle1."}]
    assert [e.row for e in engine.match_batch(events, on_error="skip").errors] == [0, 1]


def test_work_is_added_over_the_clauses_of_a_filter():
    """Four alternatives in four clauses cost as much as four conditions in one."""
    engine = Engine({"cmd": "string", "n": "integer"}, limits=SMALL)
    engine.subscribe("four", " OR ".join(f"(n > {i} AND cmd LIKE '%a{i}_')" for i in range(4)))
    assert engine.stats()["segments"][0]["clauses"] == 4
    text = "a0 a1 a2 a3" + "x" * 30 * KIB
    assert engine.match({"cmd": text, "n": 1}) == []  # three of the clauses are no candidates
    assert engine.match({"cmd": text[11:], "n": 9}) == []  # nor is a text without any of the literals
    with pytest.raises(EventError, match="four"):
        engine.match({"cmd": text, "n": 9})


def test_what_the_index_answers_is_not_limited():
    """A long text that no condition reads one by one costs nothing and is matched."""
    engine = Engine(SCHEMA, limits=SMALL)
    engine.subscribe("prefix", "cmd LIKE 'xx%' AND price > 0")
    engine.subscribe("equal", "host = 'b'")
    event = {"cmd": "x" * 200 * KIB, "host": "b" * 200 * KIB, "price": 1.0}
    assert engine.match(event) == ["prefix"]
    assert engine.match_batch([event]).to_lists() == [["prefix"]]


def test_hundreds_of_conditions_fold_the_case_once(monkeypatch):
    """ILIKEs on one attribute share its folded text."""
    from wherecast.language.functions.row import row_by_row
    from wherecast.language.functions.table import FUNCTIONS

    folded = []
    counted = replace(FUNCTIONS["lower"], evaluate=row_by_row(lambda text: folded.append(1) or text.lower()))
    monkeypatch.setitem(FUNCTIONS, "lower", counted)
    engine = Engine(SCHEMA)
    engine.subscribe("many", " OR ".join(f"cmd ILIKE '%N{i}_x%'" for i in range(300)))
    assert engine.match({"cmd": "an N7!X"}) == ["many"]
    assert len(folded) == 1


@pytest.mark.slow
def test_sizes_beyond_32_bits_add_up():
    """Work is added in 64 bits: many reads of a text are not taken for few."""
    engine = Engine(SCHEMA, limits=Limits(filter_work_bytes=2**31, event_work_bytes=2**40))
    engine.subscribe("many", " OR ".join(f"cmd LIKE '%n{i}_x%'" for i in range(300)))
    with pytest.raises(EventError, match=r"Limits\.filter_work_bytes"):
        engine.match_batch(pa.table({"cmd": np.array(["n0" + "x" * (15 << 20)], object)}))
