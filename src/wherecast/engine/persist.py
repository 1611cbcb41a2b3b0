"""Engines on disk: segments as named arrays in a snapshot (see `index.snapshot`).

An engine is saved as one segment per segment it has, the log included; removed subscriptions are left out by a mark per
slot. Opening maps the arrays, it copies and rebuilds nothing: the codebook, the matcher and the id table are views of the
file. What was stored is checked against what the schema and the arrays themselves allow before it is used, because a
kernel that follows a wrong offset would crash the process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.engine.ids import Ids
from wherecast.engine.segment import ALIVE, Segment, Subscriptions
from wherecast.errors import SchemaError, SnapshotError
from wherecast.index.codes import AttributeCodes, Codebook, KeyCodes
from wherecast.index.packed import PackedBoxes
from wherecast.index.programs import pack_programs, unpack_programs
from wherecast.index.residuals import Residuals
from wherecast.index.snapshot import Snapshot, open_snapshot, write_snapshot
from wherecast.index.strings import StringCodes
from wherecast.language.schema import Kind, Schema
from wherecast.matchers.registry import find_matcher

Arrays = dict[str, Any]


def save_segments(
    path: str | os.PathLike[str], schema: Schema, matcher: str, segments: tuple[Segment, ...], version: int
) -> None:
    """Write segments as they are alive at `version`."""
    arrays: Arrays = {}
    facts = []
    for number, segment in enumerate(segments):
        own, about = _pack(segment, schema, version)
        arrays.update({f"segment{number}/{name}": array for name, array in own.items()})
        facts.append(about)
    write_snapshot(
        path, arrays, {"schema": schema.to_json(), "matcher": matcher, "version": version, "segments": facts}
    )


def open_segments(path: str | os.PathLike[str]) -> tuple[Schema, str, tuple[Segment, ...], int, Snapshot]:
    """Schema, matcher name, segments and version of a saved engine."""
    snapshot = open_snapshot(path)
    try:
        facts = snapshot.facts
        schema = Schema.from_json(str(facts["schema"]))
        matcher, version, about = str(facts["matcher"]), int(facts["version"]), list(facts["segments"])
        segments = tuple(_unpack(f"segment{n}/", a, snapshot.arrays, schema, matcher) for n, a in enumerate(about))
    except SnapshotError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, SchemaError) as error:
        raise SnapshotError(f"{path}: not a saved engine ({error}); save it again") from None
    return schema, matcher, segments, version, snapshot


def _pack(segment: Segment, schema: Schema, version: int) -> tuple[Arrays, dict[str, Any]]:
    arrays: Arrays = {f"boxes/{n}": a for n, a in segment.boxes._asdict().items() if n != "n_filters"}
    kinds: dict[str, str] = {}
    for attr in segment.codebook.used:
        codes = segment.codebook.codes[attr]
        assert codes is not None
        kinds[str(attr)] = "strings" if isinstance(codes, StringCodes) else "keys"
        arrays.update({f"codes{attr}/{n}": a for n, a in codes.arrays().items()})
    # A matcher that shares the boxes has them among its arrays: they are stored once.
    shared = {f"rows_{n}" for n in segment.boxes._fields}
    arrays.update({f"matcher/{n}": a for n, a in segment.matcher.arrays().items() if n not in shared})
    ptr, ids, priorities = segment.subscriptions
    arrays.update({"ids/ptr": ptr, "ids/values": ids.values, "ids/order": ids.order})
    if priorities is not None:
        arrays["ids/priorities"] = priorities
    if segment.died is not None:
        arrays["ids/dead"] = segment.died <= version
    programs, columns = pack_programs(segment.residuals.programs, schema)
    arrays.update({f"programs/{n}": a for n, a in columns.items()})
    arrays.update({"residuals/program": segment.residuals.program, "residuals/rows": segment.residuals.rows})
    return arrays, {"filters": segment.boxes.n_filters, "codes": kinds, "programs": programs}


def _unpack(prefix: str, facts: Mapping[str, Any], stored: Mapping[str, Any], schema: Schema, matcher: str) -> Segment:
    def group(name: str) -> Arrays:
        start = f"{prefix}{name}/"
        return {n.removeprefix(start): stored[n] for n in stored if n.startswith(start)}

    boxes = PackedBoxes(n_filters=int(facts["filters"]), **group("boxes"))
    codes: list[AttributeCodes | None] = [None] * len(schema)
    for attr, kind in facts["codes"].items():
        codes[int(attr)] = (StringCodes if kind == "strings" else KeyCodes).from_arrays(group(f"codes{attr}"))
    codebook = Codebook(schema, codes)
    residual = group("residuals")
    residuals = Residuals(
        unpack_programs(facts["programs"], group("programs"), schema), residual["program"], residual["rows"]
    )
    ids = group("ids")
    subscriptions = Subscriptions(ids["ptr"], Ids(ids["values"], ids["order"]), ids.get("priorities"))
    _check(boxes, codebook, residuals, subscriptions)
    kind = find_matcher(matcher)
    shared = {f"rows_{n}": a for n, a in group("boxes").items()} if hasattr(kind, "share_boxes") else {}
    segment = Segment(codebook, boxes, residuals, kind.from_arrays({**group("matcher"), **shared}), subscriptions)
    if "dead" in ids:
        segment.died = np.where(ids["dead"], np.int64(-1), ALIVE)
        segment.deaths = int(ids["dead"].sum())
    return segment


def _check(boxes: PackedBoxes, codebook: Codebook, residuals: Residuals, subscriptions: Subscriptions) -> None:
    """That arrays fit each other; raises SnapshotError."""
    places, clauses = boxes.attr.size, boxes.n_clauses
    rows = boxes.number.size or places
    slots = len(subscriptions.ids.values)
    column = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr)
    string = [codebook.schema.attributes[a].kind is Kind.STRING for a in codebook.used]
    checks = {
        "rows": boxes.lo.size == places and boxes.hi.size in (0, places) and _climbs(boxes.ptr, rows),
        "row numbers": _within(boxes.number, places),
        "columns": not places or int(column.max()) < len(codebook.codes),
        "owners": boxes.filter_ids.size in (0, clauses) and _within(boxes.filter_ids, boxes.n_filters),
        "filters": bool(boxes.filter_ids.size) or clauses in (0, boxes.n_filters),
        "residuals": boxes.residuals.size in (0, clauses) and _within(boxes.residuals, residuals.rows.size, -1),
        "programs": _within(residuals.program, len(residuals.programs))
        and residuals.program.size == residuals.rows.size,
        "widths": boxes.widths.tolist() == codebook.widths.tolist(),
        "codes": string == [isinstance(codebook.codes[a], StringCodes) for a in codebook.used],
        "subscribers": subscriptions.ptr.size == boxes.n_filters + 1 and _climbs(subscriptions.ptr, slots),
        "ids": subscriptions.ids.order.size == slots and _within(subscriptions.ids.order, slots),
        "id type": isinstance(subscriptions.ids.values, pa.Array)
        or subscriptions.ids.values.dtype in (np.int32, np.int64),
    }
    wrong = [name for name, fine in checks.items() if not fine]
    if wrong:
        raise SnapshotError(f"the arrays of the snapshot contradict each other ({', '.join(wrong)}); save it again")


def _within(values: npt.NDArray[Any], end: int, start: int = 0) -> bool:
    return not values.size or (int(values.min()) >= start and int(values.max()) < end)


def _climbs(ptr: npt.NDArray[Any], end: int) -> bool:
    return bool(ptr.size and ptr[0] == 0 and ptr[-1] == end and np.all(np.diff(ptr) >= 0))
