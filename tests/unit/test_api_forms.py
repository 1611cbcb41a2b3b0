"""Every form of input is read alike, and every form of output gives the same ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.arrow_forms import Batch, Stream

from wherecast import Engine, EventError, SubscriptionError


def _views(table: pa.Table) -> pa.Table:
    """Strings as Polars has them."""
    kinds = [pa.field(f.name, pa.string_view() if pa.types.is_string(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(kinds))


#: Ways to hand over a table.
FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda t: t,
    "chunked table": lambda t: pa.concat_tables([t.slice(0, 1), t.slice(1)]),
    "record batch": lambda t: t.combine_chunks().to_batches()[0],
    "reader": lambda t: t.to_reader(max_chunksize=1),
    "stream": Stream,
    "stream of string views": lambda t: Stream(_views(t)),
    "C array": lambda t: Batch(t.combine_chunks().to_batches()[0]),
    "pandas": lambda t: t.to_pandas(),
    "pandas of Arrow types": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
}
try:
    import polars as pl

    FORMS["polars"] = pl.from_arrow
except ImportError:
    pass

EVENTS = pa.table({"a": pa.array([1, 2, None], pa.int64()), "name": ["x", None, "y"]})
SUBSCRIPTIONS = pa.table({"id": ["one", "two", "bad"], "filter": ["a = 1 OR name = 'y'", "a >= 1", "a >"]})


@pytest.mark.parametrize("form", FORMS)
def test_events_of_every_form(form: str) -> None:
    """A batch is read whatever holds it, by every call that takes events."""
    engine = Engine({"a": "integer", "name": "string"})
    engine.subscribe_many({1: "a = 1 OR name = 'y'", 2: "a >= 1"})
    make = FORMS[form]
    assert [sorted(ids) for ids in engine.match_batch(make(EVENTS))] == [[1, 2], [2], [1]]
    assert engine.count(make(EVENTS)).tolist() == [2, 1, 1]
    assert engine.candidates(make(EVENTS)) >= 0
    engine.plan(make(EVENTS))


@pytest.mark.parametrize("form", FORMS)
def test_subscriptions_of_every_form(form: str) -> None:
    """So are subscriptions; bad rows are quarantined."""
    engine = Engine({"a": "integer", "name": "string"})
    outcome = engine.subscribe_many(FORMS[form](SUBSCRIPTIONS))
    assert (outcome.registered, [(q.row, q.id) for q in outcome.quarantined]) == (2, [(2, "bad")])
    assert dict(engine.items()) == {"one": "a = 1 OR name = 'y'", "two": "a >= 1"}


@pytest.mark.parametrize(
    "thing", [5, "text", b"bytes", pa.array([1]), pa.chunked_array([[1]]), Stream(pa.chunked_array([[1]]))]
)
def test_what_is_no_table_is_refused(thing: object) -> None:
    """With an error of the family that fits, and the type in the message."""
    engine = Engine({"a": "integer"})
    engine.subscribe(1, "a = 1")
    with pytest.raises(EventError):
        engine.match_batch(thing)
    with pytest.raises(SubscriptionError):
        engine.subscribe_many(thing)


GAPS = [
    (pd.Series([1, None, 3]), [["odd"], [], ["odd"]]),
    (pd.Series([1.0, 3.0]), [["odd"], ["odd"]]),  # a part of a column with gaps
    (pd.Series([1, None, 3], dtype="Int64"), [["odd"], [], ["odd"]]),
    (pd.Series([1, None, 3], dtype="float32"), [["odd"], [], ["odd"]]),
    (pd.Series([None, None], dtype="float64"), [[], []]),
    (pd.Series([2.0**53, float("nan")]), [["large"], []]),
    (pd.Series([1.5, None]), "attribute 'a'"),
    (pd.Series([2.0**53 + 2, None]), "attribute 'a'"),
    (pd.Series([float("inf"), None]), "attribute 'a'"),
]


@pytest.mark.parametrize(("column", "found"), GAPS)
def test_integers_of_pandas_with_gaps(column: pd.Series, found: list[list[str]] | str) -> None:
    """They come as floats and are read as integers; what no integer was, or may have been rounded, is refused."""
    engine = Engine({"a": "integer"})
    engine.subscribe_many({"odd": "a IN (1, 3)", "large": f"a = {2**53}"})
    frame = pd.DataFrame({"a": column})
    if isinstance(found, str):
        with pytest.raises(EventError, match=found):
            engine.match_batch(frame)
    else:
        assert engine.match_batch(frame).to_lists() == found


def test_narrow_integers_of_pandas_with_gaps() -> None:
    """The width of the attribute still counts."""
    engine = Engine({"a": "tinyint"})
    engine.subscribe("s", "a > 0")
    assert engine.match_batch(pd.DataFrame({"a": [1, None]})).to_lists() == [["s"], []]
    with pytest.raises(EventError, match="event 0"):
        engine.match_batch(pd.DataFrame({"a": [300, None]}))


IDS = [
    ([1, 2], np.dtype(np.int64)),
    (["x", "y"], np.dtype(object)),
    ([7, "7"], np.dtype(object)),
    ([2**63 - 1, -(2**63)], np.dtype(np.int64)),
]


@pytest.mark.parametrize(("ids", "dtype"), IDS)
def test_ids_come_back_as_given_in_every_form(ids: list[Any], dtype: np.dtype[Any]) -> None:
    """An int stays an int, beside strings as well."""
    engine = Engine({"a": "integer"})
    engine.subscribe_many({ids[0]: "a >= 1", ids[1]: "a >= 2"})
    matches = engine.match_batch([{"a": 2}, {}, {"a": 1}])
    wanted = [(0, ids[0]), (0, ids[1]), (2, ids[0])]

    def shown(pairs: Any) -> list[tuple[int, str]]:
        return sorted((int(e), repr(i)) for e, i in pairs)

    expected = shown(wanted)
    assert shown((r["event"], r["subscription"]) for r in matches.to_pylist()) == expected
    assert shown((r["event"], r["subscription"]) for r in matches.to_arrow().to_pylist()) == expected
    frame = matches.to_pandas()
    assert list(frame.columns) == ["event", "subscription"]
    assert (frame["event"].dtype, frame["subscription"].dtype) == (np.dtype(np.int64), dtype)
    assert shown(zip(frame["event"], frame["subscription"].tolist(), strict=True)) == expected
    rows = zip(matches.rows.tolist(), matches.to_lists(), strict=True)
    assert shown((row, id) for row, found in rows for id in found) == expected
    none = engine.match_batch([{}])
    assert (none.to_pylist(), len(none.to_pandas()), none.to_arrow().num_rows) == ([], 0, 0)
