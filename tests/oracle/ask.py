"""What Spark SQL answers: the values of many expressions for the rows of a table.

Theory of operation. A query per expression is simple and slow: planning a query and compiling it to Java takes far longer than
computing a few rows. So all expressions are columns of one query. In ANSI mode a single value that cannot be computed ends that
query, and Spark does not say which. The expressions that fail are searched for by halves. This
search runs no job: Spark's optimizer computes a projection of a local table while it plans. The other expressions
are then asked for in one query again. What fails only in a job is searched for with jobs. Where the values of single rows are asked for, each expression is
wrapped so that an error becomes NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Expressions of one query: Spark does not compile a wider one as a whole.
WIDTH = 100


def ask_spark(spark: SparkSession, table: pa.Table, texts: Sequence[str]) -> list[list[Any] | Exception]:
    """The values of each expression, or the error with which Spark ends the query. Dates are days, timestamps microseconds."""
    return _answers(_frame(spark, table), texts)


def ask_spark_by_row(spark: SparkSession, table: pa.Table, texts: Sequence[str]) -> list[list[Any]]:
    """The values of each expression, with None for the rows for which Spark ends the query."""
    return _compute(_frame(spark, table), [_without_errors(spark, text) for text in texts])


def _without_errors(spark: SparkSession, text: str) -> Column:
    """An expression that is NULL where computing it fails: what Spark itself puts around `try_to_date` and the like."""
    from pyspark.sql.classic.column import Column

    parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(text)  # type: ignore[attr-defined]
    java = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    return Column(java.classic.ExpressionUtils.column(java.catalyst.expressions.TryEval(parsed)))


def holds(text: str) -> str:
    """A filter as an expression that is never NULL."""
    return f"({text}) IS TRUE"


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows; a timestamp without a zone stays one, whatever the zone of the session."""
    from pyspark.sql.pandas.types import from_arrow_schema

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


def _compute(frame: DataFrame, expressions: Sequence[str | Column]) -> list[list[Any]]:
    """The values of each expression. The optimizer cannot look through coalesce, so the session's settings count."""
    one = frame.coalesce(1)
    parts = [expressions[first : first + WIDTH] for first in range(0, len(expressions), WIDTH)]
    return [_plain(column) for part in parts for column in one.select(*_columns(part)).toArrow().columns]


def _columns(expressions: Sequence[str | Column]) -> list[Column]:
    from pyspark.sql.functions import expr

    return [(expr(e) if isinstance(e, str) else e).alias(f"f{i}") for i, e in enumerate(expressions)]


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
        frame.select(*_columns(texts))._jdf.queryExecution().optimizedPlan()
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
