"""A snapshot made to do harm is refused: its checksums are right, its contents lie."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.snapshots import folder_of, forge, read_all, rewrite, save_small

from wherecast.errors import SnapshotError
from wherecast.index import snapshot as module
from wherecast.index.snapshot import MANIFEST, open_snapshot


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return save_small(tmp_path / "snap")


@pytest.fixture(scope="module")
def unspoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("unspoilt") / "snap")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def leaves_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from leaves_of(child, (*at, key))


def set_in(*keys: Any, to: Any) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        at = manifest
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = to

    return change


HOSTILE = {
    "huge shape": set_in("arrays", "lo", "shape", to=[1 << 62]),
    "shape beyond 64 bits": set_in("arrays", "lo", "shape", to=[1 << 70]),
    "product wraps to 20 bytes": set_in("arrays", "lo", "shape", to=[(1 << 62) + 5]),
    "huge and empty": set_in(
        "arrays", "lo", to={"file": "g.arrow", "type": "<i8", "shape": [0, 1 << 62], "buffers": [[0, 0]]}
    ),
    "negative shape": set_in("arrays", "lo", "shape", to=[-5]),
    "two negatives": set_in("arrays", "lo", "shape", to=[-1, -5]),
    "shape of no dimension": set_in("arrays", "lo", "shape", to=[]),
    "three dimensions": set_in("arrays", "lo", "shape", to=[1, 1, 5]),
    "fractions": set_in("arrays", "lo", "shape", to=[5.0]),
    "truth": set_in("arrays", "lo", "shape", to=[True, 5]),
    "shape as text": set_in("arrays", "lo", "shape", to="5"),
    "one too many": set_in("arrays", "lo", "shape", to=[6]),
    "offset past the end": set_in("arrays", "lo", "buffers", to=[[1 << 40, 20]]),
    "offset before the start": set_in("arrays", "lo", "buffers", to=[[-64, 20]]),
    "offset unaligned": set_in("arrays", "lo", "buffers", to=[[8, 20]]),
    "bytes past the end": set_in("arrays", "lo", "buffers", to=[[0, 1 << 62]]),
    "no buffer": set_in("arrays", "lo", "buffers", to=[]),
    "null buffer": set_in("arrays", "lo", "buffers", to=[None]),
    "two buffers": set_in("arrays", "lo", "buffers", to=[[0, 20], [0, 20]]),
    "buffer of one number": set_in("arrays", "lo", "buffers", to=[[0]]),
    "objects": set_in("arrays", "lo", "type", to="|O"),
    "objects of 8 bytes": set_in(
        "arrays", "lo", to={"file": "g.arrow", "type": "O", "shape": [1], "buffers": [[0, 8]]}
    ),
    "record": set_in("arrays", "lo", "type", to="i4,i8"),
    "no type": set_in("arrays", "lo", "type", to="zz"),
    "no width": set_in("arrays", "lo", "type", to="|V0"),
    "list as type": set_in("arrays", "lo", "type", to=["<i4"]),
    "type null": set_in("arrays", "lo", "type", to=None),
    "no unit": set_in("arrays", "lo", "type", to="<M8[zz]"),
    "unlisted file": set_in("arrays", "lo", "file", to="other.arrow"),
    "list as file": set_in("arrays", "lo", "file", to=["g.arrow"]),
    "array of no facts": set_in("arrays", "lo", to=7),
    "array name": set_in("arrays", "../x", to={"file": "g.arrow", "type": "|u1", "shape": [0], "buffers": [[0, 0]]}),
    "texts: too many": set_in("arrays", "g/names", "shape", to=[1 << 40]),
    "texts: 2-D": set_in("arrays", "g/names", "shape", to=[2, 2]),
    "texts: no offsets": set_in("arrays", "g/names", "buffers", 1, to=None),
    "texts: no data": set_in("arrays", "g/names", "buffers", 2, to=None),
    "texts: other width": set_in("arrays", "g/names", "type", to="large_string"),
    "numbers as texts": set_in("arrays", "lo", "type", to="string"),
    "no arrays": lambda m: m.pop("arrays"),
    "no files": lambda m: m.pop("files"),
    "no facts": lambda m: m.pop("facts"),
    "version as text": set_in("version", to="1"),
    "version of another folder": set_in("version", to=2),
    "folder up": set_in("folder", to=".."),
    "folder elsewhere": set_in("folder", to="/etc"),
    "folder below": set_in("folder", to="v000001-0123456789abcdef/.."),
    "file up": set_in("files", "../../secret.arrow", to={"bytes": 6, "sha256": ""}),
    "file elsewhere": set_in("files", "/etc/passwd", to={"bytes": 6, "sha256": ""}),
    "file with NUL": set_in("files", "a\0.arrow", to={"bytes": 6, "sha256": ""}),
    "file of no facts": set_in("files", "g.arrow", to=None),
    "file of no size": set_in("files", "g.arrow", "bytes", to=None),
    "file of negative size": set_in("files", "g.arrow", "bytes", to=-1),
    "file of huge size": set_in("files", "g.arrow", "bytes", to=1 << 62),
    "file of no sum": set_in("files", "g.arrow", "sha256", to=None),
}


class TestHostile:
    @pytest.mark.sampled
    @pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
    def test_manifest(self, small, change):
        """A manifest with a right checksum and a lie in it is refused when it is opened."""
        (small.parent / "secret.arrow").write_bytes(b"secret")
        rewrite(small, lambda m: None)
        open_snapshot(small)
        rewrite(small, change)
        with pytest.raises(SnapshotError):
            open_snapshot(small)

    def test_name_twice(self, small):
        """An array described twice is refused."""
        raw = (small / MANIFEST).read_bytes().partition(b"\n")[2]
        raw = raw.replace(b'"lo":', b'"lo": {}, "lo":')
        (small / MANIFEST).write_bytes(module._first_line(raw) + raw)
        with pytest.raises(SnapshotError, match="twice"):
            open_snapshot(small)

    @examples(300)
    @given(data=st.data())
    def test_any_change(self, unspoilt, data):
        """Whatever stands in the place of a number or a name of the manifest: an error or an array, nothing else."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(shutil.copytree(unspoilt, Path(folder) / "s"))
            manifest = json.loads((path / MANIFEST).read_bytes())
            place = data.draw(st.sampled_from([p for p in leaves_of(manifest) if p[0] != "sha256"]))
            value = data.draw(
                json_values | st.sampled_from([1 << 31, 1 << 63, -1, "<i4", "|O", [0, 8], [[0, 8]], [None] * 3])
            )
            rewrite(path, set_in(*place, to=value))
            with contextlib.suppress(SnapshotError):
                read_all(open_snapshot(path))

    def test_links(self, small, tmp_path):
        """Links are not followed, for files and for folders."""
        file = folder_of(small) / "g.arrow"
        file.rename(tmp_path / "outside.arrow")
        file.symlink_to(tmp_path / "outside.arrow")
        with pytest.raises(SnapshotError, match="cannot be read"):
            open_snapshot(small)
        file.unlink()
        (tmp_path / "outside.arrow").rename(file)
        assert open_snapshot(small).version == 1
        folder = folder_of(small)
        folder.rename(tmp_path / "outside")
        folder.symlink_to(tmp_path / "outside")
        with pytest.raises(SnapshotError, match="cannot be read"):
            open_snapshot(small)

    def test_no_regular_files(self, small):
        """A FIFO does not make the reader wait."""
        file = folder_of(small) / "g.arrow"
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(SnapshotError, match="not a regular file"):
            open_snapshot(small)
        file.unlink()
        file.mkdir()
        with pytest.raises(SnapshotError, match="not a regular file"):
            open_snapshot(small)

    def test_unclean_booleans(self, small):
        """A boolean of 2 would make NumPy write past the end of a mask's result."""
        place = json.loads((small / MANIFEST).read_bytes())["arrays"]["g/flag"]["buffers"][0][0]
        forge(small, "g.arrow", lambda d: d.__setitem__(place + 1, 2))
        with pytest.raises(SnapshotError, match=r"'g/flag'.*neither 0 nor 1"):
            open_snapshot(small).arrays["g/flag"]

    @pytest.mark.parametrize(
        "offsets", [[0, 1, 3, 3, 1 << 30], [0, 9, 3, 3, 6], [0, 2, 3, 3, 6], [-8, 1, 3, 3, 6], [-(2**31)] * 5]
    )
    def test_unclean_texts(self, small, offsets):
        """Offsets that point anywhere, and bytes that are no UTF-8."""
        place = json.loads((small / MANIFEST).read_bytes())["arrays"]["g/names"]["buffers"][1][0]
        forge(
            small, "g.arrow", lambda d: d.__setitem__(slice(place, place + 20), np.array(offsets, np.int32).tobytes())
        )
        with pytest.raises(SnapshotError, match=r"'g/names'.*no texts"):
            open_snapshot(small).arrays["g/names"]
