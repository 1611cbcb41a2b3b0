"""Functions for the other models of subscription, which Spark SQL does not have: topics and words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import And, Attr, Call, Node, Or, Span
from wherecast.language.functions.row import TEXT, Describe, Evaluate, Function, function, literal, row_by_row
from wherecast.language.nullable import Nullable
from wherecast.language.syntax.topics import check_topic_pattern, matches_topic
from wherecast.language.syntax.words import check_keyword, check_phrase, has_keyword, has_phrase


def _by_words(holds: Callable[[str, str, str], bool]) -> Evaluate:
    """A test of the words of a text: of their stems, where the text is an attribute with a language."""

    def evaluate(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
        text = call.args[0]
        language = text.language if isinstance(text, Attr) else ""
        return row_by_row(lambda value, sought: holds(value, sought, language))(call, args, zone)

    return evaluate


def _each(join: type[And | Or]) -> Callable[[tuple[Node, ...], Span, Describe], Node]:
    """One call for each word, joined."""

    def build(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
        calls = tuple(Call(name="keywords", args=(args[0], word), type=Type.BOOLEAN, span=span) for word in args[1:])
        return calls[0] if len(calls) == 1 else join(items=calls, span=span)

    return build


MODEL_FUNCTIONS: tuple[Function, ...] = (
    function(
        "topic_matches",
        "s, pattern",
        TEXT,
        literal(TEXT),
        evaluate=row_by_row(matches_topic),
        check=check_topic_pattern,
        says="`s MATCHES pattern`: a name of levels, and MQTT's wildcards `+` and `#`",
        example="topic_matches(symbol, 'stocks/+/IBM/#')",
    ),
    function(
        "keywords",
        "s, word, ...",
        TEXT,
        literal(TEXT),
        build=_each(And),
        evaluate=_by_words(has_keyword),
        check=check_keyword,
        says="whether `s` has all of these words",
        example="keywords(symbol, 'chip', 'export')",
    ),
    function(
        "any_keyword",
        "s, word, ...",
        TEXT,
        literal(TEXT),
        build=_each(Or),
        says="whether `s` has one of these words",
        example="any_keyword(symbol, 'chip', 'export')",
    ),
    function(
        "phrase",
        "s, words",
        TEXT,
        literal(TEXT),
        evaluate=_by_words(has_phrase),
        check=check_phrase,
        says="whether `s` has these words, one after the other",
        example="phrase(symbol, 'export control')",
    ),
)
