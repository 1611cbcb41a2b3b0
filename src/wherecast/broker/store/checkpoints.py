"""Checkpoints of SQLite beside the writer, so that no commit has to wait for one.

Theory of operation. SQLite appends each commit to a write-ahead log. Left alone, the commit that makes the log longer than 1,000 pages copies all of it into the
database and syncs that, and everybody behind it waits for 10 to 50 ms; a broker that delivers does so several times a second. Here a thread with a
connection of its own copies what was committed, ten times a second, in the mode that waits for nobody and that nobody waits for (PASSIVE). The commit that is due to
start the log over finds most of it copied and synced.

Under a heavy load the thread never reaches the end of the log, and SQLite syncs the database only there: what is copied would pile up, and one commit would wait a second for all
of it (seen with a limit of 8,000 pages instead of SQLite's 1,000). So the limit stays, and when the log is longer, the thread leaves the database to the commits for
a while: one checkpoint at a time may run.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from wherecast.broker.store.database import LOG_PAGES, BrokerDatabase, StoreError

_log = logging.getLogger(__name__)

#: How often to look whether something was committed; how long to stay away from a log that should have started over.
_LOOK_S, _AWAY_S = 0.1, 1.0


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
        pause_s = _LOOK_S
        while not self._ended.wait(pause_s):
            pause_s = _LOOK_S
            try:
                written = log.stat().st_mtime_ns
                if written != before:
                    if self.database.checkpoint() > LOG_PAGES:
                        pause_s = _AWAY_S
                    before = written
            except (OSError, StoreError) as error:
                _log.warning("checkpoint=failed reason=%s; trying again", error)
