"""What every sink promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from wherecast.errors import WherecastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.spark.stream import Batch


class SinkError(WherecastError):
    """A sink that cannot take the batches of a stream; the message says why and what to do."""


class Sink(Protocol):
    """Takes the matches of a micro-batch."""

    def admit(self, stream: str | None) -> None:
        """Raises SinkError if the sink belongs to another stream; None is a stream that starts for the first time."""

    def holds(self, batch: Batch) -> bool:
        """Whether this batch was written completely; then it is not matched again. Raises SinkError."""

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Write a batch. Writing it twice must have the same result as writing it once."""


@contextmanager
def _computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed whole before the first is written, for writers that are not a part of Spark's plan.

    Such a writer would also compute them out of sight of the stream's observations, which would wait for ever.
    """
    held = rows.persist()
    try:
        held.count()
        yield held
    finally:
        held.unpersist()
