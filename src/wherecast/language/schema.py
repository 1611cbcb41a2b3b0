"""Schemas: the attributes of one information space, their types and, where known, their domains.

A schema is a flat, ordered tuple of attributes; position is identity for everything downstream. A nested struct is
addressed as `a.b`, so it is flattened into attributes of that dotted name on the way in and rebuilt on the way out.

A schema can be written as a mapping, in JSON or in YAML,

    symbol: string
    price:  {type: double, min: 0, max: 1000, precision: 0.01}
    lots:   smallint
    side:   {type: string, values: [buy, sell]}
    tags:   array<string>
    quote:  {type: struct, fields: {bid: double, ask: double}}

or taken from an Arrow schema, a table of Arrow, pandas or Polars, or a Spark StructType or DataFrame. Domains survive the
written forms; tables hold types only. A table may have columns that no filter can use: of a map, a decimal, a type of
another library. They are not attributes, but the schema remembers why, for the filter that names one.

A schema has a time zone: that of literals and events that name none. It is UTC unless another is given, and stands in the
written form under `__wherecast_time_zone`, which can be the name of no attribute, as `__wherecast_unusable` cannot.

This module imports neither Arrow nor Spark until they are asked for: a command that only checks a filter starts fast.

Everything that can be wrong with one attribute alone is found when the `Attribute` is made. The readers of the written
forms yield attributes, nested fields under their dotted names, and refuse a type that has no kind with a message that says
what to use instead. Arrow's form is in `arrow`, the only one that needs its library.
"""

from __future__ import annotations

import importlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from wherecast.errors import SchemaError
from wherecast.language.columns import Column, Reading, columns_of
from wherecast.language.html import html_table
from wherecast.language.types import FULL_WIDTH, WIDTHS, Kind, type_name
from wherecast.language.values import Scalar, UnfitValueError, coerce, is_finite, iso_text
from wherecast.language.zone import UTC, Zone, find_zone

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from wherecast.language.tables import ArrowStream, ArrowTypes

    #: What a schema is read from.
    SchemaSource: TypeAlias = (
        "Schema"
        | Mapping[str, object]
        | str
        | PathLike[str]
        | pa.Schema
        | pa.Table
        | pa.RecordBatch
        | ArrowStream
        | ArrowTypes
        | StructType
        | DataFrame
    )

