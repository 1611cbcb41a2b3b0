"""Follow: keep an index equal to a table of rules by looking at the table again and again, in the background.

Every look reads the whole table and syncs (see `sync`); one that finds nothing new commits nothing. That works with any table
and any files (`Polled`). A table that knows its versions and what has changed between them (see `feeds`) is asked for that alone (`Fed`): a look
at the same version reads nothing, one at a later version compares the ids that changed. The first look compares the whole
table, and so does one that finds that somebody else has changed the index, or merged its layers.

A look may fail: the table has an id twice for a moment, or its files are being replaced. Then the index stays as it was, the
error is logged, and the next look comes in time.

Files that are being replaced. To overwrite a folder, Spark removes all files and moves new ones in, one after the other. A look in
between would find a part of the rules and remove the others. So a folder is read only if it is settled (`settled`): its files are the same when
it is listed again, nobody is writing (`_temporary`), a mark of completeness that was there before (`_SUCCESS`) is there
again, and it has files if it had some before. To remove all rules, write a table without rows.
"""

from __future__ import annotations

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from wherecast.errors import WherecastError
from wherecast.spark.feeds import ChangeFeed, feed_of
from wherecast.spark.index import Index
from wherecast.spark.session import active_session
from wherecast.spark.store import Store
from wherecast.spark.sync import SyncReport, sync_rules
from wherecast.spark.tidying import finish_tidying, needs_tidying, tidy_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Reads the table as it is now.
RuleReader: TypeAlias = Callable[[], "DataFrame"]

