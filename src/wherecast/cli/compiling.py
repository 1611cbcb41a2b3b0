"""The first match after installation compiles the kernels; say so, or it looks as if nothing happens."""

from __future__ import annotations

from pathlib import Path

from wherecast import kernels
from wherecast.cli.report import say_note


def note_first_compilation() -> None:
    """Tell a person who is about to wait that it is for once only."""
    compiled = Path(kernels.__file__).parent / "__pycache__"
    if not any(compiled.glob("*.nbi")):
        say_note("compiling the matching kernels, once; this takes about half a minute")
