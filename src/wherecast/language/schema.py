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

or taken from an Arrow schema or a Spark StructType. Domains survive the written forms; Arrow and Spark hold types only.

A schema has a time zone: that of literals and events that name none. It is UTC unless another is given, and stands in the
written form under `__wherecast_time_zone`, which can be the name of no attribute.

This module imports neither Arrow nor Spark until they are asked for: a command that only checks a filter starts fast.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wherecast.errors import SchemaError
from wherecast.language import forms
from wherecast.language.attribute import Attribute, Domain
from wherecast.language.forms import MAX_ATTRIBUTES
from wherecast.language.values import Kind
from wherecast.language.zone import UTC, Zone, find_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["MAX_ATTRIBUTES", "Attribute", "Domain", "Kind", "Schema"]


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """The attributes of one information space, in order. Frozen and hashable.

    `time_zone` is the zone of timestamps that name none, in filters and in events: a region such as Europe/Berlin or an
    offset such as +02:00.
    """

    attributes: tuple[Attribute, ...]
    time_zone: str = UTC.name
    _by_name: dict[str, int] = field(init=False, repr=False, compare=False)
    _by_lower_name: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "time_zone", find_zone(self.time_zone).name)
        for late in self.attributes[MAX_ATTRIBUTES:]:
            forms.check_size(late.name, list(self.attributes), 0)
        _check_names_together(self.attributes)
        object.__setattr__(self, "_by_name", {a.name: i for i, a in enumerate(self.attributes)})
        object.__setattr__(self, "_by_lower_name", {a.name.lower(): i for i, a in enumerate(self.attributes)})

    # Reading a schema

    @classmethod
    def of(cls, fields: Mapping[str, object], *, time_zone: str | None = None) -> Schema:
        """A schema from its written form: name to type, or to a mapping with `type` and a domain or `fields`.

        `time_zone` comes before the one of the written form.
        """
        return cls(*forms.read_mapping(fields, time_zone))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """A schema from a JSON object in the form `of` takes."""
        return cls(*forms.read_json(text))

    @classmethod
    def from_yaml(cls, text: str) -> Schema:
        """A schema from a YAML mapping in the form `of` takes."""
        return cls(*forms.read_yaml(text))

    @classmethod
    def from_file(cls, path: str | Path) -> Schema:
        """A schema from a file, JSON or YAML by its suffix."""
        path = Path(path)
        readers = {".json": cls.from_json, ".yaml": cls.from_yaml, ".yml": cls.from_yaml}
        reader = readers.get(path.suffix.lower())
        if reader is None:
            raise SchemaError(f"schema file '{path}': unknown suffix {path.suffix!r}; name it .json, .yaml or .yml")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SchemaError(f"schema file '{path}' cannot be read: {reason}; check the path and the file") from None
        try:
            return reader(text)
        except SchemaError as error:
            raise SchemaError(f"schema file '{path}': {error}") from None

    @classmethod
    def from_arrow(cls, schema: pa.Schema, *, time_zone: str = UTC.name) -> Schema:
        """A schema from an Arrow schema; struct fields are flattened."""
        from wherecast.language.arrow import read_arrow  # noqa: PLC0415 - imports PyArrow

        return cls(tuple(read_arrow(schema)), time_zone)

    @classmethod
    def from_spark(cls, schema: StructType, *, time_zone: str = UTC.name) -> Schema:
        """A schema from a Spark StructType; struct fields are flattened. Works on its JSON form: no Spark needed."""
        return cls(tuple(forms.read_spark(schema.jsonValue())), time_zone)

    # Writing a schema

    def to_dict(self) -> dict[str, object]:
        """The written form, with dotted names for nested fields: `Schema.of` gives the same schema back."""
        fields = {a.name: forms.write_attribute(a) for a in self.attributes}
        return fields if self.time_zone == UTC.name else {forms.TIME_ZONE: self.time_zone, **fields}

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
        struct: StructType = types.StructType.fromJson(forms.write_spark(self.attributes))
        return struct

    # The time zone

    @property
    def zone(self) -> Zone:
        """The zone of timestamps that name none."""
        return find_zone(self.time_zone)

    def in_time_zone(self, name: str) -> Schema:
        """The same attributes with another zone; domains stay what they are."""
        return Schema(self.attributes, name)

    # Looking attributes up

    def find(self, name: str) -> int | None:
        """The position of an attribute: exact match first, else regardless of case as in Spark SQL; else None."""
        index = self._by_name.get(name)
        return self._by_lower_name.get(name.lower()) if index is None else index

    def index(self, name: str) -> int:
        """The position of an attribute; `SchemaError` if there is none."""
        index = self.find(name)
        if index is None:
            near = self.suggest(name)
            hint = f"did you mean {near!r}?" if near else "add it to the schema or use an attribute that is there"
            raise SchemaError(f"unknown attribute {name!r}; {hint}")
        return index

    def suggest(self, name: str) -> str | None:
        """The attribute whose name is most like `name`, if one is like it."""
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

    def __repr__(self) -> str:
        shown = [f"{a.name}: {a.type_name}" for a in self.attributes[:6]]
        if len(self) > len(shown):
            shown.append(f"... {len(self) - len(shown)} more")
        return f"Schema({', '.join(shown)})"


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
