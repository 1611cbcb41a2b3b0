"""Which columns an index has: sets over expressions, what a clause is filed by, and what becomes of columns over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wherecast import Engine, Limits
from wherecast.index import expressions, literals, regexes
from wherecast.language.events.events import EventBatch

_SCHEMA = {"a": "string", "b": "string", "n": "integer"}


@pytest.fixture
def _one_use_is_enough() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(expressions, "FEW_USES", 1)
    patch.setattr(expressions, "FEW_TEXT_USES", 1)
    patch.setattr(expressions, "GUARDED_USE", 1)
    yield
    patch.undo()


def engine_of(*filters: str, **options: object) -> Engine:
    engine = Engine(_SCHEMA, **options)  # type: ignore[arg-type]
    engine.subscribe_many(enumerate(filters))
    return engine


def facts(engine: Engine) -> dict[str, object]:
    (segment,) = engine.stats()["segments"]
    return segment  # type: ignore[no-any-return]


def found(engine: Engine, events: list[dict[str, object]]) -> list[list[object]]:
    """The ids that each event matches."""
    return [sorted(ids) for ids in engine.match_batch(events)]


#: A filter, the column it is indexed by, and whether the index says all.
SETS = [
    ("trim(a) LIKE '%x%'", "contains(trim(a), ?)", True),
    ("trim(a) LIKE 'x%'", "contains(trim(a), ?)", True),
    ("trim(a) LIKE '%x'", "contains(trim(a), ?)", True),
    ("trim(a) LIKE 'x'", "contains(trim(a), ?)", True),
    ("trim(a) LIKE '%x%y%'", "contains(trim(a), ?)", False),
    ("concat(a, b) LIKE '%x%'", "contains(concat(a, b), ?)", True),
    ("contains(concat(a, '-', b), 'x-')", "contains(concat(a, '-', b), ?)", True),
    ("startswith(substring(a, 2), 'x')", "contains(substring(a, 2), ?)", True),
    ("endswith(trim(a), '')", "contains(trim(a), ?)", True),
    ("trim(a) ILIKE '%X%'", "contains(lower(trim(a)), ?)", True),
    ("lower(trim(a)) LIKE '%x%'", "contains(lower(trim(a)), ?)", True),
    ("lower(trim(a)) = 'x'", "lower(trim(a))", True),
    ("substring(a, 1, 3) IN ('x', 'xay')", "substring(a, 1, 3)", True),
    ("a RLIKE '^[0-9]+$'", "a RLIKE ?", True),
    ("trim(a) RLIKE 'x[a-c]*y'", "trim(a) RLIKE ?", True),
]
_TEXTS = ["x", " x ", "X", "axb", "yx", "x y", "xy", "xay", "12", "12\n", "1a", "", "ẞx", "😀x"]


@pytest.mark.sampled
@pytest.mark.usefixtures("_one_use_is_enough")
@pytest.mark.parametrize(("filter", "column", "says_all"), SETS)
def test_a_text_that_is_computed_has_columns_of_its_own(
    filter: str, column: str, says_all: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Batches, single events and an engine that was saved find what evaluating the filter finds."""
    engine = engine_of(filter)
    assert column in facts(engine)["codes"]  # type: ignore[operator]
    assert (facts(engine)["residuals"] == 0) is says_all
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    assert column in facts(opened)["codes"]  # type: ignore[operator]
    monkeypatch.setattr(expressions, "FEW_USES", 10**9)
    monkeypatch.setattr(expressions, "FEW_TEXT_USES", 10**9)
    plain = engine_of(filter)
    assert column not in facts(plain)["codes"]  # type: ignore[operator]
    events = [{"a": a, "b": b, "n": 1} for a in [*_TEXTS, None] for b in ("x", None)]
    expected = found(plain, events)
    assert found(engine, events) == expected
    assert found(opened, events) == expected
    assert [sorted(engine.match(event)) for event in events] == expected
    assert [[0] if engine.explain(event, 0).matches else [] for event in events] == expected


