"""Anything else: a function of the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wherecast.spark.sinks.sink import Sink, computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.spark.stream import Batch


@dataclass(frozen=True, slots=True)
class Foreach(Sink):
    """Anything else: `function(matches, batch)` is called for every batch, and again for one that is replayed.

    `batch` is the batch number. It also has a `key`, which is the same for every attempt at a batch and differs between
    streams, and between batches of a stream that starts again: to write a batch once, remember the key, not the number.

    Matches are computed exactly once, however often the function reads them.
    """

    function: Callable[[DataFrame, Batch], None]

    def write(self, matches: DataFrame, batch: Batch) -> None:
        with computed(matches) as rows:
            self.function(rows, batch)
