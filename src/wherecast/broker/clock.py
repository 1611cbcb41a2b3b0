"""The wall clock, in milliseconds since 1970. Tests set it back."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
