"""Following a change log: every micro-batch of changes applied, reported, and the index kept small.

What happens to a batch, in this order:

1. its changes are committed as a new version of the index;
2. rows that were not applied go to the sink for dead letters;
3. counts go to the reports;
4. if layers have piled up, they are merged, and versions that nobody needs are removed;
5. Spark commits the batch.

Killed anywhere, the batch is handed over again. Then its applied rows are replays, and the others come out of step 1 as they
did before, so step 2 loses none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wherecast.spark.changes import apply_changes
from wherecast.spark.checkpoint import Checkpoint
from wherecast.spark.compact import compact
from wherecast.spark.errors import IndexStoreError, StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.reports import ChangeReport, Reports
from wherecast.spark.sinks import Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_DEAD_LETTERS = "sequence bigint, op string, id string, filter string, message string, error string"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChangeRunner:
    """What `foreachBatch` calls with changes; on Spark Connect in a process of the server."""

    index: Index
    checkpoint: Checkpoint
    dead_letters: Sink | None
    reports: Reports[ChangeReport]
    most_layers: int
    keep_versions: int
    check_files: Callable[[SparkSession, list[str]], None] | None = None

    def __call__(self, changes: DataFrame, number: int) -> None:
        """Apply one batch; again, with the same outcome, if Spark hands it over again."""
        begin = time.perf_counter()
        if self.check_files is not None:
            self.check_files(changes.sparkSession, self.checkpoint.files(number))
        applied = apply_changes(changes, self.index)
        batch = self.checkpoint.batch(number).dead_letters
        if self.dead_letters is not None and not self.dead_letters.holds(batch):
            self.dead_letters.write(_letters(changes.sparkSession, applied.quarantine), batch)
        self.reports.add(
            ChangeReport(
                number,
                applied.manifest.version,
                applied.applied,
                applied.refused,
                applied.late,
                applied.replayed,
                time.perf_counter() - begin,
            )
        )
        if max(map(len, applied.manifest.servers)) > self.most_layers:
            self._tidy(changes.sparkSession)

    def _tidy(self, spark: SparkSession) -> None:
        """Merge layers and remove old versions; what does not succeed now is done after a later batch."""
        try:
            compact(spark, self.index)
        except StaleVersionError as error:
            _log.info("layers are merged later: %s", error)
            return
        try:
            self.index.clean(self.keep_versions)
        except (IndexStoreError, OSError) as error:
            _log.warning("old versions of the index could not be removed, trying again later: %s", error)


def _letters(spark: SparkSession, quarantine: pa.Table) -> DataFrame:
    """Rows that were not applied, as dead letters. The types are said: Spark Connect cannot see those of an empty table."""
    names = ["error" if name == "reason" else name for name in quarantine.schema.names]
    return spark.createDataFrame(quarantine.rename_columns(names), _DEAD_LETTERS)
