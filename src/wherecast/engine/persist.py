"""Engines on disk: segments as named arrays in a snapshot (see `index.snapshot`).

An engine is saved as one segment per segment it has, the log included; removed subscriptions are left out by a mark per
slot. Opening maps the arrays, it copies and rebuilds nothing: the codebook, the matcher and the id table are views of the
file. Each part checks its own arrays before it uses them (see `index.bounds`), because a kernel that follows a wrong
offset would crash the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wherecast.engine.ids import open_ids
from wherecast.engine.segment import ALIVE, Segment, Subscriptions
from wherecast.engine.sequences import Sequences
from wherecast.errors import SnapshotError, WherecastError
from wherecast.index.bounds import StoredArrays
from wherecast.index.codes import Codebook, ColumnCodes, codes_of_column
from wherecast.index.expressions import ExpressionColumn, open_expressions
from wherecast.index.keys import KeyCodes
from wherecast.index.literals import LiteralCodes
from wherecast.index.packed import open_boxes
from wherecast.index.programs import pack_programs, unpack_programs
from wherecast.index.regexes import RegexCodes
from wherecast.index.residuals import open_residuals
from wherecast.index.similar import SimilarCodes, VectorCodes
from wherecast.index.similar_texts import SimilarTextCodes
from wherecast.index.snapshot import Snapshot, open_snapshot, write_snapshot
from wherecast.index.strings import StringCodes
from wherecast.index.topics import TopicCodes
from wherecast.index.words import WordCodes
from wherecast.language.events.schema import MAX_ATTRIBUTES, Schema
from wherecast.language.filters.columns import columns_of
from wherecast.language.filters.compile import Compiler
from wherecast.matchers.registry import find_matcher

if TYPE_CHECKING:
    from wherecast.engine.engine import Engine
    from wherecast.engine.segments import Segments

Arrays = dict[str, Any]
#: Codes by the name of their kind in a snapshot.
_CODES: dict[str, type[ColumnCodes]] = {
    "keys": KeyCodes,
    "strings": StringCodes,
    "literals": LiteralCodes,
    "regexes": RegexCodes,
    "topics": TopicCodes,
    "words": WordCodes,
    "vectors": VectorCodes,
    "similar_texts": SimilarTextCodes,
}


#: The fact and the group of arrays that patterns are.
SEQUENCES = "sequences"


def save_segments(
    path: str | os.PathLike[str],
    schema: Schema,
    matcher: str,
    segments: tuple[Segment, ...],
    version: int,
    sequences: Sequences | None = None,
) -> None:
    """Write segments as they are alive at `version`, and patterns."""
    arrays, facts = _pack_all(segments, "segment", schema, version)
    more: dict[str, Any] = {}
    if sequences is not None:
        with sequences.turn:
            state, steps, _ = sequences.step_segments.readable()
            own, about = sequences.packed()
            arrays.update({f"{SEQUENCES}/{name}": array for name, array in own.items()})
            step_arrays, step_facts = _pack_all(steps, "step", schema, state.version)
            arrays.update(step_arrays)
            more = {SEQUENCES: about | {"version": state.version, "segments": step_facts}}
    write_snapshot(
        path, arrays, {"schema": schema.to_json(), "matcher": matcher, "version": version, "segments": facts, **more}
    )


def _pack_all(
    segments: tuple[Segment, ...], name: str, schema: Schema, version: int
) -> tuple[Arrays, list[dict[str, Any]]]:
    arrays: Arrays = {}
    facts = []
    for number, segment in enumerate(segments):
        own, about = _pack(segment, schema, version)
        arrays.update({f"{name}{number}/{part}": array for part, array in own.items()})
        facts.append(about)
    return arrays, facts


def open_steps(snapshot: Snapshot, schema: Schema, matcher: str) -> tuple[int, tuple[Segment, ...]]:
    """Version and segments of the filters that patterns are made of."""
    with _of_engine(snapshot.path):
        facts = snapshot.facts[SEQUENCES]
        about = list(facts["segments"])
        return _count(facts["version"]), _unpack_all("step", about, snapshot, schema, matcher)


def open_sequences(snapshot: Snapshot, compiler: Compiler, steps: Engine, step_segments: Segments) -> Sequences:
    """The patterns of a saved engine and what they know of their stream, given the engine of their steps."""
    with _of_engine(snapshot.path):
        start = f"{SEQUENCES}/"
        arrays = {n.removeprefix(start): snapshot.arrays[n] for n in snapshot.arrays if n.startswith(start)}
        return Sequences.unpacked(arrays, snapshot.facts[SEQUENCES], compiler, steps, step_segments)


@contextmanager
def _of_engine(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of what is in a file as errors of the file."""
    try:
        yield
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except (WherecastError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise SnapshotError(f"{path}: not a saved engine ({error}); save it again") from None


def open_segments(path: str | os.PathLike[str]) -> tuple[Schema, str, tuple[Segment, ...], int, Snapshot]:
    """Schema, matcher name, segments and version of a saved engine."""
    snapshot = open_snapshot(path)
    with _of_engine(path):
        facts = snapshot.facts
        schema = Schema.from_json(str(facts["schema"]))
        matcher, version, about = str(facts["matcher"]), _count(facts["version"]), list(facts["segments"])
        segments = _unpack_all("segment", about, snapshot, schema, matcher)
    return schema, matcher, segments, version, snapshot


def _pack(segment: Segment, schema: Schema, version: int) -> tuple[Arrays, dict[str, Any]]:
    arrays: Arrays = {f"boxes/{n}": a for n, a in segment.boxes._asdict().items() if n != "n_filters"}
    kinds: dict[str, str] = {}
    for attr in segment.codebook.used:
        codes = segment.codebook.codes[attr]
        assert codes is not None
        kinds[str(attr)] = next(kind for kind, made in _CODES.items() if isinstance(codes, made))
        arrays.update({f"codes{attr}/{n}": a for n, a in codes.arrays().items()})
    arrays.update({f"matcher/{n}": a for n, a in segment.matcher.arrays().items()})
    ptr, ids, priorities = segment.subscriptions
    arrays.update({"ids/ptr": ptr, "ids/values": ids.values, "ids/order": ids.order})
    if priorities is not None:
        arrays["ids/priorities"] = priorities
    if segment.died is not None:
        arrays["ids/dead"] = segment.died <= version
    programs, columns = pack_programs(segment.residuals.programs, schema)
    arrays.update({f"programs/{n}": a for n, a in columns.items()})
    residuals = segment.residuals
    arrays.update({"residuals/program": residuals.program, "residuals/rows": residuals.rows})
    arrays["residuals/is_settled"] = residuals.is_settled
    found = [(e.program, e.statement, e.row) for e in segment.codebook.expressions]
    arrays["expressions/places"] = np.array(found, np.int32).reshape(-1, 3).ravel()
    facts = {"filters": segment.boxes.n_filters, "codes": kinds, "programs": programs}
    return arrays, facts | {"columns": segment.codebook.first_expression}


def _unpack_all(
    name: str, facts: list[dict[str, Any]], snapshot: Snapshot, schema: Schema, matcher: str
) -> tuple[Segment, ...]:
    groups = _by_group(snapshot.arrays)
    return tuple(_unpack(f"{name}{number}", about, groups, schema, matcher) for number, about in enumerate(facts))


def _by_group(stored: Mapping[str, Any]) -> dict[tuple[str, str], Arrays]:
    """The arrays of each part of each segment, from names such as `segment0/codes12/offsets`."""
    groups: dict[tuple[str, str], Arrays] = {}
    for name in stored:
        segment, _, rest = name.partition("/")
        part, _, own = rest.partition("/")
        groups.setdefault((segment, part), {})[own] = stored[name]
    return groups


def _unpack(
    name: str, facts: Mapping[str, Any], groups: Mapping[tuple[str, str], Arrays], schema: Schema, matcher: str
) -> Segment:
    """A segment of mapped arrays; each part checks its own (see `index.bounds`), then those that it points into."""

    def group(part: str) -> Arrays:
        return groups.get((name, part), {})

    programs = unpack_programs(facts["programs"], group("programs"), schema)
    expressions = open_expressions(group("expressions"), programs)
    columns = _count(facts.get("columns", len(columns_of(schema.attributes, MAX_ATTRIBUTES, groups=1))))
    if columns > len(schema.columns):
        raise SnapshotError(f"{columns} columns where the schema has {len(schema.columns)}")
    codes = _open_codes(facts["codes"], schema, expressions, columns, group)
    for own in codes:
        if isinstance(own, SimilarCodes):
            own.bind(programs)
    codebook = Codebook(schema, codes, expressions, columns)
    residuals = open_residuals(group("residuals"), programs, codebook)
    filters = _count(facts["filters"])
    boxes = open_boxes(group("boxes"), filters, codebook, residuals.rows.size)
    subscriptions, dead = _open_subscriptions(group("ids"), filters)
    kind = find_matcher(matcher)
    arrays = group("matcher")
    kind.check(arrays, boxes, None if boxes.filter_ids.size else np.diff(subscriptions.ptr))
    segment = Segment(codebook, boxes, residuals, kind.from_arrays(arrays, boxes), subscriptions)
    if dead is not None:
        segment.died = np.where(dead, np.int64(-1), ALIVE)
        segment.deaths = int(dead.sum())
    return segment


def _open_codes(
    kinds: Mapping[str, str],
    schema: Schema,
    expressions: list[ExpressionColumn],
    first_expression: int,
    group: Callable[[str], Arrays],
) -> list[ColumnCodes | None]:
    numbers = {_count(int(number)): kind for number, kind in kinds.items()}
    codes: list[ColumnCodes | None] = [None] * max(len(schema), max(numbers, default=-1) + 1)
    for number, kind in numbers.items():
        if codes_of_column(schema, expressions, number, first_expression) is not _CODES[kind]:
            raise SnapshotError(f"column {number} cannot have codes of {kind!r:.20}")
        codes[number] = _CODES[kind].from_arrays(group(f"codes{number}"))
    return codes


def _open_subscriptions(arrays: Arrays, filters: int) -> tuple[Subscriptions, npt.NDArray[np.bool_] | None]:
    """Subscriptions to so many filters, and which of them are dead (None: none is)."""
    stored = StoredArrays(arrays, "subscriptions")
    ids = open_ids(stored)
    ptr = stored.column("ptr", np.int32, size=filters + 1)
    stored.offsets(ptr, len(ids), "ptr")
    priorities = stored.column("priorities", np.float32, size=len(ids)) if "priorities" in stored else None
    dead = stored.column("dead", np.bool_, size=len(ids)) if "dead" in stored else None
    return Subscriptions(ptr, ids, priorities), dead


def _count(value: object) -> int:
    """A number of things out of a manifest."""
    if not isinstance(value, int) or not 0 <= value < ALIVE:
        raise ValueError(f"{value!r:.40} is not a count")
    return int(value)
