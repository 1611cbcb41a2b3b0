"""What Spark SQL answers: the values of many expressions for the rows of a table.

Theory of operation. A query per expression is simple and slow: planning a query and compiling it to Java takes far longer than
computing a few rows. So all expressions are columns of one query. In ANSI mode a single value that cannot be computed ends that
query, and Spark does not say which. The expressions that fail are searched for by halves, and so are their rows. These
searches run no job: Spark's optimizer computes a projection of a local table while it plans. The other expressions, and
the other rows, are then asked for in one query again. What fails only in a job is searched for with jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Expressions of one query: Spark does not compile a wider one as a whole.
WIDTH = 100
#: The column that numbers the rows.
ROW = "__row"


def ask_spark(spark: SparkSession, table: pa.Table, texts: Sequence[str]) -> list[list[Any] | Exception]:
    """The values of each expression, or the error with which Spark ends the query. Dates are days, timestamps microseconds."""
    return _answers(_frame(spark, table), texts)


def ask_spark_by_row(spark: SparkSession, table: pa.Table, texts: Sequence[str]) -> list[list[Any]]:
    """The values of each expression, with None for the rows for which Spark ends the query."""
    from pyspark.errors import AnalysisException

    frame = _frame(spark, table)
    answers = _answers(frame, texts)
    refused = [f"{text}: {a}" for text, a in zip(texts, answers, strict=True) if isinstance(a, AnalysisException)]
    assert not refused, "Spark refuses " + "\n".join(refused)
    failing = [i for i, answer in enumerate(answers) if not isinstance(answer, list)]
    spared = _compute(frame, [_spare(frame, texts[i], len(table)) for i in failing])
    known = {**dict(enumerate(answers)), **dict(zip(failing, spared, strict=True))}
    return [known[i] for i in range(len(texts))]


def holds(text: str) -> str:
    """A filter as an expression that is never NULL."""
    return f"({text}) IS TRUE"


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows, numbered; a timestamp without a zone stays one, whatever the zone of the session."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = table.append_column(ROW, pa.array(range(len(table)), pa.int64()))
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _answers(frame: DataFrame, texts: Sequence[str]) -> list[list[Any] | Exception]:
    try:
        return [*_compute(frame, texts)]
    except _failures() as error:
        if len(texts) == 1:
            return [error]
    errors = _errors(frame, texts)
    if not any(errors):  # the optimizer did not compute what fails: it takes jobs to find it
        half = len(texts) // 2
        return _answers(frame, texts[:half]) + _answers(frame, texts[half:])
    values = iter(_answers(frame, [text for text, error in zip(texts, errors, strict=True) if error is None]))
    return [next(values) if error is None else error for error in errors]


def _failures() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError  # the latter where an overflow of Java's has no words of Spark's


def _compute(frame: DataFrame, texts: Sequence[str]) -> list[list[Any]]:
    """The values of each expression. The optimizer cannot look through coalesce, so the session's settings count."""
    one = frame.coalesce(1)
    parts = [texts[first : first + WIDTH] for first in range(0, len(texts), WIDTH)]
    return [_plain(column) for part in parts for column in one.selectExpr(*_columns(part)).toArrow().columns]


def _columns(texts: Sequence[str]) -> list[str]:
    return [f"({text}) AS f{i}" for i, text in enumerate(texts)]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    array = column.combine_chunks()
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return array.to_pylist()  # type: ignore[no-any-return]


def _error(frame: DataFrame, texts: Sequence[str]) -> Exception | None:
    """What ends a query for some expressions, as far as the optimizer can tell."""
    try:
        frame.selectExpr(*_columns(texts))._jdf.queryExecution().optimizedPlan()
    except _failures() as error:
        return error
    return None


def _errors(frame: DataFrame, texts: Sequence[str]) -> list[Exception | None]:
    """For each expression, what ends a query that asks for it alone."""
    error = _error(frame, texts)
    if error is None or len(texts) == 1:
        return [error] * len(texts)
    half = len(texts) // 2
    return _errors(frame, texts[:half]) + _errors(frame, texts[half:])


def _spare(frame: DataFrame, text: str, rows: int) -> str:
    """An expression that fails, as one that is NULL for the rows for which it does."""
    failing = ", ".join(map(str, _failing_rows(frame, text, 0, rows)))
    return f"CASE WHEN {ROW} NOT IN ({failing}) THEN {text} END"


def _failing_rows(frame: DataFrame, text: str, first: int, end: int) -> list[int]:
    if _error(frame.where(f"{ROW} >= {first} AND {ROW} < {end}"), [text]) is None:
        return []
    if end - first == 1:
        return [first]
    middle = (first + end) // 2
    return _failing_rows(frame, text, first, middle) + _failing_rows(frame, text, middle, end)
