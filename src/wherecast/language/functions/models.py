"""Functions for the other models of subscription, which Spark SQL does not have: topics, words and similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from wherecast.language.events.frequencies import NO_FREQUENCIES
from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import And, Attr, Call, Node, Or, Param, Span
from wherecast.language.functions.row import (
    TEXT,
    Describe,
    Evaluate,
    Function,
    Takes,
    all_valid,
    fault,
    function,
    literal,
    row_by_row,
)
from wherecast.language.nullable import Nullable, as_vectors
from wherecast.language.syntax.topics import check_topic_pattern, matches_topic
from wherecast.language.syntax.words import check_keyword, check_phrase, has_keyword, has_phrase, text_similarity


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


_VECTOR = Takes("a vector, such as ARRAY(0.1, 0.2), or a text", (Type.VECTOR, Type.STRING), literal=True)
_COMPARED = Takes("a vector or a string", (Type.ARRAY, Type.STRING))


def _text_similarities(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    text = call.args[0]
    language, frequencies = (text.language, text.frequencies) if isinstance(text, Attr) else ("", None)
    compute = partial(text_similarity, language=language, frequencies=frequencies or NO_FREQUENCIES)
    return row_by_row(compute)(call, args, zone)


def _similar(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    """The size of the attribute is part of the literal, so that it is read as such a vector."""
    vector, literal_ = args
    if vector.type is Type.STRING and literal_.type is Type.STRING:
        return Call(name="similar_text", args=args, type=Type.DOUBLE, span=span)
    if literal_.type is Type.STRING:
        raise fault(
            f"SIMILAR with a text needs a string, found {describe(vector)}; write a vector as ARRAY(0.1, 0.2)",
            vector.span,
        )
    if not isinstance(vector, Attr) or not vector.size or not isinstance(literal_, Param):
        message = f"SIMILAR needs an attribute that is a vector, as vector(384) in the schema, or a string and a text, found {describe(vector)}"
        raise fault(message, vector.span)
    literal_ = replace(literal_, digits=(vector.size, 0))
    return Call(name="similar", args=(vector, literal_), type=Type.DOUBLE, span=span)


def _similarities(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - it loads Numba
    from wherecast.kernels.similar import cosines_into  # noqa: PLC0415 - as above

    vectors, literals = (as_vectors(arg) for arg in args)
    out = np.empty(len(vectors), np.float64)
    places = np.arange(len(vectors))
    cosines_into(frozen(vectors), frozen(literals), places, places, out)
    return Nullable(np.nan_to_num(out), all_valid(args) & ~np.isnan(out))


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
    function(
        "similar",
        "v, vector",
        _COMPARED,
        _VECTOR,
        build=_similar,
        evaluate=_similarities,
        says="the cosine of the angle between `v`, an attribute of type `vector(n)`, and a vector of as many numbers: from -1 to 1",
        example="similar(embedding, array(0.1, -0.2, 0.3)) >= 0.8",
    ),
    function(
        "similar_text",
        "s, words",
        TEXT,
        literal(TEXT),
        result=Type.DOUBLE,
        evaluate=_text_similarities,
        check=check_phrase,
        says="`similar(s, words)` of a text: the cosine between the words of two texts, rare ones counting more: from 0 to 1",
        example="similar_text(symbol, 'chip export control') >= 0.5",
    ),
)
