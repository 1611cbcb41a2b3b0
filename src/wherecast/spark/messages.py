"""Messages: JSON objects as rows, by one rule for topics and files; those that cannot be read are kept and named.

A message is a row of `__wherecast_place` (where it was found, for people) and `__wherecast_value` (its text); other columns are carried along.
Fields are found by name. A field that the message does not have is NULL, and so is one that is null. Nothing else becomes
NULL: a message that is not one JSON object in UTF-8, has a value of another type than its column, a field twice, or one whose
name differs from a column only in case, is a row with its text in `__wherecast_message` and the reason in `__wherecast_error`. It is matched with
nothing and ends where the stream's dead letters go.

An object with fields that no column is declared for is kept whole, as its text, in the column `_json`.

Theory of operation: Spark's `from_json` reports most values of a wrong type by itself, but takes a number for a string, wraps
a number that is too large for a tinyint, rounds decimals and makes 1e400 infinite. Such columns are read in a form that shows it,
and then cast. A decimal is read as a variant, which keeps up to 38 digits of a number as they are written. It keeps others, and
those with an exponent, as a double; for these the text of the message tells whether the double may be another number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wherecast.errors import SchemaError
from wherecast.spark.columns import ERROR, MESSAGE
from wherecast.spark.versions import parse_columns, require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, DecimalType, StructType

#: Columns of a message: where it was found, and its text.
PLACE, VALUE = "__wherecast_place", "__wherecast_value"
#: Column with the text of an object that has fields without a column; NULL for the others.
WHOLE = "_json"
_READ, _EVENT, _TEXTS, _CORRUPT, _KEYS = (
    "__wherecast_read",
    "__wherecast_event",
    "__wherecast_texts",
    "__wherecast_corrupt",
    "__wherecast_keys",
)

#: Numbers that may be infinite as a double: 1e400, or hundreds of digits.
_HUGE = r"[eE][+]?[0-9]{3,}|[0-9]{200,}"
#: Numbers of which a double may not keep all digits, or that it takes for 0.
_LONG = r"[0-9.]{16,}[eE]|[0-9.]{39,}|[eE]-[0-9]{3,}"

Options = Mapping[str, str]


def parse_events(messages: DataFrame, columns: StructType, options: Options | None = None) -> DataFrame:
    """Events of messages, batch or stream; `options` are Spark's for JSON, such as `timestampFormat`."""
    if WHOLE in columns.names:
        raise SchemaError(f"the events have a column {WHOLE!r}, which reading them adds; rename it")
    return _parse(messages, columns, options=options, whole=True)


def parse_changes(
    messages: DataFrame, id_type: str, options: Options | None = None, columns: StructType | None = None
) -> DataFrame:
    """Changes of messages, batch or stream; `columns` are the rule columns of the index."""
    from pyspark.sql import functions as F  # noqa: N812

    op = F.col(_EVENT)["op"]
    wrong = F.when(~op.isin("upsert", "delete"), F.concat(F.lit("op is "), op, F.lit(", expected upsert or delete")))
    required = ("sequence", "op", "id")
    return _parse(messages, change_columns(id_type, columns), required, (wrong,), options=options, whole=False)


def change_columns(id_type: str, columns: StructType | None = None) -> StructType:
    """The columns of a change, with the rule columns of the index."""
    from pyspark.sql.types import StructType

    declared = f"sequence bigint, op string, id {id_type}, filter string, priority float"
    first = parse_columns(declared)
    return StructType([*first.fields, *(f for f in columns or () if f.name not in first.names)])


