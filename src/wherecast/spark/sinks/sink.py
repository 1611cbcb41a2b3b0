"""What every sink promises, and what it may leave to its defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Self

from wherecast.errors import WherecastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.sinks.drafts import Drafts
    from wherecast.spark.stream import Batch


class SinkError(WherecastError):
    """A sink that cannot take the batches of a stream; the message says why and what to do."""


class Sink(ABC):
    """Takes the matches of a micro-batch. A sink of your own has a `write`; the rest has defaults."""

    #: What a pipeline's file must say beside `kind`: one key of each group.
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:
        """The sink that a pipeline's file describes, its path resolved; `application` names the pipeline and the sink's table."""
        raise NotImplementedError(f"{cls.__name__} cannot be described in a file ({config.kind}, {application})")

    def expect(self, columns: Sequence[str], found: str) -> Sink:  # noqa: ARG002 - most take any columns
        """The sink for rows with these columns, of which `found` names the subscriptions (empty: none does). Raises SchemaError."""
        return self

    def admit(self, stream: str | None) -> None:  # noqa: B027 - most take all streams
        """Raises SinkError if the sink belongs to another stream; None is a stream that starts for the first time."""

    def drafts(self, spark: SparkSession) -> Drafts | None:  # noqa: ARG002 - most are written by Spark
        """Where the tasks that match write what they find; None: Spark writes it. Raises SinkError if they cannot in this session."""
        return None

    def holds(self, batch: Batch) -> bool:  # noqa: ARG002 - most find out when they write
        """Whether this batch was written completely; then it is not matched again. Raises SinkError."""
        return False

    @abstractmethod
    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Write a batch. Writing it twice must have the same result as writing it once.

        A sink with `drafts` gets rows that say which files are to be taken, see `writing`.
        """


def refuse_lost_table(table: str, batch: Batch) -> None:
    """For a table that is not there: raises SinkError unless the stream begins."""
    if batch > 0:
        raise SinkError(
            f"there is no table {table}, and the stream is at batch {int(batch)}: its earlier output was deleted or is elsewhere; restore "
            f"it, start with a new checkpoint to write all of it again, or create it, empty, if the stream is to go on in a new table"
        )


@contextmanager
def computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed whole before the first is written, for writers that are not a part of Spark's plan.

    Such a writer would also compute them out of sight of the stream's observations, which would wait for ever.
    """
    held = rows.persist()
    try:
        held.count()
        yield held
    finally:
        held.unpersist()
