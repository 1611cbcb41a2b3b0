"""Files in: folders of events or changes, where nothing that a file says is lost in silence.

- JSON lines and CSV are text: a line that does not fit its columns is a row with its text in `__wherecast_message` and the reason in
  `__wherecast_error`, as a message of a topic is. JSON follows the rule of `messages`; of CSV, a line must have one field per column.
- Parquet and ORC files have columns and types of their own: all are passed through, and those of every batch are looked at before it
  is read. A declared column that no file has at the start, or with a type that does not fit, is refused.

Columns of Parquet and ORC. Spark reads all files of a stream with the columns that were found when it started. A column that
only a later file has is then left out, and a value of another type may become NULL, both without a word. So the columns of
files are looked at before they are read:

- at the start, of all files that are there: their columns are merged;
- in every batch, of the files of that batch: a column that is not read, or one whose type cannot be read without loss, is
  an error that names the file. The batch is not written, so the next start reads it again, with the columns of all files.

A column that a file does not have is NULL, as a field that a JSON object does not have; that is logged once per column.

Theory of operation: Spark merges the columns of any number of files in one small job that reads only their footers. If the merged
columns are fine, so are those of each file. If they are not, or cannot be merged, halves of the list are looked at, down to the
one file to blame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from wherecast.errors import SchemaError
from wherecast.spark.columns import ERROR, MESSAGE, NameRule, quote, quoted
from wherecast.spark.messages import PLACE, VALUE, change_columns, fits_decimal, parse_changes, parse_events
from wherecast.spark.versions import require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import DataType, StructField, StructType

_CORRUPT, _BAD, _TEXTS = "__wherecast_corrupt", "__wherecast_bad", "__wherecast_texts"
#: Spark's options that would change how bad lines are treated, or that reading line by line cannot follow.
_REFUSED = {
    "json": ("mode", "columnnameofcorruptrecord", "multiline", "encoding", "charset", "wholetext"),
    "csv": ("mode", "columnnameofcorruptrecord"),
}
#: Types that have no form as a field of CSV.
_NOT_IN_CSV = ("array", "map", "struct", "binary", "variant")
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

    def changes(self, id_type: str, rules: StructType | None = None) -> Opened:
        """Changes to the subscriptions, with their rule columns; other columns are not read. Lines of CSV have all of them."""
        columns = change_columns(id_type, rules)
        if self._kind == "json":
            return Opened(parse_changes(self._lines(columns), id_type, self._text_options(columns), rules))
        if self._kind == "csv":
            _refuse_nested(columns)
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

        require("reading CSV", (4, 0))
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
        rule = NameRule.of(self.spark)
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

        rule, folders = NameRule.of(self.spark), self._folder_columns()
        typed = {rule.key(f.name): f for f in declared.fields}
        own = self._footers.merge(self.spark, self.path, declared, folders.names)
        # The name of a folder is a text: it is read as whatever is declared.
        named = [typed.get(rule.key(f.name), f) for f in folders.fields]
        return StructType([*own.fields, *named]) if own.fields else own


def _refuse_nested(columns: StructType) -> None:
    for f in columns.fields:
        if f.dataType.typeName() in _NOT_IN_CSV:
            raise SchemaError(
                f"a line of CSV cannot have the rule column {f.name!r}, which is {f.dataType.simpleString()}; write changes as "
                "JSON or Parquet"
            )


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


# Columns of Parquet and ORC

#: Formats whose columns are looked at: those that Spark can merge.
FORMATS = ("parquet", "orc")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_REPLAYED = "Nothing is lost: the batch was not written, and the next start reads it again"

#: Looks at the files of a batch before they are read; what it raises stops the stream.
CheckFiles = Callable[["SparkSession", Sequence[str]], None]
#: What is wrong with the columns of some files; None if nothing is.
Objection = str | None


@dataclass(frozen=True, slots=True)
class Footers:
    """Where columns of files are written; `options` are Spark's for their format."""

    format: str
    options: Mapping[str, str]

    def look(
        self, spark: SparkSession, files: Sequence[str], object_to: Callable[[StructType, str], Objection]
    ) -> None:
        """Raises SchemaError for the first file to whose columns `object_to` objects."""
        found = self._columns(spark, files)
        objection = "cannot be merged" if found is None else object_to(found, files[0])
        if objection is None:
            return
        if len(files) == 1:
            raise SchemaError(f"{files[0]} {objection}")
        half = len(files) // 2
        self.look(spark, files[:half], object_to)
        self.look(spark, files[half:], object_to)

    def merge(self, spark: SparkSession, path: str, declared: StructType, folders: Sequence[str]) -> StructType:
        """All columns of the files in a folder, but those that are folders: none if there are no files.

        Those that are declared have the declared types.

        Raises SchemaError if a declared type cannot hold the values of a file, or two files have one column with two types.
        """
        from pyspark.sql.types import StructType

        merged = _Merged(NameRule.of(spark), declared, folders)
        whole = self._columns(spark, path)
        if whole is None or merged.object_to(whole, path):
            files = spark.read.format(self.format).options(**self.options).schema("a int").load(path).inputFiles()
            self.look(spark, sorted(map(unquote, files)), merged.object_to)
        return StructType(list(merged.fields.values()))

    def _columns(self, spark: SparkSession, place: str | Sequence[str]) -> StructType | None:
        """The merged columns of a folder, or of files; None if they have to be looked at one by one."""
        from pyspark.sql.types import StructType

        reader = spark.read.format(self.format).options(**self.options).option("mergeSchema", "true")
        if not isinstance(place, str):
            reader = reader.option("__globPaths__", "false")  # a file called `a[1].parquet` is not a pattern
        try:
            found: StructType = reader.load(place if isinstance(place, str) else list(place)).schema
        except Exception as error:  # Spark's own, or that of its bridge to Java
            gone = "PATH_NOT_FOUND" in str(error) and not isinstance(
                place, str
            )  # whether it may be is the reader's affair
            if "UNABLE_TO_INFER_SCHEMA" in str(error) or (gone and len(place) == 1):
                return StructType([])
            if "CANNOT_MERGE_SCHEMAS" in str(error) or gone:
                return None
            raise
        return found


