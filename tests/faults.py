"""Faults on purpose: an error at the n-th step of what the engine does."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import wherecast.engine.engine as engine_module

#: Where faults strike: in the engine's own code, and in the calls that it makes of others.
FOLDER = str(Path(engine_module.__file__).parent)
Step = Literal["call", "line", "opcode"]


class Fault:
    """Raises `error` at the n-th step (call, line or instruction) in this thread; counts the steps if it is None."""

    def __init__(self, step: Step, at: int = 0, error: type[BaseException] | None = None) -> None:
        self.step = step
        self.at = at
        self.error = error
        self.steps = 0

    def tick(self) -> None:
        self.steps += 1
        if self.error is not None and self.steps == self.at:
            raise self.error(f"fault at {self.step} {self.at}")

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back if event == "call" else frame
        # A lock is taken and left without a chance for anything to go wrong in between.
        if event not in ("call", "c_call") or (event == "c_call" and arg.__name__ == "__exit__"):
            return
        if _is_ours(frame) or (caller is not None and _is_ours(caller)):
            self.tick()

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = self.step == "opcode"
            return self.trace if _is_ours(frame) else None
        # On the way out of a `with` its line is passed again; Python looks for signals before, not there.
        here = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).lstrip()
        if event == self.step and not here.startswith("with "):
            self.tick()
        return self.trace


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(FOLDER)


@contextmanager
def faulty(fault: Fault) -> Iterator[Fault]:
    """Let a fault strike."""
    before = sys.getprofile(), sys.gettrace()
    try:
        if fault.step == "call":
            sys.setprofile(fault.profile)
        else:
            sys.settrace(fault.trace)
        yield fault
    finally:
        sys.setprofile(before[0])
        sys.settrace(before[1])
