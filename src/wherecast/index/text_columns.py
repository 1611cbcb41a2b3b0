"""The texts of a batch as kernels read them, and in lower case."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.index.strings import Texts, lay_out
from wherecast.language.events.events import EventBatch

#: The keys under which a batch keeps its texts, and its texts in lower case, as kernels read them.
_LAID_OUT, _IN_LOWER_CASE = -1, -2


def laid_out(events: EventBatch, attr: int, *, lower: bool = False) -> tuple[Texts, bool]:
    """The texts of an attribute, or those in lower case: then the caller has to take capital letters for small ones if told so.

    Only ASCII letters are left to the caller, whose kernel does it on the way.
    """
    texts = events.derive(attr, _LAID_OUT, lay_out)
    if not lower or texts.is_ascii:
        return texts, lower
    return events.derive(attr, _IN_LOWER_CASE, lambda values: lay_out(lower_texts(values))), False


def lower_texts(values: pa.Array) -> pa.Array:
    """Texts in lower case, as Spark's `lower` has them; Arrow's own differs for some letters, so it does ASCII only."""
    lower = pc.ascii_lower(values)
    others = pc.invert(pc.string_is_ascii(values)).fill_null(False)
    if not pc.any(others).as_py():
        return lower
    return pc.replace_with_mask(
        lower, others, pa.array([v.lower() for v in values.filter(others).to_pylist()], values.type)
    )
