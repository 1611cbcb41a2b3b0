"""Store: the files of an index, on any file system that PyArrow or fsspec reaches.

The layers above rely on this:

- `create` makes a file appear whole or not at all, and says whether it was there already;
- a folder is uploaded under a name that nobody has used, and is not referred to before it is complete;
- on a local file system both are durable when the call returns: files, folders and their names are synced;
- `remove` takes a local folder out of sight in one step, and does not mind if somebody else was quicker;
- `fetch` gives a local folder to map: the folder itself on a local file system, else a copy that is downloaded once per
  host and kept under a name that never changes its content.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from wherecast.errors import WherecastError
from wherecast.kernels.private import make_private

#: Folders of an index, see `index`. In those of layers, plans and quarantines, names are random numbers.
VERSIONS, LAYERS, PLANS, QUARANTINES = "versions", "layers", "plans", "quarantine"
PINS, REPORTS, LEASES = "pins", "reports", "writers"
#: Environment variable: where copies of remote folders are kept on this host.
CACHE_VARIABLE = "WHERECAST_CACHE"
#: Object stores that PyArrow reaches by itself, and the drivers of fsspec that have conditional puts for them.
_DRIVERS = {
    **dict.fromkeys(("s3", "s3a"), ("s3", "s3fs")),
    **dict.fromkeys(("gs", "gcs"), ("gcs", "gcsfs")),
    **dict.fromkeys(("abfs", "abfss"), ("abfs", "adlfs")),
}
#: Files and folders that are synced at a time.
_SYNCED = 8
_FOLDER = re.compile(r"[a-z]+/[0-9a-f]{16}")
#: Times a folder is listed again because something in it was removed meanwhile.
_LOOKS = 100


class IndexStoreError(WherecastError):
    """An index directory that is missing, damaged, foreign or taken; the message says which and what to do."""


class StaleVersionError(IndexStoreError):
    """Another version was committed since this one was begun, or a clean-up removed its files; begin again."""


class Store:
    """A folder on some file system, named by a path or a URL."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._fs, self._root = open_filesystem(os.fspath(url))
        self.local = Path(self._root) if isinstance(self._fs, fs.LocalFileSystem) else None
        # Absolute: tasks open it again by its URL, and their working directory may be another. The same for every way
        # to write it: streams are told apart by it.
        self.url = os.fspath(url).rstrip("/") if self.local is None else self._root

    def read(self, name: str) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        with self._fs.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def open_any(self, folder: str, ending: str) -> pa.NativeFile | None:
        """One of the files in a folder, or below it, whose names have this ending; None if there is none."""
        found = (file.path for file in self._list(folder, recursive=True) if file.path.endswith(ending))
        path = next(found, None)
        return None if path is None else self._fs.open_input_file(path)

    def open_new(self, name: str) -> pa.NativeFile:
        """A file to be written by whoever has chosen the name; its folder is made."""
        self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
        return self._fs.open_output_stream(self._path(name))

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that was not there. False: it is there already, and stays as it is.

        Two writers at the same moment never both get True: on a local file system by a hard link, on an object store by a
        conditional put. Only where a file system has neither (HDFS), one process at a time may write an index.
        """
        if self.local is None:
            return self._put_once(name, content)
        target = self.local / name
        _make_folder(target.parent)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            _write_durably(draft, content)
            os.link(draft, target)  # unlike a rename, a link never replaces
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        _sync(target.parent)
        return True

    def _put_once(self, name: str, content: bytes) -> bool:
        """`create` on a remote file system: PyArrow has no conditional put, the drivers of fsspec have one."""
        if self.exists(name):  # asked first, because most stores bill a refused put
            return False
        driver = _conditional_driver(self._fs, self.url)
        if driver is None:
            self.replace(name, content)
            return True
        try:
            driver.pipe_file(self._path(name), content, mode="create")
        except OSError:  # refused; not all drivers say FileExistsError
            if self.exists(name):
                return False
            raise
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file in place of the one that may be there. Readers see either; a crash may lose it."""
        if self.local is None:
            self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
            with self._fs.open_output_stream(self._path(name)) as stream:
                stream.write(content)
            return
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        draft.write_bytes(content)
        draft.replace(target)

    @contextmanager
    def new_folder(self, parent: str) -> Iterator[tuple[Path, str]]:
        """A local folder to fill, and the name that it has in the store once the block ends without an error."""
        name = f"{parent}/{secrets.token_hex(8)}"
        beside = None if self.local is None else self.local / parent
        if beside is not None:
            _make_folder(beside)
        folder = Path(tempfile.mkdtemp(prefix=".draft-", dir=beside))  # beside its place: moving it is one rename
        try:
            yield folder, name
            folder.chmod(0o755)  # mkdtemp keeps others out
            if self.local is None:
                self._fs.create_dir(self._path(name), recursive=True)
                fs.copy_files(str(folder), self._path(name), destination_filesystem=self._fs)
            else:
                _sync_all([*folder.rglob("*"), folder])
                folder.rename(self.local / name)
                _sync(self.local / parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, name: str) -> Path:
        """A local folder with the content of a folder of the store.

        Raises:
            FileNotFoundError: There is none.
            IndexStoreError: The name is not one that `new_folder` gives, or there is a link: it may lead out of the store.
        """
        if not _FOLDER.fullmatch(name):
            raise IndexStoreError(f"{name!r:.80} is not a folder of the index {self.url}; who wrote its manifest?")
        if self.local is not None:
            _refuse_links(self.local, name)
            return self.local / name
        copy = _cache_folder() / hashlib.sha256(self.url.encode()).hexdigest()[:16] / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".fetch-", dir=copy.parent))
            try:
                fs.copy_files(self._path(name), str(draft), source_filesystem=self._fs)
                with suppress(OSError):  # another worker of this host was quicker
                    draft.rename(copy)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return copy

    def names(self, folder: str, *, drafts: bool = False) -> list[str]:
        """Names of the files and folders in a folder, sorted; none if it is not there. Drafts are left out unless asked for."""
        names = (info.base_name for info in self._list(folder, recursive=False))
        return sorted(name for name in names if drafts or name[0] != ".")

    def _list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        """What is in a folder, nothing if it is not there."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True, recursive=recursive)
        for _ in range(_LOOKS):
            with suppress(FileNotFoundError):  # something in it was removed while it was listed: look again
                return list(self._fs.get_file_info(selector))
        raise IndexStoreError(f"{self.url}/{folder} cannot be listed: files vanish meanwhile, {_LOOKS} times in a row")

    def exists(self, name: str) -> bool:
        return bool(self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound)

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder. Durable on a local file system.

        One step where the file system renames. An object store copies a folder, file by file, and then removes it: a move that is cut
        short leaves the source, and moving again completes it.
        """
        here, there = self._path(source), self._path(target)
        renames = self.local is not None or self._fs.type_name == "hdfs"
        if not renames and self._fs.get_file_info(here).type == fs.FileType.Directory:
            fs.copy_files(here, there, source_filesystem=self._fs, destination_filesystem=self._fs)
            self._fs.delete_dir(here)
            return
        self._fs.move(here, there)
        if self.local is not None:
            # One after the other: what has left the one folder for good must be in the other.
            for parent in dict.fromkeys((self.local / name).parent for name in (target, source)):
                _sync(parent)

    def gather(self, names: Collection[str], folder: str) -> None:
        """Move some files into a folder, which is made. Not durable, see `sync`."""
        self._fs.create_dir(self._path(folder), recursive=True)

        def bring(name: str) -> None:
            self._fs.move(self._path(name), f"{self._path(folder)}/{name.rpartition('/')[2]}")

        with ThreadPoolExecutor(_SYNCED) as pool:
            list(pool.map(bring, names))

    def sync(self, name: str) -> None:
        """Make a folder durable that others have filled, with all files in it and the way to it.

        On a local file system. Elsewhere a file is as durable as the file system makes it when it is closed.
        """
        if self.local is None:
            return
        folder, root = self.local / name, self.local.parent
        _sync_all([*folder.rglob("*"), folder, *(above for above in folder.parents if above.is_relative_to(root))])

    def age_s(self, name: str, now: float) -> float:
        """Seconds since a file, or anything in a folder, was last changed; 0 where the file system does not say.

        Object stores know no time of a folder, only of what is in it.
        """
        infos = [self._fs.get_file_info(self._path(name))]
        if infos[0].type == fs.FileType.Directory:
            infos += self._list(name, recursive=True)
        changed = max((info.mtime.timestamp() for info in infos if info.mtime is not None), default=now)
        return now - changed

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there; two who remove the same thing do not disturb each other."""
        kind = self._fs.get_file_info(self._path(name)).type
        with suppress(FileNotFoundError):
            if kind == fs.FileType.File:
                self._fs.delete_file(self._path(name))
            elif kind == fs.FileType.Directory and self.local is None:
                self._fs.delete_dir(self._path(name))
            elif kind == fs.FileType.Directory:
                target = Path(self._path(name))
                gone = target.rename(target.with_name(f".gone-{secrets.token_hex(8)}"))
                shutil.rmtree(gone, ignore_errors=True)  # nobody looks for it here; a sweep removes what is left

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks get the URL and open their own."""
        return Store, (self.url,)


