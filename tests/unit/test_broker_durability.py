"""What is durable comes first, then the answer. tests/integration/test_broker_kills.py traces the system calls, where strace is."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

from wherecast.broker.store.database import BrokerDatabase, StoreError
from wherecast.broker.writer import Transaction, Writer


@pytest.fixture
def database(tmp_path):
    store = BrokerDatabase(f"sqlite:///{tmp_path / 'w.db'}")
    store.migrate()
    yield store
    store.close()


def test_every_connection_syncs_its_commits(database):
    """All connections, those of readers included, use the write-ahead log and sync it with each commit."""
    with database.writing() as one, database.reading() as two:
        for connection in (one, two):
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_nobody_is_told_before_the_commit_has_returned(database, monkeypatch):
    """An answer is given after its commit; if the commit fails, the answer is the failure."""
    log, writing = [], database.writing

    @contextmanager
    def noted():
        with writing() as connection:
            yield connection
        if len(log) == 4:
            raise StoreError("the disk is gone")
        log.append("durable")

    monkeypatch.setattr(database, "writing", noted)

    async def run():
        loop = asyncio.get_running_loop()

        def on_commit(_, told):
            log.append("told")
            for tell in told:
                loop.call_soon_threadsafe(tell)

        writer = Writer(database, on_commit)
        writer.start()
        for n in range(3):
            done = loop.create_future()
            writer.put(Transaction(lambda c, _, n=n: c.exec_driver_sql("SELECT 1").scalar() + n, done))
            if n < 2:
                assert await done == n + 1
            else:
                with pytest.raises(Exception, match="the disk is gone"):
                    await done
        await asyncio.to_thread(writer.stop)

    asyncio.run(run())
    assert log == ["durable", "told", "durable", "told", "told"]
