"""An engine as a collection: ids, filters given back, texts for people, and what cannot be copied says so."""

from __future__ import annotations

import copy
import pickle
from html.parser import HTMLParser

import numpy as np
import pytest

from wherecast import Engine, EventError, Explanation, FilterError, Schema, SubscriptionError, UnknownIdError
from wherecast.language.filters.compile import Compiler

SCHEMA = {
    "a": "integer",
    "price": "double",
    "name": "string",
    "flag": "boolean",
    "day": "date",
    "time": "timestamp",
    "wall": "timestamp_ntz",
    "tags": "array<string>",
    "marks": "array<double>",
    "case": "string",
    "odd `name`": "integer",
    "s.x": "integer",
    "b": "integer",
}

#: What is registered, and what comes back.
TEXTS = [
    ("name = 'IBM' AND NOT (price >= 120)", "price < 120.0 AND name = 'IBM'"),
    ("a > 5", "a >= 6"),
    ("a IN (1, 3) OR name = 'it''s'", "a IN (1, 3) OR name = 'it''s'"),
    ("a = 1 AND flag OR a IS NULL", "a IS NULL OR (a = 1 AND flag = TRUE)"),
    ("(a IS NULL OR a = 1) AND flag", "(a IS NULL OR a = 1) AND flag = TRUE"),
    ("TRUE", "TRUE"),
    ("a = 1 AND a = 2", "FALSE"),
    ("b > a", "b > a"),
    ("a + 1 > 5 AND flag", "flag = TRUE AND (a + 1) > 5"),
    ("a + 5L > 2.50", "(a + 5L) > 2.50"),
    ("price * 2 > 0.5", "(price * 2) > 0.5D"),
    ("a * 1.10 = 3.30", "(a * 1.10) = 3.30"),
    ("a IN (b, 0.5D)", "(a + 0D) = b"),
    ("-(5) < a + b", "(-(5)) < (a + b)"),
    ("name LIKE '%a\\\\_b%'", "contains(name, 'a_b')"),
    ("name LIKE '%a' OR name ILIKE 'B%'", "endswith(name, 'a') OR startswith(lower(name), 'b')"),
    ("name LIKE '%a%b%'", "contains(name, 'b') AND name LIKE '%a%b%'"),
    ("name NOT LIKE '%a%'", None),
    ("lower(name) IN ('x', 'y')", "lower(name) IN ('x', 'y')"),
    ("length(name) > 3", "length(name) > 3"),
    ("(a > b) IS NOT TRUE", "(a <= b) IS NOT FALSE"),
    ("a > b OR a < 2 AND name > 'x' AND flag", None),
    ("array_contains(tags, 'red') AND array_contains(marks, 0.5)", None),
    ("NOT array_contains(tags, 'red')", None),
    ("`case` = 'x' AND `odd ``name``` = 1 AND s.x > 0", None),
    ("day > '9999-12-31'", "day > DATE '9999-12-31'"),
    ("day >= '0001-01-01'", "day >= DATE '0001-01-01'"),
    ("time <= '0001-01-01 00:00:00+18:00'", None),
    ("time > '9999-12-31 23:59:59.999999'", "time >= TIMESTAMP '9999-12-31 06:00:00-18:00'"),
    ("wall < '9999-12-31 23:59:59.999999'", None),
    ("price > 1.7976931348623157e308", "price > 1.7976931348623157e+308"),
    ("price < -1.7976931348623157e308", "price < -1.7976931348623157e+308"),
    ("price <> 5", "price <> 5.0"),
    ("a = 99999999999999999999.5 OR a < 7", None),
    ("a NOT IN (" + ", ".join(str(3 * n) for n in range(3000)) + ")", None),
    ("a IN (" + ", ".join(str(n + n // 2) for n in range(3000)) + ")", None),
    (" OR ".join(f"(a = {n} AND (name = 'x{n}' OR b > a + {n}))" for n in range(70)), None),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "written"), TEXTS, ids=[text[:40] for text, _ in TEXTS])
def test_a_filter_comes_back_as_a_text_of_the_same_meaning(text: str, written: str | None) -> None:
    """From the log, from a segment and from all items: one text, which compiles to the same filter."""
    engine = Engine(SCHEMA)
    engine.subscribe("s", text)
    back = engine["s"]
    assert written is None or back == written
    assert engine.get("s") == back
    engine.merge(everything=True)
    assert engine["s"] == back
    assert dict(engine.items()) == {"s": back}
    compiler = Compiler(engine.schema)
    if written is None or "0D" not in written:  # the comparison as doubles is spelled by an addition
        assert compiler.compile(back).digests == compiler.compile(text).digests


@pytest.mark.slow
def test_a_snapshot_gives_the_same_texts(tmp_path) -> None:
    """What is saved and opened answers as the engine that saved it."""
    engine = Engine(SCHEMA)
    engine.subscribe_many(enumerate(text for text, _ in TEXTS))
    engine.unsubscribe(3)
    engine.subscribe("late", "a > b")
    engine.save(tmp_path)
    opened = Engine.open(tmp_path)
    assert dict(opened.items()) == dict(engine.items())
    assert {id: opened[id] for id in opened} == dict(engine.items())
    other = Engine(SCHEMA)
    assert other.subscribe_many(opened.items()).registered == len(opened)
    assert other["late"] == "a > b"


def test_an_engine_is_a_collection_of_ids() -> None:
    """`in`, `len`, iteration and lookups agree, for ids of both types; an unknown id is a KeyError that says so."""
    engine = Engine(SCHEMA)
    engine.subscribe(7, "a = 1")
    engine.subscribe_many({"7": "a = 2", -1: "a = 3"})
    assert len(engine) == 3
    assert set(engine) == {7, "7", -1}
    assert (engine[7], engine["7"], engine[-1], engine[np.int64(7)]) == ("a = 1", "a = 2", "a = 3", "a = 1")
    for unknown in (8, "8", "", None, 1.5, 2**70):
        assert unknown not in engine
        assert engine.get(unknown) is None
        assert engine.get(unknown, "none") == "none"
        with pytest.raises(KeyError) as caught:
            engine[unknown]
        assert isinstance(caught.value, UnknownIdError)
        assert isinstance(caught.value, SubscriptionError)
        assert str(caught.value) == f"no subscription {unknown!r}"
    for call in (engine.unsubscribe, lambda unknown: engine.explain({}, unknown)):
        with pytest.raises(UnknownIdError, match="no subscription 'gone'"):
            call("gone")
    engine.unsubscribe(7)
    assert 7 not in engine
    assert engine.get(7) is None
    engine.subscribe(7, "a = 9")
    engine.subscribe("7", "a = 10", replace=True)
    assert dict(engine.items()) == {7: "a = 9", "7": "a = 10", -1: "a = 3"}


class _Texts(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not attrs

    def handle_data(self, data):
        self.texts.append(data)


HOSTILE = "<script>alert('x')</script>&amp;\"`"
PLAIN_TAGS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}


def _hostile_things() -> dict[str, object]:
    engine = Engine({HOSTILE: "string", "a": "integer"})
    quoted = "`" + HOSTILE.replace("`", "``") + "`"
    engine.subscribe(HOSTILE, f"{quoted} = '<img src=x onerror=y>' OR a > 5")
    events = [{HOSTILE: "<img src=x onerror=y>", "a": 1}]
    return {
        "engine": engine,
        "schema": engine.schema,
        "matches": engine.match_batch(events),
        "explanation": engine.explain(events[0], HOSTILE),
    }


@pytest.mark.parametrize("name", ["engine", "schema", "matches", "explanation"])
def test_notebooks_show_tables_in_which_everything_is_escaped(name: str) -> None:
    """Names, ids, filters and values are text, whatever is in them."""
    thing = _hostile_things()[name]
    page = _Texts(thing._repr_html_())
    assert page.tags <= PLAIN_TAGS
    assert "alert" in "".join(page.texts) or name == "explanation"
    assert "\n" not in repr(thing)


def test_representations_say_what_it_is() -> None:
    """One line each, with the numbers that matter."""
    engine = Engine({"a": "integer"})
    assert repr(engine) == "Engine(0 subscriptions, version 0, adaptive, Schema(a: integer))"
    engine.subscribe_many({n: f"a > {n}" for n in range(30)})
    assert repr(engine) == "Engine(30 subscriptions, version 1, adaptive, Schema(a: integer))"
    assert "... 20 more" in engine._repr_html_()
    matches = engine.match_batch([{"a": 3}, {"a": "x"}, {}], on_error="skip")
    assert repr(matches) == "Matches(2 events, 1 skipped, 3 matches, version 1)"
    explanation = engine.explain({"a": 3}, 5)
    assert repr(explanation) == "Explanation(does not match: 0 of 1 clauses hold)"
    assert "is 3" in explanation._repr_html_()
    assert "a: integer" in repr(engine.schema)


def test_notebook_of_many_matches_lists_no_ids() -> None:
    """Of very many matches only the numbers are shown."""
    engine = Engine({"a": "integer"})
    engine.subscribe_many(dict.fromkeys(range(2000), "a > 0"))
    page = engine.match_batch([{"a": 3}] * 20)._repr_html_()
    assert "1999" not in page
    assert "2000" in page
    assert "... 10 more" in page


def test_what_can_be_pickled_and_what_says_why_not(tmp_path) -> None:
    """Schemas, errors, explanations and registrations travel between processes; engines and matches name the way."""
    engine = Engine({"a": "integer", "t": "timestamp", "b": {"type": "integer", "min": 0}})
    outcome = engine.subscribe_many([(1, "a > b"), (2, "a >"), (None, "a > 1")])
    matches = engine.match_batch([{"a": "x"}, {"a": 2, "b": 1}], on_error="skip")
    explanation = engine.explain({"a": 1, "b": 2}, 1)
    schema = Schema.of({"a": "integer"}, time_zone="Europe/Berlin")
    assert pickle.loads(pickle.dumps(engine.schema)) == engine.schema
    assert pickle.loads(pickle.dumps(schema)).find("A") == 0
    back: Explanation = pickle.loads(pickle.dumps(explanation))
    assert str(back) == str(explanation)
    assert str(back).endswith("FAIL a > b")
    for error in [*(q.error for q in outcome.quarantined), *matches.errors]:
        copied = pickle.loads(pickle.dumps(error))
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)
        assert isinstance(error, (FilterError, EventError, SubscriptionError))
    assert str(pickle.loads(pickle.dumps(UnknownIdError("no subscription 1")))) == "no subscription 1"
    for thing, way in ((engine, r"Engine\.save"), (matches, r"to_arrow\(\)")):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=way):
                attempt(thing)


def test_every_error_of_a_public_call_is_public() -> None:
    """All classes of `wherecast.errors` can be imported from `wherecast`."""
    import wherecast
    from wherecast import errors

    classes = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.WherecastError)}
    assert classes <= set(wherecast.__all__)
