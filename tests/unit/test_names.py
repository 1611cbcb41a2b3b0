"""Names in events that look like mistakes are reported, whatever form the events have."""

from __future__ import annotations

import logging

import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.engine.engine import Engine
from wherecast.errors import EventError

SCHEMA = {"symbol": "string", "price": "double", "quote.bid": "double"}
CASE = "events have 'Price', but the attribute is 'price'"
NESTED = "events have 'quote.Bid', but the attribute is 'quote.bid'"
STRANGE = "an event has none of the attributes 'symbol', 'price', 'quote.bid', 'quote'"


def engine(**options: bool) -> Engine:
    made = Engine(SCHEMA, **options)
    made.subscribe("dear", "price > 5")
    made.subscribe("bid", "quote.bid > 5")
    return made


FORMS = {
    "mapping": lambda event: event,
    "mappings": lambda event: [event, {"symbol": "A", "price": 1.0, "quote": {"bid": 1.0}}],
    "arrow": lambda event: pa.RecordBatch.from_pylist([event]),
    "table": lambda event: pa.Table.from_pylist([event]),
    "pandas": lambda event: pd.DataFrame([event]),
}
BAD = [
    ({"symbol": "A", "Price": 9.0, "quote": {"bid": 1.0}}, CASE),
    ({"PRICE": 9.0}, "events have 'PRICE'"),
    ({"cost": 9.0}, STRANGE),
    ({"symbol": "A", "price": 1.0, "Quote": {"bid": 9.0}}, "events have 'Quote', but the attribute is 'quote'"),
    ({"symbol": "A", "price": 1.0, "Quote.Bid": 9.0}, "events have 'Quote.Bid', but the attribute is 'quote.bid'"),
    ({"symbol": "A", "price": 1.0, "Price": 9.0, "quote": {"bid": 1.0}}, CASE),  # nothing that a filter needs is NULL
]
BAD_INSIDE = ({"symbol": "A", "price": 1.0, "quote": {"Bid": 9.0}}, NESTED)
CASES = [(form, *case) for form in FORMS for case in BAD] + [
    (form, *BAD_INSIDE) for form in ("mapping", "mappings", "arrow", "table")
]


@pytest.mark.sampled
@pytest.mark.parametrize(("form", "event", "message"), CASES)
def test_told_once(form, event, message, caplog):
    """Once per engine and name, as a warning of `wherecast.events`; the attribute is NULL, as it is when it is missing."""
    made = engine()
    with caplog.at_level(logging.WARNING, "wherecast.events"):
        for _ in range(3):
            assert made.match_batch(FORMS[form](event)).total() == 0
            made.count(FORMS[form](event))
        if form == "mapping":
            assert made.match(event) == []
    assert [message in record.getMessage() for record in caplog.records] == [True]
    with caplog.at_level(logging.WARNING, "wherecast.events"):
        engine().match_batch(FORMS[form](event))
    assert len(caplog.records) == 2  # another engine tells it again


@pytest.mark.sampled
@pytest.mark.parametrize(("form", "event", "message"), CASES)
def test_strict(form, event, message):
    """With `strict` it is an error, every time."""
    made = engine(strict=True)
    for _ in range(2):
        with pytest.raises(EventError, match=message):
            made.match_batch(FORMS[form](event))
    if form == "mapping":
        with pytest.raises(EventError, match=message):
            made.match(event)


def test_strict_rows_can_be_skipped():
    """Of several mappings, only those with such a name are left out."""
    events = [{"symbol": "A", "price": 9.0}, {"symbol": "A", "Price": 9.0}]
    found = engine(strict=True).match_batch(events, on_error="skip")
    assert [e.row for e in found.errors] == [1]
    assert found.subscription_ids().tolist() == ["dear"]


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "event",
    [
        {"symbol": "A", "price": 9.0, "quote": {"bid": 1.0, "Ask": 3.0}, "note": "x"},
        {"symbol": "A", "note": "x"},
        {"price": None},
        {"quote": {"ask": 3.0}, "note": None},
    ],
)
def test_nothing_to_tell(form, event, caplog):
    """Attributes that are missing and names of somebody else are no mistakes."""
    engine(strict=True).match_batch(FORMS[form](event))
    with caplog.at_level(logging.WARNING, "wherecast"):
        engine().match_batch(FORMS[form](event))
    assert not caplog.records


def test_an_empty_event_is_fine(caplog):
    """It has no names that could be wrong."""
    made = engine(strict=True)
    made.subscribe("none", "price IS NULL")
    assert made.match({}) == ["none"]


def test_reports_are_bounded(caplog):
    """Whoever sends other names every time does not fill the log, nor the memory."""
    made = Engine({"a": "int"})
    made.subscribe(1, "a = 1")
    with caplog.at_level(logging.WARNING, "wherecast"):
        for number in range(300):
            made.match({f"x{number}": 1})
    assert len(caplog.records) == 101
    assert "no more are written" in caplog.records[-1].getMessage()


def test_opened_engines_can_be_strict(tmp_path):
    """A snapshot says nothing about it: it is a matter of who matches."""
    engine().save(tmp_path / "snapshot")
    with pytest.raises(EventError, match="'Price'"):
        Engine.open(tmp_path / "snapshot", strict=True).match({"Price": 1.0})
    assert Engine.open(tmp_path / "snapshot").match({"Price": 9.0}) == []


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_command_line_tells_it(suffix, tmp_path):
    """`wherecast match` has a note, and ends with --strict, for every format."""
    (tmp_path / "schema.json").write_text('{"symbol": "string", "price": "double"}')
    (tmp_path / "subscriptions.csv").write_text("id,filter\n1,price > 5\n")
    events = tmp_path / f"events.{suffix}"
    frame = pd.DataFrame({"symbol": ["A", "B"], "Price": [1.0, 9.0]})
    if suffix == "csv":
        frame.to_csv(events, index=False)
    elif suffix == "jsonl":
        frame.to_json(events, orient="records", lines=True)
    else:
        frame.to_parquet(events)
    call = ["match", "-s", str(tmp_path / "schema.json"), "--subscriptions", str(tmp_path / "subscriptions.csv")]
    call += ["--events", str(events)]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0
    assert done.stderr.count(CASE) == 1
    refused = CliRunner().invoke(app, [*call, "--strict"])
    assert refused.exit_code == 1
    assert CASE in refused.stderr
