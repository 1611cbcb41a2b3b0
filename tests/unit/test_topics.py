"""Topics: `topic MATCHES 'a/+/b/#'`."""

from __future__ import annotations

import pytest

from wherecast import Engine, Schema
from wherecast.errors import FilterError
from wherecast.index.topics import TopicCodes
from wherecast.language.filters.columns import Column, Reading

#: A name, a pattern, whether it matches: MQTT 5.0, section 4.7, and the edges of it.
CASES = [
    ("sport/tennis/player1", "sport/tennis/player1/#", True),
    ("sport/tennis/player1/ranking", "sport/tennis/player1/#", True),
    ("sport/tennis/player1/score/wimbledon", "sport/tennis/player1/#", True),
    ("sport", "sport/#", True),
    ("sport/", "sport/#", True),
    ("sports", "sport/#", False),
    ("sport/tennis/player1", "sport/tennis/+", True),
    ("sport/tennis/player1/ranking", "sport/tennis/+", False),
    ("sport", "sport/+", False),
    ("sport/", "sport/+", True),
    ("/finance", "+/+", True),
    ("/finance", "/+", True),
    ("/finance", "+", False),
    ("a//b", "a/+/b", True),
    ("a//b", "a//b", True),
    ("a/b", "a//b", False),
    ("A/b", "a/b", False),
    ("", "+", True),
    ("", "#", True),
    ("", "/", False),
    ("/", "/", True),
    ("$SYS", "#", False),
    ("$SYS/monitor", "+/monitor", False),
    ("$SYS/monitor", "$SYS/#", True),
    ("$SYS/monitor", "$SYS/+", True),
    ("a/$SYS", "a/+", True),
    ("a/$SYS", "#", True),
    ("a/+", "a/+", True),
    ("a/+", "a/b", False),
    ("straße/ü", "straße/+", True),
    ("a b/c'd", "a b/c''d", True),
    ("=x", "=x", True),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "pattern", "matches"), CASES)
def test_patterns(name: str, pattern: str, matches: bool) -> None:
    """The index, the evaluator behind NOT and a single event say the same."""
    engine = Engine({"topic": "string"})
    engine.subscribe_many({"yes": f"topic MATCHES '{pattern}'", "no": f"topic NOT MATCHES '{pattern}'"})
    expected = ["yes" if matches else "no"]
    assert engine.match_batch([{"topic": name}]).to_lists() == [expected]
    assert engine.match({"topic": name}) == expected
    assert engine.match({"topic": None}) == []


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("topic MATCHES 'a/#/b'", 15, "nothing can follow it"),
        ("topic MATCHES 'a+/b'", 15, "a whole level"),
        ("topic MATCHES 'a/b#'", 15, "a whole level"),
        ("topic MATCHES '##'", 15, "a whole level"),
        ("topic MATCHES ''", 15, "the pattern is empty"),
        ("price < 3 AND topic MATCHES '\0'", 29, "no character"),
        ("topic MATCHES price", 15, "a string literal"),
        ("topic MATCHES topic", 15, "a string literal"),
        ("price MATCHES 'a'", 1, "needs a string"),
        ("topic_matches(topic, topic)", 22, "literal"),
        ("MATCHES 'a'", 1, "stands between"),
        (f"topic MATCHES '{'a/' * 501}'", 15, "at most 1000"),
    ],
)
def test_errors(text: str, column: int, words: str) -> None:
    """What is not a pattern is refused, and the error points at it."""
    with pytest.raises(FilterError, match=words) as caught:
        Engine({"topic": "string", "price": "int"}).subscribe(1, text)
    assert f"at 1:{column}" in str(caught.value)


def test_an_attribute_may_be_called_matches() -> None:
    """MATCHES is a word of the language only between a value and a pattern."""
    engine = Engine({"matches": "string"})
    engine.subscribe(1, "matches = 'a' AND NOT matches MATCHES 'b'")
    assert engine.match({"matches": "a"}) == [1]


def test_equal_filters_and_their_text() -> None:
    """A filter is written as it was; `topic_matches` is the same as MATCHES."""
    engine = Engine({"topic": "string", "price": "int"})
    engine.subscribe_many({1: "topic MATCHES 'a/#' AND price <= 3", 2: "price <= 3 AND topic_matches(topic, 'a/#')"})
    assert engine[1] == engine[2] == "price <= 3 AND topic MATCHES 'a/#'"
    assert "FAIL topic MATCHES 'a/#'" in str(engine.explain({"topic": "b", "price": 1}, 1))


def test_alternatives_are_one_constraint() -> None:
    """OR over patterns of one topic is a set; which of them holds is explained."""
    engine = Engine({"topic": "string"})
    engine.subscribe(1, "topic MATCHES 'a/+' OR topic MATCHES 'b/#' OR topic MATCHES 'c'")
    explained = engine.explain({"topic": "b/x"}, 1)
    assert len(explained.clauses) == 1
    assert [part.holds for part in explained.clauses[0].predicates[0].parts] == [False, True, False]


def test_long_names_end_the_walk_early() -> None:
    """A name of a million levels is read as far as some pattern may still hold."""
    codes = TopicCodes.of(["a/b/c", "+/+/+/+", "a/#"])
    assert codes.encode_text("a/" * 1_000_000) == [1, 4]
    deep = Engine({"topic": "string"})
    deep.subscribe_many({1: "topic MATCHES '" + "+/" * 400 + "#'", 2: "topic MATCHES '+/#'"})
    assert sorted(deep.match({"topic": "/".join("x" * 10_000)})) == [1, 2]


def test_many_levels_with_many_wildcards() -> None:
    """Active nodes are bounded by the trie: 2,048 patterns of + and a over a topic of 11 levels."""
    patterns = ["/".join("+" if bits >> i & 1 else "a" for i in range(11)) for bits in range(2_048)]
    codes = TopicCodes.of(patterns)
    assert codes.encode_text("/".join("a" * 11)) == [1, *range(2, 2_050)]
    assert len(codes.encode_text("/".join("ab" * 5 + "a"))) == 1 + 2**6


@pytest.mark.slow
def test_a_schema_without_room() -> None:
    """Where topics of all texts do not fit in an index, MATCHES is refused; the schema stays usable."""
    schema = Schema.of({f"a{i}": "string" for i in range(9_000)})
    assert not schema.has_column(Column(0, Reading.TOPICS))
    engine = Engine(schema)
    engine.subscribe(1, "a1 LIKE '%x%'")
    with pytest.raises(FilterError, match="too many texts"):
        engine.subscribe(2, "a1 MATCHES 'x'")
