"""Snapshots: named arrays and facts in a directory, replaced atomically and mapped when opened.

On disk
-------
::

    PATH/
      manifest.json                     what there is; replacing this file is the one moment at which a save takes effect
      v000007-3f0c9a51b2d4e687/         one folder per save, named by version and a random token, never changed
        segment0.arrow                  the arrays `segment0/...`: one Arrow IPC file per group
        arrays.arrow                    the arrays whose names have no group

The first line of the manifest holds the name of the format, its version, the SHA-256 of all bytes that follow and, where a
key is set, their signature (see `signing`). These
give the format version once more, the version of the snapshot, its folder, the size and SHA-256 of every file, the facts, and for each array its type,
its shape and the place of its buffers: `[offset, bytes]` in the file.

How arrays of different lengths share an IPC file is told in `arrow_file`.

Opening
-------
Files are mapped shared and read-only: processes that open one snapshot share its pages, and an array is a view of the map.
Before anything is trusted, the manifest is checked (size, format, version, checksum), then every file (it exists, is not a
link, has its size and its checksum), then every place (inside its file). What bytes alone can get wrong (UTF-8 and offsets
of strings, booleans that are neither 0 nor 1) is checked when such an array is first asked for.
SHA-256 was chosen because processors have instructions for it: 0.9 GB/s here, twice the speed of BLAKE2b.

A checksum finds damage, not malice: whoever can write the files can write the sums. So no check relies on
the sums, and what the numbers in an array mean has to be checked by whoever asks for the array (`bounds`).

A file that somebody shortens while it is mapped ends the process with SIGBUS as soon as a missing page is read: that is how
POSIX maps files. We never write to a file again once a manifest names it, and remove files whole, which a map outlives. A
handler of the signal would not help: it can neither repair the page nor leave compiled code that runs without the
interpreter's lock, and a library must not take over the signals of its process.

Saving
------
Under a lock on PATH (`flock`, so it ends with its process), a save writes a new folder, syncs each file and the folder,
writes the manifest beside the old one, syncs it, renames it over the old one and syncs PATH; only then are older folders
removed. Killed at any point before the rename it leaves the old manifest with its whole folder, after it the new one;
folders that no manifest names are ignored by readers and removed by the next save. A reader that holds an older version
keeps its maps, because a file lives as long as it is mapped; a reader that was about to map it reads the manifest again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from wherecast.errors import SnapshotError
from wherecast.index.arrow_file import Extent, StoredArray, find_fault, is_count, read_array, write_arrays
from wherecast.index.signing import KEY_VARIABLE, is_genuine, sign
from wherecast.progress import progress

FORMAT = "wherecast-snapshot"
#: 2: columns of literals, 3: of expressions, 4: of topics, 5: patterns, vectors and fine guards. What an older one has, the newer has in the same form;
#: but in 6 sure rows stand beside the rows that they belong to. 7: guards that leave out a range, and second guards.
FORMAT_VERSION = 7
_READABLE = (1, 2, 3, 4, 5, 6, 7)
#: The format version once more, where the checksum covers it; manifests have it since November 2026.
_WRITTEN = "written_as"
MANIFEST = "manifest.json"
#: A manifest has some hundred bytes per array; texts by the million belong in string arrays.
MANIFEST_LIMIT = 64 << 20

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,9}")
_FILE = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}\.arrow")
_FOLDER = re.compile(r"v([0-9]{6,15})-[0-9a-f]{16}")
_DRAFT = re.compile(r"manifest-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 100
_NO_LINKS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not make us wait


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An open snapshot. It stays usable when a newer one is saved over it."""

    path: Path
    version: int
    facts: Mapping[str, Any]
    arrays: Mapping[str, StoredArray]
    nbytes: int  # of the mapped files


# -- opening ----------------------------------------------------------------------------------------------------------


