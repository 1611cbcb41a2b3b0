"""Writing: tasks that match events and write what they find, so that only the names of their files come back to Spark.

With `match`, answers go to Spark, which copies them into rows and writes those. Here all columns of the events go to Python, which has
the answers and writes rows of both. Rows come back that say which files are to be taken (`FILE`, see `drafts`), what was counted, and which
events have an error, where these are kept.

The whole index must be in one place: an event whose matches are found on several servers is a row only behind a shuffle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.errors import SchemaError
from wherecast.spark.columns import (
    ERROR,
    FILE,
    IDS,
    MESSAGE,
    PREFIX,
    TALLY,
    Names,
    Output,
    Path,
    field_at,
    own_columns,
    quote,
    renamed,
    without_dots,
)
from wherecast.spark.match import ANSWER, Numbers, OnError, Question, RuleColumns, ask, match_type
from wherecast.spark.sinks.drafts import REMEDY, Drafts, file_schema
from wherecast.spark.tasks import MatchTask, make_lists
from wherecast.spark.versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from wherecast.partition.plan import Plan
    from wherecast.spark.index import Index
    from wherecast.spark.manifest import Manifest

#: Pairs that are made at a time: each repeats the values of its event.
_PAIRS = 100_000


@dataclass(frozen=True, slots=True)
class WriteTask:
    """How a task matches and writes. Sent to tasks."""

    match: MatchTask
    used: Mapping[str, Path]
    """The columns that are matched, and where events have them."""
    columns: tuple[str, ...]
    """Those of the events."""
    own: tuple[str, ...]
    """Those of them that are written."""
    output: Output
    drafts: Drafts
    schema: pa.Schema
    """Of the files."""
    back: pa.Schema
    """What comes back: the columns of a match, of which those of an event with an error have values, and an answer."""
    keep_errors: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match and write; what comes back last says the name of the file and what was counted."""
        draft, counted = self.drafts.open(self.schema), Counter[str]()
        for batch in batches:
            events, start = batch.rename_columns(list(self.columns)), 0
            for answer in self.match.match([self._inputs(events)]):
                rows = events.slice(start, len(answer))
                start += len(answer)
                counted.update(json.loads(answer.field(TALLY)[0].as_py()))
                for columns in self._found(rows.select(list(self.own)), answer.field(IDS)):
                    draft.add(columns)
                if self.keep_errors:
                    bad = answer.field(ERROR).is_valid()
                    yield self._back(_columns(rows.filter(bad)), {ERROR: answer.field(ERROR).filter(bad)})
        told = {FILE: draft.close(), TALLY: json.dumps(counted)}
        yield self._back({}, {name: pa.array([text], pa.string()) for name, text in told.items()})

    def _inputs(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are matched; where there are none, any, which tells how many events there are."""
        used = {name: field_at(events, path) for name, path in self.used.items()}
        used = used or {f"{PREFIX}_row": events.column(0)}
        return pa.RecordBatch.from_arrays(list(used.values()), list(used))

    def _found(self, rows: pa.RecordBatch, found: pa.Array) -> Iterator[list[pa.Array]]:
        """The columns that are written of some events, cut so that they fit in memory."""
        if self.output == "pairs":
            parents, matches = pc.list_parent_indices(found), found.flatten()
            for start in range(0, len(matches), _PAIRS):
                some = matches.slice(start, _PAIRS)
                parts = some.flatten() if self.match.is_wide else [some]
                yield [*rows.take(parents.slice(start, _PAIRS)).columns, *parts]
            return
        some = pc.greater(found if self.match.counts else pc.list_value_length(found), 0)
        yield [*rows.filter(some).columns, self._named(found.filter(some))]

    def _named(self, found: pa.Array) -> pa.Array:
        """What is found, with the names that the caller knows."""
        if not self.match.is_wide:
            return found
        names = [field.name for field in self.schema.types[-1].value_type]
        return make_lists(found.offsets, pa.StructArray.from_arrays(found.flatten().flatten(), names))

    def _back(self, events: Mapping[str, pa.Array], told: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Rows that come back, with some columns of events and parts of an answer."""
        *fields, answer = self.back
        n = len(next(iter(told.values())))
        columns = [events[field.name] if field.name in events else pa.nulls(n, field.type) for field in fields]
        parts = [told[part.name] if part.name in told else pa.nulls(n, part.type) for part in answer.type]
        answers = pa.StructArray.from_arrays(parts, fields=list(answer.type))
        return pa.RecordBatch.from_arrays([*columns, answers], schema=self.back)


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def match_and_write(
    events: DataFrame,
    index: Index,
    *,
    drafts: Drafts,
    output: Output,
    version: Manifest,
    subscribers: DataFrame | None,
    on_error: OnError,
    numbers: Numbers,
    names: Names,
    columns: RuleColumns,
) -> DataFrame:
    """Match as `match` does, and write as drafts what it would give. Nothing happens before the result is computed, once.

    The result has the columns of `match` and `FILE`. Its rows are one for each task, whose file it names, all else being NULL, and one
    for each event with an error, where these are kept.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    asked = ask(
        events, index, output=output, version=version, on_error=on_error, tally=True, names=names, columns=columns
    )
    check_writing(events, subscribers, asked.plan)
    keep_errors, written = on_error == "keep", _written(events, asked, output)
    shown = [*written, *(field for field in events.schema if field.name == MESSAGE)]
    told = StructType([StructField(name, StringType()) for name in (FILE, ERROR, TALLY)])
    back = StructType([*(StructField(field.name, field.dataType) for field in shown), StructField(ANSWER, told)])
    known = {ERROR: (ERROR,)} if ERROR in events.columns else {}
    task = WriteTask(
        asked.task,
        {**asked.used, **known},
        tuple(events.columns),
        tuple(own_columns(events)),
        output,
        drafts,
        file_schema(written),
        arrow_schema(back, "UTC"),
        keep_errors,
    )
    found = renamed(events, without_dots(events.columns)).mapInArrow(task, back)
    errors = [f"{ANSWER}.{ERROR} AS {quote(asked.names.error)}"] if keep_errors else []
    columns_back = [quote(field.name) for field in shown]
    return numbers.observe(found, None).selectExpr(*columns_back, f"{ANSWER}.{FILE} AS {FILE}", *errors)


def check_writing(events: DataFrame, subscribers: DataFrame | None, plan: Plan | None) -> None:
    """Raises SchemaError for what tasks cannot write."""
    if subscribers is not None:
        raise SchemaError(f"only Spark joins subscribers to matches; {REMEDY}, or ask for rule columns: columns=[...]")
    if plan is not None:
        raise SchemaError(
            f"the index is spread over {plan.n_servers} servers, and matches of one event may come from several; {REMEDY}, or build a "
            "broadcast index"
        )
    file_schema(_own(events))


def _written(events: DataFrame, asked: Question, output: Output) -> StructType:
    """The columns of `match` with these arguments."""
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    names, kind = asked.names, match_type(asked.task)
    parts = [field.dataType for field in kind] if isinstance(kind, StructType) else [kind]
    match = [StructField(n, part) for n, part in zip((names.subscription, *asked.rules.values()), parts, strict=True)]
    found = [StructField(names.found(output), LongType())]
    if output == "pairs":
        found = match
    elif output == "lists":
        one = StructType(match) if asked.task.is_wide else kind
        found = [StructField(names.found(output), ArrayType(one, containsNull=False))]
    return StructType([*_own(events), *found])


def _own(events: DataFrame) -> StructType:
    """The columns of events that are written."""
    from pyspark.sql.types import StructType

    names = own_columns(events)
    return StructType([field for field in events.schema if field.name in names])
