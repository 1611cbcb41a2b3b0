"""Memory that is free, but still the process's.

Compiling and building make many arrays of some megabytes, and let them go. The allocator of glibc keeps such memory for
later: 325 MB after a part of 131,072 texts was compiled, which nobody else on the machine can use meanwhile.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Give free memory back to the system, where the C library can (glibc). It takes some milliseconds: not for small work."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library or system
        return None