_RESERVED_PREFIX = "__wherecast"
_ORDERED = (Kind.INTEGER, Kind.FLOAT, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


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
    """A named, typed value of an event. Domain and width of an array attribute are those of its elements."""

    name: str
    kind: Kind
    is_array: bool = False
    domain: Domain | None = None
    bits: int = FULL_WIDTH  # of a number: 8, 16, 32 or 64 for an integer, 32 or 64 for a float

    def __post_init__(self) -> None:
        check_name(self.name)
        kind: object = self.kind
        if not isinstance(kind, Kind):
            raise SchemaError(f"attribute {self.name!r}: {kind!r} is not a kind; use for example Kind.INTEGER")
        widths = WIDTHS.get(self.kind, (FULL_WIDTH,))
        if self.bits not in widths:
            known = " or ".join(map(str, widths))
            raise SchemaError(f"attribute {self.name!r}: type {kind} cannot have {self.bits!r} bits; use {known}")
        if self.domain is not None:
            object.__setattr__(self, "domain", _check_domain(self.name, self.kind, self.bits, self.domain))

    @property
    def type_name(self) -> str:
        """The type as the written form has it: `integer`, `tinyint`, `array<string>`."""
        name = type_name(self.kind, self.bits)
        return f"array<{name}>" if self.is_array else name


def check_name(name: object) -> str:
    """The name, if it may be one; `SchemaError` otherwise."""
    if not isinstance(name, str):
        raise SchemaError(f"attribute {name!r}: a name must be text; put it in quotes")
    parts = name.split(".")
    if not all(parts):
        raise SchemaError(f"attribute {name!r}: a name, and each part of a dotted name, must not be empty; name it")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise SchemaError(
            f"attribute {name!r}: control characters and lone surrogates cannot be in a name; remove them"
        )
    if name.lower().startswith(_RESERVED_PREFIX):
        raise SchemaError(f"attribute {name!r}: names that begin with {_RESERVED_PREFIX} are ours; choose another name")
    return name


def _check_domain(name: str, kind: Kind, bits: int, domain: Domain) -> Domain:
    place = f"attribute {name!r}"
    bounds = (domain.minimum, domain.maximum, domain.precision)
    if domain.values is not None:
        if bounds != (None, None, None):
            raise SchemaError(f"{place}: a domain is either values or min, max and precision; give one of them")
        values = tuple(_check_value(place, "values", kind, value, bits) for value in domain.values)
        if not values:
            raise SchemaError(f"{place}: values is empty; list the values or leave the domain out")
        if len(set(values)) != len(values):
            twice = next(v for i, v in enumerate(values) if v in values[:i])
            raise SchemaError(f"{place}: {twice!r} is there twice in values; remove one")
        return Domain(values=values)
    if bounds == (None, None, None):
        raise SchemaError(f"{place}: the domain says nothing; give values or min and max, or leave it out")
    if kind not in _ORDERED:
        raise SchemaError(f"{place}: min, max and precision do not fit type {kind}; list its values instead")
    low, high, step = domain.minimum, domain.maximum, domain.precision
    low = None if low is None else _check_value(place, "min", kind, low, bits)
    high = None if high is None else _check_value(place, "max", kind, high, bits)
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        raise SchemaError(f"{place}: min {iso_text(low)} is greater than max {iso_text(high)}; exchange them")
    if step is not None:
        if kind not in (Kind.INTEGER, Kind.FLOAT):
            raise SchemaError(f"{place}: precision is for integers and floats, not for type {kind}; leave it out")
        checked = _check_value(place, "precision", kind, step)
        if not isinstance(checked, int | float) or checked <= 0:
            raise SchemaError(f"{place}: precision must be greater than 0, got {checked}; give the step between values")
        step = checked
    return Domain(minimum=low, maximum=high, precision=step)


def _check_value(place: str, key: str, kind: Kind, value: object, bits: int = FULL_WIDTH) -> Scalar:
    try:
        checked = coerce(kind, value, bits)
    except UnfitValueError as misfit:
        raise SchemaError(f"{place}: {key}: {misfit}; correct the value or the type") from None
    if checked is None or not is_finite(checked):
        shown = "NULL" if checked is None else checked
        raise SchemaError(f"{place}: {key}: {shown} cannot bound or be part of a domain; leave it out")
    return checked


__all__ = ["MAX_ATTRIBUTES", "Attribute", "Domain", "Kind", "Schema"]


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """The attributes of one information space, in order. Frozen and hashable.

    `time_zone` is the zone of timestamps without a zone, in filters and in events: a region such as Europe/Berlin or an
    offset such as +02:00. `unusable` has the columns that filters cannot use, and why; equality ignores them.
    """

    attributes: tuple[Attribute, ...]
    time_zone: str = UTC.name
    unusable: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    _by_name: dict[str, int] = field(init=False, repr=False, compare=False)
    _by_lower_name: dict[str, int] = field(init=False, repr=False, compare=False)
    #: what an index can take from an event; their numbers are what filters and boxes speak of
    columns: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    #: by column, whether its constants are strings
    are_texts: tuple[bool, ...] = field(init=False, repr=False, compare=False)
    _numbers: dict[Column, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "time_zone", find_zone(self.time_zone).name)
        for late in self.attributes[MAX_ATTRIBUTES:]:
            check_size(late.name, list(self.attributes), 0)
        _check_names_together(self.attributes)
        object.__setattr__(self, "_by_name", {a.name: i for i, a in enumerate(self.attributes)})
        object.__setattr__(self, "_by_lower_name", {a.name.lower(): i for i, a in enumerate(self.attributes)})
        object.__setattr__(self, "columns", columns_of(self.attributes))
        if len(self.columns) > MAX_ATTRIBUTES:
            raise SchemaError(
                f"{len(self.columns):,} columns, at most {MAX_ATTRIBUTES:,}, and a text attribute has three; leave some out"
            )
        is_text = [a.kind is Kind.STRING for a in self.attributes]
        object.__setattr__(self, "are_texts", tuple(is_text[column.attr] for column in self.columns))
        object.__setattr__(self, "_numbers", {column: i for i, column in enumerate(self.columns)})

    # Columns

    def number_of(self, column: Column) -> int:
        return self._numbers[column]

    def is_set(self, number: int) -> bool:
        """Whether an event has a set of codes in a column, not one."""
        column = self.columns[number]
        return column.reading is not Reading.VALUE or self.attributes[column.attr].is_array

    # Reading a schema

    @classmethod
    def of(cls, source: SchemaSource, *, time_zone: str | None = None) -> Schema:
        """A schema from a mapping, a file, a table or another schema.

        Args:
            source: The written form, a mapping of names to types, or to mappings with `type` and a domain or `fields`; the path
                of a JSON or YAML file; an Arrow schema; a table of Arrow, pandas, Polars or any library with Arrow's C
                interface; a Spark StructType or DataFrame; or a schema. A stream that can be read once is used up.
            time_zone: The zone of timestamps without a zone; it overrides that of the source.

        Raises:
            SchemaError: The source tells no schema, or one that contradicts itself.
        """
        if isinstance(source, Schema):
            return source if time_zone is None else source.in_time_zone(time_zone)
        if isinstance(source, str | PathLike):
            return cls.from_file(source, time_zone=time_zone)
        if isinstance(source, Mapping) and not hasattr(source, "__arrow_c_schema__"):
            return cls(*read_mapping(source, time_zone))
        struct: Any = getattr(source, "schema", source)
        if hasattr(struct, "jsonValue"):  # of Spark, which is not imported here
            return cls.from_spark(struct, time_zone=time_zone or UTC.name)
        from wherecast.language.tables import arrow_types  # noqa: PLC0415 - imports PyArrow

        types = arrow_types(source)
        if types is None:
            raise SchemaError(
                f"cannot read a schema from {type(source).__name__}; give a mapping such as {{'price': 'double'}}, the path of a "
                "JSON or YAML file, an Arrow schema, a table, or a Spark StructType or DataFrame"
            )
        return cls.from_arrow(types, time_zone=time_zone or UTC.name)

    @classmethod
    def from_json(cls, text: str, *, time_zone: str | None = None) -> Schema:
        """A schema from a JSON object in the form `of` takes."""
        return cls(*read_json(text, time_zone))

    @classmethod
    def from_yaml(cls, text: str, *, time_zone: str | None = None) -> Schema:
        """A schema from a YAML mapping in the form `of` takes."""
        return cls(*read_yaml(text, time_zone))

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, time_zone: str | None = None) -> Schema:
        """A schema from a file, JSON or YAML by its suffix."""
        path = Path(path)
        readers = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml}
        reader = readers.get(path.suffix.lower())
        if reader is None:
            raise SchemaError(f"schema file '{path}': unknown suffix {path.suffix!r}; name it .json, .yaml or .yml")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SchemaError(f"schema file '{path}' cannot be read: {reason}; check the path and the file") from None
        try:
            return cls(*reader(text, time_zone))
        except SchemaError as error:
            raise SchemaError(f"schema file '{path}': {error}") from None

    @classmethod
    def from_arrow(cls, schema: pa.Schema, *, time_zone: str = UTC.name) -> Schema:
        """A schema from an Arrow schema; struct fields are flattened, and columns that cannot be used are `unusable`."""
        from wherecast.language.arrow import read_arrow  # noqa: PLC0415 - imports PyArrow

        attributes, unusable = read_arrow(schema)
        return cls(tuple(attributes), time_zone, unusable)

    @classmethod
    def from_spark(cls, schema: StructType, *, time_zone: str = UTC.name) -> Schema:
        """A schema from a Spark StructType, as `from_arrow`. Works on its JSON form: no Spark needed."""
        attributes, unusable = read_spark(schema.jsonValue())
        return cls(tuple(attributes), time_zone, unusable)

    # Writing a schema

    def to_dict(self) -> dict[str, object]:
        """The written form, with dotted names for nested fields: `Schema.of` gives the same schema back."""
        fields: dict[str, object] = {} if self.time_zone == UTC.name else {TIME_ZONE: self.time_zone}
        if self.unusable:
            fields[UNUSABLE] = dict(self.unusable)
        return fields | {a.name: write_attribute(a) for a in self.attributes}

    def to_json(self) -> str:
        """The written form as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_yaml(self) -> str:
        """The written form as YAML text."""
        import yaml  # noqa: PLC0415 - takes 20 ms

        fields = self.to_dict()
        # PyYAML writes some line separators in a way that it reads back as spaces, unless it escapes all but ASCII.
        readable = json.dumps(fields, ensure_ascii=False).isprintable()
        return str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=readable))

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema; dotted names become structs, at the place of their first field."""
        from wherecast.language.arrow import write_arrow  # noqa: PLC0415 - imports PyArrow

        return write_arrow(self.attributes)

    def to_spark(self) -> StructType:
        """The Spark StructType; dotted names become structs, at the place of their first field."""
        try:
            # By name: PySpark is an extra, and no module outside `wherecast.spark` depends on it.
            types = importlib.import_module("pyspark.sql.types")
        except ImportError:
            raise SchemaError("a Spark schema needs PySpark; install it with: pip install 'wherecast[spark]'") from None
        struct: StructType = types.StructType.fromJson(write_spark(self.attributes))
        return struct

    # The time zone

    @property
    def zone(self) -> Zone:
        """The zone of timestamps without a zone."""
        return find_zone(self.time_zone)

    def in_time_zone(self, name: str) -> Schema:
        """The same attributes and domains with another zone."""
        return Schema(self.attributes, name, self.unusable)

    # Looking attributes up

    def find(self, name: str) -> int | None:
        """The position of an attribute: exact match first, else regardless of case as in Spark SQL; else None."""
        index = self._by_name.get(name)
        return self._by_lower_name.get(name.lower()) if index is None else index

    def why_unusable(self, name: str) -> str | None:
        """Why no filter can name a column, or a field of it, if the schema was read from a table that has it."""
        wanted = name.lower()
        for column, why in self.unusable.items():
            if wanted == column.lower() or wanted.startswith(f"{column.lower()}."):
                return why
        return None

    def index(self, name: str) -> int:
        """The position of an attribute; `SchemaError` if there is none."""
        index = self.find(name)
        if index is None:
            near = self.suggest(name)
            hint = f"did you mean {near!r}?" if near else "add it to the schema or use an attribute that is there"
            raise SchemaError(f"unknown attribute {name!r}; {hint}")
        return index

    def suggest(self, name: str) -> str | None:
        """The attribute whose name is most similar to `name`, if one is similar."""
        import difflib  # noqa: PLC0415 - needed only when a name is wrong

        wanted = name.lower()
        # Comparing is slow and names come from users: only short ones, of about the same length, and not too many.
        near = [key for key in self._by_lower_name if abs(len(key) - len(wanted)) <= 3 and len(key) <= 100][:1000]
        found = difflib.get_close_matches(wanted, near, n=1)
        found = found or [key for key in self._by_lower_name if key.rpartition(".")[2] == wanted][:1]
        return self.attributes[self._by_lower_name[found[0]]].name if found else None

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def _repr_html_(self) -> str:
        shown = [(a.name, a.type_name, "" if a.domain is None else _domain_text(a)) for a in self.attributes[:100]]
        title = f"Schema: {len(self):,} attributes, time zone {self.time_zone}"
        return html_table(title, ("attribute", "type", "values"), shown, more=len(self) - len(shown))

    def __repr__(self) -> str:
        shown = [f"{a.name}: {a.type_name}" for a in self.attributes[:6]]
        if len(self) > len(shown):
            shown.append(f"... {len(self) - len(shown)} more")
        return f"Schema({', '.join(shown)})"


