"""Files in: folders of events or changes, where nothing that a file says is lost in silence.

- JSON lines and CSV are text: a line that does not fit its columns is a row with its text in `__wherecast_message` and the reason in
  `__wherecast_error`, as a message of a topic is. JSON follows the rule of `messages`; of CSV, a line must have one field per column.
- Parquet, ORC and others have columns and types of their own. These are looked at in the files that are there at the start:
  a declared column that is missing or has another type is refused, other columns are passed through.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wherecast.errors import SchemaError
from wherecast.spark.columns import ERROR, MESSAGE
from wherecast.spark.messages import PLACE, VALUE, change_columns, parse_changes, parse_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

_CORRUPT, _TEXTS = "__wherecast_corrupt", "__wherecast_texts"
#: Spark's options that would change how bad lines are treated, or that reading line by line cannot follow.
_REFUSED = {
    "json": ("mode", "columnnameofcorruptrecord", "multiline", "encoding", "charset", "wholetext"),
    "csv": ("mode", "columnnameofcorruptrecord"),
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of files, read as a batch or as a stream."""

    spark: SparkSession
    path: str
    format: str
    options: Mapping[str, str]
    """Spark's for this source and this format."""
    stream: bool

    def events(self, columns: StructType, *, declared: bool) -> DataFrame:
        """Events; `columns` are those that somebody declared, or else those of the attributes."""
        if self._kind == "json":
            return self._parse_lines(columns)
        if self._kind == "csv":
            return self._read_csv(columns)
        return self._reader().schema(self._with_own(columns, declared=declared)).load(self.path)

    def changes(self, id_type: str) -> DataFrame:
        """Changes to the subscriptions."""
        columns = change_columns(id_type)
        if self._kind == "json":
            return parse_changes(self._lines(columns), id_type, self._text_options())
        if self._kind == "csv":
            return self._read_csv(columns)
        return self._reader().schema(columns).load(self.path)

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
        return parse_events(lines, inside, self._text_options())

    def _lines(self, columns: StructType) -> DataFrame:
        """The lines of all files as messages; columns that are folders (`day=1/`) have the type that is declared."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        self._text_options()
        folders = self._folder_columns()
        typed = [f for f in columns.fields if f.name in folders]
        reader = self._reader("text").schema(StructType([StructField("value", StringType()), *typed]))
        lines = reader.load(self.path).where(F.trim("value") != "")
        place = F.concat("_metadata.file_path", F.lit(": ")).alias(PLACE)
        return lines.select(place, F.col("value").alias(VALUE), *(f"`{name}`" for name in folders))

    def _read_csv(self, columns: StructType) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        # A header is compared with the columns; by itself Spark goes by position and does not look at it.
        options = {"enforceSchema": "false", **self._text_options(), "columnNameOfCorruptRecord": _CORRUPT}
        reader = self._reader().options(**options)
        lines = reader.schema(StructType([*columns.fields, StructField(_CORRUPT, StringType())])).load(self.path)
        inside = StructType([f for f in columns.fields if f.name not in self._folder_columns()])
        texts = ", ".join(f"`{f.name.replace('`', '``')}` string" for f in inside.fields)
        read = lines.select("*", F.from_csv(_CORRUPT, texts, options).alias(_TEXTS), "_metadata.file_path")
        bad = F.col(_CORRUPT).isNotNull()
        own = [F.col(f"`{name}`") for name in lines.columns if name != _CORRUPT]
        error = F.concat("file_path", F.lit(": "), _csv_reason(inside)).alias(ERROR)
        return read.select(*own, F.make_valid_utf8(_CORRUPT).alias(MESSAGE), F.when(bad, error).alias(ERROR))

    def _folder_columns(self) -> list[str]:
        """Columns that are folders, such as `day` of `day=1/`."""
        names: list[str] = self.spark.read.format("text").load(self.path).columns
        return [name for name in names if name != "value"]

    def _text_options(self) -> dict[str, str]:
        for name in self.options:
            if name.lower() in _REFUSED[self._kind]:
                hint = "; write one object per line" if name.lower() in ("multiline", "wholetext") else ""
                raise SchemaError(f"the option {name!r} cannot be set for files of {self._kind}{hint}")
        return dict(self.options)

    # Formats with types of their own

    def _with_own(self, columns: StructType, *, declared: bool) -> StructType:
        """The columns to read: those that are declared, which must be there, and all others that the files have."""
        from pyspark.sql.types import StructType

        own = self._own_columns()
        if own is None:
            return columns
        fold = str if self.spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower
        there = {fold(f.name): f for f in own.fields}
        missing = [f.name for f in columns.fields if fold(f.name) not in there]
        if missing and declared:
            raise SchemaError(
                f"the files in {self.path!r} have no column {missing[0]!r}; they have {', '.join(own.names)}"
            )
        if missing:
            _log.warning("path=%s missing_columns=%s: these attributes are NULL in all events", self.path, missing)
        if not declared:
            return own
        for f in columns.fields:
            found = there[fold(f.name)].dataType
            if found != f.dataType and self._kind != "parquet":  # of which Spark itself refuses what does not fit
                raise SchemaError(
                    f"the column {f.name!r} is {found.simpleString()} in the files of {self.path!r}, but declared as "
                    f"{f.dataType.simpleString()}; declare it as it is, and convert it with 'select'"
                )
        taken = {fold(f.name) for f in columns.fields}
        return StructType([*columns.fields, *(f for f in own.fields if fold(f.name) not in taken)])

    def _own_columns(self) -> StructType | None:
        """The columns of the files; None as long as there are no files."""
        from pyspark.errors import AnalysisException

        try:
            schema: StructType = self.spark.read.format(self.format).options(**self.options).load(self.path).schema
        except AnalysisException as error:
            if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
                return None
            raise
        return schema


def _csv_reason(columns: StructType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    wrong = [
        F.when(
            F.col(_TEXTS)[f.name].isNotNull() & F.col(f"`{f.name}`").isNull(),
            F.concat(F.lit(f"{f.name} is "), F.col(_TEXTS)[f.name], F.lit(f", expected {f.dataType.simpleString()}")),
        )
        for f in columns.fields
    ]
    found = F.concat_ws("; ", *wrong)
    return F.when(found != "", found).otherwise(F.lit(f"not a line of {len(columns.fields)} fields"))
