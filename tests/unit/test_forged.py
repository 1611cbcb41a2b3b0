"""Files that lie with right checksums: refused when they are opened, or harmless; never a crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples import scaled
from tests.forge.engines import SHAPES, draw_events, make_engine
from tests.forge.run import run_edits
from tests.unit.snapshots import forge, places_of, rewrite

from wherecast.engine.engine import Engine
from wherecast.errors import SnapshotError

#: (matcher, shape, array, place of the value, value): each led a kernel astray.
LIES: list[tuple[str, str, str, int, Any]] = [
    ("scan", "plain", "boxes/attr", 3, 100),
    ("scan", "plain", "boxes/lo", 3, -1),
    ("scan", "plain", "boxes/lo", 3, 10_000),
    ("scan", "plain", "boxes/attr", 185, 0),
    ("scan", "plain", "boxes/attr", -1, -1),
    ("scan", "plain", "boxes/ptr", 5, 10_000),
    ("scan", "plain", "boxes/ptr", 5, -1),
    ("scan", "plain", "matcher/attr", 3, 100),
    ("scan", "plain", "matcher/ptr", 5, 10_000),
    ("scan", "mixed", "boxes/residuals", 0, 10_000),
    ("scan", "mixed", "boxes/filter_ids", -1, 10_000),
    ("scan", "mixed", "residuals/rows", 0, 10_000),
    ("scan", "mixed", "residuals/program", 0, -1),
    ("scan", "plain", "ids/order", 2, 10_000),
    ("scan", "plain", "ids/order", 2, -1),
    ("scan", "plain", "ids/ptr", 2, 10_000),
    ("scan", "plain", "codes0/places", 0, 10_000),
    ("scan", "plain", "codes0/offsets", 2, -5),
    ("scan", "plain", "codes0/data", 0, 255),
    ("scan", "plain", "codes1/table", 1, 10_000),
    ("scan", "plain", "codes1/facts", 0, 7),
    ("scan", "plain", "codes1/starts", 0, 2**62),
    ("adaptive", "deep", "matcher/attribute", 0, 100),
    ("adaptive", "deep", "matcher/source_width", 0, 10_000),
    ("adaptive", "deep", "matcher/tree_slots", 1, 10_000),
    ("adaptive", "deep", "matcher/tree_slots", 1, -1),
    ("adaptive", "deep", "matcher/tree_leaves", 0, 10_000),
    ("adaptive", "deep", "matcher/tree_leaves", 1, -1),
    ("adaptive", "deep", "matcher/tree_nodes", 1, 10_000),
    ("adaptive", "deep", "matcher/tree_tests", 0, 100),
    ("adaptive", "deep", "matcher/tree_tests", 1, 200),
    ("adaptive", "deep", "matcher/tree_tests", 1, -1),
    ("adaptive", "deep", "matcher/tree_tests", 1, 64 + (1 << 20)),
    ("adaptive", "deep", "matcher/tree_tests", 3, 0),
    ("adaptive", "deep", "matcher/tree_tests", 4, 2**30),
    ("adaptive", "deep", "matcher/tree_table", -1, 10_000),
    ("adaptive", "deep", "matcher/facts", 3, 1),
    ("adaptive", "deep", "matcher/facts", 3, 2**40),
    ("adaptive", "deep", "matcher/visits", 4, float("nan")),
    ("adaptive", "dense", "matcher/facts", 2, 50),
    ("adaptive", "dense", "matcher/tree_leaves", 2, 64),
    ("adaptive", "dense", "matcher/tree_leaves", 5, 10_000),
    ("adaptive", "dense", "matcher/tree_columns", 0, 2**40),
    ("adaptive", "dense", "matcher/tree_columns", 0, 65_535),
    ("adaptive", "dense", "matcher/word_weights", 0, 1_000),
    ("counting", "plain", "matcher/ids", -1, 2**30),
    ("counting-table", "plain", "matcher/lo", 0, -100),
    ("counting-bit", "plain", "matcher/attr", 0, 100),
    ("tree", "plain", "matcher/tree_entries", 0, 10_000),
    ("tree", "plain", "matcher/tree_nodes", 11 * 2 + 5, 2),
    ("tree", "plain", "matcher/tree_counts", 0, 1),
    ("tree", "plain", "matcher/tree_sets", 1, 10_000),
    ("tree", "plain", "matcher/level_attribute", 0, 100),
    ("tree-general", "plain", "matcher/tree_table", 0, 10_000),
    ("rapid", "plain", "matcher/nodes", 7, 4),
    ("rapid", "plain", "matcher/nodes", 7, 2**30),
    ("rapid", "plain", "matcher/first_tree", -1, 1_000),
    ("rapid", "plain", "matcher/partition_seg_cell", 0, 10_000),
    ("database", "plain", "matcher/sid", 0, -1),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A snapshot of a matcher and a shape, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("saved")

    @cache
    def save(matcher: str, shape: str) -> Path:
        make_engine(matcher, SHAPES[shape]).save(folder / f"{matcher}+{shape}")
        return folder / f"{matcher}+{shape}"

    return save


@pytest.mark.sampled
@pytest.mark.parametrize(("matcher", "shape", "array", "at", "value"), LIES)
def test_a_lie_is_refused(saved, tmp_path, matcher, shape, array, at, value):
    """A value that would lead a kernel out of an array, or in a circle, is refused when the file is opened."""
    path = Path(shutil.copytree(saved(matcher, shape), tmp_path / "forged"))
    place = places_of(path)[f"segment0/{array}"]
    dtype, (offset, size) = np.dtype(place["type"]), place["buffers"][0]

    def change(data: bytearray) -> None:
        np.frombuffer(data, dtype, size // dtype.itemsize, offset)[at] = value

    forge(path, place["file"], change)
    with pytest.raises(SnapshotError):
        Engine.open(path)


def test_loose_bits_of_the_dense_part(saved, tmp_path):
    """A bit that stands for no clause would be written without having been counted."""
    path = Path(shutil.copytree(saved("adaptive", "dense"), tmp_path / "forged"))
    place = places_of(path)["segment0/matcher/tree_maps"]
    offset, size = place["buffers"][0]
    forge(path, place["file"], lambda data: data.__setitem__(slice(offset, offset + size), b"\xff" * size))
    with pytest.raises(SnapshotError, match="stands for no clause"):
        Engine.open(path)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("version", 2**70), ("version", -1), ("matcher", "none"), ("segments", 5), ("schema", "[]"), ("segments", [{}])],
)
def test_facts_that_lie_are_refused(saved, tmp_path, fact, value):
    """Facts of the manifest are checked as arrays are."""
    path = Path(shutil.copytree(saved("scan", "plain"), tmp_path / "forged"))
    rewrite(path, lambda manifest: manifest["facts"].__setitem__(fact, value))
    with pytest.raises(SnapshotError):
        Engine.open(path).match_batch([])


@pytest.mark.parametrize(("matcher", "shape"), [("adaptive", "deep"), ("adaptive", "dense"), ("tree", "plain")])
def test_what_was_saved_is_opened(saved, matcher, shape):
    """What is not forged answers as the engine that saved it."""
    events = draw_events(SHAPES[shape])
    expected = make_engine(matcher, SHAPES[shape]).match_batch(events).to_lists()
    found = Engine.open(saved(matcher, shape)).match_batch(events).to_lists()
    assert [sorted(f) for f in found] == [sorted(e) for e in expected]
    assert any(expected)


@pytest.mark.slow
def test_forged_edits(tmp_path):
    """Many edits of all matchers and manifests: each is refused or does no harm.

    `python -m tests.forge.run` makes thousands; see CONTRIBUTING.md.
    """
    edits = scaled(150)
    report = run_edits(range(edits), seed=0, folder=tmp_path)
    assert not report.bad, "\n".join(report.bad)
    assert report.counts["refused"] > edits / 3
    assert report.counts["harmless"] > edits / 6