def _domain_text(attribute: Attribute) -> str:
    """The domain of an attribute for people."""
    written = write_attribute(attribute)
    assert isinstance(written, dict)
    return ", ".join(f"{key}: {value}" for key, value in written.items() if key != "type")


def _check_names_together(attributes: Sequence[Attribute]) -> None:
    """Refuse duplicates, struct names that differ only in case, and a name that is both a value and a struct."""
    leaves: dict[str, str] = {}
    structs: dict[str, str] = {}
    for attribute in attributes:
        name = attribute.name
        twin = leaves.get(name.lower())
        if twin is not None:
            how = "is there twice" if twin == name else f"differs from {twin!r} only in case"
            raise SchemaError(f"attribute {name!r} {how}; rename or remove one")
        if name.lower() in structs:
            raise _both(name, structs[name.lower()])
        leaves[name.lower()] = name
        parent = name.rpartition(".")[0]
        while parent and parent.lower() not in structs:
            if parent.lower() in leaves:
                raise _both(leaves[parent.lower()], name)
            structs[parent.lower()] = name
            parent = parent.rpartition(".")[0]
        if parent and not structs[parent.lower()].startswith(parent + "."):
            raise SchemaError(
                f"attribute {name!r}: its struct differs from that of {structs[parent.lower()]!r} only in case; "
                "write both the same"
            )


