"""Progress of long work: a bar for people, lines in the log for all others."""

from __future__ import annotations

import io
import logging
import sys
import types
from contextlib import suppress

import pytest

import wherecast.progress as module
from wherecast.engine import subscriptions
from wherecast.engine.engine import Engine
from wherecast.progress import ProgressStep, progress, shown

SCHEMA = {"symbol": "string", "price": "double"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Stands in for the clock: every look takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def open_terminal(monkeypatch) -> Terminal:
    """Standard error is a terminal from now on; not a fixture, because pytest replaces it after those."""
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", Clock())


@pytest.fixture
def steps(monkeypatch):
    """The titles of all steps, with what they were to do and what they did."""
    made: list[ProgressStep] = []

    def note(self: ProgressStep, title: str, total: int) -> None:
        plain(self, title, total)
        made.append(self)

    plain = ProgressStep.__init__
    monkeypatch.setattr(ProgressStep, "__init__", note)
    return made


def test_a_terminal_shows_a_bar_where_it_is_wanted(monkeypatch):
    """Only within `shown`."""
    terminal = open_terminal(monkeypatch)
    with progress("counting", 4) as step:
        step.advance(2)
    assert terminal.getvalue() == ""
    with shown(), progress("counting", 4) as step:
        step.advance(2)
        step._bar.refresh()
        assert "counting" in terminal.getvalue()
        assert "50%" in terminal.getvalue()


def test_a_file_shows_nothing(capsys):
    """Whoever redirects standard error gets no bar and no control characters."""
    with shown(), progress("counting", 4) as step:
        step.advance(4)
    assert capsys.readouterr() == ("", "")


def test_the_log_says_it_every_few_seconds(caplog, clock):
    """At INFO by `wherecast.progress`: not at every step, and once more when all is done."""
    with caplog.at_level(logging.INFO, "wherecast"), progress("counting", 12_000) as step:
        for _ in range(12):
            step.advance(1_000)
    lines = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert [name for name, _, _ in lines] == ["wherecast.progress"] * 3
    assert {level for _, level, _ in lines} == {"INFO"}
    assert [message.partition(",")[0] for _, _, message in lines] == ["counting: 5", "counting: 10", "counting: done"]


def test_short_work_is_not_logged(caplog):
    with caplog.at_level(logging.DEBUG, "wherecast"), progress("counting", 2) as step:
        step.advance(2)
    assert not caplog.records


def test_work_that_fails_is_not_called_done(caplog, clock):
    with caplog.at_level(logging.INFO, "wherecast"), suppress(ZeroDivisionError), progress("counting", 9) as step:
        for left in range(9, -1, -1):
            step.advance(0 // left)
    assert not any("done" in record.getMessage() for record in caplog.records)


def test_one_bar_at_a_time(monkeypatch):
    """A step inside another has no bar of its own, nor does what comes after `shown`."""
    open_terminal(monkeypatch)
    with shown():
        with progress("outer", 1) as outer, progress("inner", 1) as inner:
            assert type(inner) is ProgressStep
            assert type(outer) is not ProgressStep
        with progress("next", 1) as following:
            assert type(following) is type(outer)
    with shown(False), progress("last", 1) as last:
        assert type(last) is ProgressStep


def test_a_notebook_shows_a_bar_in_its_cell(monkeypatch):
    """Without ipywidgets: one display, which is updated."""
    shows: list[str] = []

    class Handle:
        def update(self, thing: object) -> None:
            shows.append(thing._repr_html_())

    def display(thing: object, *, display_id: bool) -> Handle:
        shows.append(thing._repr_html_())
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    with shown(), progress("counting", 4) as step:
        step.advance(1)
    assert "0 of 4" in shows[0]
    assert "1 of 4" in shows[-1]


def test_all_long_work_of_an_engine_says_how_far_it_is(steps, tmp_path, monkeypatch):
    """Registering, planning, saving and merging each run through their steps to the end."""
    monkeypatch.setattr(subscriptions, "PART", 100)
    engine = Engine(SCHEMA)
    engine.subscribe_many({n: f"price > {n}" for n in range(250)}, progress=True)
    assert [(s.title, s.total) for s in steps] == [("compiling", 250), ("indexing", 4)]
    engine.subscribe_many({"a": "symbol = 'A'"})
    engine.merge(everything=True, progress=True)
    engine.plan([{"price": 5.0}], progress=True)
    engine.save(tmp_path / "saved", progress=True)
    assert {s.title for s in steps} == {"compiling", "indexing", "planning", "saving"}
    assert all(s.done == s.total for s in steps)


def test_parts_change_nothing(monkeypatch):
    """Texts are compiled in parts: ids, shared filters, errors with their rows and matches are those of one part."""
    rows = [(n, f"price > {n % 7}") for n in range(50)]
    rows[13], rows[37], rows[38] = (13, "prise > 1"), (37, "prise > 1"), (12, "price > 5")
    event = {"price": 3.5}
    whole = Engine(SCHEMA)
    one = whole.subscribe_many(rows)
    monkeypatch.setattr(subscriptions, "PART", 8)
    parted = Engine(SCHEMA)
    many = parted.subscribe_many(rows)
    assert [(q.row, q.id, str(q.error)) for q in many.quarantined] == [
        (q.row, q.id, str(q.error)) for q in one.quarantined
    ]
    assert {q.row for q in many.quarantined} == {13, 37, 38}
    assert sorted(parted.match(event)) == sorted(whole.match(event)) != []
    assert parted.stats()["segments"][0]["filters"] == whole.stats()["segments"][0]["filters"] == 7
