"""Files in: folders of events or changes, where nothing that a file says is lost in silence.

- JSON lines and CSV are text: a line that does not fit its columns is a row with its text in `__wherecast_message` and the reason in
  `__wherecast_error`, as a message of a topic is. JSON follows the rule of `messages`; of CSV, a line must have one field per column.
- Parquet and ORC files have columns and types of their own: all are passed through, and those of every batch are looked at before it
  is read (`file_columns`). A declared column that no file has at the start, or with a type that does not fit, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wherecast.errors import SchemaError
from wherecast.spark.columns import ERROR, MESSAGE, Rule, quote, quoted
from wherecast.spark.file_columns import FORMATS, FileColumns, Footers
from wherecast.spark.messages import PLACE, VALUE, change_columns, fits_decimal, parse_changes, parse_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructField, StructType

_CORRUPT, _BAD, _TEXTS = "__wherecast_corrupt", "__wherecast_bad", "__wherecast_texts"
#: Spark's options that would change how bad lines are treated, or that reading line by line cannot follow.
_REFUSED = {
    "json": ("mode", "columnnameofcorruptrecord", "multiline", "encoding", "charset", "wholetext"),
    "csv": ("mode", "columnnameofcorruptrecord"),
}
_log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A folder that is being read."""

    rows: DataFrame
    check: FileColumns | None = None
    """To be called with the files of every batch of a stream; None if rows tell by themselves what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of files, read as a batch or as a stream."""

    spark: SparkSession
    path: str
    format: str
    options: Mapping[str, str]
    """Spark's for this source and this format."""
    stream: bool

    def events(self, columns: StructType, *, declared: bool) -> Opened:
        """Events; `columns` are those that somebody declared, or else those of the attributes."""
        if self._kind == "json":
            return Opened(self._parse_lines(columns))
        if self._kind == "csv":
            return Opened(self._read_csv(columns))
        return self._open(self._with_own(columns, declared=declared))

    def changes(self, id_type: str) -> Opened:
        """Changes to the subscriptions; other columns are not read."""
        columns = change_columns(id_type)
        if self._kind == "json":
            return Opened(parse_changes(self._lines(columns), id_type, self._text_options(columns)))
        if self._kind == "csv":
            return Opened(self._read_csv(columns))
        return self._open(columns, others=True)

    @property
    def _kind(self) -> str:
        return self.format.lower()

    def _reader(self, kind: str | None = None) -> DataFrameReader | DataStreamReader:
        reader = self.spark.readStream if self.stream else self.spark.read
        return reader.format(kind or self.format).options(**self.options)

    # Text

    def _parse_lines(self, columns: StructType) -> DataFrame:
        from pyspark.sql.types import StructType

        lines = self._lines(columns)
        inside = StructType([f for f in columns.fields if f.name not in lines.columns])
        return parse_events(lines, inside, self._text_options(columns))

    def _lines(self, columns: StructType) -> DataFrame:
        """The lines of all files as messages; columns that are folders (`day=1/`) have the type that is declared."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        self._text_options(columns)
        folders = self._folder_columns().names
        typed = [f for f in columns.fields if f.name in folders]
        reader = self._reader("text").schema(StructType([StructField("value", StringType()), *typed]))
        lines = reader.load(self.path).where(F.trim("value") != "")
        place = F.concat("_metadata.file_path", F.lit(": ")).alias(PLACE)
        return lines.select(place, F.col("value").alias(VALUE), *(f"`{name}`" for name in folders))

    def _read_csv(self, columns: StructType) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        # A header is compared with the columns; by itself Spark goes by position and does not look at it.
        options = {"enforceSchema": "false", **self._text_options(columns), "columnNameOfCorruptRecord": _CORRUPT}
        inside = [f for f in columns.fields if f.name not in self._folder_columns().names]
        numbers = {f.name: number for f in inside if (number := _csv_number(f, options)) is not None}
        given = [StructField(f.name, StringType()) if f.name in numbers else f for f in columns.fields]
        reader = self._reader().options(**options).schema(StructType([*given, StructField(_CORRUPT, StringType())]))
        lines = reader.load(self.path)
        own = [name for name in lines.columns if name != _CORRUPT]
        unfit = F.lit(False)
        for name, number in numbers.items():
            unfit |= quoted(name).isNotNull() & number.isNull()
        again = F.to_csv(F.struct(*(quoted(f.name) for f in inside)), options)
        bad = F.coalesce(_CORRUPT, F.when(unfit, again)).alias(_BAD)
        values = (numbers.get(name, quoted(name)).alias(name) for name in own)
        read = lines.select(*values, bad, F.col("_metadata.file_path").alias(PLACE))
        texts = F.from_csv(_BAD, ", ".join(f"{quote(f.name)} string" for f in inside), options)
        error = F.when(F.col(_BAD).isNotNull(), F.concat(PLACE, F.lit(": "), _csv_reason(inside)))
        read = read.select("*", texts.alias(_TEXTS))
        return read.select(*map(quoted, own), F.make_valid_utf8(_BAD).alias(MESSAGE), error.alias(ERROR))

    def _folder_columns(self) -> StructType:
        """Columns that are folders, such as `day` of `day=1/`."""
        from pyspark.sql.types import StructType

        lines = self.spark.read.format("text").options(**self.options).load(self.path)
        return StructType([f for f in lines.schema.fields if f.name != "value"])

    def _text_options(self, columns: StructType) -> dict[str, str]:
        for name in self.options:
            if name.lower() == "locale" and "decimal(" in columns.simpleString():
                raise SchemaError(
                    f"the option {name!r} cannot be set for decimal columns; declare them as string, and convert them "
                    f"with 'select'"
                )
            if name.lower() in _REFUSED[self._kind]:
                hint = "; write one object per line" if name.lower() in ("multiline", "wholetext") else ""
                raise SchemaError(f"the option {name!r} cannot be set for files of {self._kind}{hint}")
        return dict(self.options)

    # Formats with types of their own

    def _open(self, columns: StructType, *, others: bool = False) -> Opened:
        rows = self._reader().schema(columns).load(self.path)
        if self._kind not in FORMATS:
            return Opened(rows)
        return Opened(rows, FileColumns(self._footers, columns, self._folder_columns().names, others))

    @property
    def _footers(self) -> Footers:
        return Footers(self.format, self.options)

    def _with_own(self, columns: StructType, *, declared: bool) -> StructType:
        """The columns to read: those that are declared, which must be there, and all others that the files have."""
        from pyspark.sql.types import StructType

        own = self._own_columns(columns if declared else StructType([]))
        if not own.fields:
            return columns
        rule = Rule.of(self.spark)
        there = {rule.key(f.name): f for f in own.fields}
        missing = [f.name for f in columns.fields if rule.key(f.name) not in there]
        if missing and declared:
            raise SchemaError(
                f"the files in {self.path!r} have no column {missing[0]!r}; they have {', '.join(own.names)}"
            )
        if missing:
            _log.warning("path=%s missing_columns=%s: these attributes are NULL in all events", self.path, missing)
        first = [there.pop(rule.key(f.name)) for f in columns.fields] if declared else []
        return StructType([*first, *there.values()])

    def _own_columns(self, declared: StructType) -> StructType:
        """The columns of all files, and those that are folders; none as long as there are no files."""
        from pyspark.sql.types import StructType

        rule, folders = Rule.of(self.spark), self._folder_columns()
        typed = {rule.key(f.name): f for f in declared.fields}
        own = self._footers.merge(self.spark, self.path, declared, folders.names)
        # The name of a folder is a text: it is read as whatever is declared.
        named = [typed.get(rule.key(f.name), f) for f in folders.fields]
        return StructType([*own.fields, *named]) if own.fields else own


def _csv_number(f: StructField, options: Mapping[str, str]) -> Column | None:
    """The number in a column that is read as text, NULL if it does not fit; None for types of which Spark tells that itself.

    Spark's reader would round decimals and make 1e400 infinite.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    text = quoted(f.name)
    number = text.try_cast(f.dataType)
    if isinstance(f.dataType, DecimalType):
        return F.when(fits_decimal(text, f.dataType), number)
    if not isinstance(f.dataType, DoubleType | FloatType):
        return None
    number = F.when((F.abs(number) != F.lit(float("inf"))) | ~text.rlike("[0-9]"), number)
    chosen = {name.lower(): value for name, value in options.items()}
    for option, usual, value in (
        ("positiveinf", "Inf", "inf"),
        ("negativeinf", "-Inf", "-inf"),
        ("nanvalue", "NaN", "nan"),
    ):
        number = F.when(text == chosen.get(option, usual), F.lit(float(value)).cast(f.dataType)).otherwise(number)
    return number


def _csv_reason(columns: list[StructField]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    wrong = [
        F.when(
            F.col(_TEXTS)[f.name].isNotNull() & quoted(f.name).isNull(),
            F.concat(F.lit(f"{f.name} is "), F.col(_TEXTS)[f.name], F.lit(f", expected {f.dataType.simpleString()}")),
        )
        for f in columns
    ]
    found = F.concat_ws("; ", *wrong)
    return F.when(found != "", found).otherwise(F.lit(f"not a line of {len(columns)} fields"))
