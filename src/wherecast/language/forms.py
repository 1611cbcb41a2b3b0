"""The forms a schema is read from and written to: a mapping, JSON, YAML, and Spark's JSON for a StructType.

A reader yields attributes, nested fields under their dotted names, and refuses what has no kind here with a message
that says what to use instead. Arrow's form is in `arrow`, the only one that needs its library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from wherecast.errors import SchemaError
from wherecast.language.attribute import Attribute, Domain, check_name
from wherecast.language.values import FULL_WIDTH, Kind, MisfitError, coerce, iso_text, type_name
from wherecast.language.zone import UTC, Zone, find_zone

MAX_ATTRIBUTES = 32_767  # positions are stored as 16-bit integers
_MAX_DEPTH = 32  # of nested structs
#: Where the written form has the time zone of the schema.
TIME_ZONE = "__wherecast_time_zone"

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
Tree = dict[str, Union[Attribute, "Tree"]]


def nest(attributes: Iterable[Attribute]) -> Tree:
    """Rebuild the structs; each stands at the place of its first field."""
    tree: Tree = {}
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
    """Why a type is no attribute type, and what to do. `element` is the type itself or, of an array, its element's."""
    if element.startswith(("decimal", "numeric")):
        way_out = "use double, or integer if all values are whole; DECIMAL columns of events are converted to either"
    elif element.startswith(("array", "list", "struct", "map")) and written != element:
        way_out = "an array holds plain values only; leave it out or flatten it"
    else:
        way_out = f"use one of {', '.join(Kind)} or an array of one, or leave it out"
    return SchemaError(f"attribute {name!r}: type {written} is not supported; {way_out}")


# The written form


#: What the written form of a schema says: its attributes and its time zone.
Read = tuple[tuple[Attribute, ...], str]


def read_mapping(fields: object, time_zone: str | None = None) -> Read:
    """The schema in a mapping of names to types, or to mappings with `type` and a domain or `fields`."""
    if not isinstance(fields, Mapping):
        raise SchemaError(f"a schema is a mapping of attributes to types such as {{price: double}}, got {fields!r:.60}")
    written = fields.get(TIME_ZONE, UTC.name) if time_zone is None else time_zone
    if not isinstance(written, str):
        raise SchemaError(f"{TIME_ZONE} is the name of a time zone such as Europe/Berlin, got {written!r:.60}")
    out: list[Attribute] = []
    _read_fields({k: v for k, v in fields.items() if k != TIME_ZONE}, "", out, 0, find_zone(written))
    return tuple(out), written


def read_json(text: str) -> Read:
    """The schema in a JSON object."""

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        _refuse_repeats(key for key, _ in pairs)
        return dict(pairs)

    try:
        fields = json.loads(text, object_pairs_hook=build)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not readable JSON: {error}; correct the text there") from None
    return read_mapping(fields)


def read_yaml(text: str) -> Read:
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
    return read_mapping(fields)


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
    except MisfitError:
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


def read_spark(struct: Mapping[str, Any]) -> list[Attribute]:
    """The attributes of `StructType.jsonValue()`."""
    out: list[Attribute] = []
    _read_spark_fields(struct, "", out, 0)
    return out


def write_spark(attributes: Iterable[Attribute]) -> dict[str, object]:
    """What `StructType.fromJson` takes, structs rebuilt."""
    return _write_spark_struct(nest(attributes))


def _read_spark_fields(struct: Mapping[str, Any], prefix: str, out: list[Attribute], depth: int) -> None:
    for field in struct["fields"]:
        name, data_type = prefix + field["name"], field["type"]
        check_size(name, out, depth)
        if "__COLLATIONS" in field.get("metadata", {}):
            raise SchemaError(f"attribute {name!r}: collated strings are not supported; use plain STRING")
        nested = data_type if isinstance(data_type, dict) else {"type": data_type}
        if nested["type"] == "struct":
            if not nested["fields"]:
                raise SchemaError(f"attribute {name!r}: a struct without fields; leave it out")
            _read_spark_fields(nested, name + ".", out, depth + 1)
            continue
        is_array = nested["type"] == "array"
        element = nested["elementType"] if is_array else nested["type"]
        element = str(element["type"] if isinstance(element, dict) else element)
        found = _SPARK_TYPES.get(re.sub(r"\([0-9]+\)$", "", element))  # varchar(20)
        if found is None:
            raise refuse_type(name, f"array<{element}>" if is_array else element, element)
        kind, bits = found
        out.append(Attribute(name, kind, is_array, bits=bits))


def _write_spark_struct(tree: Tree) -> dict[str, object]:
    fields = [
        {"name": name, "type": _write_spark_type(node), "nullable": True, "metadata": {}} for name, node in tree.items()
    ]
    return {"type": "struct", "fields": fields}


def _write_spark_type(node: Attribute | Tree) -> object:
    if not isinstance(node, Attribute):
        return _write_spark_struct(node)
    name = type_name(node.kind, node.bits)
    element = _SPARK_NAMES.get(name, name)
    return {"type": "array", "elementType": element, "containsNull": True} if node.is_array else element