_INTERVAL = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour)s?\s*", re.IGNORECASE)
_SECONDS = {"millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_EVERY = {"processingTime": "10 seconds"}
#: Outcomes that are kept.
_KEPT = 100

_log = logging.getLogger(__name__)


def follow_table(source: str | RuleReader, index: Index, trigger: Mapping[str, Any] | None = None) -> TableQuery:
    """Start to follow a table.

    Args:
        source: The name of a table, or a function that reads one: `lambda: spark.read.parquet("rules")`.
        index: It must be built already, and gets new versions.
        trigger: How often, as for a stream: `{"processingTime": "1 minute"}`, by default every 10 seconds, or
            `{"availableNow": True}`: once.
    """
    return TableQuery(_source(source), index, _interval_s(_EVERY if trigger is None else trigger))


def _source(source: str | RuleReader) -> FollowedTable:
    if callable(source):
        return Polled(source)
    if not isinstance(source, str):
        raise WherecastError(
            "a DataFrame of files stays as it was when it was made, so there is nothing to follow; pass the name of a table, or "
            "a function that reads it: index.follow(lambda: spark.read.parquet('rules'))"
        )
    spark, name = active_session(), source
    feed = feed_of(spark, name)
    if feed is not None:
        return Fed(feed)

    def read() -> DataFrame:
        spark.catalog.refreshTable(name)  # else Spark may list the files of the last look
        return spark.table(name)

    return Polled(read)


class FollowedTable(ABC):
    """A table that is looked at again and again."""

    @abstractmethod
    def sync(self, index: Index) -> SyncReport | None:
        """Make the index equal to the table as it is now; None: it was known to be so."""


class Polled(FollowedTable):
    """Any table: it is read and compared whole at every look."""

    def __init__(self, read: RuleReader) -> None:
        self._read = read
        self._before: TableFiles | None = None
        """The files of the last look that found the folder settled; None before it."""

    def sync(self, index: Index) -> SyncReport | None:
        rules = self._read()
        now = TableFiles.of(rules)
        objection = now.unsettled(self._before, lambda: TableFiles.of(self._read()))
        if objection:
            _log.info(
                "index=%s: the files of the table are being replaced, looking again later: %s", index.url, objection
            )
            return None
        self._before = now
        return sync_rules(rules, index)


class TableFiles(NamedTuple):
    """The files of a table at a moment."""

    files: frozenset[str]
    """None, if it is not made of files."""
    root: str | None
    """Where they are; folders such as `day=1` are inside."""
    is_complete: bool
    """Whether there is a mark of completeness."""
    is_written: bool
    """Whether somebody is writing."""

    @classmethod
    def of(cls, rules: DataFrame) -> TableFiles:
        """The files that a DataFrame reads."""
        files = frozenset(map(unquote, rules.inputFiles()))
        if not files:
            return cls(files, None, is_complete=False, is_written=False)
        parts = min(files).rpartition("/")[0].split("/")
        inside = next((place for place, part in enumerate(parts) if "=" in part), len(parts))
        root = "/".join(parts[:inside])
        names = Store(_local(root)).names("")
        return cls(files, root, is_complete="_SUCCESS" in names, is_written="_temporary" in names)

    def unsettled(self, before: TableFiles | None, again: Callable[[], TableFiles]) -> str:
        """Why this is not to be trusted; empty if it is. `again` looks once more."""
        if not self.files:
            return "there are none, and there were some" if before is not None and before.files else ""
        if self.is_written:
            return f"{self.root} has a folder _temporary"
        if before is not None and before.root == self.root and before.is_complete and not self.is_complete:
            return f"{self.root} has no _SUCCESS any more"
        return "" if again().files == self.files else "they have changed between two looks"


def _local(url: str) -> str:
    """A place as `Store` knows it: Spark writes local paths as URLs with any number of slashes."""
    return "/" + url.removeprefix("file:").lstrip("/") if url.startswith("file:") else url


class Fed(FollowedTable):
    """A table that tells what has changed in it."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._seen: tuple[int | None, int] | None = None
        """The version of the table that the index equals, and the version of the index that does; None before the first look."""

    def sync(self, index: Index) -> SyncReport | None:
        now, only = self._feed.version(), None
        if self._seen is not None and index.latest() == self._seen[1]:
            since = self._seen[0]
            if since == now:
                return None
            if since is not None and now is not None:
                only = self._feed.changed_ids(since, now, index.read().id_column)
        synced = sync_rules(self._feed.read(now), index, only)
        self._seen = now, synced.version
        return synced


def _interval_s(trigger: Mapping[str, Any]) -> float | None:
    """Seconds between looks; None: there is one."""
    match dict(trigger):
        case {"availableNow": True} | {"once": True}:
            return None
        case {"processingTime": str(text)} if found := _INTERVAL.fullmatch(text):
            return float(found[1]) * _SECONDS[found[2].lower()]
    raise WherecastError(
        f"trigger is {dict(trigger)!r}; expected {{'processingTime': '10 seconds'}} or {{'availableNow': True}}"
    )


class TableQuery:
    """A table that is being followed. It has the names of a Spark query."""

    def __init__(self, source: FollowedTable, index: Index, interval_s: float | None) -> None:
        self._source, self._index, self._interval_s = source, index, interval_s
        self._outcomes: deque[SyncReport] = deque(maxlen=_KEPT)
        self._begun = self._ended = 0
        self._failure: Exception | None = None
        self._wake, self._stopping, self._looked = threading.Event(), threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._run, name="wherecast-follow", daemon=True)
        self._thread.start()

    @property
    def reports(self) -> list[SyncReport]:
        """The last versions that were committed, oldest first."""
        return list(self._outcomes)

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name for it
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after the look that is under way, and after layers are merged that are being merged."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        finish_tidying(self._index)

    def exception(self) -> Exception | None:
        """Why the last look failed; None if it did not."""
        return self._failure

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name for it
        """Wait for the end; whether it has come. Raises what made the last look fail."""
        self._thread.join(timeout)
        if not self._thread.is_alive() and self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name for it
        """Look now, and wait until a look that began after this call has ended. Raises what made it fail."""
        with self._looked:
            wanted = self._begun + 1  # one that is under way may have read the table already
            while self.isActive and self._ended < wanted:
                self._wake.set()
                self._looked.wait(0.1)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._begun += 1
            self._look()
            with self._looked:
                self._ended += 1
                self._looked.notify_all()
            if self._interval_s is None:
                finish_tidying(self._index)
                return
            self._wake.wait(self._interval_s)

    def _look(self) -> None:
        """Sync once."""
        try:
            synced = self._source.sync(self._index)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
            self._failure = error
            # Spark's errors have pages of Java behind their first line, and our own say all in their message.
            is_plain = isinstance(error, WherecastError) or type(error).__module__.startswith("pyspark.")
            reason = str(error).partition("\nJVM stacktrace")[0].partition("\n\tat ")[0]
            _log.warning(
                "the table could not be followed, trying again: index=%s reason=%r",
                self._index.url,
                reason,
                exc_info=not is_plain or _log.isEnabledFor(logging.DEBUG),
            )
            return
        self._failure = None
        if synced is not None and synced.committed:
            self._outcomes.append(synced)
            if needs_tidying(synced.manifest):
                tidy_beside(active_session(), self._index, synced.manifest)
