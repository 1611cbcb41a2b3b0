"""Attributes as Arrow types: which type holds the values of an attribute, and which attributes an Arrow schema holds.

Tables of other libraries come by Arrow's C interface: Polars, DuckDB, pandas, and whatever comes next. An object offers a
stream of record batches by `__arrow_c_stream__`, one batch by `__arrow_c_array__`, and its types alone by
`__arrow_c_schema__`. None of the libraries is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa
from pyarrow import types

from wherecast.errors import SchemaError
from wherecast.language.events.attributes import Attribute, Fields, check_size, flat_name, nest
from wherecast.language.events.kinds import ROWS
from wherecast.language.events.schema_forms import map_attribute, refuse_type
from wherecast.language.events.types import FULL_WIDTH, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIST_TESTS = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type is one of Arrow's three kinds of string."""
    return bool(types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type))


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether a type is one of Arrow's four kinds of bytes."""
    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(test(data_type) for test in tests)


class ArrowRow(NamedTuple):
    """What Arrow has for a kind."""

    canonical: pa.DataType  # in which its keys reach an index: numbers of every width have 64 bits there
    holds: Callable[[pa.DataType], bool]  # whether values of a type are read as this kind
    narrow: Mapping[int, pa.DataType] = {}  # by width, where schemas have another type
    declared: Callable[[Attribute], pa.DataType] | None = None  # what schemas have, if it depends on more


ARROW: Mapping[Kind, ArrowRow] = {
    Kind.BOOLEAN: ArrowRow(pa.bool_(), types.is_boolean),
    Kind.INTEGER: ArrowRow(pa.int64(), types.is_integer, {8: pa.int8(), 16: pa.int16(), 32: pa.int32()}),
    Kind.FLOAT: ArrowRow(pa.float64(), types.is_floating, {32: pa.float32()}),
    Kind.DECIMAL: ArrowRow(pa.int64(), types.is_decimal, declared=lambda of: pa.decimal128(*of.digits)),
    Kind.STRING: ArrowRow(pa.string(), is_text),
    Kind.BINARY: ArrowRow(pa.string(), is_bytes, declared=lambda _: pa.binary()),
    Kind.DATE: ArrowRow(pa.date32(), types.is_date),
    Kind.TIMESTAMP: ArrowRow(pa.timestamp("us", tz="UTC"), lambda t: types.is_timestamp(t) and t.tz is not None),
    Kind.TIMESTAMP_NTZ: ArrowRow(pa.timestamp("us"), lambda t: types.is_timestamp(t) and t.tz is None),
}
_TEXTS = pa.list_(pa.string())
_CANONICAL_ARRAY = {kind: pa.list_(row.canonical) for kind, row in ARROW.items()}


@lru_cache
def element_of(attribute: Attribute) -> Attribute:
    """What stands for an element of an array, or for a key of a map."""
    return replace(attribute, name="element", is_array=False, domain=None, value=None, size=0)


def canonical_type(attribute: Attribute) -> pa.DataType:
    """The one Arrow type in which the values of an attribute reach an index; ordered texts are strings."""
    if attribute.value is not None:
        # Not Arrow's type of maps: it has no functions for lists.
        pair = [("key", canonical_type(element_of(attribute))), ("value", canonical_type(attribute.value))]
        return pa.list_(pa.struct(pair))
    if attribute.is_text:
        return _TEXTS if attribute.is_array else pa.string()
    return _CANONICAL_ARRAY[attribute.kind] if attribute.is_array else ARROW[attribute.kind].canonical


