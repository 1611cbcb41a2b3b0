"""Similarity: vectors in schemas and events, SIMILAR in filters, as a column and as a residual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.property.models import cosine, similar, similar_text

from wherecast import Engine, Schema
from wherecast.errors import EventError, FilterError, SchemaError, SnapshotError
from wherecast.index.similar import VectorCodes
from wherecast.index.similar_texts import SimilarTextCodes

SCHEMA = {"v": "vector(3)", "s": "string", "p": "double"}


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("SIMILAR(v, ARRAY(1, 2)) > 0.5", 18, "a vector of 2 numbers, but the attribute has 3"),
        ("p < 1 AND SIMILAR(v, ARRAY(0, 0, -0.0)) > 0.5", 28, "a vector of zeros has no direction"),
        ("SIMILAR(v, ARRAY(1, p, 2)) > 0.5", 18, "'p' is not a number"),
        ("SIMILAR(v, ARRAY(1, nan, 2)) > 0.5", 18, "'nan' is not a number"),
        ("SIMILAR(v, ARRAY(1, 1_0, 2)) > 0.5", 18, "'1_0' is not a number"),
        ("SIMILAR(v, ARRAY(1,, 2)) > 0.5", 18, "nothing between two commas"),
        ("SIMILAR(v, ARRAY()) > 0.5", 18, "nothing between two commas"),
        ("SIMILAR(v, ARRAY(1, 1e39, 2)) > 0.5", 18, "1e39 is outside the range"),
        ("SIMILAR(v, ARRAY('1, 2, 3')) > 0.5", 18, "is not a number"),
        ("SIMILAR(s, ARRAY(1, 2, 3)) > 0.5", 9, "found string attribute 's'"),
        ("SIMILAR(v, 5) > 0.5", 12, "ARRAY(0.1, 0.2)"),
        ("SIMILAR(v) > 0.5", 1, "takes 2 arguments"),
        ("SIMILAR() > 0.5", 9, "takes 2 arguments"),
        ("SIMILAR(v, ARRAY(1, 2, 3))", 1, "expected a condition"),
        ("SIMILAR(v, ARRAY(1, 2, 3)", 1, "'(' is never closed"),
        ("v > 5", 1, "an array cannot be compared"),
    ],
)
def test_errors_have_their_place(text: str, column: int, words: str) -> None:
    """A vector that cannot be compared is refused where it stands, alone and among others of its shape."""
    engine = Engine(SCHEMA)
    with pytest.raises(FilterError) as caught:
        engine.subscribe("x", text)
    assert words in str(caught.value)
    assert caught.value.column == column
    report = engine.subscribe_many({1: "SIMILAR(v, ARRAY(1, 2, 3)) > 0.5", 2: text})
    assert [q.id for q in report.quarantined] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "SIMILAR(v, ARRAY(1.5D, 2f, -.3)) > 0.1",
        "similar ( `v` , array ( 15e-1 ,\n +2, -0.30 )) > 0.1 -- similar(v, array(",
        "0.1 < SIMILAR(v, ARRAY(1.5, 2, -3E-1)) /* array(1) */",
    ],
)
def test_spellings(text: str) -> None:
    """Suffixes, blanks, signs, comments, and the literal on the left: all are one filter."""
    engine = Engine(SCHEMA)
    engine.subscribe_many({"plain": "SIMILAR(v, ARRAY(1.5, 2, -0.3)) > 0.1", "other": text})
    assert engine.match({"v": [1, 2, 3]}) == ["plain", "other"]
    assert [segment.boxes.n_filters for segment in engine._segments.state.segments] == [1]


def test_a_text_that_looks_like_a_call() -> None:
    """SIMILAR inside of a string is a text, and `array` elsewhere is a function."""
    engine = Engine({**SCHEMA, "tags": "array<string>"})
    engine.subscribe("text", "s = 'similar(v, array(1, 2))' AND SIMILAR(v, ARRAY(1, 2, 2)) > 0")
    engine.subscribe("array", "arrays_overlap(tags, array('a', 'similar(v, array(1, 2))'))")
    assert engine.match({"s": "similar(v, array(1, 2))", "v": [1, 1, 1], "tags": ["a"]}) == ["array", "text"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, 2], "expected a vector of 3 numbers, got 2"),
        ([], "expected a vector of 3 numbers, got 0"),
        (np.zeros((1, 3)), "expected vector(3)"),
        ([1, None, 2], "element 1: expected a finite number, got NULL"),
        ([1, float("nan"), 2], "element 1: expected a finite number, got nan"),
        (np.array([1, np.inf, 2], np.float32), "element 1: expected a finite number, got inf"),
        ([1, 2, 1e39], "element 2: expected real, got float 1e+39"),
        (["1", 2, 3], "element 0: expected real"),
        ("1,2,3", "expected vector(3), got string"),
    ],
)
def test_events_that_do_not_fit(value: object, words: str) -> None:
    """One event and a batch refuse them alike; in a batch the others are matched."""
    engine = Engine(SCHEMA)
    engine.subscribe("x", "SIMILAR(v, ARRAY(1, 2, 3)) > 0.5")
    with pytest.raises(EventError) as caught:
        engine.match({"v": value})
    assert words in str(caught.value)
    found = engine.match_batch([{"v": [1, 2, 3]}, {"v": value}], on_error="skip")
    assert found.to_lists()[0] == ["x"]
    assert words in str(found.errors[0])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32(), 3),
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float16()),
        pa.list_(pa.int8()),
    ],
)
def test_arrow(kind: pa.DataType) -> None:
    """Every list of numbers is a vector; a slice is read from its own beginning, and bad rows are named."""
    engine = Engine(SCHEMA)
    engine.subscribe("x", "SIMILAR(v, ARRAY(1, 2, 3)) >= 1")
    rows = [[9, 9, 9], [1, 2, 3], None, [2, 4, 6], [3, 2, 1]]
    values = rows if kind.id == pa.list_(pa.int8()).id and pa.types.is_integer(kind.value_type) else [
        None if row is None else [np.float16(x) for x in row] if kind.value_type == pa.float16() else [float(x) for x in row]
        for row in rows
    ]  # fmt: skip
    table = pa.table({"v": pa.array(values, kind)}).slice(1)
    assert engine.match_batch(table).to_lists() == [["x"], [], ["x"], []]
    if kind.id != pa.list_(pa.float32(), 3).id:
        values[3] = values[3][:2]
        found = engine.match_batch(pa.table({"v": pa.array(values, kind)}), on_error="skip")
        assert [e.row for e in found.errors] == [3]


def test_schemas() -> None:
    """A vector has a size, is written with it, and is an array of FLOATs to others."""
    schema = Schema.of({"v": "VECTOR( 384 )"})
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.to_dict() == {"v": "vector(384)"}
    assert schema.to_arrow().field("v").type == pa.list_(pa.float32())
    for wrong in ("vector", "vector(0)", "vector(16385)", "vector(3, 2)", "array<vector(3)>", "vector<3>"):
        with pytest.raises(SchemaError):
            Schema.of({"v": wrong})
    with pytest.raises(SchemaError):
        Schema.of({"v": {"type": "vector(3)", "coerce": True}})


def _workload(size: int, n: int, m: int, seed: int) -> tuple[list[list[float]], list[list[float]], list[float]]:
    """Vectors of filters and events, some equal, opposite, very long and very short, and limits that are often reached exactly."""
    rng = np.random.default_rng(seed)
    asked, sent = (rng.normal(size=(k, size)).astype(np.float32) for k in (n, m))
    asked[0] *= np.float32(1e30)
    asked[1] *= np.float32(1e-30)
    asked[2, 1:] = 0
    sent[0], sent[1], sent[2], sent[3] = asked[0] / 2, asked[1], -asked[5], 0
    limits = [
        (cosine(sent[i % m].tolist(), asked[i].tolist()) or 0.0) if i % 3 == 0 else [1.0, -1.0, 0.1, 0.0][i % 4]
        for i in range(n)
    ]
    return asked.tolist(), sent.tolist(), limits


@pytest.mark.sampled
@pytest.mark.parametrize(("size", "n", "m"), [(1, 40, 9), (7, 2_100, 20), (384, 20, 1_040)])
def test_column_and_residual_equal_the_definition(size: int, n: int, m: int) -> None:
    """More vectors than a block has, more events than a block has, and limits that are similarities themselves.

    Filters with `k` are residuals: they ask for one of many values.
    """
    asked, sent, limits = _workload(size, n, m, seed=size)
    ops = [[">=", ">", "<", "<="][i % 4] for i in range(n)]
    conditions = [similar("v", asked[i], ops[i], limits[i]) for i in range(n)]
    keys = [None if i % 2 else i % 10 for i in range(n)]
    engine = Engine({"v": f"vector({size})", "k": "int"})
    engine.subscribe_many({
        i: c.text if keys[i] is None else f"{c.text} AND k = {keys[i]}" for i, c in enumerate(conditions)
    })  # fmt: skip
    events = [{"v": v, "k": i % 12} for i, v in enumerate(sent)]
    expected = [
        [i for i, c in enumerate(conditions) if keys[i] in (None, event["k"]) and c.value(event)] for event in events
    ]
    assert [sorted(found) for found in engine.match_batch(events).to_lists()] == expected
    assert [sorted(engine.match(event)) for event in events[:8]] == expected[:8]
    for chosen in (0, 1, n - 1):
        shown = engine.explain(events[0], chosen)
        assert shown.matches == (chosen in expected[0])


def test_explain_shows_the_similarity() -> None:
    """The similarity that was reached, and long vectors cut short."""
    engine = Engine({"v": "vector(384)"})
    vector = [1.0] * 384
    engine.subscribe("x", f"SIMILAR(v, ARRAY({', '.join(map(str, vector))})) >= 0.8")
    shown = str(engine.explain({"v": [*vector[:192], *[0.0] * 192]}, "x"))
    assert "FAIL similar(v, ARRAY(1.0, 1.0" in shown
    assert "(is 0.7071067811865476)" in shown
    assert max(map(len, shown.splitlines())) < 400


def test_vectors_are_stored_once(tmp_path: Path) -> None:
    """A saved engine has the numbers of its vectors once, packed, and says so when they are not whole."""
    n, size = 50, 200
    asked = np.random.default_rng(1).normal(size=(n, size)).astype(np.float32)
    engine = Engine({"v": f"vector({size})"})
    engine.subscribe_many({i: similar("v", v, ">=", 0.1).text for i, v in enumerate(asked.tolist())})
    engine.save(tmp_path / "saved")
    stored = sum(path.stat().st_size for path in (tmp_path / "saved").rglob("*") if path.is_file())
    assert asked.nbytes < stored < 1.5 * asked.nbytes + 20_000
    opened = Engine.open(tmp_path / "saved")
    events = pa.table({"v": pa.array(asked.tolist(), pa.list_(pa.float32()))})
    assert opened.match_batch(events).to_lists() == engine.match_batch(events).to_lists()


@pytest.mark.parametrize(
    "places", [[0, 0], [], [0, 0, 99], [0, 5, 0], [7, 0, 0], [-1, 0, 0], [0, 0, 1, 0, 0, 0]], ids=str
)
def test_codes_of_a_damaged_file(places: list[int]) -> None:
    """Codes that name no vector, or name them out of order, are refused."""
    engine = Engine(SCHEMA)
    engine.subscribe_many({i: f"SIMILAR(v, ARRAY(1, 2, {i})) > 0.5" for i in range(40)})
    engine.match({"v": [1, 2, 3]})
    programs = engine._segments.state.segments[0].residuals.programs
    with pytest.raises(SnapshotError):
        VectorCodes.from_arrays({"places": np.array(places, np.int32)}).bind(programs)


@pytest.mark.sampled
@pytest.mark.parametrize("law", ["spread", "in the rest"])
def test_pruning_is_exact(law: str) -> None:
    """Where the first numbers settle most pairs, and where events have nearly all of their length in the others.

    The expectation adds from the first number to the last, as the definition says: `cumsum` does.
    """
    rng, size, n, m = np.random.default_rng(5), 256, 1_100, 40
    asked, sent = (rng.normal(size=(k, size)).astype(np.float32) for k in (n, m))
    sent[:20] = asked[:20] + np.float32(0.5) * sent[:20]
    if law == "in the rest":
        sent[:, :100] /= 100
    dots, own, other = (
        np.cumsum(products, axis=-1)[..., -1]
        for products in (sent[:, None].astype(float) * asked[:m], sent.astype(float) ** 2, asked.astype(float) ** 2)
    )
    reached = np.clip(dots / np.sqrt(own[:, None] * other[:m]), -1, 1)
    limits = [float(reached[i, i]) if i < 20 else 0.85 for i in range(n)]
    engine = Engine({"v": f"vector({size})"})
    engine.subscribe_many({i: similar("v", v, ">=", limits[i]).text for i, v in enumerate(asked.tolist())})
    (codes,) = [c for s in engine._segments.state.segments for c in s.codebook.codes if isinstance(c, VectorCodes)]
    assert 0 < codes._conditions[0].prefix < size
    found = engine.match_batch(pa.table({"v": pa.array(sent.tolist(), pa.list_(pa.float32()))})).to_lists()
    for event, ids in zip(reached, found, strict=True):
        expected = np.flatnonzero(event >= limits[:m]).tolist()
        assert [i for i in sorted(ids) if i < m] == expected
    assert any(ids for ids in found)


# -- texts ------------------------------------------------------------------------------------------------------------


def test_texts_by_the_words_that_they_share() -> None:
    """Rare words count more than common ones, and a frequency that was learned stays with the schema and with what is saved."""
    texts = ["the chip export", "the the weather", "the market", None, "the bread", "the chip"]
    schema = Schema.of({"body": "string", "k": "int"}).learn("body", texts)
    assert Schema.from_json(schema.to_json()) == schema
    assert schema["body"].frequencies is not None
    assert (schema["body"].frequencies.texts, schema["body"].frequencies.words["the"]) == (5, 5)
    plain, learned = Engine({"body": "string", "k": "int"}), Engine(schema)
    for engine in (plain, learned):
        engine.subscribe_many(
            {"words": "SIMILAR(body, 'the bread') >= 0.5", "all": "SIMILAR(body, 'Bread, the!') >= 1"}
        )
        assert sorted(engine.match({"body": "bread the"})) == ["all", "words"]
        assert engine.match({"body": ""}) == engine.match({"body": "?!"}) == engine.match({}) == []
    assert plain.match({"body": "the weather"}) == ["words"]
    assert learned.match({"body": "the weather"}) == []
    assert "similar_text(body, 'the bread') >= 0.5D   (is 8.26" in str(
        learned.explain({"body": "the weather"}, "words")
    )


def test_texts_in_a_column(tmp_path: Path) -> None:
    """Many conditions, among them those that hold for texts without a common word; saved and opened, alone and in a batch."""
    rng = np.random.default_rng(2)
    words = [f"w{i}" for i in range(30)]
    schema = Schema.of({"body": "string", "k": "int"}).learn("body", [" ".join(words[:i]) for i in range(30)])
    frequencies = schema["body"].frequencies
    assert frequencies is not None
    conditions = [
        similar_text(
            "body", " ".join(rng.choice(words, 3)), [">=", "<", ">", "<="][i % 4], [0.3, 0.6, 0.0, 0.9][i % 4], str,
            frequencies.texts, frequencies.words,
        )
        for i in range(200)
    ]  # fmt: skip
    engine = Engine(schema)
    engine.subscribe_many({i: c.text if i % 5 else f"{c.text} AND k = {i % 40}" for i, c in enumerate(conditions)})
    events = [{"body": " ".join(rng.choice(words, 6)), "k": 5 * (i % 8)} for i in range(30)]
    events += [{"body": None}, {"body": "none of them"}, {"body": ""}]
    expected = [
        [i for i, c in enumerate(conditions) if c.value(event) and (i % 5 or event.get("k") == i % 40)]
        for event in events
    ]
    engine.save(tmp_path / "saved")
    for each in (engine, Engine.open(tmp_path / "saved")):
        assert [sorted(ids) for ids in each.match_batch(events).to_lists()] == expected
        assert [sorted(each.match(event)) for event in events] == expected
        columns = [
            c for s in each._segments.state.segments for c in s.codebook.codes if isinstance(c, SimilarTextCodes)
        ]
        assert [c.width for c in columns] == [162]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("SIMILAR(s, '--') > 0.5", 12, "no letter or digit"),
        ("SIMILAR(v, 'chip') > 0.5", 9, "write a vector as ARRAY"),
        ("SIMILAR(s, s) > 0.5", 12, "found string attribute 's'"),
        ("SIMILAR(p, 'chip') > 0.5", 9, "a vector or a string"),
    ],
)
def test_texts_that_cannot_be_compared(text: str, column: int, words: str) -> None:
    """They are refused where they stand."""
    with pytest.raises(FilterError) as caught:
        Engine(SCHEMA).subscribe("x", text)
    assert words in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "written",
    [
        {"texts": 3},
        {"texts": -1, "words": {}},
        {"texts": 3, "words": {"a": 4}},
        {"texts": 3, "words": {"a": 1.5}},
        "many",
        {"texts": 3, "words": 5},
    ],
)
def test_frequencies_that_cannot_be(written: object) -> None:
    """A schema with frequencies that contradict themselves, or of something else than a text, is refused."""
    with pytest.raises(SchemaError):
        Schema.of({"body": {"type": "string", "frequencies": written}})
    with pytest.raises(SchemaError):
        Schema.of({"body": {"type": "int", "frequencies": {"texts": 1, "words": {}}}})


@pytest.mark.slow
def test_a_text_of_ten_megabytes() -> None:
    """It is cut and weighed as any other; a word counts by the logarithm of how often it comes."""
    engine = Engine({"body": "string"})
    engine.subscribe_many({f"{limit}": f"SIMILAR(body, 'chip export') >= 0.{limit}" for limit in (70, 74, 75)})
    body = "export " + "chip " * 2_000_000
    weight = (2_000_000).bit_length()
    expected = (1 + weight) / (2 * (1 + weight**2)) ** 0.5
    assert 0.73 < expected < 0.74
    assert engine.match_batch([{"body": body}]).to_lists() == [["70"]]
