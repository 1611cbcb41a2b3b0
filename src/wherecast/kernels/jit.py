"""The decorators of all kernels, so that mypy sees typed functions and kernels are compiled alike.

`nogil` lets a caller split a batch over threads; `cache` keeps the compiled code beside the module, so that only the
first match after installation pays for compilation. With `NUMBA_DISABLE_JIT=1` a kernel is the plain Python function.

Kernels that match (`hot`, `inlined`) are compiled without Numba's reference counting: they allocate nothing, their
arrays belong to the caller. With it, every helper that takes an array and has more than one exit counts up and down
atomically: a match on `gryphon` then takes seven times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from wherecast.kernels.private import make_private

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
#: A number or truth value in a kernel: Python's or NumPy's with the JIT off, a machine word with it.
Scalar = Any

config: Any = numba.config  # without types of its own
if config.CACHE_DIR:  # set by NUMBA_CACHE_DIR; what is in it will be run
    make_private(Path(config.CACHE_DIR))

_compile: Callable[..., Any] = numba.njit  # its declared options leave out `_nrt`


def jit(function: Kernel) -> Kernel:
    """Compile a function of arrays; it may allocate."""
    return cast("Kernel", _compile(cache=True, nogil=True)(function))


def hot(function: Kernel) -> Kernel:
    """Compile a function of arrays that allocates none."""
    return cast("Kernel", _compile(cache=True, nogil=True, _nrt=False)(function))


def inlined(function: Kernel) -> Kernel:
    """Compile a helper of a hot kernel, to be inlined: an array is seven words, too many to pass in an inner loop."""
    return cast("Kernel", _compile(cache=True, nogil=True, _nrt=False, forceinline=True)(function))


def plain(arrays: Arrays) -> Arrays:
    """A named tuple as a plain one, for kernels that unpack it: Numba recognises it in half the time."""
    return cast("Arrays", tuple(arrays))


def frozen(array: Any) -> Any:
    """A read-only view. Numba compiles anew for arrays that differ in this: mapped files are read-only, so is all."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
