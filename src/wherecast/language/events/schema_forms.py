"""Written forms of schemas: mappings, JSON, YAML, and Spark's JSON.

The readers yield attributes, nested fields under their dotted names, and refuse a type that has no kind with a message that says
what to use instead. Arrow's form is in `arrow`, the only one that needs its library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wherecast.errors import SchemaError
from wherecast.language.events.attributes import Attribute, Domain, Fields, check_name, check_size, flat_name, nest
from wherecast.language.events.frequencies import WordFrequencies
from wherecast.language.events.kinds import NAMES, ROWS, SPARK_NAMES
from wherecast.language.events.types import Kind, Type
from wherecast.language.events.values import UnfitValueError, iso_text
from wherecast.language.events.zone import UTC, Zone, find_zone

#: Where the written form has the time zone of the schema.
TIME_ZONE = "__wherecast_time_zone"
#: Where it has the columns that no filter can name.
UNUSABLE = "__wherecast_unusable"

_PARAMETERS = re.compile(r"([a-z_]+)\s*(?:\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\))?")
_ARRAY = re.compile(r"array\s*<(.*)>", re.DOTALL)
_MAP = re.compile(r"map\s*<([^,(]*(?:\([^)]*\))?\s*),(.*)>", re.DOTALL)
_VECTOR = re.compile(r"vector\s*\(\s*([0-9]{1,9})\s*\)")
_DOMAIN_KEYS = ("values", "min", "max", "precision")


def refuse_type(name: str, written: str, element: str) -> SchemaError:
    """Why a type cannot be that of an attribute, and what to do. `element` is the type itself or, of an array, its element's."""
    if element.startswith(("array", "list", "struct", "map")) and written != element:
        way_out = "arrays and maps hold plain values only; leave it out or flatten it"
    else:
        way_out = f"use one of {', '.join(Kind)}, an array of one, or a map to one, or leave it out"
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
    if domain is None and not (attribute.coerce or attribute.language or attribute.frequencies):
        return attribute.type_name
    written: dict[str, object] = {"type": attribute.type_name}
    if attribute.coerce:
        written["coerce"] = True
    if attribute.language:
        written["language"] = attribute.language
    if attribute.frequencies is not None:
        written["frequencies"] = attribute.frequencies.written()
    if domain is None:
        return written
    if domain.values is not None:
        written["values"] = [iso_text(value) for value in domain.values]
    bounds = zip(_DOMAIN_KEYS[1:], (domain.minimum, domain.maximum, domain.precision), strict=True)
    return written | {key: iso_text(value) for key, value in bounds if value is not None}


def _read_fields(
    fields: Mapping[Any, object], prefix: str, out: list[Attribute], depth: int, zone: Zone, *, in_array: bool = False
) -> None:
    for key, value in fields.items():
        name = prefix + check_name(key)
        check_size(name, out, depth)
        spec = {"type": value} if isinstance(value, str) else value
        if not isinstance(spec, Mapping):
            raise SchemaError(f"attribute {name!r}: expected a type such as 'integer', got {value!r:.60}")
        written = spec.get("type")
        if not isinstance(written, str):
            raise SchemaError(
                f"attribute {name!r}: 'type' is missing or is not a text; write e.g. {{type: double, min: 0}}, "
                "or for nested fields {type: struct, fields: {...}}"
            )
        form = re.sub(r"\s", "", written.lower())
        is_struct, inside = form in ("struct", "array<struct>"), in_array or form == "array<struct>"
        _check_keys(
            name,
            spec,
            ("type", "fields") if is_struct else ("type", *_DOMAIN_KEYS, "coerce", "language", "frequencies"),
        )
        if is_struct:
            nested = spec.get("fields")
            if not isinstance(nested, Mapping) or not nested:
                raise SchemaError(f"attribute {name!r}: a struct needs fields; write {{type: struct, fields: {{...}}}}")
            if in_array and form != "struct":
                raise refuse_type(name, f"array<{written}>", written)
            _read_fields(nested, name + ".", out, depth + 1, zone, in_array=inside)
        else:
            attribute = _read_type(name, f"array<{written}>" if in_array else written)
            domain = _read_domain(attribute, spec, zone)
            coerce = spec.get("coerce", False)
            if not isinstance(coerce, bool):
                raise SchemaError(f"attribute {name!r}: coerce is true or false, got {coerce!r:.60}")
            language = spec.get("language", "")
            if not isinstance(language, str):
                raise SchemaError(f"attribute {name!r}: language is a name such as english, got {language!r:.60}")
            if domain or coerce or language:
                attribute = replace(attribute, domain=domain, coerce=coerce, language=language)
            if spec.get("frequencies") is not None:
                frequencies = WordFrequencies.read(spec["frequencies"], f"attribute {name!r}")
                attribute = replace(attribute, frequencies=frequencies)
            out.append(attribute)