def _both(leaf: str, nested: str) -> SchemaError:
    return SchemaError(f"attribute {leaf!r} is a value, but {nested!r} makes it a struct; rename or remove one")


# -- the written forms -------------------------------------------------------------------------------------------------


MAX_ATTRIBUTES = 32_767  # positions are stored as 16-bit integers
_MAX_DEPTH = 32  # of nested structs
#: Where the written form has the time zone of the schema.
TIME_ZONE = "__wherecast_time_zone"
#: Where it has the columns that no filter can name.
UNUSABLE = "__wherecast_unusable"

#: A kind and its width. `integer` and `float` have 64 bits: that is what schemas written before there were widths mean.
_TYPES = {
    **dict.fromkeys(("boolean", "bool"), (Kind.BOOLEAN, FULL_WIDTH)),
    **dict.fromkeys(("tinyint", "byte"), (Kind.INTEGER, 8)),
    **dict.fromkeys(("smallint", "short"), (Kind.INTEGER, 16)),
    "int": (Kind.INTEGER, 32),
    **dict.fromkeys(("integer", "bigint", "long"), (Kind.INTEGER, FULL_WIDTH)),
    "real": (Kind.FLOAT, 32),
    **dict.fromkeys(("float", "double"), (Kind.FLOAT, FULL_WIDTH)),
    **dict.fromkeys(("string", "text", "varchar"), (Kind.STRING, FULL_WIDTH)),
    "date": (Kind.DATE, FULL_WIDTH),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), (Kind.TIMESTAMP, FULL_WIDTH)),
    "timestamp_ntz": (Kind.TIMESTAMP_NTZ, FULL_WIDTH),
}
#: Spark's JSON says `integer` and `float` for 32 bits.
_SPARK_TYPES = {
    **_TYPES,
    "integer": (Kind.INTEGER, 32),
    "float": (Kind.FLOAT, 32),
    "char": (Kind.STRING, FULL_WIDTH),
}
_SPARK_NAMES = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "integer": "long",
    "real": "float",
    "float": "double",
}
_ARRAY = re.compile(r"array\s*<(.*)>", re.DOTALL)
_DOMAIN_KEYS = ("values", "min", "max", "precision")

