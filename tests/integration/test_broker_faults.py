"""Faults that a broker has to live with, at a small size. `python -m tests.integration.broker_faults` does all at full size."""

from __future__ import annotations

import pytest
from tests.integration import broker_faults as faults
from tests.servers.postgresql import running_postgresql
from tests.servers.wherecast_broker import running_wherecast

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_wherecast(tmp_path_factory.mktemp("faults"), settings=faults.SETTINGS) as found:
        faults.prepare(found)
        yield found


def test_bodies_are_bounded_and_answered(broker):
    """A body beyond the limit is refused while it comes, a slow one after its time; memory stays bounded."""
    faults.big_bodies(broker, 40)
    faults.slow_bodies(broker, 20)


def test_silent_sockets_do_not_keep_others_away(broker):
    """Connections that say nothing or half a request cost little, and a publish is answered meanwhile."""
    faults.many_sockets(broker, 300)


def test_readers_get_everything_and_who_does_not_read_is_cut_off(broker):
    """Each reader has each event once, with bounded memory; one that sleeps is cut off and resumes."""
    faults.many_readers(broker, 60)


def test_malformed_bodies_are_answered(broker):
    """No Arrow stream and no CloudEvent, however spoiled, is answered with 5xx or ends the broker."""
    faults.malformed(broker, 300)


def test_a_full_disk_loses_nothing(broker):
    """While nothing can be written all is refused with 503; then it goes on by itself, and what was acknowledged is there, also after kill -9."""
    faults.full_disk(broker, 200)


def test_a_database_that_is_gone_comes_back(tmp_path):
    """While PostgreSQL is down requests get 503; when it is back all goes on, and nothing acknowledged is lost."""
    with (
        running_postgresql() as server,
        running_wherecast(tmp_path, database=server.url, settings=faults.SETTINGS) as broker,
    ):
        faults.prepare(broker)
        faults.database_gone(broker, server, 1)
