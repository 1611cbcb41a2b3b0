"""A broker: its feeds and deliveries tell people what Spark has matched.

The rows of a batch become events with the ids of their subscriptions, in an order that does not depend on the attempt. They are handed over in
pieces; each has a key made of the batch's key and its number, and the broker takes a key once. So an attempt that died half way
is completed by the next one. The broker remembers keys for a day (its setting `answers_ms`).

With `output="lists"` a row is an event. Pairs are put together by the content of their events; of events that are equal there are as many
as there were, because each of their subscriptions is there as often.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from wherecast.spark.brokers import BrokerSpace
from wherecast.spark.columns import quoted
from wherecast.spark.sinks.sink import Sink, SinkError, computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch

#: Events of one request.
_PIECE = 2_000


@dataclass(frozen=True, slots=True)
class BrokerSink(Sink):
    """A space of a broker, `http://HOST:PORT/v1/spaces/NAME`. The token needs the scope `publish`; default: WHERECAST_TOKEN."""

    needs: ClassVar = (("url",),)

    url: str
    token: str | None = field(default=None, repr=False)
    found: str = "subscription"
    """The column with what was found; `expect` sets it."""

    def __post_init__(self) -> None:
        BrokerSpace(self.url)  # an address that is wrong is refused at once

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:  # noqa: ARG003 - keys have the stream
        return cls(str(config.url), config.options.get("token"))

    def expect(self, columns: Sequence[str], found: str) -> Self:  # noqa: ARG002
        if not found:
            raise SinkError(
                "the broker needs the ids of the subscriptions: pass output='lists' or 'pairs', not 'counts'"
            )
        return replace(self, found=found)

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Hand the events over, piece by piece."""
        space = BrokerSpace(self.url, self.token)
        with computed(self._events(matches)) as rows:
            events = ((row.event, row.ids) for row in rows.orderBy("event", "ids").toLocalIterator())
            for number, piece in enumerate(_pieces(events)):
                space.hand_over(piece, f"{batch.key}/{number}")

    def _events(self, matches: DataFrame) -> DataFrame:
        """`event`, as JSON, and `ids`, one row per event."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import ArrayType, StructType

        event = F.to_json(F.struct(*(quoted(name) for name in matches.columns if name != self.found)))
        kind = matches.schema[self.found].dataType
        if isinstance(kind, ArrayType):
            ids = quoted(self.found)
            if isinstance(kind.elementType, StructType):  # an id, and rule columns
                ids = ids[kind.elementType.names[0]]
            return matches.select(event.alias("event"), F.array_sort(ids.cast("array<string>")).alias("ids"))
        one = matches.select(event.alias("event"), quoted(self.found).cast("string").alias("id"))
        counted = one.groupBy("event", "id").count().groupBy("event", "count")
        grouped = counted.agg(F.array_sort(F.collect_list("id")).alias("ids"))
        return grouped.select("event", "ids", F.explode(F.sequence(F.lit(1), F.col("count"))).alias("copy"))


def _pieces(events: Iterator[tuple[str, Sequence[str]]]) -> Iterator[list[tuple[str, Sequence[str]]]]:
    while piece := list(itertools.islice(events, _PIECE)):
        yield piece
