"""Snapshots for tests, and ways to spoil them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wherecast.index import snapshot as module
from wherecast.index.snapshot import MANIFEST, Snapshot, write_snapshot


def save_small(path: Path) -> Path:
    """Save a snapshot of two files with an array of each kind."""
    arrays = {
        "lo": np.arange(5, dtype=np.int32),
        "g/flag": np.array([True, False, True]),
        "g/digest": np.frombuffer(bytes(range(32)), "V16"),
        "g/names": pa.array(["a", "é", "", "xyz"]),
    }
    write_snapshot(path, arrays, {"schema": {"a": "integer"}, "n": 5})
    return path


def read_all(snapshot: Snapshot) -> dict[str, Any]:
    return {name: np.array(a) if isinstance(a, np.ndarray) else a.to_pylist() for name, a in snapshot.arrays.items()}


def files_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


def folder_of(path: Path) -> Path:
    return path / json.loads((path / MANIFEST).read_bytes())["folder"]


def places_of(path: Path) -> dict[str, Any]:
    """What the manifest says of each array."""
    arrays: dict[str, Any] = json.loads((path / MANIFEST).read_bytes())["arrays"]
    return arrays


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who knows how to make its checksum."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    change(manifest)
    rest = json.dumps({k: v for k, v in manifest.items() if k not in ("format", "format_version", "sha256", "hmac")})[
        1:
    ].encode()
    (path / MANIFEST).write_bytes(module._first_line(rest, manifest.get("hmac")) + rest)


def forge(path: Path, file: str, change: Callable[[bytearray], object]) -> None:
    """Change a file and make its checksum right."""
    place = folder_of(path) / file
    data = bytearray(place.read_bytes())
    change(data)
    place.write_bytes(data)
    rewrite(path, lambda m: m["files"][file].update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
