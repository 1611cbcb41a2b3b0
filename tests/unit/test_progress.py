"""What is told of batches: sums, a table, a line for each."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from wherecast.spark.progress import BatchProgress, BatchReport, add_up, draw_table, live_view


def batch(number, events=1000, seconds=2.0, **ours):
    numbers = {"sent": 800, "candidates": 9000, "matches": 5000, "dropped": 200, "errors": 1, "imbalance": 1.25, **ours}
    report = BatchReport(
        batch=number, version=3, events=events, replayed=False, rebalanced=None, seconds=1.5, overhead_ms=4.0, **numbers
    )
    return BatchProgress(number, "2024-01-02T14:30:00.500Z", events, seconds, {"addBatch": 1500}, report)


def test_summary():
    """Counts add up, the median is of the batches, and what changes is that of the last."""
    whole = add_up([batch(0), batch(1, seconds=4.0), batch(2, events=500, seconds=1.0, imbalance=1.5)])
    assert (whole.batches, whole.events, whole.matches, whole.dropped, whole.errors) == (3, 2500, 15000, 600, 3)
    assert (whole.seconds, whole.median_s, whole.slowest_s) == (7.0, 2.0, 4.0)
    assert whole.events_per_s == pytest.approx(2500 / 7)
    assert (whole.imbalance, whole.version) == (1.5, 3)


def test_nothing_yet():
    """Without a batch everything is zero, and nothing divides by it."""
    whole = add_up([])
    assert (whole.batches, whole.events_per_s, whole.median_s) == (0, 0.0, 0.0)
    console = Console(width=120, record=True)
    console.print(draw_table("title", []))


def test_table_has_the_last_batches_and_all_together():
    """Twelve rows, the newest last, and a foot with the sums."""
    console = Console(width=120, record=True)
    console.print(draw_table("quotes", [batch(n) for n in range(20)]))
    text = console.export_text()
    numbers = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    assert numbers == [*map(str, range(8, 20)), "all"]
    assert "20,000" in text
    assert "1.25" in text


def test_lines_off_a_terminal(capsys):
    """Each batch is told once, however often all are shown; what Spark alone knows is told without our numbers."""
    with live_view("quotes") as show:
        show([batch(0)])
        show([batch(0)])
        show([batch(0), BatchProgress(1, "2024-01-02T14:30:01.000Z", 10, 0.0, {}, None)])
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "batch 0  index 3  events 1,000  events/s 500  matches 5,000  dropped 200  bad 1  imbalance 1.25  seconds 2.00"
    )
    assert second.startswith("batch 1  index -  events 10  events/s 0  matches -")


def test_json_and_time():
    """A line of the log holds both halves; the start is a time."""
    found = json.loads(batch(7).to_json())
    assert (found["batch"], found["events_per_s"], found["report"]["matches"]) == (7, 500.0, 5000)
    assert found["durations_ms"] == {"addBatch": 1500}
    assert batch(7).started_s == 1704205800.5