def _parse(
    messages: DataFrame,
    struct: StructType,
    required: tuple[str, ...] = (),
    objections: tuple[Column, ...] = (),
    *,
    options: Options | None,
    whole: bool,
) -> DataFrame:
    """The fields of JSON objects as columns, with `__wherecast_message` and `__wherecast_error` for what is none or does not fit."""
    from pyspark.sql import functions as F  # noqa: N812

    require("reading JSON", (4, 0))
    carried = [F.col(f"`{name}`") for name in messages.columns if name not in (PLACE, VALUE)]
    read = messages.select(
        "*", _read_json(_loose(struct), options).alias(_READ), F.json_object_keys(VALUE).alias(_KEYS)
    )
    given = F.col(_READ)[_EVENT]
    fields = (given[f.name].try_cast(f.dataType).alias(f.name) for f in struct.fields)
    read = read.select("*", F.when(given.isNotNull(), F.struct(*fields)).alias(_EVENT))
    event = F.col(_EVENT)
    wrong = [*_unreadable(read, struct), *(_unfit(given[f.name], f.dataType) for f in struct.fields)]
    wrong += [event[name].isNull() for name in required]
    wrong += [reason.isNotNull() for reason in objections]
    misfit = event.isNull()
    for reason in wrong:
        misfit |= reason
    # Read as text, every JSON value fits: what is missing in the other reading is what did not.
    read = read.select("*", F.when(misfit, _read_json(_texts(struct), options)).alias(_TEXTS))
    text = [F.when(~misfit & _undeclared(F.col(VALUE), struct), F.col(VALUE)).alias(WHOLE)] if whole else []
    return read.select(
        *(event[f.name].alias(f.name) for f in struct.fields),
        *carried,
        *text,
        F.when(misfit, F.make_valid_utf8(VALUE)).alias(MESSAGE),
        F.when(misfit, F.concat(PLACE, _reason(read, struct, required, objections))).alias(ERROR),
    )


def _read_json(struct: DataType, options: Options | None) -> Column:
    """`__wherecast_value` as a struct of `__wherecast_event`, and `__wherecast_corrupt` where it is not JSON or a field does not fit.

    Spark reads the first JSON value and does not look at what follows it; inside an object it has to.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    wrapped = F.concat(F.lit(f'{{"{_EVENT}":'), F.col(VALUE), F.lit("}"))
    around = StructType([StructField(_EVENT, struct), StructField(_CORRUPT, StringType())])
    return F.from_json(wrapped, around, {**(options or {}), "columnNameOfCorruptRecord": _CORRUPT})


def _texts(struct: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField(f.name, StringType()) for f in struct.fields])


def _loose(kind: DataType) -> DataType:
    """The type to read a column as, so that `_unfit` sees what `from_json` would bend into `kind`."""
    from pyspark.sql import types as T  # noqa: N812

    match kind:
        case T.StructType():
            return T.StructType([T.StructField(f.name, _loose(f.dataType)) for f in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_loose(kind.elementType))
        case T.MapType():
            return T.MapType(kind.keyType, _loose(kind.valueType))
        case T.StringType():
            return T.VariantType()
        case T.ByteType():
            return T.ShortType()
        case T.FloatType():
            return T.DoubleType()
        case T.DecimalType():
            return T.VariantType()
    return kind


def _unfit(column: Column, kind: DataType) -> Column:
    """Whether a value, read as `_loose(kind)`, is none of `kind`; never NULL."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    wrong = F.lit(False)
    match kind:
        case T.StructType():
            for f in kind.fields:
                wrong |= _unfit(column[f.name], f.dataType)
        case T.ArrayType():
            wrong = F.exists(column, lambda element: _unfit(element, kind.elementType))
        case T.MapType():
            wrong = F.exists(F.map_values(column), lambda value: _unfit(value, kind.valueType))
        case T.StringType():
            wrong = ~F.schema_of_variant(column).isin("STRING", "VOID")  # VOID is null
        case T.ByteType():
            wrong = column.try_cast(kind).isNull()
        case T.FloatType():
            infinite = F.lit(float("inf"))
            wrong = (F.abs(column.cast(kind)) == infinite) & (F.abs(column) != infinite)
            wrong |= (F.abs(column) == infinite) & F.col(VALUE).rlike(_HUGE)
        case T.DoubleType():
            wrong = (F.abs(column) == F.lit(float("inf"))) & F.col(VALUE).rlike(_HUGE)
        case T.DecimalType():
            given = F.schema_of_variant(column)
            number = given.isin("STRING", "BIGINT", "DOUBLE") | given.startswith("DECIMAL")
            unsure = (given == "DOUBLE") & F.col(VALUE).rlike(_LONG)
            wrong = (given != "VOID") & (~number | unsure | ~fits_decimal(column.try_cast("string"), kind))
    return F.coalesce(column.isNotNull() & wrong, F.lit(False))


