"""Leases: who is making a new version, so that a clean-up leaves alone what they need.

A writer (a build, a set of changes, a compaction, a rebalancing) reads one version and writes folders that no version
names yet. A lease is a small file that says which version it reads, which folders it is about to name, and since when it
is at work: everything written since then may be its own. A thread renews the lease; when it has not been renewed for a
while, its writer was killed, and the lease means nothing any more.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from wherecast.spark.store import LEASES, Store

#: A lease is renewed this often, and ends when it was not renewed for so long.
RENEW_S, EXPIRY_S = 60.0, 900.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """One writer at work. Times are the writer's clock, in seconds since 1970."""

    version: int | None
    """The version that it reads."""
    folders: tuple[str, ...]
    """Folders that it is about to name."""
    started: float
    renewed: float


@contextmanager
def hold(store: Store, version: int | None = None, folders: Iterable[str] = ()) -> Iterator[None]:
    """Keep a clean-up from removing a version, some folders, and whatever is written from now on, until the block ends."""
    name = f"{LEASES}/{secrets.token_hex(8)}.json"
    begin = time.time()
    lease = Lease(version, tuple(sorted(folders)), begin, begin)

    def renew() -> None:
        store.replace(name, json.dumps(asdict(replace(lease, renewed=time.time()))).encode())

    renew()
    over = threading.Event()
    thread = threading.Thread(target=_keep_alive, args=(renew, over), name="wherecast-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # it must not write the file again
        with suppress(OSError):  # then it expires; what was done in the block stays done
            store.remove(name)


def _keep_alive(renew: Callable[[], None], over: threading.Event) -> None:
    while not over.wait(RENEW_S):
        try:
            renew()
        except OSError as error:
            _log.warning("a lease cannot be renewed, trying again in %g s: %s", RENEW_S, error)


def read_leases(store: Store) -> list[Lease]:
    """The writers at work; what the killed ones left is removed."""
    now, alive = time.time(), []
    for name in store.names(LEASES):
        lease = _read(store, f"{LEASES}/{name}")
        if lease is not None and now - lease.renewed < EXPIRY_S:
            alive.append(lease)
        elif lease is not None or store.age_s(f"{LEASES}/{name}", now) >= EXPIRY_S:
            store.remove(f"{LEASES}/{name}")
    return alive


def _read(store: Store, name: str) -> Lease | None:
    """A lease; None if it ended meanwhile, or was cut short when its host went down."""
    try:
        fields = json.loads(store.read(name))
        return Lease(fields["version"], tuple(fields["folders"]), float(fields["started"]), float(fields["renewed"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        _log.warning("%s/%s is not a lease; it is ignored", store.url, name)
        return None
