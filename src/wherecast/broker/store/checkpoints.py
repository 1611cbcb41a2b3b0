"""Checkpoints of SQLite beside the writer, so that no commit has to wait for one.

Theory of operation. SQLite appends each commit to a write-ahead log. Left alone, the commit that makes the log longer than 1,000 pages copies all of it into the
database and syncs that, and everybody behind it waits for 10 to 50 ms; a broker that delivers does so several times a second. Here a thread with a
connection of its own copies what was committed, a few times a second, in the mode that waits for nobody and that nobody waits for (PASSIVE). The log can start over only
when all of it is copied, so now and then a commit has to copy the rest: after `LOG_PAGES`, most of which are copied by then.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from wherecast.broker.store.database import BrokerDatabase, StoreError

_log = logging.getLogger(__name__)

#: How often to look whether something was committed.
_LOOK_S = 0.1


class Checkpointer:
    """Copies the log of a SQLite database into it, in the background. On PostgreSQL, which does so by itself, it does nothing."""

    def __init__(self, database: BrokerDatabase) -> None:
        self.database = database
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wherecast-checkpoints", daemon=True)

    def start(self) -> None:
        if self.database.is_sqlite:
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        log, before = Path(f"{self.database.engine.url.database}-wal"), -1
        while not self._ended.wait(_LOOK_S):
            try:
                written = log.stat().st_mtime_ns
                if written != before:
                    self.database.checkpoint()
                    before = written
            except (OSError, StoreError) as error:
                _log.warning("checkpoint=failed reason=%s; trying again", error)
