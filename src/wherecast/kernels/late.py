"""Kernels that are plain Python until they are compiled.

Compiling one filter, as `wherecast check` does, must not load Numba: that takes a second. So a function marked `late` runs as
it is written when it is called, and its `compiled` form, made on first use, is the same function given to Numba, with the
late functions that it calls.

LLVM inlines what is called. A kernel that calls thirty helpers, some of them at ten places, becomes one function that takes half a
minute to compile. A helper that begins with `apart()` stays a function of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any

#: A call with so many pieces of work is worth loading Numba.
_MANY = 64


class Late:
    """A function of arrays."""

    def __init__(self, function: Callable[..., Any], *, allocates: bool = True) -> None:
        assert isinstance(function, FunctionType)
        self.plain = function
        self.allocates = allocates
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The same function, compiled by Numba."""
        from wherecast.kernels.jit import jit  # noqa: PLC0415 - it loads Numba

        return jit(self._with_helpers())

    @cached_property
    def helper(self) -> Callable[..., Any]:
        """The same function, for other compiled functions only."""
        from wherecast.kernels.jit import helper, hot_helper  # noqa: PLC0415 - they load Numba

        return (helper if self.allocates else hot_helper)(self._with_helpers())

    def _with_helpers(self) -> FunctionType:
        names = self.plain.__globals__
        known = {name: getattr(value, "helper", value) for name, value in names.items() if name in _names(self.plain)}
        return FunctionType(self.plain.__code__, {**_module(names), **known}, self.plain.__name__)

    def for_size(self, size: int) -> Callable[..., Any]:
        """The form that is quicker for so many pieces of work."""
        return self.compiled if size >= _MANY or "numba" in sys.modules else self.plain


def late(function: Callable[..., Any]) -> Late:
    """Mark a kernel, or a helper that allocates arrays."""
    return Late(function)


def late_hot(function: Callable[..., Any]) -> Late:
    """Mark a helper that allocates nothing: its arrays are not counted, which takes longer than what most helpers do."""
    return Late(function, allocates=False)


class _Apart:
    """Called by a kernel: nothing in Python, in compiled code the wish not to be inlined."""

    def __call__(self) -> None:
        pass

    @cached_property
    def helper(self) -> Any:
        """What tells LLVM."""
        from wherecast.kernels.jit import stay_apart  # noqa: PLC0415 - it loads Numba

        return stay_apart


apart = _Apart()


def _names(function: FunctionType) -> frozenset[str]:
    return frozenset(function.__code__.co_names)


def _module(names: dict[str, Any]) -> dict[str, Any]:
    return {key: names[key] for key in ("__name__", "__file__", "__builtins__") if key in names}