class _Merged:
    """The columns of all files seen so far."""

    def __init__(self, rule: NameRule, declared: StructType, folders: Sequence[str]) -> None:
        self.fields: dict[str, StructField] = {}
        self._rule = rule
        self._declared = {rule.key(f.name): f for f in declared.fields}
        self._folders = set(map(rule.key, folders))

    def object_to(self, found: StructType, file: str) -> Objection:  # noqa: ARG002 - which file it is matters to others
        """Take columns in, all of them or none."""
        from pyspark.sql.types import StructField

        new = {}
        for f in found.fields:
            key = self._rule.key(f.name)
            if key in self._folders:
                continue
            declared = self._declared.get(key)
            known = self.fields.get(key, declared or f)
            kind = extend(known.dataType, f.dataType, self._rule, _equal if declared is None else _wider)
            if kind is None:
                there, here = known.dataType.simpleString(), f.dataType.simpleString()
                if declared is not None:
                    return (
                        f"has the column {f.name!r} as {here}, which is declared as {there}; declare it as {here}, and convert "
                        f"it with 'select'"
                    )
                return (
                    f"has the column {f.name!r} as {here}, and other files have it as {there}; write the files again with one "
                    f"type, or declare a type in 'columns' that holds both"
                )
            new[key] = StructField(known.name, kind)
        self.fields |= new
        return None


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns that a stream reads of its files. Called with the files of a batch, it looks whether they fit.

    It can be sent to another process, as Spark Connect does.
    """

    footers: Footers
    columns: StructType
    folders: Sequence[str] = ()
    """Columns that are folders: what a file says of them is not read."""
    others: bool = False
    """Whether files may have more columns, and fewer without a word."""
    _logged: set[str] = field(default_factory=set)

    def __call__(self, spark: SparkSession, files: Sequence[str]) -> None:
        """Raises SchemaError if one of the files has a column that is not read, or one that cannot be read without loss."""
        if files:
            rule = NameRule.of(spark)
            self.footers.look(spark, files, lambda found, file: self._object_to(found, file, rule))

    def _object_to(self, found: StructType, file: str, rule: NameRule) -> Objection:
        folders = set(map(rule.key, self.folders))
        read = {rule.key(f.name): f for f in self.columns.fields if rule.key(f.name) not in folders}
        for f in found.fields:
            if rule.key(f.name) in folders:
                continue
            known = read.pop(rule.key(f.name), None)
            if known is not None and (objection := _object_to_type(known, f, rule)):
                return objection
            if known is None and not self.others:
                return (
                    f"has the column {f.name!r} ({f.dataType.simpleString()}), which no file had when the stream started. "
                    f"Start it again: it then passes that column through. {_REPLAYED}"
                )
        if found.fields and not self.others:
            self._log_missing([f.name for f in read.values()], file)
        return None

    def _log_missing(self, names: list[str], file: str) -> None:
        new = [name for name in names if name not in self._logged]
        if new:
            self._logged.update(new)
            _log.warning("file=%s missing_columns=%s: NULL in events of files without them", file, new)


def _object_to_type(read: StructField, found: StructField, rule: NameRule) -> Objection:
    kind = extend(read.dataType, found.dataType, rule, _wider)
    if kind is not None and kind.simpleString() == read.dataType.simpleString():
        return None
    both = (
        f"has the column {found.name!r} as {found.dataType.simpleString()}, and the stream reads "
        f"{read.dataType.simpleString()}"
    )
    if kind is not None or extend(read.dataType, found.dataType, rule, _equal) is not None:
        return f"{both}. Start it again: it then reads all of that column. {_REPLAYED}"
    return (
        f"{both}. If all files have it so, start it again. Else write the file again, under the same name and with that type; "
        f"or move it elsewhere, and set ignoreMissingFiles = true in the options of the source. {_REPLAYED}"
    )


Leaf = Callable[["DataType", "DataType"], bool]


def extend(known: DataType, found: DataType, rule: NameRule, fits: Leaf) -> DataType | None:
    """`known` with the fields that only `found` has; None if a type in `found` does not fit the one in `known`."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructField, StructType

    match known, found:
        case StructType(), StructType():
            fields = {rule.key(f.name): f for f in known.fields}
            for f in found.fields:
                before = fields.get(rule.key(f.name), f)
                kind = extend(before.dataType, f.dataType, rule, fits)
                if kind is None:
                    return None
                fields[rule.key(f.name)] = StructField(before.name, kind)
            return StructType(list(fields.values()))
        case ArrayType(), ArrayType():
            inside = extend(known.elementType, found.elementType, rule, fits)
            return None if inside is None else ArrayType(inside)
        case MapType(), MapType():
            key = extend(known.keyType, found.keyType, rule, fits)
            value = extend(known.valueType, found.valueType, rule, fits)
            return None if key is None or value is None else MapType(key, value)
        case DecimalType(), DecimalType() if fits is _equal and known.scale == found.scale:
            return DecimalType(max(known.precision, found.precision), known.scale)  # as Spark merges them
    return known if fits(known, found) else None


def _equal(known: DataType, found: DataType) -> bool:
    return known.simpleString() == found.simpleString()


def _wider(known: DataType, found: DataType) -> bool:
    """Whether the one type has every value of the other, and Spark reads it so."""
    from pyspark.sql.types import DecimalType

    wide, narrow = known.simpleString(), found.simpleString()
    if isinstance(known, DecimalType) and isinstance(found, DecimalType):
        return known.scale >= found.scale and known.precision - known.scale >= found.precision - found.scale
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(wide) >= _INTEGERS.index(narrow)
    return wide == narrow or (wide, narrow) == ("double", "float")