def _read_type(name: str, written: str) -> Attribute:
    text = written.strip().lower()
    pair = _MAP.fullmatch(text)
    if pair is not None:
        return map_attribute(
            *(_attribute_of(name, text, part.strip(), NAMES, is_array=False) for part in pair.groups())
        )
    vector = _VECTOR.fullmatch(text)
    if vector is not None and int(vector[1]):
        return Attribute(name, Kind.FLOAT, is_array=True, bits=32, size=int(vector[1]))
    if text.startswith("vector"):
        raise SchemaError(f"attribute {name!r}: type {written} is not supported; write the size, as in vector(384)")
    array = _ARRAY.fullmatch(text)
    element = array[1].strip() if array else text
    return _attribute_of(name, text, element, NAMES, is_array=array is not None)


def map_attribute(key: Attribute, value: Attribute) -> Attribute:
    """The attribute of a map, of those of its keys and of its values, which have its name."""
    return replace(key, is_array=True, value=value)


def _attribute_of(
    name: str, written: str, element: str, names: Mapping[str, tuple[Kind, int]], *, is_array: bool
) -> Attribute:
    """The attribute of a type; `decimal(10, 2)` has its digits in parentheses, `varchar(20)` a length that does not matter."""
    match = _PARAMETERS.fullmatch(element)
    found = names.get(match[1]) if match else None
    if match is None or found is None:
        raise refuse_type(name, written, element)
    kind, bits = found
    if ROWS[kind].has_digits:
        return Attribute(name, kind, is_array, digits=(int(match[2] or 10), int(match[3] or 0)))
    if match[3] is not None or (match[2] is not None and ROWS[kind].forms[bits].type is not Type.STRING):
        raise refuse_type(name, written, element)
    return Attribute(name, kind, is_array, bits=bits)


def _read_domain(attribute: Attribute, spec: Mapping[Any, Any], zone: Zone) -> Domain | None:
    if all(spec.get(key) is None for key in _DOMAIN_KEYS):
        return None
    values = spec.get("values")
    if values is not None and (isinstance(values, str) or not isinstance(values, Sequence)):
        raise SchemaError(f"attribute {attribute.name!r}: values must be a list, got {values!r:.60}; write [a, b]")
    listed = None if values is None else tuple(_in_zone(attribute, value, zone) for value in values)
    low, high = (_in_zone(attribute, spec.get(key), zone) for key in ("min", "max"))
    return Domain(listed, low, high, spec.get("precision"))


def _in_zone(attribute: Attribute, value: Any, zone: Zone) -> Any:
    """A value of a domain in its zone; `Attribute` says what is wrong with one that does not fit."""
    try:
        return attribute.fit(value, zone)
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
    struct: Mapping[str, Any],
    prefix: str,
    out: list[Attribute],
    unusable: dict[str, str],
    depth: int,
    *,
    in_array: bool = False,
) -> None:
    siblings = () if prefix else [part["name"] for part in struct["fields"]]
    for part in struct["fields"]:
        name, data_type = prefix + flat_name(part["name"], siblings), part["type"]
        check_size(name, out, depth)
        nested = data_type if isinstance(data_type, dict) else {"type": data_type}
        element = nested.get("elementType")
        is_array = not in_array and isinstance(element, dict) and element["type"] == "struct"
        inner = element if is_array and isinstance(element, dict) else nested
        if inner["type"] == "struct" and inner["fields"]:
            _read_spark_fields(inner, name + ".", out, unusable, depth + 1, in_array=in_array or is_array)
            continue
        if in_array:
            nested = {"type": "array", "elementType": data_type}
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
    if data_type["type"] == "map":
        pair = [data_type[part] for part in ("keyType", "valueType")]
        texts = [str(part["type"] if isinstance(part, dict) else part) for part in pair]
        shown = f"map<{','.join(texts)}>"
        return map_attribute(*(_attribute_of(name, shown, part, SPARK_NAMES, is_array=False) for part in texts))
    is_array = data_type["type"] == "array"
    element = data_type["elementType"] if is_array else data_type["type"]
    element = str(element["type"] if isinstance(element, dict) else element)
    return _attribute_of(name, f"array<{element}>" if is_array else element, element, SPARK_NAMES, is_array=is_array)


def _write_spark_struct(tree: Fields) -> dict[str, object]:
    fields = [
        {"name": name, "type": _write_spark_type(node), "nullable": True, "metadata": {}} for name, node in tree.items()
    ]
    return {"type": "struct", "fields": fields}


def _write_spark_type(node: Attribute | Fields) -> object:
    if not isinstance(node, Attribute):
        return _write_spark_struct(node)
    element = node.element_name if node.row.has_digits else node.form.spark[0]
    if node.value is not None:
        value = _write_spark_type(node.value)
        return {"type": "map", "keyType": element, "valueType": value, "valueContainsNull": True}
    return {"type": "array", "elementType": element, "containsNull": True} if node.is_array else element