def open_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Map the snapshot in a directory.

    Raises:
        SnapshotError: there is none, it is damaged, foreign, or of a newer format.
    """
    where = Path(path)
    seen = b""
    for _ in range(_ATTEMPTS):
        raw = _read_manifest(where)
        manifest = _parse_manifest(raw, where)
        try:
            maps = _map_files(manifest, where)
        except FileNotFoundError as error:
            if raw == seen:
                raise SnapshotError(f"{where}: {error.filename} is missing; restore it or save anew") from None
            seen = raw  # a save may have replaced the version meanwhile: look again
            continue
        places = _read_places(manifest, {name: len(m) for name, m in maps.items()}, where)
        arrays = _Arrays(where, maps, places)
        return Snapshot(where, manifest["version"], manifest["facts"], arrays, sum(len(m) for m in maps.values()))
    raise SnapshotError(f"{where}: saved over {_ATTEMPTS} times while it was opened; save less often")


class _DamagedError(SnapshotError):
    """A manifest that may have been ours, and that a save may replace."""


class _NoArrayError(SnapshotError, KeyError):
    __str__ = Exception.__str__  # KeyError shows the repr


class _Arrays(Mapping[str, StoredArray]):
    """Arrays by name, made when asked for."""

    def __init__(self, where: Path, maps: Mapping[str, mmap.mmap], places: Mapping[str, Extent]) -> None:
        self._where = where
        self._maps = maps
        self._places = places
        self._made: dict[str, StoredArray] = {}

    def __getitem__(self, name: str) -> StoredArray:
        found = self._made.get(name)
        if found is None:
            place = self._places.get(name)
            if place is None:
                raise _NoArrayError(f"{self._where}: the snapshot has no array {name!r}; save anew with this version")
            try:
                found = self._made[name] = read_array(self._maps[place.file], place)
            except ValueError as error:
                raise SnapshotError(f"{self._where}: array {name!r}: {error}; restore it or save anew") from None
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _read_manifest(where: Path) -> bytes:
    try:
        folder = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _opened(MANIFEST, folder) as (descriptor, size):
                if size > MANIFEST_LIMIT:
                    raise SnapshotError(
                        f"{where / MANIFEST}: {size} bytes, at most {MANIFEST_LIMIT}; no manifest of ours"
                    )
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(MANIFEST_LIMIT)
        finally:
            os.close(folder)
    except FileNotFoundError:
        raise SnapshotError(f"{where}: no snapshot here ({MANIFEST} is missing); check the path") from None
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{where}: not a readable snapshot: {error}; check the path") from None


@contextmanager
def _opened(name: str, folder: int) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file in a folder; a link is not followed."""
    descriptor = os.open(name, _NO_LINKS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{name} is not a regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _parse_manifest(raw: bytes, where: Path) -> dict[str, Any]:
    """The manifest, once it is certain that it is ours, readable by this build and undamaged."""
    manifest = _read_json(raw, where)
    if manifest.get("format") != FORMAT:
        raise SnapshotError(
            f"{where / MANIFEST}: format {manifest.get('format')!r:.60} is foreign, not {FORMAT!r}; check the path"
        )
    version = manifest.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise SnapshotError(
            f"{where}: format version {version!r:.20} is newer than {FORMAT_VERSION}, all that this build reads; upgrade wherecast"
        )
    first, _, rest = raw.partition(b"\n")
    signature = manifest.get("hmac")
    if type(version) is not int or version not in _READABLE or first + b"\n" != _first_line(rest, signature, version):
        raise _DamagedError(f"{where / MANIFEST}: damaged (its checksum does not match); restore it or save anew")
    if not is_genuine(FORMAT, rest, signature):
        raise _DamagedError(
            f"{where / MANIFEST}: not signed with a key of {KEY_VARIABLE}; save it again with the key, or check who wrote it"
        )
    if manifest.get(_WRITTEN, version) != version:
        _refuse(where, f"format version {version} in its first line, {manifest[_WRITTEN]!r:.20} behind it")
    wanted = {"version": int, "folder": str, "files": dict, "arrays": dict, "facts": dict}
    for key, kind in wanted.items():
        if type(manifest.get(key)) is not kind:
            _refuse(where, f"{key!r} is missing or of another type")
    folder = _FOLDER.fullmatch(manifest["folder"])
    if folder is None or int(folder[1]) != manifest["version"]:
        _refuse(where, f"{manifest['folder']!r:.60} is not a folder of version {manifest['version']!r:.20}")
    return manifest


def _read_json(raw: bytes, where: Path) -> dict[str, Any]:
    def no_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is there twice")
        return found

    try:
        manifest = json.loads(raw.decode(), parse_constant=no_constant, object_pairs_hook=no_repeats)
    except (ValueError, RecursionError) as error:
        raise _DamagedError(
            f"{where / MANIFEST}: damaged or foreign: {error!s:.100}; restore it or save anew"
        ) from None
    if not isinstance(manifest, dict):
        _refuse(where, "it is not a JSON object")
    return manifest


def _first_line(rest: bytes, signature: object = None, version: int = FORMAT_VERSION) -> bytes:
    fixed: dict[str, object] = {"format": FORMAT, "format_version": version}
    fixed["sha256"] = hashlib.sha256(rest).hexdigest()
    if signature is not None:
        fixed["hmac"] = signature
    return json.dumps(fixed)[:-1].encode() + b",\n"


def _refuse(where: Path, reason: str) -> NoReturn:
    raise _DamagedError(f"{where / MANIFEST}: contradicts itself: {reason}; restore it or save anew")


def _map_files(manifest: dict[str, Any], where: Path) -> dict[str, mmap.mmap]:
    """Maps of all files, sizes and checksums compared. Raises FileNotFoundError for what is not there."""
    maps: dict[str, mmap.mmap] = {}
    try:
        with _directory(where / manifest["folder"]) as folder:
            for name, facts in manifest["files"].items():
                if not _FILE.fullmatch(name) or not isinstance(facts, dict) or not is_count(facts.get("bytes")):
                    _refuse(where, f"file {name!r:.60} has no proper name or size")
                maps[name] = _map_file(where / manifest["folder"] / name, folder, facts)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{where}: {manifest['folder']} cannot be read: {error}; restore it or save anew") from None
    return maps


def _map_file(path: Path, folder: int, facts: dict[str, Any]) -> mmap.mmap:
    with _opened(path.name, folder) as (descriptor, size):
        if size != facts["bytes"] or not size:
            raise SnapshotError(f"{path}: {size} bytes instead of {facts['bytes']}; restore it or save anew")
        mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    if hashlib.sha256(mapped).hexdigest() != facts.get("sha256"):
        raise SnapshotError(f"{path}: damaged (its checksum does not match); restore it or save anew")
    return mapped


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_places(manifest: dict[str, Any], sizes: dict[str, int], where: Path) -> dict[str, Extent]:
    """Where the arrays are, each inside its file."""
    places: dict[str, Extent] = {}
    for name, facts in manifest["arrays"].items():
        try:
            place = Extent(facts["file"], facts["type"], tuple(facts["shape"]), tuple(facts["buffers"]))
            fault = find_fault(place, sizes[place.file])
        except (TypeError, KeyError, ValueError):
            _refuse(where, f"array {name!r:.60} has no place in a file that is listed")
        if fault or not _NAME.fullmatch(name):
            _refuse(where, f"array {name!r:.60}: {fault or 'no proper name'}")
        places[name] = place
    return places


# -- saving -----------------------------------------------------------------------------------------------------------


def write_snapshot(path: str | os.PathLike[str], arrays: Mapping[str, StoredArray], facts: Mapping[str, Json]) -> None:
    """Save arrays and facts as the snapshot in `path`, in place of the one that may be there.

    Arrays are NumPy's of one or two dimensions and of any fixed-width type, or Arrow's of strings; what stands before the
    first `/` of a name is its group. `path` is created; a directory with other things in it is refused.

    Raises:
        SnapshotError: something cannot be stored or written; the snapshot that was there is still there.
    """
    where = Path(path)
    try:
        if not where.is_dir():
            where.mkdir(exist_ok=True)
            _sync(where.parent)
        with _directory(where.resolve()) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _save(where, _by_file(arrays), facts)
    except (OSError, ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise SnapshotError(f"{where}: cannot be saved: {error}") from error


def _save(where: Path, groups: Mapping[str, Mapping[str, StoredArray]], facts: Mapping[str, Json]) -> None:
    version, kept = _current(where)
    if kept is not None:
        _sweep(where, kept)
    folder = where / f"v{version + 1:06}-{secrets.token_hex(8)}"
    draft = where / f"manifest{folder.name[-17:]}.tmp"
    try:
        _write_version(folder, version + 1, groups, facts, draft)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    # From here on nothing is undone: an interrupt after the rename must not remove what the manifest names.
    draft.replace(where / MANIFEST)
    _sync(where)
    _sweep(where, folder.name)


def _write_version(
    folder: Path, version: int, groups: Mapping[str, Mapping[str, StoredArray]], facts: Mapping[str, Json], draft: Path
) -> None:
    """Everything but the rename: a folder of files and the draft of a manifest, on disk."""
    folder.mkdir()
    files: dict[str, Json] = {}
    places: dict[str, Json] = {}
    with progress("saving", len(groups)) as step:
        for name, group in groups.items():
            places |= {array: place._asdict() for array, place in write_arrays(folder / name, group).items()}
            files[name] = _file_facts(folder / name)
            step.advance()
    _sync(folder)
    content = {"version": version, "folder": folder.name, "files": files, "arrays": places, "facts": facts}
    content[_WRITTEN] = FORMAT_VERSION
    rest = json.dumps(content, allow_nan=False)[1:].encode() + b"\n"
    whole = _first_line(rest, sign(FORMAT, rest)) + rest
    if len(whole) > MANIFEST_LIMIT:
        raise ValueError(f"a manifest of {len(whole)} bytes, at most {MANIFEST_LIMIT}; keep large facts in arrays")
    draft.write_bytes(whole)
    _sync(draft)


def _current(where: Path) -> tuple[int, str | None]:
    """The last version number used here, and the folder of the snapshot (none: there is no whole one).

    Raises ValueError where saving would destroy something that is not ours.
    """
    names = [p.name for p in where.iterdir()]
    version = max((int(m[1]) for m in map(_FOLDER.fullmatch, names) if m), default=0)
    strangers = [n for n in names if not (_FOLDER.fullmatch(n) or _DRAFT.fullmatch(n) or n == MANIFEST)]
    if MANIFEST in names:
        raw = _read_manifest(where)
        try:
            manifest = _parse_manifest(raw, where)
        except _DamagedError:
            if strangers:
                raise
        else:
            return max(version, manifest["version"]), manifest["folder"]
    if strangers:
        raise ValueError(f"the directory holds {strangers[0]!r:.60} and no snapshot; choose an empty or a new one")
    return version, None


def _by_file(arrays: Mapping[str, StoredArray]) -> dict[str, dict[str, StoredArray]]:
    """Arrays by the file of their group; some file systems do not tell `A` from `a`."""
    groups: dict[str, dict[str, StoredArray]] = {}
    for name, array in arrays.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"array name {name!r:.60}: use letters, digits, _ . - and / between groups")
        group, slash, _ = name.partition("/")
        groups.setdefault(f"{group.lower() if slash else 'arrays'}.arrow", {})[name] = array
    return groups


def _file_facts(path: Path) -> dict[str, Json]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(where: Path, kept: str) -> None:
    """Remove older versions and what killed saves left. What cannot be removed now is left to the next save."""
    with suppress(OSError):
        for entry in list(where.iterdir()):
            if _FOLDER.fullmatch(entry.name) and entry.name != kept:
                shutil.rmtree(entry, ignore_errors=True)
            elif _DRAFT.fullmatch(entry.name):
                entry.unlink()
