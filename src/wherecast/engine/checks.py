"""Checks at the door: what the id and the priority of a subscription may be.

Every way into an engine, an index or a ring goes through here. What is accepted can be kept, saved, found and given back.
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Real

import numpy as np

from wherecast.errors import SubscriptionError
from wherecast.language.syntax.skeletons import find_surrogate

SubscriptionId = str | int

#: Characters of a string id.
LONGEST_ID = 1_000
#: Integer ids have 64 bits.
LEAST_INTEGER, END_INTEGER = -(2**63), 2**63
#: Priorities are kept in 32 bits.
_LARGEST_PRIORITY = float(np.finfo(np.float32).max)


def check_id(id: object) -> SubscriptionId:
    """The id as a plain `int` or `str`. Raises SubscriptionError if it cannot be one."""
    if type(id) is int and LEAST_INTEGER <= id < END_INTEGER:
        return id  # most are: a microsecond less
    if isinstance(id, (int, np.integer)) and not isinstance(id, bool):
        number = int(id)
        if LEAST_INTEGER <= number < END_INTEGER:
            return number
        raise SubscriptionError(
            f"an integer id has at most 64 bits, this one needs {number.bit_length() + 1:,}; write it as a string"
        )
    if isinstance(id, str):
        if len(id) > LONGEST_ID:
            raise SubscriptionError(
                f"an id has at most {LONGEST_ID:,} characters, this one has {len(id):,}; use a shorter one"
            )
        if not id.isascii() and find_surrogate(id) >= 0:
            raise SubscriptionError(f"the id {id!a:.80} has half a character (a lone surrogate); remove it")
        return id if type(id) is str else str.__str__(id)  # an Enum writes itself in a way of its own
    if id is None:
        raise SubscriptionError("the id is missing; an id is a string or an integer")
    # pandas turns a column of integers into floats as soon as one is missing.
    advice = "; in pandas, the dtype Int64 keeps integers beside missing values" if isinstance(id, float) else ""
    raise SubscriptionError(f"an id is a string or an integer, found {type(id).__name__} {id!r:.40}{advice}")


def check_priority(priority: object) -> float:
    """The priority as a number. Raises SubscriptionError if it is not a finite one."""
    if not isinstance(priority, bool) and isinstance(priority, (float, Real, Decimal)):
        try:
            number = float(priority)
        except (OverflowError, ValueError):  # more than a float holds, or a Decimal that signals
            number = np.inf
        if abs(number) <= _LARGEST_PRIORITY:
            return number
        raise SubscriptionError(f"a priority is a number between -3.4e38 and 3.4e38, found {number}")
    raise SubscriptionError(f"a priority is a number, found {type(priority).__name__} {priority!r:.40}")
