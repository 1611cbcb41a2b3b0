"""Clean-up beside those who read and write an index: it removes nothing that anybody needs or is about to need.

Pins. Spark may run a micro-batch again, after a crash or because a commit was lost. The index version of a batch is written
down before it is matched and never changed. So the second run sees the subscriptions that the first one saw, whatever was
changed in between: the output of a batch is a function of (batch, version). Pins live in the index, where a clean-up finds
which versions are still needed.

Leases. A writer (a build, a set of changes, a compaction, a rebalancing) reads one version and writes folders that no version
names yet. A lease is a small file that says which version it reads, which folders it is about to name, and since when it
is at work: everything written since then may be its own. A thread renews the lease. When it has not been renewed for a
while, its writer was killed, and the lease no longer counts.

Versions are removed first. One goes if it is neither among the newest, nor pinned by a stream, nor read by a writer. A pin
or a lease of a version counts only if that version was the newest after the file was there. So whoever lists versions first
and pins and leases afterwards sees those of all versions that are not the newest.

Then the folders that no version names. One stays while it is young, or while a writer is at work who may have written it.
A writer that was suspended for long may come back at any moment all the same, so the last step is agreed upon:

- a clean-up *marks* the folders, reads leases and manifests once more, and removes what still nobody names;
- a commit writes the names of its folders into a lease, makes sure that all are there and not marked, and only then creates
  the manifest.

Whoever is second sees the file of the first: either the folder stays, or the commit fails before its version is visible.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from wherecast.spark.store import LAYERS, LEASES, PINS, PLANS, QUARANTINES, IndexStoreError, Store

if TYPE_CHECKING:
    from wherecast.spark.index import Index


_log = logging.getLogger(__name__)


# Pins

#: Pins kept behind the newest one. Spark replays the last batch only; the others are for people.
_KEPT = 10


class Pins:
    """The pins of one stream, told from others by its checkpoint."""

    def __init__(self, index: Index, checkpoint: str) -> None:
        self._index = index
        self._folder = f"{PINS}/{stream_name(checkpoint)}"

    def pin(self, batch: int) -> int:
        """The version of a batch: the one pinned before, else the current one, pinned now and durably."""
        name = f"{self._folder}/{batch:012d}.json"
        while True:
            known = _read_pin(self._index.store, name)
            if known is not None:
                return known
            version = self._index.latest()
            if not self._index.store.create(name, json.dumps({"batch": batch, "version": version}).encode()):
                continue
            # A version may be cleaned away before its pin is there, but not while it is the current one.
            if version == self._index.latest():
                self._forget_before(batch - _KEPT)
                return version
            self._index.store.remove(name)

    def known(self) -> dict[int, int]:
        """The versions of the batches whose pins are kept, oldest first."""
        names = sorted(self._index.store.names(self._folder))
        versions = {
            int(name.removesuffix(".json")): _read_pin(self._index.store, f"{self._folder}/{name}") for name in names
        }
        return {batch: version for batch, version in versions.items() if version is not None}

    def clear(self) -> None:
        """Remove all pins: the stream begins anew."""
        self._index.store.remove(self._folder)

    def resume(self, newest: int) -> None:
        """Go on after batch `newest`, the last in the checkpoint; the next one is pinned anew.

        Raises IndexStoreError if later ones were run as well: then the checkpoint has lost its progress. One more than
        that may be: the pin survives a failure of the machine that the checkpoint's last file may not survive.
        """
        ahead = [batch for batch in self.known() if batch > newest]
        if ahead and max(ahead) > newest + 1:
            raise IndexStoreError(
                f"the checkpoint has lost its progress: batch {max(ahead)} was run, but its folder 'offsets' ends with "
                f"{newest if newest >= 0 else 'nothing'}, so that new events would be taken for old ones; restore the "
                f"checkpoint, or use a new checkpoint and a new sink"
            )
        for batch in ahead:
            self._index.store.remove(f"{self._folder}/{batch:012d}.json")

    def _forget_before(self, batch: int) -> None:
        for name in self._index.store.names(self._folder):
            if int(name.removesuffix(".json")) < batch:
                self._index.store.remove(f"{self._folder}/{name}")


def stream_name(checkpoint: str) -> str:
    """What a stream is called inside an index; the same for every way to write the place of its checkpoint."""
    return hashlib.sha256(Store(checkpoint).url.encode()).hexdigest()[:16]


def pinned_versions(store: Store) -> set[int]:
    """Versions that some stream may ask for again. Pins that are forgotten meanwhile are left out."""
    names = [f"{PINS}/{stream}/{name}" for stream in store.names(PINS) for name in store.names(f"{PINS}/{stream}")]
    return {version for name in names if (version := _read_pin(store, name)) is not None}


def _read_pin(store: Store, name: str) -> int | None:
    """The version of a pin; None if there is no such pin."""
    try:
        return int(json.loads(store.read(name))["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise IndexStoreError(f"the pin {store.url}/{name} is damaged; remove the stream's checkpoint") from None


# Leases

#: A lease is renewed this often, and ends when it was not renewed for so long.
RENEW_S, EXPIRY_S = 60.0, 900.0


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
        lease = _read_lease(store, f"{LEASES}/{name}")
        if lease is not None and now - lease.renewed < EXPIRY_S:
            alive.append(lease)
        elif lease is not None or store.age_s(f"{LEASES}/{name}", now) >= EXPIRY_S:
            store.remove(f"{LEASES}/{name}")
    return alive


def _read_lease(store: Store, name: str) -> Lease | None:
    """A lease; None if it ended meanwhile, or was cut short when its host went down."""
    try:
        fields = json.loads(store.read(name))
        return Lease(fields["version"], tuple(fields["folders"]), float(fields["started"]), float(fields["renewed"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        _log.warning("%s/%s is not a lease; it is ignored", store.url, name)
        return None


# Removing

#: Files that no version names are left alone this long: somebody may be about to commit the version that does.
GRACE_S = 3600.0
#: Clocks of writers and file systems may differ by this much.
_SKEW_S = 300.0
_MARK = ".removing-"
#: What manifests name.
FOLDERS = (LAYERS, PLANS, QUARANTINES)


def remove_versions(index: Index, keep: int) -> list[int]:
    """Remove the manifests of versions that nobody needs; their numbers."""
    versions = index.versions()
    leased = {lease.version for lease in read_leases(index.store)}
    needed = {*versions[-max(keep, 1) :], *pinned_versions(index.store), *leased}
    gone = [version for version in versions if version not in needed]
    for version in gone:
        index.forget(version)
    return gone


def sweep(index: Index, grace_s: float) -> None:
    """Remove layers, plans and quarantines that no version names, and drafts of those who were killed."""
    store, now = index.store, time.time()
    found = [f"{parent}/{name}" for parent in FOLDERS for name in store.names(parent, drafts=True)]
    ages_s = {path: store.age_s(path, now) for path in found}
    # Leases after the folders: who wrote one of them had a lease by then, or has ended.
    begun = min((lease.started for lease in read_leases(store)), default=float("inf")) - _SKEW_S
    named, doomed = _named(index), []
    for path, age_s in ages_s.items():
        if path in named or age_s < grace_s or now - age_s >= begun:
            continue
        name = path.partition("/")[2]
        if name[0] != ".":
            doomed.append(path)
        elif not name.startswith(_MARK) or age_s >= GRACE_S:
            store.remove(path)  # no manifest can name it
    if doomed:
        _remove_folders(index, doomed)


def _remove_folders(index: Index, doomed: list[str]) -> None:
    """Remove what nobody names once it is marked."""
    store, token = index.store, secrets.token_hex(4)  # marks of one's own: another clean-up may take its own away
    marks = {path: _mark(path, token) for path in doomed}
    try:
        for mark in marks.values():
            store.replace(mark, b"")
        named = _named(index)
        for path in doomed:
            if path not in named:
                store.remove(path)
    finally:
        for mark in marks.values():
            store.remove(mark)


def _named(index: Index) -> set[str]:
    """Folders that a writer is about to name, or a version names.

    Leases first: a commit removes its lease after it has created the manifest.
    """
    leased = {folder for lease in read_leases(index.store) for folder in lease.folders}
    return leased.union(*(manifest.folders for manifest in index.manifests()))


def missing_folders(store: Store, folders: set[str]) -> set[str]:
    """Those that are not there, or that a clean-up is about to remove."""
    there, marked = set(), set()
    for parent in FOLDERS:
        for name in store.names(parent, drafts=True):
            if name.startswith(_MARK):
                marked.add(f"{parent}/{name.removeprefix(_MARK).partition('-')[0]}")
            else:
                there.add(f"{parent}/{name}")
    return (folders - there) | (folders & marked)


def _mark(path: str, token: str) -> str:
    parent, _, name = path.partition("/")
    return f"{parent}/{_MARK}{name}-{token}"