#: Attributes by the parts of their names: a struct is a tree of its own.
Fields = dict[str, Union[Attribute, "Fields"]]


def nest(attributes: Iterable[Attribute]) -> Fields:
    """Rebuild the structs; each stands at the place of its first field."""
    tree: Fields = {}
    for attribute in attributes:
        *parents, leaf = attribute.name.split(".")
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


def refuse_type(name: str, written: str, element: str) -> SchemaError:
    """Why a type cannot be that of an attribute, and what to do. `element` is the type itself or, of an array, its element's."""
    if element.startswith(("decimal", "numeric")):
        way_out = "use double, or integer if all values are whole; DECIMAL columns of events are converted to either"
    elif element.startswith(("array", "list", "struct", "map")) and written != element:
        way_out = "an array holds plain values only; leave it out or flatten it"
    else:
        way_out = f"use one of {', '.join(Kind)} or an array of one, or leave it out"
    return SchemaError(f"attribute {name!r}: type {written} is not supported; {way_out}")


# The written form


#: What the written form of a schema says: its attributes, its time zone, and what is unusable.
Read = tuple[tuple[Attribute, ...], str, Mapping[str, str]]


def read_mapping(fields: object, time_zone: str | None = None) -> Read:
    """The schema in a mapping of names to types, or to mappings with `type` and a domain or `fields`."""
    if not isinstance(fields, Mapping):
        raise SchemaError(f"a schema is a mapping of attributes to types such as {{price: double}}, got {fields!r:.60}")
    written = fields.get(TIME_ZONE, UTC.name) if time_zone is None else time_zone
    if not isinstance(written, str):
        raise SchemaError(f"{TIME_ZONE} is the name of a time zone such as Europe/Berlin, got {written!r:.60}")
    unusable = fields.get(UNUSABLE, {})
    if not isinstance(unusable, Mapping) or not all(
        isinstance(text, str) for pair in unusable.items() for text in pair
    ):
        raise SchemaError(f"{UNUSABLE} is a mapping of columns to reasons, got {unusable!r:.60}")
    out: list[Attribute] = []
    own = {k: v for k, v in fields.items() if k not in (TIME_ZONE, UNUSABLE)}
    _read_fields(own, "", out, 0, find_zone(written))
    return tuple(out), written, unusable