@pytest.mark.usefixtures("_one_use_is_enough")
def test_regular_expressions_without_literals_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they need several sets, or where a set runs out of memory: then they are tried one by one."""
    patterns = [f"^[0-9]{{{n}}}[a-f]*$" for n in range(1, 20)] + ["[x-z]+$", "(?i)^[a-c]", "^$", r"\\s"]
    filters = [f"a RLIKE '{pattern}'" for pattern in patterns]
    events = [{"a": text} for text in ["1", "12ab", "123\n", "\n", "", "xyz\r\n", "Abc", "😀 ", None]]
    engine = engine_of(*filters)
    assert facts(engine)["residuals"] == 0
    expected = found(engine, events)
    assert [len(ids) for ids in expected] == [1, 1, 2, 2, 1, 2, 1, 1, 0]
    small = engine_of(*filters, limits=Limits(regex_bytes=6_000))
    assert found(small, events) == expected
    (segment,) = small._segments.readable().segments
    (codes,) = [c for c in segment.codebook.codes if isinstance(c, regexes.RegexCodes)]
    assert len(codes._sets) > 1

    monkeypatch.setattr(regexes.re2.Set, "Match", lambda _self, _text: None)
    assert found(engine, events) == expected


def test_few_uses_beside_other_conditions_are_not_worth_a_pass_over_every_text() -> None:
    guarded = engine_of(*(f"a RLIKE '^[0-9]{{{n}}}$' AND n = {n}" for n in range(1, 100)))
    bare = engine_of(*(f"a RLIKE '^[0-9]{{{n}}}$'" for n in range(1, 100)))
    short = engine_of(*(f"a RLIKE '^[0-9]{{{n}}}-[a-f]$'" for n in range(1, 100)))  # a hyphen is in most texts
    assert "a RLIKE ?" not in facts(guarded)["codes"]  # type: ignore[operator]
    assert "a RLIKE ?" in facts(bare)["codes"]  # type: ignore[operator]
    assert "a RLIKE ?" in facts(short)["codes"]  # type: ignore[operator]


#: Clauses with a negated text test beside something that can be indexed: the latter must keep events away.
GUARDED = [
    f"{other} AND {negated}"
    for other in (
        "n = 7",
        "b = 'q'",
        "b LIKE '%q%'",
        "b LIKE 'q%'",
        "b IN ('q', 'r')",
        "n BETWEEN 7 AND 8",
        "b ILIKE '%Q'",
    )
    for negated in (
        "NOT a LIKE '%x%'",
        "a NOT LIKE 'x%y'",
        "a NOT ILIKE '%X'",
        "NOT contains(a, 'x')",
        "NOT (a LIKE '%x%' OR a LIKE '%y%')",
        "NOT (a LIKE '%x%' AND a RLIKE 'z+')",
        "a NOT RLIKE 'x.y'",
        "NOT trim(a) LIKE '%x%'",
    )
]


@pytest.mark.sampled
@pytest.mark.parametrize("filter", GUARDED)
def test_a_negated_text_test_does_not_hide_the_rest_of_its_clause(filter: str) -> None:
    """No event that fails the other condition is a candidate."""
    engine = engine_of(filter, f"({filter}) OR ({filter.replace('q', 's').replace('7', '9').replace('8', '9')})")
    event = {"a": "other", "b": "none", "n": 1}
    assert candidates(engine, event) == 0
    assert sorted(engine.match({"a": "other", "b": "q", "n": 7})) == [0, 1]


def candidates(engine: Engine, event: dict[str, object]) -> int:
    """Clauses whose boxes hold an event, whatever their residuals say."""
    (segment,) = engine._segments.readable().segments
    codes = segment.encode(EventBatch.read(engine.schema, [event]))
    return int(segment.matcher.match(codes)[1].size)


def test_columns_that_no_live_filter_uses_are_gone_after_a_merge() -> None:
    """Neither computed nor listed, of every kind."""
    kinds = {
        "n": [f"n = {i}" for i in range(40)],
        "contains(a, ?)": [f"a LIKE '%x{i}%'" for i in range(40)],
        "contains(trim(a), ?)": [f"trim(a) LIKE '%x{i}%'" for i in range(40)],
        "length(a)": [f"length(a) = {i}" for i in range(40)],
        "a RLIKE ?": [f"a RLIKE '^[0-9]{{{i}}}$'" for i in range(1, 41)],
    }
    engine = Engine(_SCHEMA)
    for column, filters in kinds.items():
        engine.subscribe_many({f"{column}{i}": text for i, text in enumerate(filters)})
    engine.merge(everything=True)
    assert set(kinds) <= set(facts(engine)["codes"])  # type: ignore[call-overload]
    for column in list(kinds)[1:]:
        for i in range(40):
            engine.unsubscribe(f"{column}{i}")
        engine.subscribe(f"again {column}", "n = -1")
        engine.merge(everything=True)
        assert column not in facts(engine)["codes"]  # type: ignore[operator]
    assert set(facts(engine)["codes"]) == {"n"}  # type: ignore[call-overload]
    (segment,) = engine._segments.readable().segments
    assert segment.attributes == {2}


def test_new_literals_do_not_build_the_automaton_of_the_base_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(_SCHEMA)
    engine.subscribe_many({f"old{i}": f"a LIKE '%word{i}%'" for i in range(5_000)})
    engine.match({"a": "word7"})
    built: list[int] = []
    build = literals.build_automaton

    def counted(symbols, *others):  # type: ignore[no-untyped-def]
        built.append(symbols.size)
        return build(symbols, *others)

    monkeypatch.setattr(literals, "build_automaton", counted)
    engine.subscribe("new", "a LIKE '%fresh%'")
    assert sorted(engine.match({"a": "word7 fresh"})) == ["new", "old7"]
    engine.unsubscribe("old7")
    assert sorted(engine.match({"a": "word7 fresh"})) == ["new"]
    assert sum(built) < 100
