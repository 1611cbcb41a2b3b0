"""Cleaning an index beside those who read and write it: nothing goes that anybody needs or is about to need.

Versions first. One goes if it is neither among the newest, nor pinned by a stream, nor read by a writer (see `leases`). A
pin or a lease of a version counts only if that version was the newest after the file was there. So whoever lists versions
first and pins and leases afterwards sees those of all versions that are not the newest.

Then the folders that no version names. One stays while it is young, or while a writer is at work who may have written it.
A writer that was suspended for long may come back at any moment all the same, so the last step is agreed upon:

- a clean-up *marks* the folders, reads leases and manifests once more, and removes what still nobody names;
- a commit writes the names of its folders into a lease, makes sure that all are there and not marked, and only then creates
  the manifest.

Whoever is second sees the file of the first: either the folder stays, or the commit fails before its version is visible.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from wherecast.spark.leases import read_leases
from wherecast.spark.pins import pinned_versions
from wherecast.spark.store import LAYERS, PLANS, Store

if TYPE_CHECKING:
    from wherecast.spark.index import Index

#: Files that no version names are left alone this long: somebody may be about to commit the version that does.
GRACE_S = 3600.0
#: Clocks of writers and file systems may differ by this much.
_SKEW_S = 300.0
_MARK = ".removing-"


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
    """Remove layers and plans that no version names, and drafts of those who were killed."""
    store, now = index.store, time.time()
    found = [f"{parent}/{name}" for parent in (LAYERS, PLANS) for name in store.names(parent, drafts=True)]
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
    for parent in (LAYERS, PLANS):
        for name in store.names(parent, drafts=True):
            if name.startswith(_MARK):
                marked.add(f"{parent}/{name.removeprefix(_MARK).partition('-')[0]}")
            else:
                there.add(f"{parent}/{name}")
    return (folders - there) | (folders & marked)


def _mark(path: str, token: str) -> str:
    parent, _, name = path.partition("/")
    return f"{parent}/{_MARK}{name}-{token}"
