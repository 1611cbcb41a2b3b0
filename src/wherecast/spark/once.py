"""Once: a DataFrame that is matched and given to a sink as a single batch.

To a sink, each call is a stream of its own: two calls with the same events are two batches. A call that fails has written nothing that
anybody sees, see the sinks for what they leave behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from wherecast.spark.columns import Names, Output
from wherecast.spark.index import Index
from wherecast.spark.match import Numbers, RuleColumns, match
from wherecast.spark.sinks.sink import Sink
from wherecast.spark.stream import Batch, prepare
from wherecast.spark.writing import match_and_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_once(
    events: DataFrame,
    index: Index,
    sink: Sink,
    *,
    columns: RuleColumns,
    output: Output,
    on_error: Literal["raise", "skip"],
    names: Mapping[str, str] | None,
) -> dict[str, int]:
    """Match events and have a sink write what they match; see `Index.write`."""
    numbers, chosen = Numbers(), Names.of(names)
    sink, drafts = prepare(sink, events, index, output=output, subscribers=None, names=chosen, columns=columns)
    sink.admit(None)
    batch = Batch(0, f"once-{secrets.token_hex(8)}", "")
    ask = match if drafts is None else partial(match_and_write, drafts=drafts.of(batch))
    matched = ask(
        events,
        index,
        output=output,
        version=index.read(),
        subscribers=None,
        on_error=on_error,
        numbers=numbers,
        names=chosen,
        columns=columns,
    )
    sink.write(matched, batch)
    return numbers.get()
