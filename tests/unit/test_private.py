"""Folders for compiled kernels and copies of indexes: ours alone, or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wherecast.kernels.private import make_private
from wherecast.spark.store import CACHE_VARIABLE, IndexStoreError, Store, _cache_folder


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_is_ours_alone(tmp_path):
    """Whatever the umask, nobody else can look into a folder that we make; it may be there already."""
    old = os.umask(0)
    try:
        assert make_private(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "a" / "b") == 0o700
    make_private(tmp_path / "a" / "b")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path, mode):
    """Who can write there can put code there."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="written by others"):
        make_private(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="giving a folder away takes root")
def test_the_folder_of_another_user_is_refused(tmp_path):
    """Another user may have made the folder before us."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to user 12345"):
        make_private(folder)


def test_a_link_is_refused(tmp_path):
    """A link may lead to a folder that will be another one tomorrow."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="link"):
        make_private(tmp_path / "link")


@pytest.mark.slow
def test_kernels_are_not_loaded_from_a_shared_folder(tmp_path):
    """With NUMBA_CACHE_DIR in a folder that others can write, kernels are not even imported; a new one is made private."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    command = [sys.executable, "-c", "import wherecast.kernels.jit"]
    found = subprocess.run(
        command, env={**os.environ, "NUMBA_CACHE_DIR": str(shared)}, capture_output=True, text=True, check=False
    )
    assert found.returncode != 0
    assert "can be written by others" in found.stderr
    subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": str(shared / "mine")}, check=True)
    assert mode_of(shared / "mine") == 0o700


def test_copies_of_indexes_are_kept_in_a_folder_of_our_own(tmp_path, monkeypatch):
    """The cache of remote indexes in the temporary directory is private; one made by others is refused."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert mode_of(_cache_folder()) == 0o700
    _cache_folder().chmod(0o777)
    with pytest.raises(IndexStoreError, match=CACHE_VARIABLE):
        _cache_folder()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "chosen"))
    assert _cache_folder() == tmp_path / "chosen"


@pytest.mark.parametrize("name", ["../outside", "/etc", "layers/../../outside", "layers/0123456789abcdef/..", ""])
def test_a_manifest_names_folders_of_its_index_only(tmp_path, name):
    """A name that leads out of the index is refused before anything is read."""
    with pytest.raises(IndexStoreError, match="not a folder of the index"):
        Store(tmp_path / "index").fetch(name)


def test_a_layer_is_no_link(tmp_path):
    """A link in the index that leads elsewhere is refused; a link to the index is not."""
    (tmp_path / "outside").mkdir()
    layers = tmp_path / "index" / "layers"
    layers.mkdir(parents=True)
    (layers / "0123456789abcdef").symlink_to(tmp_path / "outside")
    with pytest.raises(IndexStoreError, match="is a link"):
        Store(tmp_path / "index").fetch("layers/0123456789abcdef")
    (layers / "0123456789abcdee").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "index")
    assert Store(tmp_path / "link").fetch("layers/0123456789abcdee").is_dir()