def fits_decimal(text: Column, kind: DecimalType) -> Column:
    """Whether a text is a number that a decimal type has, without rounding; never NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    form = r"^\s*[-+]?[0-9]*[.]?([0-9]*?)0*(?:[eE]([-+]?[0-9]{1,9}))?\s*$"
    places = F.length(F.regexp_extract(text, form, 1)) - F.coalesce(
        F.regexp_extract(text, form, 2).try_cast("int"), F.lit(0)
    )
    zero = text.rlike(r"^\s*[-+]?[0.]+([eE].*)?$")
    return F.coalesce(
        text.try_cast(kind).isNotNull() & text.rlike(form) & (zero | (places <= kind.scale)), F.lit(False)
    )


def _unreadable(read: DataFrame, struct: StructType) -> list[Column]:
    """What is wrong with a message as a whole."""
    from pyspark.sql import functions as F  # noqa: N812

    twice = F.size(_KEYS) != F.size(F.array_distinct(_KEYS))
    other_case = F.coalesce(F.size(_other_case(read, struct)) > 0, F.lit(False))
    return [F.col(_READ)[_CORRUPT].isNotNull(), ~F.is_valid_utf8(VALUE), F.coalesce(twice, F.lit(False)), other_case]


def _other_case(read: DataFrame, struct: StructType) -> Column:
    """Fields that differ from a column only in case, unless the session tells these apart."""
    from pyspark.sql import functions as F  # noqa: N812

    if read.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return F.array().cast("array<string>")
    lower = [name.lower() for name in struct.names]
    return F.filter(_others(F.col(_KEYS), struct), lambda name: F.lower(name).isin(*lower))


def _others(keys: Column, struct: StructType) -> Column:
    """Fields without a column."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.array_except(keys, F.array(*map(F.lit, struct.names)).cast("array<string>"))


def _undeclared(text: Column, struct: StructType) -> Column:
    """Whether an object, or one inside it, has fields without a column; never NULL."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    found = F.coalesce(F.size(_others(F.json_object_keys(text), struct)) > 0, F.lit(False))
    for f in struct.fields:
        if isinstance(f.dataType, StructType):
            inner = F.from_json(text, _texts(StructType([f])))[f.name]
            found |= _undeclared(inner, f.dataType)
        elif isinstance(f.dataType, ArrayType | MapType) and "struct<" in f.dataType.simpleString():
            found = F.lit(True)  # whether each of several objects is declared whole is not worth finding out
    return found


def _reason(read: DataFrame, struct: StructType, required: tuple[str, ...], objections: tuple[Column, ...]) -> Column:
    """What is wrong with a message that does not fit."""
    from pyspark.sql import functions as F  # noqa: N812

    event, given, texts = F.col(_EVENT), F.col(_READ)[_EVENT], F.col(_TEXTS)[_EVENT]
    wrong = [
        F.when(
            texts[f.name].isNotNull() & (event[f.name].isNull() | _unfit(given[f.name], f.dataType)),
            F.concat(F.lit(f"{f.name} is "), texts[f.name], F.lit(f", expected {f.dataType.simpleString()}")),
        )
        for f in struct.fields
    ]
    keys = F.col(_KEYS)
    twice = F.filter(keys, lambda name: F.size(F.filter(keys, lambda other: other == name)) > 1)
    wrong.append(_named(twice, "is there twice"))
    wrong.append(_named(_other_case(read, struct), "differs from a column only in case"))
    missing = [F.when(texts[name].isNull(), F.lit(f"{name} is missing")) for name in required]
    found = F.concat_ws("; ", *wrong, *missing, *objections)
    return (
        F.when(F.coalesce(F.trim(F.col(VALUE)), F.lit("")) == "", F.lit("empty"))
        .when(~F.is_valid_utf8(VALUE), F.lit("not valid UTF-8"))
        .when(texts.isNull() | F.col(_TEXTS)[_CORRUPT].isNotNull(), F.lit("not a JSON object"))
        .when(found == "", F.lit("a value does not fit the schema"))
        .otherwise(found)
    )


def _named(names: Column, what: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.size(names) > 0, F.concat(F.get(names, F.lit(0)), F.lit(f" {what}")))
