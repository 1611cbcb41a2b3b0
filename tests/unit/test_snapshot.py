"""A snapshot comes back as it was saved, and is refused when it is damaged or not ours."""

from __future__ import annotations

import json
import random
import re
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tests.examples import all_below, examples
from tests.unit.snapshots import files_of, folder_of, forge, read_all, save_small

from wherecast.errors import SnapshotError
from wherecast.index import snapshot as module
from wherecast.index.snapshot import MANIFEST, open_snapshot, write_snapshot

DTYPES = [
    "?",
    "i1",
    "u1",
    "<i2",
    "<u2",
    "<i4",
    "<u4",
    "<i8",
    "<u8",
    "<f2",
    "<f4",
    "<f8",
    ">i4",
    "<c16",
    "V16",
    "V3",
    "S5",
    "<M8[us]",
    "<m8[D]",
]

numbers = st.sampled_from(DTYPES).flatmap(
    lambda dtype: npst.arrays(
        np.dtype(f"u{np.dtype(dtype).itemsize}" if dtype in ("<u8", "<u4") else "u1"),
        st.tuples(st.integers(0, 20)) | st.tuples(st.integers(0, 5), st.integers(0, 5)),
    ).map(lambda a: as_dtype(a, dtype))
)
texts = st.builds(
    pa.array,
    st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=8), max_size=9),
    st.sampled_from([pa.string(), pa.large_string()]),
)
names = st.from_regex(r"[a-zA-Z_][a-z0-9_.-]{0,5}(/[a-z0-9_]{1,4}){0,2}", fullmatch=True)
facts_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def as_dtype(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Bytes of an array as items of a type, as many as there were."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return raw % 2 == 1
    data = np.resize(raw.reshape(-1).view(np.uint8), raw.size * kind.itemsize) if raw.size else np.zeros(0, np.uint8)
    return np.frombuffer(data.tobytes(), kind).reshape(raw.shape)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, pa.Array):
        return isinstance(b, pa.Array) and a.type == b.type and a.equals(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check_by_arrow(path: Path, arrays: dict[str, Any]) -> None:
    seen = {}
    for file in folder_of(path).iterdir():
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        table.validate(full=True)
        seen |= {n: table.column(i)[0].values for i, n in enumerate(table.column_names) if n != ".pad"}
    assert set(seen) == set(arrays)
    for name, array in arrays.items():
        if isinstance(array, pa.Array):
            assert seen[name].equals(array)
        elif array.dtype.kind in "iu" and array.dtype.isnative:
            assert seen[name].to_pylist() == array.reshape(-1).tolist()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return save_small(tmp_path / "snap")


class TestRoundTrip:
    @examples(150)
    @given(
        arrays=st.dictionaries(names, numbers | texts, max_size=5),
        facts=st.dictionaries(st.text(max_size=5), facts_values, max_size=3),
    )
    def test_arrays_and_facts(self, arrays, facts):
        """Everything comes back equal, read-only, aligned, and any Arrow reader finds the same values."""
        with tempfile.TemporaryDirectory() as folder:
            write_snapshot(Path(folder) / "s", arrays, facts)
            found = open_snapshot(Path(folder) / "s")
            assert found.facts == facts
            assert found.version == 1
            assert set(found.arrays) == set(arrays)
            for name, array in arrays.items():
                assert same(array, found.arrays[name])
                if isinstance(array, np.ndarray):
                    assert not found.arrays[name].flags.writeable
                    assert array.size == 0 or found.arrays[name].ctypes.data % 64 == 0
            check_by_arrow(Path(folder) / "s", arrays)

    def test_views_and_slices(self, tmp_path):
        """Arrays that are views of others, in memory order or not, are stored as what they show."""
        base = np.arange(60, dtype=np.int32).reshape(6, 10)
        arrays = {
            "every": base[::2, ::3],
            "t": base.T,
            "back": base[0, ::-1],
            "s": pa.array(["a", None, "bb", "c"])[1:3],
        }
        write_snapshot(tmp_path / "s", arrays, {})
        found = open_snapshot(tmp_path / "s")
        assert all(same(a, found.arrays[n]) for n, a in arrays.items())

    def test_nothing_is_copied(self, tmp_path):
        """Arrays lie in the maps: two of them are as far apart as in the file."""
        write_snapshot(tmp_path / "s", {"g/a": np.arange(1000), "g/b": np.arange(10), "g/s": pa.array(["x"] * 99)}, {})
        found = open_snapshot(tmp_path / "s")
        places = json.loads((tmp_path / "s" / MANIFEST).read_bytes())["arrays"]
        start = found.arrays["g/a"].ctypes.data - places["g/a"]["buffers"][0][0]
        assert found.arrays["g/b"].ctypes.data - start == places["g/b"]["buffers"][0][0]
        assert found.arrays["g/s"].buffers()[1].address - start == places["g/s"]["buffers"][1][0]
        assert found.nbytes == sum(f.stat().st_size for f in folder_of(tmp_path / "s").iterdir())

    def test_one_file_per_group(self, small):
        """Groups are files, and groups that differ in case only share one."""
        assert [f.name for f in sorted(folder_of(small).iterdir())] == ["arrays.arrow", "g.arrow"]
        write_snapshot(small, {"G/a": np.zeros(1), "g/a": np.ones(1)}, {})
        found = open_snapshot(small)
        assert (found.arrays["G/a"][0], found.arrays["g/a"][0]) == (0, 1)

    def test_missing_array(self, small):
        """An array that is not there is a SnapshotError, and a KeyError to a mapping."""
        arrays = open_snapshot(small).arrays
        with pytest.raises(SnapshotError, match="no array 'boxes'"):
            arrays["boxes"]
        assert "boxes" not in arrays
        assert arrays.get("boxes") is None

    @pytest.mark.parametrize(
        "bad",
        [
            np.array([None]), np.array(["text"]), np.zeros(3, "i4,i8"), np.zeros((1, 1, 1)), np.float64(1), [1, 2],
            pa.array([1]), pa.chunked_array([["a"]]),
        ],
        ids=str,
    )  # fmt: skip
    def test_what_cannot_be_stored(self, small, bad):
        """Objects and the like are refused by name, and the old snapshot stays."""
        before = files_of(small)
        with pytest.raises(SnapshotError, match="array 'x'"):
            write_snapshot(small, {"x": bad}, {})
        assert files_of(small) == before
        assert open_snapshot(small).facts["n"] == 5

    @pytest.mark.parametrize("facts", [{"x": float("nan")}, {"x": {1, 2}}, {"x": b""}])
    def test_facts_that_are_no_json(self, small, facts):
        """NaN, sets and bytes are refused, and the old snapshot stays."""
        with pytest.raises(SnapshotError, match="cannot be saved"):
            write_snapshot(small, {}, facts)
        assert open_snapshot(small).facts["n"] == 5

    @pytest.mark.parametrize("name", ["", "/a", "a/", "../a", "a/../b", ".pad", "a b", "a//b", "é"])
    def test_names(self, tmp_path, name):
        """Names that could be paths elsewhere are refused."""
        with pytest.raises(SnapshotError, match="array name"):
            write_snapshot(tmp_path / "s", {name: np.zeros(1)}, {})


class TestDamage:
    @pytest.mark.slow
    def test_every_byte(self, small):
        """A changed byte is found, wherever it is."""
        rng = random.Random(7)
        for file in files_of(small):
            data = file.read_bytes()
            for i in all_below(len(data)):
                for flip in {0x20, 1 << rng.randrange(8)}:
                    file.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
                    with pytest.raises(SnapshotError):
                        open_snapshot(small)
            file.write_bytes(data)
        assert len(open_snapshot(small).arrays) == 4

    @pytest.mark.parametrize("other", range(10))
    def test_a_format_version_that_became_another(self, small, other):
        """Also one that this build reads."""
        manifest = small / MANIFEST
        data = manifest.read_bytes()
        manifest.write_bytes(
            data.replace(b'"format_version": %d' % module.FORMAT_VERSION, b'"format_version": %d' % other)
        )
        with nullcontext() if other == module.FORMAT_VERSION else pytest.raises(SnapshotError):
            open_snapshot(small)

    @pytest.mark.slow
    def test_every_byte_with_its_checksum(self, small):
        """With a right checksum a changed byte is found or changes values only: reading all arrays goes well."""
        for file in files_of(folder_of(small)):
            data = file.read_bytes()
            for i in range(len(data)):
                for flip in (1, 0x80):
                    forge(small, file.name, lambda changed, i=i, to=data[i] ^ flip: changed.__setitem__(i, to))
                    try:
                        found = read_all(open_snapshot(small))
                    except SnapshotError:
                        continue
                    finally:
                        file.write_bytes(data)
                    assert [len(found[n]) for n in ("lo", "g/flag", "g/digest", "g/names")] == [5, 3, 2, 4]
            forge(small, file.name, lambda _: None)  # its own checksum again

    @pytest.mark.slow
    def test_every_length(self, small):
        """A file that is too short or too long is found."""
        for file in files_of(small):
            data = file.read_bytes()
            for n in (*all_below(len(data)), len(data) + 1, len(data) + 4096):
                file.write_bytes((data + bytes(4096))[:n])
                with pytest.raises(SnapshotError):
                    open_snapshot(small)
            file.write_bytes(data)

    def test_missing_files(self, small):
        """The message names the file that is missing."""
        for file in files_of(small):
            data = file.read_bytes()
            file.unlink()
            with pytest.raises(SnapshotError, match=re.escape(file.name)):
                open_snapshot(small)
            file.write_bytes(data)
        folder_of(small).rename(small / "elsewhere")
        with pytest.raises(SnapshotError, match="is missing"):
            open_snapshot(small)

    def test_extra_files(self, small):
        """What the manifest does not name is not looked at."""
        (folder_of(small) / "more.arrow").write_bytes(b"?")
        (small / "v999999-0123456789abcdef").mkdir()
        (small / "notes.txt").write_text("mine")
        assert open_snapshot(small).version == 1

    def test_damaged_is_replaced(self, small):
        """A save over a damaged snapshot heals it."""
        (small / MANIFEST).write_bytes(b"{")
        write_snapshot(small, {"a": np.arange(3)}, {})
        assert open_snapshot(small).version == 2
        assert len(files_of(small)) == 2


class TestForeign:
    def test_no_snapshot(self, tmp_path):
        """A path that leads to no snapshot is said to."""
        (tmp_path / "file").write_text("x")
        (tmp_path / "empty").mkdir()
        for name in ("nothing", "file", "empty", "file/below", "nul\0"):
            with pytest.raises(SnapshotError, match="check the path"):
                open_snapshot(tmp_path / name)

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b"1", b"\xff", b'{"a": 1}', b'{"format": "other"}', b"[" * 100_000, b'{"format": NaN}']
    )
    def test_foreign_manifest(self, tmp_path, content):
        """A manifest that is not ours is refused, whatever it is."""
        (tmp_path / MANIFEST).write_bytes(content)
        with pytest.raises(SnapshotError):
            open_snapshot(tmp_path)

    @pytest.mark.parametrize("version", [module.FORMAT_VERSION + 1, 10**30])
    def test_newer(self, small, version):
        """A newer format is named as such, and not saved over."""
        (small / MANIFEST).write_text(json.dumps({"format": module.FORMAT, "format_version": version, "x": 1}))
        with pytest.raises(SnapshotError, match=rf"newer than {module.FORMAT_VERSION}.*upgrade"):
            open_snapshot(small)
        with pytest.raises(SnapshotError, match="newer"):
            write_snapshot(small, {}, {})

    @pytest.mark.parametrize("version", [0, -1, "1", None, True, 1.0])
    def test_no_version_of_ours(self, small, version):
        """A version that there never was is refused."""
        data = (small / MANIFEST).read_bytes()
        (small / MANIFEST).write_bytes(
            data.replace(
                f'"format_version": {module.FORMAT_VERSION}'.encode(),
                f'"format_version": {json.dumps(version)}'.encode(),
            )
        )
        with pytest.raises(SnapshotError):
            open_snapshot(small)

    def test_huge_manifest(self, small):
        """A manifest beyond the limit is not read at all."""
        with (small / MANIFEST).open("r+b") as file:
            file.truncate(1 << 40)  # sparse
        with pytest.raises(SnapshotError, match="bytes, at most"):
            open_snapshot(small)

    @pytest.mark.parametrize(("name", "content"), [("mine.txt", "x"), (MANIFEST, '{"format": "other"}')])
    def test_a_directory_in_use_is_not_saved_into(self, tmp_path, name, content):
        """Nothing is written where something else lives."""
        (tmp_path / name).write_text(content)
        with pytest.raises(SnapshotError):
            write_snapshot(tmp_path, {"a": np.zeros(1)}, {})
        assert [p.name for p in tmp_path.iterdir()] == [name]
