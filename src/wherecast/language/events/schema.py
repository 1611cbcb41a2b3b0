"""Schemas: the attributes of one information space, their types and, where known, their domains.

A schema is a flat, ordered tuple of attributes; position is identity for everything downstream. A nested struct is
addressed as `a.b`, so it is flattened into attributes of that dotted name on the way in and rebuilt on the way out.

A schema can be written as a mapping, in JSON or in YAML,

    symbol: string
    price:  {type: double, min: 0, max: 1000, precision: 0.01}
    lots:   smallint
    side:   {type: string, values: [buy, sell]}
    tags:   array<string>
    labels: map<string,string>
    quote:  {type: struct, fields: {bid: double, ask: double}}

or taken from an Arrow schema, a table of Arrow, pandas or Polars, or a Spark StructType or DataFrame. Domains survive the
written forms; tables hold types only. A table may have columns that no filter can use: of intervals, of maps of arrays, of
types of another library. They are not attributes, but the schema remembers why, for the filter that names one.

A schema has a time zone: that of literals and events that name none. It is UTC unless another is given, and stands in the
written form under `__wherecast_time_zone`, which can be the name of no attribute, as `__wherecast_unusable` cannot.

This module imports neither Arrow nor Spark until they are asked for: a command that only checks a filter starts fast.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wherecast.errors import SchemaError
from wherecast.language.events.attributes import MAX_ATTRIBUTES, Attribute, Domain, check_size, join_name, split_name
from wherecast.language.events.frequencies import WordFrequencies
from wherecast.language.events.html import html_table
from wherecast.language.events.schema_forms import (
    TIME_ZONE,
    UNUSABLE,
    read_json,
    read_mapping,
    read_spark,
    read_yaml,
    write_attribute,
    write_spark,
)
from wherecast.language.events.types import Kind
from wherecast.language.events.zone import UTC, Zone, find_zone
from wherecast.language.filters.columns import Column, Reading, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from wherecast.language.events.arrow import ArrowStream, ArrowTypes

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
    #: by column, whether its constants are texts
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
        object.__setattr__(self, "columns", columns_of(self.attributes, MAX_ATTRIBUTES))
        if len(self.columns) > MAX_ATTRIBUTES:
            raise SchemaError(
                f"{len(self.columns):,} columns, at most {MAX_ATTRIBUTES:,}, and a text attribute has three; leave some out"
            )
        is_text = [a.is_text for a in self.attributes]
        object.__setattr__(self, "are_texts", tuple(is_text[column.attr] for column in self.columns))
        object.__setattr__(self, "_numbers", {column: i for i, column in enumerate(self.columns)})

    # Columns

    def number_of(self, column: Column) -> int:
        return self._numbers[column]

    def has_column(self, column: Column) -> bool:
        """Whether there is such a column; a schema of many thousand texts has no room for those of all kinds."""
        return column in self._numbers

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
        from wherecast.language.events.arrow import arrow_types  # noqa: PLC0415 - imports PyArrow

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
        from wherecast.language.events.arrow import read_arrow  # noqa: PLC0415 - imports PyArrow

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
        from wherecast.language.events.arrow import write_arrow  # noqa: PLC0415 - imports PyArrow

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

    def learn(self, name: str, texts: Iterable[str | None]) -> Schema:
        """The same schema with the frequencies of words in a collection of texts, by which SIMILAR weighs the words of an attribute."""
        from wherecast.language.syntax.words import stems_of  # noqa: PLC0415 - loads NumPy

        index = self.index(name)
        attribute = self.attributes[index]
        found: Counter[str] = Counter()
        number = 0
        for text in texts:
            if text is not None:
                number += 1
                found.update(set(stems_of(text, attribute.language)))
        learned = replace(attribute, frequencies=WordFrequencies(number, found))
        return replace(self, attributes=(*self.attributes[:index], learned, *self.attributes[index + 1 :]))

    def find(self, name: str) -> int | None:
        """The position of an attribute: exact match first, else regardless of case as in Spark SQL; else None."""
        index = self._by_name.get(name)
        index = self._by_lower_name.get(name.lower()) if index is None else index
        # A whole name in backticks may also mean a column and a field, as texts of older snapshots do.
        return self.find(".".join(split_name(name))) if index is None and "`." not in name and "`" in name else index

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
        found = found or [key for key in self._by_lower_name if key.strip("`") == wanted][:1]
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
    columns: dict[str, str] = {}
    for attribute in attributes:
        name = attribute.name
        other = columns.setdefault(attribute.column.lower(), name)
        if other != name and other.lower() != name.lower():
            raise SchemaError(
                f"attributes {other!r} and {name!r} are both in the column {attribute.column!r}; rename one"
            )
        twin = leaves.get(name.lower())
        if twin is not None:
            how = "is there twice" if twin == name else f"differs from {twin!r} only in case"
            raise SchemaError(f"attribute {name!r} {how}; rename or remove one")
        if name.lower() in structs:
            raise _both(name, structs[name.lower()])
        leaves[name.lower()] = name
        parents = [join_name(attribute.path[:depth]) for depth in range(len(attribute.path) - 1, 0, -1)]
        parent = ""
        for parent in parents:
            if parent.lower() in structs:
                break
            if parent.lower() in leaves:
                raise _both(leaves[parent.lower()], name)
            structs[parent.lower()] = name
        if parent and not structs[parent.lower()].startswith(parent + "."):
            raise SchemaError(
                f"attribute {name!r}: its struct differs from that of {structs[parent.lower()]!r} only in case; "
                "write both the same"
            )


def _both(leaf: str, nested: str) -> SchemaError:
    return SchemaError(f"attribute {leaf!r} is a value, but {nested!r} makes it a struct; rename or remove one")
