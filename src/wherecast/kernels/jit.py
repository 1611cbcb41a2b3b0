"""One decorator for every kernel, so that mypy sees typed functions and all kernels are compiled alike.

`nogil` lets a caller split a batch over threads; `cache` keeps the compiled code beside the module, so that only the
first match after installation pays for compilation. With `NUMBA_DISABLE_JIT=1` a kernel is the plain Python function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba  # type: ignore[import-untyped]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def jit(function: Kernel) -> Kernel:
    """Compile a function of arrays; it keeps its Python signature for the type checker."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(function))


def inlined(function: Kernel) -> Kernel:
    """Compile a helper that LLVM must inline: an array argument is seven words, too many to pass in an inner loop."""
    return cast(Kernel, numba.njit(cache=True, nogil=True, forceinline=True)(function))
