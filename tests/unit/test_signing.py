"""Signed manifests: with a key, only what a holder of the key wrote is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.snapshots import rewrite, save_small

from wherecast.engine.engine import Engine
from wherecast.errors import SigningKeyError, SnapshotError
from wherecast.index.signing import KEY_VARIABLE, is_genuine, sign
from wherecast.index.snapshot import MANIFEST, open_snapshot, write_snapshot
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.store import IndexStoreError

OLD, NEW = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return tmp_path / "snap"


def test_without_a_key_nothing_is_signed(small, monkeypatch):
    """Without a key manifests are written as before, and signed ones are opened."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    save_small(small)
    assert b"hmac" not in (small / MANIFEST).read_bytes()
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    save_small(small)
    assert b"hmac" in (small / MANIFEST).read_bytes().partition(b"\n")[0]
    monkeypatch.delenv(KEY_VARIABLE)
    assert open_snapshot(small).version == 2


def test_with_a_key_only_signed_snapshots_are_opened(small, monkeypatch):
    """An unsigned snapshot, and one that was changed after signing, are refused where a key is set."""
    save_small(small)
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(SnapshotError, match="not signed"):
        open_snapshot(small)
    save_small(small)  # in place of the unsigned one
    assert open_snapshot(small).version == 2
    rewrite(small, lambda manifest: manifest["facts"].update(n=6))
    with pytest.raises(SnapshotError, match="not signed"):
        open_snapshot(small)


def test_a_forged_signature_is_refused(small, monkeypatch):
    """A signature of other content or of another key does not do."""
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    save_small(small)
    raw = (small / MANIFEST).read_bytes()
    monkeypatch.setenv(KEY_VARIABLE, OLD)
    with pytest.raises(SnapshotError, match="not signed"):
        open_snapshot(small)
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    at = raw.index(b'"hmac": "') + 9
    (small / MANIFEST).write_bytes(raw[:at] + b"0" * 64 + raw[at + 64 :])
    with pytest.raises(SnapshotError, match="not signed"):
        open_snapshot(small)


def test_keys_can_be_changed(small, tmp_path, monkeypatch):
    """Of several keys the first signs and each is accepted; a file may hold them."""
    monkeypatch.setenv(KEY_VARIABLE, OLD)
    save_small(small)
    (tmp_path / "keys").write_text(f"{NEW}\n{OLD}\n")
    monkeypatch.setenv(KEY_VARIABLE, f"file:{tmp_path / 'keys'}")
    assert open_snapshot(small).version == 1
    write_snapshot(small, {"a": np.arange(3)}, {})
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    assert open_snapshot(small).version == 2


@pytest.mark.parametrize("key", ["short", f"{OLD} short", "file:/no/such/file"])
def test_a_bad_key_is_no_key(key, small, monkeypatch):
    """A key that cannot be used is an error: nothing is written or opened as if there were none."""
    save_small(small)
    monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(SigningKeyError):
        open_snapshot(small)
    with pytest.raises(SigningKeyError):
        save_small(small)


def test_an_engine_is_signed(small, monkeypatch):
    """Engines are signed as all snapshots are."""
    engine = Engine({"price": "double"})
    engine.subscribe(1, "price > 5")
    engine.save(small)
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(SnapshotError, match="not signed"):
        Engine.open(small)
    engine.save(small)
    assert Engine.open(small).match({"price": 6.0}) == [1]


def test_index_manifests_are_signed(monkeypatch):
    """The manifest of an index version is signed and asked for like that of a snapshot; a signature serves one kind."""
    layer = Layer("layers/0123456789abcdef", "", 0, 0)
    manifest = Manifest(0, "{}", "bigint", None, ((layer,),), (), 0, "", None, compacted=True)
    unsigned = manifest.to_bytes()
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(IndexStoreError, match="not signed"):
        Manifest.from_bytes(unsigned, "m")
    assert Manifest.from_bytes(manifest.to_bytes(), "m") == manifest
    body = unsigned.partition(b"\n")[2]
    assert not is_genuine("wherecast-index", body, sign("wherecast-snapshot", body))