def read_json(text: str, time_zone: str | None = None) -> Read:
    """The schema in a JSON object."""

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        _refuse_repeats(key for key, _ in pairs)
        return dict(pairs)

    try:
        fields = json.loads(text, object_pairs_hook=build)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not readable JSON: {error}; correct the text there") from None
    return read_mapping(fields, time_zone)


def read_yaml(text: str, time_zone: str | None = None) -> Read:
    """The schema in a YAML mapping."""
    import yaml  # noqa: PLC0415 - takes 20 ms

    class Loader(yaml.SafeLoader):
        """Refuses what SafeLoader lets pass: a key that occurs twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002
            _refuse_repeats(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            return super().construct_mapping(node, deep)

    try:
        fields = yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not readable YAML: {error}; correct the text there") from None
    return read_mapping(fields, time_zone)


def write_attribute(attribute: Attribute) -> object:
    """What a mapping has for an attribute: its type or, with a domain, a mapping."""
    domain = attribute.domain
    if domain is None:
        return attribute.type_name
    written: dict[str, object] = {"type": attribute.type_name}
    if domain.values is not None:
        written["values"] = [iso_text(value) for value in domain.values]
    bounds = zip(_DOMAIN_KEYS[1:], (domain.minimum, domain.maximum, domain.precision), strict=True)
    return written | {key: iso_text(value) for key, value in bounds if value is not None}


def _read_fields(fields: Mapping[Any, object], prefix: str, out: list[Attribute], depth: int, zone: Zone) -> None:
    for key, value in fields.items():
        name = prefix + check_name(key)
        check_size(name, out, depth)
        spec = {"type": value} if isinstance(value, str) else value
        if not isinstance(spec, Mapping):
            raise SchemaError(f"attribute {name!r}: expected a type such as 'integer', got {value!r:.60}")
        written = spec.get("type")
        if not isinstance(written, str):
            raise SchemaError(
                f"attribute {name!r}: 'type' is missing or no text; write e.g. {{type: double, min: 0}}, "
                "or for nested fields {type: struct, fields: {...}}"
            )
        is_struct = written.strip().lower() == "struct"
        _check_keys(name, spec, ("type", "fields") if is_struct else ("type", *_DOMAIN_KEYS))
        if is_struct:
            nested = spec.get("fields")
            if not isinstance(nested, Mapping) or not nested:
                raise SchemaError(f"attribute {name!r}: a struct needs fields; write {{type: struct, fields: {{...}}}}")
            _read_fields(nested, name + ".", out, depth + 1, zone)
        else:
            kind, bits, is_array = _read_type(name, written)
            out.append(Attribute(name, kind, is_array, _read_domain(name, kind, spec, zone), bits))


def _read_type(name: str, written: str) -> tuple[Kind, int, bool]:
    text = written.strip().lower()
    array = _ARRAY.fullmatch(text)
    element = array[1].strip() if array else text
    found = _TYPES.get(element)
    if found is None:
        raise refuse_type(name, text, element)
    return *found, array is not None


def _read_domain(name: str, kind: Kind, spec: Mapping[Any, Any], zone: Zone) -> Domain | None:
    if all(spec.get(key) is None for key in _DOMAIN_KEYS):
        return None
    values = spec.get("values")
    if values is not None and (isinstance(values, str) or not isinstance(values, Sequence)):
        raise SchemaError(f"attribute {name!r}: values must be a list, got {values!r:.60}; write [a, b]")
    listed = None if values is None else tuple(_in_zone(kind, value, zone) for value in values)
    low, high = (_in_zone(kind, spec.get(key), zone) for key in ("min", "max"))
    return Domain(listed, low, high, spec.get("precision"))


def _in_zone(kind: Kind, value: Any, zone: Zone) -> Any:
    """A value of a domain, as an instant if it is a timestamp; `Attribute` says what is wrong with one that is not."""
    try:
        return coerce(kind, value, zone=zone) if kind is Kind.TIMESTAMP else value
    except UnfitValueError:
        return value


def _check_keys(name: str, spec: Mapping[Any, object], known: tuple[str, ...]) -> None:
    for key in spec:
        if key not in known:
            raise SchemaError(f"attribute {name!r}: unknown key {key!r:.60}; known keys here: {', '.join(known)}")


def _refuse_repeats(keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise SchemaError(f"attribute or key {key!r} is there twice; rename or remove one")
        seen.add(key)


# Spark's JSON


def read_spark(struct: Mapping[str, Any]) -> tuple[list[Attribute], dict[str, str]]:
    """The attributes of `StructType.jsonValue()`, and the columns that cannot be used, with the reason."""
    out: list[Attribute] = []
    unusable: dict[str, str] = {}
    _read_spark_fields(struct, "", out, unusable, 0)
    return out, unusable


def write_spark(attributes: Iterable[Attribute]) -> dict[str, object]:
    """What `StructType.fromJson` takes, structs rebuilt."""
    return _write_spark_struct(nest(attributes))


def _read_spark_fields(
    struct: Mapping[str, Any], prefix: str, out: list[Attribute], unusable: dict[str, str], depth: int
) -> None:
    for part in struct["fields"]:
        name, data_type = prefix + part["name"], part["type"]
        check_size(name, out, depth)
        nested = data_type if isinstance(data_type, dict) else {"type": data_type}
        if nested["type"] == "struct" and nested["fields"]:
            _read_spark_fields(nested, name + ".", out, unusable, depth + 1)
            continue
        try:
            out.append(_read_spark_field(name, nested, part.get("metadata", {})))
        except SchemaError as error:
            unusable[name] = str(error)


def _read_spark_field(name: str, data_type: Mapping[str, Any], metadata: Mapping[str, Any]) -> Attribute:
    """Raises SchemaError if a column cannot be an attribute."""
    if "__COLLATIONS" in metadata:
        raise SchemaError(f"attribute {name!r}: collated strings are not supported; use plain STRING")
    if data_type["type"] == "struct":
        raise SchemaError(f"attribute {name!r}: a struct without fields; leave it out")
    is_array = data_type["type"] == "array"
    element = data_type["elementType"] if is_array else data_type["type"]
    element = str(element["type"] if isinstance(element, dict) else element)
    found = _SPARK_TYPES.get(re.sub(r"\([0-9]+\)$", "", element))  # varchar(20)
    if found is None:
        raise refuse_type(name, f"array<{element}>" if is_array else element, element)
    kind, bits = found
    return Attribute(name, kind, is_array, bits=bits)


def _write_spark_struct(tree: Fields) -> dict[str, object]:
    fields = [
        {"name": name, "type": _write_spark_type(node), "nullable": True, "metadata": {}} for name, node in tree.items()
    ]
    return {"type": "struct", "fields": fields}


def _write_spark_type(node: Attribute | Fields) -> object:
    if not isinstance(node, Attribute):
        return _write_spark_struct(node)
    name = type_name(node.kind, node.bits)
    element = _SPARK_NAMES.get(name, name)
    return {"type": "array", "elementType": element, "containsNull": True} if node.is_array else element
