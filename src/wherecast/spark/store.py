"""Store: the files of an index, on any file system that PyArrow or fsspec reaches.

Three promises are all that the layers above need:

- `create` makes a file appear whole or not at all, and says whether it was there already;
- a folder is uploaded under a name that nobody has used, and is not referred to before it is complete;
- `fetch` gives a local folder to map: the folder itself on a local file system, else a copy that is downloaded once per
  host and kept under a name that never changes its content.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from wherecast.spark.errors import IndexStoreError

#: Environment variable: where copies of remote folders are kept on this host.
CACHE_VARIABLE = "WHERECAST_CACHE"


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

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that was not there. False: it is there already, and stays as it is.

        On a local file system this holds against other writers too; object stores have one writer per index.
        """
        if self.local is None:
            if self.exists(name):
                return False
            self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
            with self._fs.open_output_stream(self._path(name)) as stream:
                stream.write(content)
            return True
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            _write_durably(draft, content)
            os.link(draft, target)  # unlike a rename, a link never replaces
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(target.parent)
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
            beside.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".draft-", dir=beside))  # beside its place: moving it is one rename
        try:
            yield folder, name
            folder.chmod(0o755)  # mkdtemp keeps others out
            if self.local is None:
                self._fs.create_dir(self._path(name), recursive=True)
                fs.copy_files(str(folder), self._path(name), destination_filesystem=self._fs)
            else:
                folder.rename(self.local / name)
                _sync_folder(self.local / parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, name: str) -> Path:
        """A local folder with the content of a folder of the store. Raises FileNotFoundError."""
        if self.local is not None:
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
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        names = (info.base_name for info in self._fs.get_file_info(selector))
        return sorted(name for name in names if drafts or name[0] != ".")

    def exists(self, name: str) -> bool:
        return bool(self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound)

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder; one step where the file system renames, else a copy. Durable on a local file system."""
        self._fs.move(self._path(source), self._path(target))
        if self.local is not None:
            for name in (target, source):
                _sync_folder((self.local / name).parent)

    def sync(self, name: str) -> None:
        """Make a folder durable that others have filled, with all files in it and the way to it.

        On a local file system. Elsewhere a file is as durable as the file system makes it when it is closed.
        """
        if self.local is None:
            return
        folder = self.local / name
        for parent, _, files in os.walk(folder):
            for file in files:
                _sync_folder(Path(parent) / file)
            _sync_folder(Path(parent))
        for above in folder.parents:
            _sync_folder(above)
            if above == self.local.parent:
                break

    def age_s(self, name: str, now: float) -> float:
        """Seconds since a file, or anything in a folder, was last changed; 0 where the file system does not say.

        Object stores know no time of a folder, only of what is in it.
        """
        infos = [self._fs.get_file_info(self._path(name))]
        if infos[0].type == fs.FileType.Directory:
            infos += self._fs.get_file_info(fs.FileSelector(self._path(name), allow_not_found=True, recursive=True))
        changed = max((info.mtime.timestamp() for info in infos if info.mtime is not None), default=now)
        return now - changed

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        kind = self._fs.get_file_info(self._path(name)).type
        if kind == fs.FileType.Directory:
            self._fs.delete_dir(self._path(name))
        elif kind == fs.FileType.File:
            self._fs.delete_file(self._path(name))

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


def _absolute(path: str) -> str:
    # Not Path.resolve: what a link points to on this host may be elsewhere on another.
    return os.path.abspath(path)  # noqa: PTH100


def _cache_folder() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path(tempfile.gettempdir()) / f"wherecast-{os.getuid()}"


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Works for a file too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
