"""CSV fields to values, by the schema.

A whole column is converted at once where all its fields are well-formed. Where one is not, the batch becomes mappings
in which that field stays text: the engine then refuses it with row and attribute, as it does for any event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.language.schema import Attribute, Schema
from wherecast.language.types import Kind

_INTEGER = r"^\s*-?[0-9]+\s*$"
_FLOAT = r"(?i)^\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)\s*$"
_BOOLEAN = r"(?i)^\s*(?:true|false)\s*$"
#: Kinds whose fields are not used as they are; dates and timestamps are texts to the engine too.
_FORMS = {
    Kind.INTEGER: (re.compile(_INTEGER), pa.int64()),
    Kind.FLOAT: (re.compile(_FLOAT), pa.float64()),
    Kind.BOOLEAN: (re.compile(_BOOLEAN), pa.bool_()),
}
_PARSE: dict[Kind, Callable[[str], object]] = {
    Kind.INTEGER: int,
    Kind.FLOAT: float,
    Kind.BOOLEAN: lambda text: text.strip().lower() == "true",
}

#: A record batch or mappings; PyArrow has no types.
Events = Any


def convert_fields(batch: pa.RecordBatch, schema: Schema) -> Events:
    """A batch of text columns as events."""
    attributes = {a.name: a for a in schema.attributes}
    known = [name for name in batch.schema.names if name in attributes]
    if not any(attributes[name].is_array for name in known):
        columns = [_convert_column(attributes[name], batch.column(name)) for name in known]
        if all(column is not None for column in columns):
            # An unknown column keeps the number of rows where no column is known.
            rest = [name for name in batch.schema.names if name not in attributes][: not known]
            return pa.RecordBatch.from_arrays(columns + [batch.column(n) for n in rest], known + rest)
    fields = {name: [_convert_field(attributes[name], text) for text in _texts(batch.column(name))] for name in known}
    return [{name: values[row] for name, values in fields.items()} for row in range(batch.num_rows)]


def _convert_column(attribute: Attribute, texts: pa.Array) -> pa.Array | None:
    """The column in the attribute's type; None if some field is not well-formed."""
    form = _FORMS.get(attribute.kind)
    if form is None:
        return texts
    pattern, target = form
    try:
        if pc.all(pc.match_substring_regex(texts, pattern.pattern)).as_py() is False:
            return None
        return pc.utf8_trim_whitespace(texts).cast(target)
    except pa.ArrowException:  # out of range, or not UTF-8
        return None


def _texts(column: pa.Array) -> list[str | bytes | None]:
    """The fields; what is not UTF-8 stays bytes."""
    out: list[str | bytes | None] = []
    for raw in column.view(pa.binary()).to_pylist():
        try:
            out.append(None if raw is None else raw.decode())
        except UnicodeDecodeError:
            out.append(raw)
    return out


def _convert_field(attribute: Attribute, text: str | bytes | None) -> object:
    """The value of a field; a field that is not well-formed comes back as it is."""
    if not isinstance(text, str):
        return text
    try:
        if attribute.is_array:
            return json.loads(text)
        form = _FORMS.get(attribute.kind)
        return text if form is None or not form[0].match(text) else _PARSE[attribute.kind](text)
    except (ValueError, RecursionError):
        return text
