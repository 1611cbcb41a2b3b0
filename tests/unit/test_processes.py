"""Filters compiled on several processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wherecast import Engine
from wherecast.engine import processes, subscriptions
from wherecast.language.filters.compile import Compiled

SCHEMA = {"symbol": "string", "price": "double", "volume": "bigint"}
TEXTS = [
    *(f"symbol = 'S{i % 17}' AND price < {i}.5 AND volume > {i % 5}" for i in range(400)),
    *(f"price < {i} OR NOT (symbol LIKE '%x{i}%' AND price > volume + {i})" for i in range(100)),
    "prise < 1",
    "price < 'x'",
    "symbol = 'open",
    "",
]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 50 texts, so that there are enough for several processes."""
    monkeypatch.setattr(subscriptions, "PART", 50)


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_the_outcome_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions, errors, their rows and positions are the same, and so is what matches."""
    events = [{"symbol": f"S{i}", "price": i * 3.0, "volume": i} for i in range(20)]
    found, answered = [], threading.Event()
    ask = processes.CompileProcess.compile_many

    def noted(self: processes.CompileProcess, texts: Sequence[str]) -> Compiled:
        answer = ask(self, texts)
        answered.set()
        return answer

    monkeypatch.setattr(processes.CompileProcess, "compile_many", noted)
    for count in (1, 2):
        engine = Engine(SCHEMA)
        own = engine._compiler.compile_many

        def after_another(texts: Sequence[str], own: Any = own, count: int = count) -> Compiled:
            assert count == 1 or answered.wait(120)
            return own(texts)  # type: ignore[no-any-return]

        monkeypatch.setattr(engine._compiler, "compile_many", after_another)
        outcome = engine.subscribe_many(list(enumerate(TEXTS)), processes=count)
        refused = [(q.row, q.id, str(q.error), q.error.caret()) for q in outcome.quarantined]  # type: ignore[union-attr]
        written = [engine[i] for i in range(0, 500, 7)]
        found.append((outcome.registered, refused, written, [sorted(map(int, engine.match(e))) for e in events]))
    assert found[0][0] == 500
    assert [row for row, *_ in found[0][1]] == [500, 501, 502, 503]
    assert found[0] == found[1]


@pytest.mark.usefixtures("small_parts")
def test_a_process_that_dies_is_an_error_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears of it, and the engine is as it was."""
    monkeypatch.setattr(processes, "_START", "import os, sys; sys.stdin.buffer.read(10); os._exit(7)  # {path}")
    engine = Engine(SCHEMA)
    engine.subscribe("old", "price < 1")
    with pytest.raises(RuntimeError, match="ended with code 7; if memory was short, use fewer processes"):
        engine.subscribe_many(list(enumerate(TEXTS)), processes=2)
    assert list(engine) == ["old"]


@pytest.mark.usefixtures("small_parts")
def test_an_error_in_another_process_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is."""
    code = "from wherecast.language.filters.compile import Compiler; Compiler.compile_many = lambda s, t: 1 / 0; "
    monkeypatch.setattr(processes, "_START", processes._START.replace("serve()", code + "serve()"))
    with pytest.raises(ZeroDivisionError):
        Engine(SCHEMA).subscribe_many(list(enumerate(TEXTS)), processes=2)


INTERRUPTED = """
    import os, signal, threading, time
    from wherecast import Engine
    from wherecast.engine import processes, subscriptions

    subscriptions.PART = 50
    texts = [f"price < {i} AND volume > {i} OR symbol = 'S{i}'" for i in range(200_000)]
    start = processes.CompileProcess.__init__
    def noted(self, compiler):
        start(self, compiler)
        print(self._process.pid, flush=True)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    processes.CompileProcess.__init__ = noted
    engine = Engine({"symbol": "string", "price": "double", "volume": "bigint"})
    try:
        engine.subscribe_many(list(enumerate(texts)), processes=2)
    except KeyboardInterrupt:
        print("interrupted", len(engine), threading.active_count(), flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    """Ctrl-C raises KeyboardInterrupt in the caller; no process and no thread is left, and nothing is printed."""
    script = tmp_path / "script.py"  # without `if __name__ == "__main__"`
    script.write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + textwrap.dedent(INTERRUPTED)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    child, said = done.stdout.split("\n", 1)
    assert (said, done.stderr, done.returncode) == ("interrupted 0 1\n", "", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)


@pytest.mark.slow
def test_a_process_ends_with_its_parent() -> None:
    """Its standard input is the parent's word."""
    code = processes._START.format(path=sys.path)
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 0
    assert child.stdout is not None
    child.stdout.close()