def open_filesystem(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL or path, and the path in it."""
    scheme = urlsplit(url).scheme
    if len(scheme) <= 1:  # no scheme, or the letter of a drive
        return fs.LocalFileSystem(), _absolute(url)
    if scheme == "s3a":  # what Hadoop, and so Spark, calls S3
        url = f"s3{url[len(scheme) :]}"
    try:
        found, path = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ImportError) as error:
        try:
            fsspec: Any = importlib.import_module("fsspec.core")
            handler, path = fsspec.url_to_fs(url)
        except (ImportError, ValueError):
            raise IndexStoreError(
                f"cannot reach {url!r}: {error}; use a path, file://, s3://, gs:// or hdfs://, or install fsspec "
                f"with the driver of {scheme!r}"
            ) from None
        found = fs.PyFileSystem(fs.FSSpecHandler(handler))
    return found, _absolute(path) if isinstance(found, fs.LocalFileSystem) else path.rstrip("/")


def _conditional_driver(found: fs.FileSystem, url: str) -> Any:
    """The fsspec driver for puts that must not replace; None where there is no such put. Raises IndexStoreError if it is missing."""
    if isinstance(found, fs.PyFileSystem) and isinstance(found.handler, fs.FSSpecHandler):
        return found.handler.fs
    parts = urlsplit(url)
    if parts.scheme not in _DRIVERS:
        return None
    protocol, package = _DRIVERS[parts.scheme]
    options = dict(parse_qsl(parts.query))  # of PyArrow's URLs
    endpoint = options.get("endpoint_override")
    given = {"endpoint_url": f"{options.get('scheme', 'https')}://{endpoint}"} if endpoint else {}
    try:
        return importlib.import_module("fsspec").filesystem(protocol, **given)
    except ImportError:
        raise IndexStoreError(
            f"writing to {url!r} needs conditional puts, which the package {package} has: pip install {package}"
        ) from None


def _absolute(path: str) -> str:
    # Not Path.resolve: what a link points to on this host may be elsewhere on another.
    return os.path.abspath(path)  # noqa: PTH100


def _cache_folder() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    try:
        return make_private(Path(tempfile.gettempdir()) / f"wherecast-{os.getuid()}")
    except PermissionError as error:
        raise IndexStoreError(f"{error}; {CACHE_VARIABLE} names one") from None


def checksum(folder: Path, names: Iterable[str]) -> str:
    """SHA-256 of some files of a folder and of their names; a file that is not there counts as empty."""
    digest = hashlib.sha256()
    for name in names:
        file = folder / name
        digest.update(name.encode() + (file.read_bytes() if file.exists() else b""))
    return digest.hexdigest()


def _refuse_links(root: Path, name: str) -> None:
    places = [root / part for part in (Path(name), *Path(name).parents) if part != Path()]
    links = [place for place in (*places, *(root / name).rglob("*")) if place.is_symlink()]
    if links:
        raise IndexStoreError(f"{links[0]} is a link, and what an index names must be inside it; copy the files there")


def _make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; each name is durable."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def _sync_all(paths: Collection[Path]) -> None:
    """Make files and folders durable, several at a time: a journal writes down together what is waiting for it."""
    with ThreadPoolExecutor(min(_SYNCED, len(paths))) as pool:
        list(pool.map(_sync, paths))


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
