"""Attributes: the names, types and domains of which a schema is made.

Everything that can be wrong with one attribute alone is found when the `Attribute` is made.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from wherecast.errors import SchemaError
from wherecast.language.events.frequencies import WordFrequencies
from wherecast.language.events.kinds import ROWS, Form, Row, width_of_digits
from wherecast.language.events.types import FLOATS, FULL_WIDTH, MAX_PRECISION, Digits, Kind, Type
from wherecast.language.events.values import (
    Scalar,
    UnfitValueError,
    expected,
    is_finite,
    is_missing,
    iso_text,
    refuse_misplaced,
    unwrap_numpy,
)
from wherecast.language.events.zone import UTC, Zone

MAX_ATTRIBUTES = 32_767  # positions are stored as 16-bit integers
_MAX_DEPTH = 32  # of nested structs
#: Numbers of a vector at most; the text of a filter has no room for more than a few times as many.
MAX_VECTOR = 16_384
_RESERVED_PREFIX = "__wherecast"


@dataclass(frozen=True, slots=True)
class Domain:
    """The values an attribute can take: an enumeration, or a range with an optional step between values.

    `Attribute` checks a domain against its kind and puts the values into canonical form (ISO texts become dates). Here, a
    timestamp without a time zone is UTC; the written form of a schema reads it in the zone of the schema.
    """

    values: tuple[Scalar, ...] | None = None
    minimum: Scalar | None = None
    maximum: Scalar | None = None
    precision: int | float | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """A named, typed value of an event. Domain and width of an array attribute are those of its elements.

    A map is an array of its keys, each of which has a value: kind and width are those of the keys, `value` is what the values
    are. So an index has a column of the keys that an event has, and whatever holds for arrays holds for maps.

    A vector is an array of floats of 32 bits that has `size` elements, each of which is finite.
    """

    name: str
    kind: Kind
    is_array: bool = False
    domain: Domain | None = None
    bits: int = FULL_WIDTH  # of a number: 8, 16, 32 or 64 for an integer, 32 or 64 for a float
    digits: Digits = (0, 0)  # precision and scale of a decimal, which its width follows from
    coerce: bool = False  # take a text for the number or boolean that it says, or a number or boolean for its text
    value: Attribute | None = None  # of a map: stands for its values
    language: str = ""  # of a text: words are compared by stems, as Snowball's algorithm of this name gives them
    size: int = 0  # of a vector: how many numbers it has
    frequencies: WordFrequencies | None = None  # of a text: how rare its words are
    #: the column and the fields in it that the name says, without backticks; and the name of a column for all of them
    path: tuple[str, ...] = field(init=False, repr=False, compare=False)
    column: str = field(init=False, repr=False, compare=False)
    #: what is known about the kind, and about it in this width
    row: Row = field(init=False, repr=False, compare=False)
    form: Form = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "path", split_name(self.name))
        object.__setattr__(self, "column", ".".join(self.path))
        kind: object = self.kind
        if not isinstance(kind, Kind):
            raise SchemaError(f"attribute {self.name!r}: {kind!r} is not a kind; use for example Kind.INTEGER")
        row = ROWS[self.kind]
        if row.has_digits or self.digits != (0, 0):
            object.__setattr__(self, "bits", _check_digits(self.name, row, self.digits))
        if self.bits not in row.forms:
            known = " or ".join(map(str, row.forms))
            raise SchemaError(f"attribute {self.name!r}: type {kind} cannot have {self.bits!r} bits; use {known}")
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "form", row.forms[self.bits])
        if self.value is not None:
            _check_map(self, self.value)
        if self.coerce and row.coerce is None:
            raise SchemaError(f"attribute {self.name!r}: coerce is for numbers, booleans and strings; leave it out")
        if self.language:
            _check_language(self)
        if self.size:
            _check_vector(self)
        if self.frequencies is not None and (self.type is not Type.STRING or self.is_array):
            raise SchemaError(f"attribute {self.name!r}: frequencies are for a string; leave them out")
        if self.domain is not None:
            object.__setattr__(self, "domain", _check_domain(self, self.domain))

    @property
    def type_name(self) -> str:
        """The type as the written form has it: `integer`, `tinyint`, `array<string>`."""
        if self.value is not None:
            return f"map<{self.element_name},{self.value.type_name}>"
        if self.size:
            return f"vector({self.size})"
        return f"array<{self.element_name}>" if self.is_array else self.element_name

    @property
    def element_name(self) -> str:
        """The type of a value or, of an array, of an element; of a map, of a key."""
        return f"{self.kind}({self.digits[0]},{self.digits[1]})" if self.row.has_digits else self.form.names[0]

    @property
    def type(self) -> Type:
        """The type of a value, or of an element, in expressions."""
        return self.form.type

    @property
    def is_text(self) -> bool:
        """Whether values are ordered as texts, not by keys."""
        return self.form.is_text

    def fit(self, value: object, zone: Zone = UTC) -> Scalar | None:
        """The canonical value for `value`, or None for NULL; `UnfitValueError` if it does not fit.

        `zone` is that of a timestamp without one. Of an array, `value` is an element.
        """
        if type(value) not in _PLAIN:
            if type(value).__module__ == "numpy":
                value = unwrap_numpy(value)
            if is_missing(value):
                return None
            refuse_misplaced(value)
        if self.coerce and self.row.coerce is not None:
            value = self.row.coerce(value)
        fitted: Scalar = self.row.fit(value, self, zone)
        return fitted

    def stored(self, value: Scalar | None) -> Scalar | None:
        """What stands for a canonical value in an index: most values themselves, else a number or an ordered text."""
        return value if self.row.store is None or value is None else self.row.store(value, self)

    def fit_array(self, value: object, zone: Zone = UTC) -> list[Scalar | None] | None:
        """The canonical elements of an array value, or None for NULL."""
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1:
            value = value.tolist() if self.size else list(value)  # type: ignore[attr-defined, call-overload]
        if is_missing(value):
            return None
        refuse_misplaced(value)
        if not isinstance(value, list | tuple):
            raise expected(self.type_name, value)
        elements = []
        for position, element in enumerate(value):
            try:
                elements.append(self.fit(element, zone))
            except UnfitValueError as misfit:
                raise UnfitValueError(f"element {position}: {misfit}") from None
        if self.size:
            check_components(elements, self.size)
        return elements

    def fit_map(self, value: object, zone: Zone = UTC) -> list[tuple[Scalar, Scalar | None]] | None:
        """The canonical keys and values of a map, or None for NULL. Arrow and pandas have it as pairs."""
        assert self.value is not None, "only a map has values"
        if is_missing(value):
            return None
        refuse_misplaced(value)
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
            raise expected(self.type_name, value)
        fitted: dict[Scalar, Scalar | None] = {}
        for key, item in pairs:
            try:
                own = self.fit(key, zone)
                if own is None or own in fitted:
                    raise UnfitValueError("it is NULL" if own is None else "it is there twice")
            except UnfitValueError as misfit:
                raise UnfitValueError(f"key {key!r:.60}: {misfit}") from None
            try:
                fitted[own] = self.value.fit(item, zone)
            except UnfitValueError as misfit:
                raise UnfitValueError(f"value of key {key!r:.60}: {misfit}") from None
        return list(fitted.items())


def check_components(elements: list[Any], size: int) -> None:
    """Refuse with UnfitValueError what is not a vector of so many numbers."""
    if len(elements) != size:
        raise UnfitValueError(f"expected a vector of {size} numbers, got {len(elements)}")
    for position, element in enumerate(elements):
        if element is None or not is_finite(element):
            shown = "NULL" if element is None else element
            raise UnfitValueError(f"element {position}: expected a finite number, got {shown}")


def _check_vector(attribute: Attribute) -> None:
    is_floats = attribute.type is Type.FLOAT and attribute.is_array and attribute.value is None
    if not is_floats or attribute.domain is not None or attribute.coerce:
        raise SchemaError(
            f"attribute {attribute.name!r}: a vector is an array of FLOATs without a domain; leave the size out"
        )
    if not 0 < attribute.size <= MAX_VECTOR:
        raise SchemaError(
            f"attribute {attribute.name!r}: a vector of {attribute.size} numbers; use 1 to {MAX_VECTOR:,}, as in vector(384)"
        )


def _check_language(attribute: Attribute) -> None:
    """Refuse a language that is not that of a text, or that no stemmer knows."""
    if attribute.type is not Type.STRING or attribute.is_array:
        raise SchemaError(f"attribute {attribute.name!r}: a language is for a string; leave it out")
    try:
        import snowballstemmer  # noqa: PLC0415 - optional, and needed only where a schema names a language
    except ImportError:
        raise SchemaError(
            f"attribute {attribute.name!r}: stems of words need the package snowballstemmer; run pip install 'wherecast[stems]'"
        ) from None
    known = snowballstemmer.algorithms()
    if attribute.language not in known:
        raise SchemaError(
            f"attribute {attribute.name!r}: no stemmer for {attribute.language!r:.40}; use one of {', '.join(known)}"
        )


#: Types of values that are neither NULL nor wrapped, which most are.
_PLAIN = frozenset((bool, int, float, str))


_PART = re.compile(r"`(?P<flat>[^`]*\.[^`]*)`(?=\.|$)|(?P<plain>[^.]*)")


def split_name(name: str) -> tuple[str, ...]:
    """The column and the fields in it that a name says. A part in backticks may have dots: `` `host.name` `` is one column."""
    if "`" not in name:
        return tuple(name.split("."))
    parts, at = [], 0
    while at <= len(name):
        match = _PART.match(name, at)
        assert match is not None  # an empty part matches, too
        parts.append(match["plain"] if match["flat"] is None else match["flat"])
        at = match.end() + 1
    return tuple(parts)


def join_name(parts: Iterable[str]) -> str:
    """The name of a column, or of a field in it; a part with dots stands in backticks."""
    return ".".join(f"`{part}`" if "." in part and "`" not in part else part for part in parts)


def flat_name(column: str, columns: Iterable[str]) -> str:
    """The name for a column of a table. One that looks like a field of another column stands in backticks."""
    parts = column.lower().split(".")
    others = {other.lower() for other in columns}
    is_clash = any(".".join(parts[:depth]) in others for depth in range(1, len(parts)))
    return join_name([column]) if is_clash else column


def _check_map(of: Attribute, value: Attribute) -> None:
    """Refuse what a map cannot have."""
    if not of.is_array or value.is_array:
        raise SchemaError(f"attribute {of.name!r}: a map has plain keys and plain values; leave it out or flatten it")
    if of.type in (*FLOATS, Type.DECIMAL):
        raise SchemaError(f"attribute {of.name!r}: the keys of a map cannot be of type {of.element_name}; use strings")
    if of.domain is not None or of.coerce:
        raise SchemaError(f"attribute {of.name!r}: a map has neither a domain nor coerce; leave them out")


def _check_digits(name: str, row: Row, digits: Digits) -> int:
    """The width of a type with a precision and a scale."""
    if not row.has_digits:
        raise SchemaError(f"attribute {name!r}: type {row.kind} has no precision and scale; leave them out")
    precision, scale = digits
    if not (0 < precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise SchemaError(
            f"attribute {name!r}: type {row.kind}({precision},{scale}) does not exist; use a precision of 1 to "
            f"{MAX_PRECISION} digits, of which 0 to all are after the point"
        )
    return width_of_digits(precision)


def check_name(name: object) -> str:
    """The name, if it may be one; `SchemaError` otherwise."""
    if not isinstance(name, str):
        raise SchemaError(f"attribute {name!r}: a name must be text; put it in quotes")
    if not all(part for whole in split_name(name) for part in whole.split(".")):
        raise SchemaError(f"attribute {name!r}: a name, and each part of a dotted name, must not be empty; name it")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise SchemaError(
            f"attribute {name!r}: control characters and lone surrogates cannot be in a name; remove them"
        )
    if name.lower().startswith(_RESERVED_PREFIX):
        raise SchemaError(
            f"attribute {name!r}: names that begin with {_RESERVED_PREFIX} are reserved; choose another name"
        )
    return name


def _check_domain(attribute: Attribute, domain: Domain) -> Domain:
    place, kind, row = f"attribute {attribute.name!r}", attribute.kind, attribute.row
    bounds = (domain.minimum, domain.maximum, domain.precision)
    if not row.has_domain:
        raise SchemaError(f"{place}: a domain does not fit type {kind}; leave it out")
    if domain.values is not None:
        if bounds != (None, None, None):
            raise SchemaError(f"{place}: a domain is either values or min, max and precision; give one of them")
        values = tuple(_check_value(place, "values", attribute, value) for value in domain.values)
        if not values:
            raise SchemaError(f"{place}: values is empty; list the values or leave the domain out")
        if len(set(values)) != len(values):
            twice = next(v for i, v in enumerate(values) if v in values[:i])
            raise SchemaError(f"{place}: {twice!r} is there twice in values; remove one")
        return Domain(values=values)
    if bounds == (None, None, None):
        raise SchemaError(f"{place}: the domain says nothing; give values or min and max, or leave it out")
    if not row.has_range:
        raise SchemaError(f"{place}: min, max and precision do not fit type {kind}; list its values instead")
    low, high, step = domain.minimum, domain.maximum, domain.precision
    low = None if low is None else _check_value(place, "min", attribute, low)
    high = None if high is None else _check_value(place, "max", attribute, high)
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        raise SchemaError(f"{place}: min {iso_text(low)} is greater than max {iso_text(high)}; exchange them")
    if step is not None:
        if not row.has_step:
            raise SchemaError(f"{place}: precision is for integers and floats, not for type {kind}; leave it out")
        checked = _check_value(place, "precision", Attribute(attribute.name, kind), step)
        if not isinstance(checked, int | float) or checked <= 0:
            raise SchemaError(f"{place}: precision must be greater than 0, got {checked}; give the step between values")
        step = checked
    return Domain(minimum=low, maximum=high, precision=step)


def _check_value(place: str, key: str, attribute: Attribute, value: object) -> Scalar:
    try:
        checked = attribute.fit(value)
    except UnfitValueError as misfit:
        raise SchemaError(f"{place}: {key}: {misfit}; correct the value or the type") from None
    if checked is None or not is_finite(checked):
        shown = "NULL" if checked is None else checked
        raise SchemaError(f"{place}: {key}: {shown} cannot bound or be part of a domain; leave it out")
    return checked


#: Attributes by the parts of their names: a struct is a tree of its own.
Fields = dict[str, Union[Attribute, "Fields"]]


def nest(attributes: Iterable[Attribute]) -> Fields:
    """Rebuild the structs; each stands at the place of its first field."""
    tree: Fields = {}
    for attribute in attributes:
        *parents, leaf = attribute.path
        node: Any = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[leaf] = attribute
    return tree


def check_size(name: str, read: list[Attribute], depth: int) -> None:
    """Refuse one attribute too many, before a hostile schema has grown large, and structs nested too deep."""
    if len(read) >= MAX_ATTRIBUTES:
        raise SchemaError(f"attribute {name!r} is one too many: at most {MAX_ATTRIBUTES:,} attributes; leave some out")
    if depth > _MAX_DEPTH:
        raise SchemaError(f"attribute {name!r}: structs are nested more than {_MAX_DEPTH} deep; flatten them")
