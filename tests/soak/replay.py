"""Replay: what must have come of changes and events, worked out from what was put in and from which versions there were."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from tests.integration.stream_job import SUBSCRIPTIONS, check_matches
from tests.soak.producer import Row, is_good
from tests.soak.tally import Tally

from wherecast.spark.manifest import Manifest


class Replay:
    """All versions that ever were, and the changes that each has by their numbers."""

    def __init__(self, folder: Path, logs: dict[str, list[list[Row]]]) -> None:
        files = [
            *(folder / "kept" / "versions").glob("[0-9]*.json"),
            *(folder / "index" / "versions").glob("[0-9]*.json"),
        ]
        found = [Manifest.from_bytes(file.read_bytes(), str(file)) for file in files]
        self.manifests = {manifest.version: manifest for manifest in found}
        self.last = max(self.manifests)
        self.changes: dict[int, Row] = {}
        for log in logs.values():
            for rows in log:
                self.changes |= {
                    row[0]: row for row in set(rows) - clashes(rows) if is_good(row) and row[0] is not None
                }

    @cache  # noqa: B019 - as long as the replay
    def numbers(self, version: int) -> frozenset[int]:
        """Numbers of the changes that a version has."""
        manifest = self.manifests[version]
        missing = {n for first, last in manifest.gaps for n in range(first, last + 1)}
        return frozenset(range(1, manifest.sequence + 1)) - missing

    def subscriptions_at(self, version: int) -> list[tuple[int, str]]:
        """What a version has: its changes one by one, in the order of their numbers."""
        found: dict[Any, Any] = dict(SUBSCRIPTIONS)
        for number in sorted(self.numbers(version)):
            _, op, id, filter = self.changes[number]
            if op == "delete":
                found.pop(id, None)
            else:
                found[id] = filter
        return list(found.items())

    def outcome(self, rows: list[Row], version: int, committed: bool) -> list[int]:
        """How many of some rows are applied, refused, late and replayed, given the version that came of them."""
        base = self.manifests[version].parent if committed else version
        assert base is not None
        known, sequence = self.numbers(base), self.manifests[base].sequence
        counts, seen, clashing = Counter[str](), set(), clashes([r for r in rows if r[0] is None or r[0] > sequence])
        for row in rows:
            number = row[0]
            if number in known:
                kind = "replayed"
            elif number is None or not is_good(row) or row in clashing:
                kind = "refused"
            elif number <= sequence:
                kind = "late"
            else:
                kind = "replayed" if number in seen else "applied"
                seen.add(number)
            counts[kind] += 1
        return [counts[kind] for kind in ("applied", "refused", "late", "replayed")]


def clashes(rows: list[Row]) -> set[Row]:
    """Good rows whose number is that of another change in the same set."""
    good = {row for row in rows if is_good(row)}
    counts = Counter(row[0] for row in good)
    return {row for row in good if counts[row[0]] > 1}


def check_outcome(folder: Path, logs: dict[str, list[list[Row]]], tally: Tally) -> None:
    """Compare matches, dead letters, versions and counts with a replay."""
    replay = Replay(folder, logs)
    pins = {}
    for place in (folder / "kept" / "pins", folder / "index" / "pins"):
        for file in place.glob("*/[0-9]*.json"):
            pin = json.loads(file.read_text())
            pins[pin["batch"]] = pin["version"]
    for version, manifest in replay.manifests.items():
        parent = frozenset() if manifest.parent is None else replay.numbers(manifest.parent)
        kept = parent <= replay.numbers(version) <= replay.changes.keys()
        tally.check(kept, f"version {version} lost changes of {manifest.parent}, or has some that are refused")
    with tally.guarding("matches"):
        used = check_matches(folder, pins, replay.subscriptions_at)
        tally.count("checks", len(pins))
        tally.count("batches", len(pins))
        tally.count("versions", len(replay.manifests))
        tally.count("versions_used", len(used))
    with tally.guarding("changes"):
        _check_journals(folder, replay, tally)
        _check_refused(folder, logs["a"], replay, tally)


def _check_journals(folder: Path, replay: Replay, tally: Tally) -> None:
    """Every set of changes was counted as a replay of it counts."""
    for name in ("a", "b"):
        for line in (folder / f"{name}.journal").read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # killed while it was written
            rows = [tuple(row) for row in entry["rows"]]
            wanted = replay.outcome(rows, entry["version"], committed=entry["outcome"][0] > 0)
            tally.check(entry["outcome"] == wanted, f"log {name}: {entry}, not {wanted}")
            for kind, n in zip(("applied", "refused", "late", "replayed"), wanted, strict=True):
                tally.count(kind, n)


def _check_refused(folder: Path, log: list[list[Row]], replay: Replay, tally: Tally) -> None:
    """What the index does not have of the log that is followed is among the dead letters, once."""
    known = replay.numbers(replay.last)
    wanted = Counter(row for rows in log for row in rows if row[0] not in known)
    found = ds.dataset(folder / "refused", format="parquet", partitioning="hive").to_table().to_pylist()
    letters = Counter((r["sequence"], r["op"], None if r["id"] is None else int(r["id"]), r["filter"]) for r in found)
    tally.check(letters == wanted, f"dead letters: {letters - wanted} too many, {wanted - letters} missing")