def declared_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type that an attribute has in a schema: its canonical type, in its own width."""
    if attribute.value is not None:
        return pa.map_(declared_type(element_of(attribute)), declared_type(attribute.value))
    row = ARROW[attribute.kind]
    narrow = row.narrow.get(attribute.bits) if row.declared is None else row.declared(attribute)
    if narrow is None:
        return canonical_type(attribute)
    return pa.list_(narrow) if attribute.is_array else narrow


def kind_of(data_type: pa.DataType) -> Kind | None:
    """The kind whose values an Arrow type holds, if there is one."""
    return next((kind for kind, row in ARROW.items() if row.holds(data_type)), None)


def signed_width(data_type: pa.DataType) -> int:
    """The bits of the narrowest signed integer type that holds all values of an integer type."""
    return int(data_type.bit_width << types.is_unsigned_integer(data_type))


def _bits_of(kind: Kind, data_type: pa.DataType) -> int:
    """The width of an attribute whose values have this type: the least that holds them all, or the widest."""
    needed = signed_width(data_type) if types.is_integer(data_type) else FULL_WIDTH
    needed = data_type.bit_width if types.is_floating(data_type) else needed
    widths = ROWS[kind].forms
    return next((bits for bits in widths if bits >= needed), max(widths))


def is_text_extension(data_type: pa.DataType) -> bool:
    """Whether a type is text with a meaning, such as JSON.

    Other extension types (8-bit booleans, pandas' periods) mean something else than the numbers they are stored as.
    """
    return isinstance(data_type, pa.BaseExtensionType) and is_text(data_type.storage_type)


def is_any_list(data_type: pa.DataType) -> bool:
    """Whether a type is one of Arrow's five kinds of list."""
    return any(test(data_type) for test in _LIST_TESTS)


def read_arrow(schema: pa.Schema) -> tuple[list[Attribute], dict[str, str]]:
    """The attributes of an Arrow schema, struct fields flattened, and the columns that cannot be used, with the reason."""
    out: list[Attribute] = []
    unusable: dict[str, str] = {}
    for field in schema:
        _read_field(flat_name(field.name, schema.names), field.type, out, unusable, 0)
    return out, unusable


def write_arrow(attributes: Iterable[Attribute]) -> pa.Schema:
    """The Arrow schema of the attributes, structs rebuilt."""
    return pa.schema(_write_fields(nest(attributes)))


def _write_fields(tree: Fields) -> list[pa.Field]:
    return [
        pa.field(name, declared_type(node) if isinstance(node, Attribute) else pa.struct(_write_fields(node)))
        for name, node in tree.items()
    ]


def _read_field(
    name: str,
    data_type: pa.DataType,
    out: list[Attribute],
    unusable: dict[str, str],
    depth: int,
    *,
    in_array: bool = False,
) -> None:
    check_size(name, out, depth)
    plain = _plain_type(data_type)
    is_array = is_any_list(plain) and not in_array
    struct = _plain_type(plain.value_type) if is_array else plain
    if types.is_struct(struct) and struct.num_fields:
        inside = in_array or is_array
        for i in range(struct.num_fields):
            _read_field(
                f"{name}.{struct.field(i).name}", struct.field(i).type, out, unusable, depth + 1, in_array=inside
            )
        return
    try:
        out.append(_read_plain(name, data_type, plain, in_array=in_array))
    except SchemaError as error:
        unusable[name] = str(error)


def _read_plain(name: str, data_type: pa.DataType, plain: pa.DataType, *, in_array: bool) -> Attribute:
    """Raises SchemaError if a column cannot be an attribute. A field of structs in an array is an array itself."""
    if types.is_map(plain) and not in_array:
        parts = (plain.key_type, plain.item_type)
        key, value = (_read_plain(name, part, _plain_type(part), in_array=False) for part in parts)
        if key.is_array or value.is_array:
            raise refuse_type(name, str(data_type), str(plain.item_type))
        return map_attribute(key, value)
    if in_array and is_any_list(plain):
        raise refuse_type(name, f"list<{data_type}>", str(data_type))
    if types.is_struct(plain):
        raise SchemaError(f"attribute {name!r}: a struct without fields; leave it out")
    is_array = is_any_list(plain)
    element = _plain_type(plain.value_type) if is_array else plain
    is_array = is_array or in_array
    kind = kind_of(element)
    if kind is None:
        raise refuse_type(name, str(data_type), str(element))
    if ROWS[kind].has_digits:
        return Attribute(name, kind, is_array, digits=(element.precision, element.scale))
    return Attribute(name, kind, is_array, bits=_bits_of(kind, element))


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type under dictionaries and runs, which encode values, and under extension types of text."""
    while True:
        if is_text_extension(data_type):
            data_type = data_type.storage_type
        elif types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
            data_type = data_type.value_type
        else:
            return data_type


# -- tables of other libraries ------------------------------------------------------------------------------------------


@runtime_checkable
class ArrowStream(Protocol):
    """A table of any library that exports Arrow's C stream, a `RecordBatchReader` included."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@runtime_checkable
class ArrowArray(Protocol):
    """A record batch of any library that exports Arrow's C array."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


@runtime_checkable
class ArrowTypes(Protocol):
    """A schema of any library that exports Arrow's C schema."""

    def __arrow_c_schema__(self) -> Any: ...


def arrow_types(source: object) -> pa.Schema | None:
    """The types of a table, or of a schema of any library; None if the object is neither."""
    if isinstance(source, pa.Schema):
        return source
    if isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return source.schema
    if isinstance(source, pa.Array | pa.ChunkedArray | pa.DataType | pa.Field):
        return None
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame, without importing pandas
        return _pandas_types(source)
    try:
        if isinstance(source, ArrowTypes):
            return pa.schema(source)
        if isinstance(source, ArrowStream):
            return pa.RecordBatchReader.from_stream(source).schema
        return pa.record_batch(source).schema if isinstance(source, ArrowArray) else None
    except (pa.ArrowException, TypeError, ValueError):  # a column, a stream of no tables
        return None


def _pandas_types(frame: Any) -> pa.Schema:
    """The types of the columns that have a name; one of objects has the type of all its values, if there is one."""
    return pa.schema(
        [
            (name, _series_type(frame.iloc[:, place]))
            for place, name in enumerate(frame.columns)
            if isinstance(name, str)
        ]
    )


def _series_type(series: Any) -> pa.DataType:
    try:
        return pa.array(series if series.dtype == object else series.iloc[:0], from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError):
        return pa.null()  # values of several types, or of one that Arrow does not know


def as_table(source: object) -> pa.Table | pa.RecordBatch | None:
    """A table as PyArrow has it; None if the object is none. A stream is read to its end. Raises pa.ArrowException."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return source
    if isinstance(source, pa.RecordBatchReader):
        return source.read_all()
    if isinstance(source, pa.Array | pa.ChunkedArray):  # they export the interface, too, but are not tables
        return None
    if isinstance(source, ArrowStream):
        return pa.RecordBatchReader.from_stream(source).read_all()
    return pa.record_batch(source) if isinstance(source, ArrowArray) else None
