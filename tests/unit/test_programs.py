"""Residual programs come back from a snapshot equal, and nothing comes back that no filter can say."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, randoms
from tests.property.strategies import WIDTH_KINDS, Trial, trials
from tests.property.terms import text

from wherecast.errors import SnapshotError
from wherecast.index.programs import pack_programs, unpack_programs
from wherecast.index.residuals import Residuals
from wherecast.index.snapshot import open_snapshot, write_snapshot
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Program
from wherecast.language.syntax.limits import Limits

SCHEMA = Schema.of({
    "a": "integer", "b": "integer", "x": "float", "s": "string", "t": "string", "d": "date", "ts": "timestamp",
    "flag": "boolean", "tags": "array<string>", "days": "array<date>", "u.1": "integer", "o`dd 5": "integer", "weiß": "string",
})  # fmt: skip

FILTERS = [
    "a > b", "a <=> b", "NOT (a <=> b)", "a IS DISTINCT FROM b", "a = NULL OR a > b",
    "a + 1 > b", "a - -1 > b", "a * -2.50 <= b", "-a > b", "-(5) < a + b", "-(-5) < a + b", "- - a > b", "a % 3 = 1", "a / 4 > 1.5",
    "a + 2147483648 > b", "a - -2147483648 > b", "a + -9223372036854775808 < b", "a * 1.1 > 12345678901234567890.123", "a * 1e0 > b",
    "x + 1 > 0.5", "x * 2D < 1e10", "abs(a - 7) < 3", "abs(x) IN (1, 2.5, -3)", "a + b IN (1, 2, 3)", "a + b IN (1, NULL)",
    "a + b NOT IN (1.5, -2, NULL)", "a IN (b, 1)", "a IN (b)", "a IN (b, 1.5)", "a IN (b, 1e0, NULL)", "(a IN (b)) IS NULL", "a NOT IN (b, 2.5)",
    "5 BETWEEN a AND x", "a + 1 BETWEEN 2 AND b", "a + b NOT BETWEEN -3 AND 9.5",
    "s LIKE '%x%'", "s NOT LIKE '_a%b'", "s LIKE 'it''s %_'", "s ILIKE 'A%'", "s RLIKE '^a.c$'", r"s RLIKE '\\d+'", "lower(s) = 'abc'", "upper(lower(s)) <> t",
    "length(s) > 3", "startswith(s, t)", "endswith(s, 'z')", "contains(lower(s), 'q')", "lower(s) IN ('a', 'b''c')", "s > t",
    "d > ts", "ts = d", "d IN ('2024-01-31', ts)", "ts NOT IN (DATE '2024-01-31', d)", "'2024-01-31' BETWEEN d AND ts",
    "NOT array_contains(tags, 'a')", "NOT array_contains(days, '2024-01-31')", "array_contains(tags, s)", "size(tags) > 2",
    "flag = (a > b)", "(a > b) IS TRUE", "(a > b) IS NOT FALSE", "(s LIKE 'a%' AND a > b) IS NULL", "(flag AND a > b) IN (TRUE, flag)",
    "u.`1` > a", "`o``dd 5` < b + 0", "`weiß` LIKE '%5%'", "a > b AND s LIKE '%x' AND a * 2 < 7",
    "NOT (a > b OR (s LIKE 'a%' AND a + 1 < 3)) OR NULL",
]  # fmt: skip

EVENTS = [
    {"a": 5, "b": 3, "x": 5.0, "s": "abc", "t": "b", "d": "2024-01-31", "ts": "2024-01-31 00:00:00", "flag": True, "tags": ["a", None]},
    {"a": -1, "b": 7, "x": -0.5, "s": "it's x5", "t": "IT", "d": "1999-01-01", "ts": "2024-02-01 01:00:00", "flag": False, "tags": []},
    {"a": 2**62, "b": 2**53 + 1, "x": 2.0**53, "s": "", "u.1": 3, "days": [], "o`dd 5": 4, "weiß": "5"},
    {},
]  # fmt: skip


def compiled(filters: list[str], schema: Schema = SCHEMA, clauses: int = 64) -> list[Program]:
    result = Compiler(schema, Limits(clauses=clauses)).compile_many(filters)
    assert not result.errors, result.errors[0].error
    return result.filters.programs


def came_back(programs: list[Program], schema: Schema = SCHEMA) -> list[Program]:
    facts, arrays = pack_programs(programs, schema)
    return unpack_programs(json.loads(json.dumps(facts)), arrays, schema)


def check_equal(found: list[Program], wanted: list[Program]) -> None:
    """Equal expressions, and columns of equal values of equal types."""
    assert found == wanted
    for a, b in zip(found, wanted, strict=True):
        assert a.length == b.length
        assert set(a.literals) == set(b.literals)
        for key, values in b.literals.items():
            assert a.literals[key].dtype == values.dtype
            assert a.literals[key].tolist() == values.tolist()
            assert [type(v) for v in a.literals[key]] == [type(v) for v in values]


def outcomes(programs: list[Program], events: EventBatch) -> list[list[bool]]:
    """What each row of each program says of each event."""
    owner = np.repeat(np.arange(len(programs), dtype=np.int32), [p.length for p in programs])
    rows = np.concatenate([np.arange(p.length, dtype=np.int32) for p in programs] or [np.zeros(0, np.int32)])
    residuals = Residuals(programs, owner, rows, np.zeros(owner.size, bool))
    numbers = np.arange(owner.size)
    return [residuals.hold(events, np.full(owner.size, e), numbers).tolist() for e in range(len(events))]


class TestRoundTrip:
    @pytest.mark.sampled
    @pytest.mark.parametrize("filter_text", FILTERS)
    def test_each(self, filter_text):
        """Every construct of the language comes back, alone and as part of a filter that is kept whole."""
        for clauses in (64, 1):
            programs = compiled(
                [filter_text, f"({filter_text}) OR a = 1 AND b = 2 OR a = 2 AND s = 'z'"], clauses=clauses
            )
            check_equal(came_back(programs), programs)

    def test_all_in_one_snapshot(self, tmp_path: Path):
        """Programs of many literals through files: numbers are views of the map, and they say the same of events."""
        numeric = [f for f in FILTERS if "'" not in f and "`" not in f]
        filters = [[f, *(f.replace("5", str(i)) for i in range(6, 9))] for f in numeric] + [[f] for f in FILTERS]
        programs = [p for some in filters for p in compiled(some)]
        facts, arrays = pack_programs(programs, SCHEMA)
        write_snapshot(
            tmp_path / "s", {f"programs/{name}": array for name, array in arrays.items()}, {"programs": facts}
        )
        opened = open_snapshot(tmp_path / "s")
        stored = {name: opened.arrays[f"programs/{name}"] for name in arrays}
        found = unpack_programs(opened.facts["programs"], stored, SCHEMA)
        check_equal(found, programs)
        events = EventBatch.read(SCHEMA, EVENTS)
        assert outcomes(found, events) == outcomes(programs, events)
        assert any(
            np.shares_memory(c, stored["ints"]) for p in found for c in p.literals.values() if c.dtype == np.int64
        )

    def test_none(self):
        """No programs are stored as none."""
        assert came_back([]) == []

    @examples(80)
    @given(trials(filters=6, events=5) | trials(filters=6, events=5, kinds=WIDTH_KINDS), st.sampled_from([1, 4, 64]))
    def test_random_filters(self, trial: Trial, clauses: int):
        """What comes back is equal and says the same of every event."""
        schema = Schema.of(trial.space.schema)
        programs = (
            Compiler(schema, Limits(clauses=clauses)).compile_many([text(t) for t in trial.filters]).filters.programs
        )
        found = came_back(programs, schema)
        assert found == programs
        events = EventBatch.read(schema, trial.events)
        assert outcomes(found, events) == outcomes(programs, events)

    @pytest.mark.parametrize(
        "deep",
        [
            "NOT " * 90 + "a > b",
            "(" * 90 + "a > b" + ")" * 90,
            "a" + " + 1" * 90 + " > b",
            "- " * 90 + "a > b",
            "(" * 45 + "a > b" + ") IS DISTINCT FROM flag" * 45,
            "abs(" * 90 + "a" + ")" * 90 + " > b",
            " OR ".join(f"a + {i} > b" for i in range(300)),
            "((a > b) BETWEEN flag AND flag) BETWEEN flag AND flag",
        ],
        ids=range(8),
    )
    def test_large(self, deep):
        """Whatever the limits of a filter let pass can be stored."""
        programs = compiled([deep], clauses=1)
        check_equal(came_back(programs), programs)


@pytest.fixture
def packed() -> tuple[dict[str, Any], dict[str, Any]]:
    """Three programs that use every array."""
    filters = ["upper(s) IN ('a', 'b')", "a * 1.5 + 2 > b", "x + 1e0 > 0.5 AND s LIKE '%a%b'"]
    return pack_programs(compiled(filters), SCHEMA)


def edited(arrays: dict[str, Any], change: Any) -> dict[str, Any]:
    """Arrays with another description of the programs."""
    programs = [json.loads(t) for t in arrays["programs"].to_pylist()]
    change(programs)
    return arrays | {"programs": pa.array([json.dumps(p) for p in programs], pa.large_string())}


class TestRefused:
    @pytest.mark.parametrize(
        "types",
        [
            {"z": "integer"},
            {"a": "string", "b": "string", "s": "integer", "x": "float"},
            {"a": "array<integer>", "b": "integer"},
        ],
        ids=str,
    )
    def test_another_schema(self, packed, types):
        """Programs of one schema are no programs of another."""
        with pytest.raises(SnapshotError, match="residual program 0"):
            unpack_programs(*packed, Schema.of(types))

    @pytest.mark.parametrize("name", ["programs", "ints", "floats", "texts", "decimals", "sizes"])
    def test_arrays(self, packed, name):
        """An array that is missing, of another type, too short or too long is found."""
        facts, arrays = packed
        array = arrays[name]
        longer = pa.concat_arrays([array, array[:1]]) if isinstance(array, pa.Array) else np.append(array, array[:1])
        others = [
            array[:-1],
            longer,
            np.zeros(len(array), np.int32),
            pa.array(["1"] * len(array)),
            pa.nulls(len(array), pa.large_string()),
        ]
        with pytest.raises(SnapshotError):
            unpack_programs(facts, {n: a for n, a in arrays.items() if n != name}, SCHEMA)
        for other in others:
            with pytest.raises(SnapshotError):
                unpack_programs(facts, arrays | {name: other}, SCHEMA)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("sizes", -1), ("sizes", 2**62), ("decimals", "1.5"), ("decimals", ""), ("decimals", "9" * 5000), ("programs", "{"), ("programs", "[" * 9999)],
    )  # fmt: skip
    def test_values(self, packed, name, value):
        """Values that cannot be are found."""
        facts, arrays = packed
        values = arrays[name].tolist()
        values[0] = value
        array = np.array(values) if name == "sizes" else pa.array(values, pa.large_string())
        with pytest.raises(SnapshotError):
            unpack_programs(facts, arrays | {name: array}, SCHEMA)

    @pytest.mark.parametrize("count", [None, 2, 4, "3"])
    def test_count(self, packed, count):
        """The number of programs is checked."""
        with pytest.raises(SnapshotError, match="3 residual programs instead of"):
            unpack_programs({"programs": count}, packed[1], SCHEMA)

    @pytest.mark.parametrize(
        "change",
        [
            lambda p: p[0].update(length=-1),
            lambda p: p[0].update(length=2**40),
            lambda p: p[0].update(length=True),
            lambda p: p[0].pop("rests"),
            lambda p: p[0].update(rests=7),
            lambda p: p[0]["rests"][0].__setitem__("truth", "maybe"),
            lambda p: p[0]["rests"][0].__setitem__("sql", None),
            lambda p: p[0]["rests"][0].__setitem__("sql", "upper(`s`) IN ('1')"),
            lambda p: p[0]["rests"][0].__setitem__("sql", "upper(`s`) IN ('0') OR sleep(9)"),
            lambda p: p[0]["rests"][0].__setitem__("sql", "upper(`s`) = (SELECT 1)"),
            lambda p: p[0]["rests"][0].__setitem__("sql", "length(`s`)"),
            lambda p: p[0]["rests"][0].__setitem__("sql", "(" * 9999),
            lambda p: p[0]["rests"][0].__setitem__("literals", []),
            lambda p: p[0]["rests"][0]["literals"].__setitem__(0, [0, "text", 0, 0, "general"]),
            lambda p: p[0]["rests"][0]["literals"].__setitem__(0, [0, "string", 0, 10**9, "general"]),
            lambda p: p[0]["rests"][0]["literals"].__setitem__(0, [-1, "string", 0, 0, "general"]),
            lambda p: p[0]["rests"][0]["literals"].__setitem__(0, [0, "string", 0, 0, "exactly"]),
            lambda p: p[1]["rests"][0].__setitem__("wider", [[0, "string"]]),
            lambda p: p[1]["rests"][0].__setitem__("wider", [[0, "int"]]),
            lambda p: p[1]["rests"][0].__setitem__("wider", 5),
            lambda p: p[1]["rests"][0].__setitem__("is_whole", 1),
            lambda p: p[1]["rests"][0].pop("is_whole"),
        ],
        ids=range(22),
    )
    def test_descriptions(self, packed, change):
        """A program that contradicts itself, or that is no condition of the language, is found."""
        facts, arrays = packed
        with pytest.raises(SnapshotError):
            unpack_programs(facts, edited(arrays, change), SCHEMA)

    @pytest.mark.parametrize(
        ("kind", "pattern"), [("RLIKE", "(a"), ("RLIKE", "(?=a)"), ("LIKE", "%a\\"), ("ILIKE", "\\a")]
    )
    def test_patterns(self, kind, pattern):
        """A pattern that no filter could have brought in is found before it meets an event."""
        facts, arrays = pack_programs(compiled([f"s {kind} '%a_'"]), SCHEMA)
        with pytest.raises(SnapshotError, match="residual program 0"):
            unpack_programs(facts, arrays | {"texts": pa.array([pattern], pa.large_string())}, SCHEMA)

    @examples(300)
    @given(randoms())
    def test_any_change(self, rng: random.Random):
        """Whatever becomes of a stored text: an error or programs, nothing else."""
        facts, arrays = _PACKED
        texts = arrays["programs"].to_pylist()
        which = rng.randrange(len(texts))
        letters = list(texts[which])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(letters))
            letters[at : at + rng.choice((0, 1, 1, 2, 9))] = rng.choice(
                ["", *"'`\"()0123456789,.-+*<>= []{}xA\\", "NOT ", " AND ", "null", "é"]
            )
        texts[which] = "".join(letters)
        with contextlib.suppress(SnapshotError):
            unpack_programs(facts, arrays | {"programs": pa.array(texts, pa.large_string())}, SCHEMA)

    def test_wrong_literals_are_not_saved(self):
        """A program without a literal that its expressions need is refused when it is saved."""
        (program,) = compiled(["a + 1 > b"])
        with pytest.raises(SnapshotError, match="its literals"):
            pack_programs([Program(program.residuals, {}, 1)], SCHEMA)


_PACKED = pack_programs([p for f in FILTERS for p in compiled([f])], SCHEMA)
