"""Observed numbers: what matching a DataFrame took and found, counted while it is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


NAMES = ("events", "errors", "sent", "dropped", "candidates", "matches")


class Numbers:
    """Give one to `match`; once its result has been computed, `get` has the numbers.

    - `events`, and those of them that are `errors`, because a value does not fit the schema;
    - `sent`: pairs of event and server, and `dropped`: events that no server saw because no summary admits them;
    - `candidates`: clauses that events were compared with, estimated from some of the events;
    - `matches`: pairs of event and subscription.
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def observe(self, frame: DataFrame, **numbers: str) -> DataFrame:
        """Count on the way: SQL aggregates by the name of their number. Every call costs Spark a few milliseconds."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        self._observations.append(Observation())
        return frame.observe(self._observations[-1], *(F.expr(f"{sql} AS {name}") for name, sql in numbers.items()))

    def get(self) -> dict[str, int]:
        """The numbers by name; waits until the result has been computed."""
        return {name: int(value or 0) for part in self._observations for name, value in part.get.items()}
