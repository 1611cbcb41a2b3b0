"""`wherecast init`: a pipeline's configuration from samples of its events and its rules.

The schema is that of the sample. Of the rules, the columns of ids and filters are found by their names, or by looking which column holds
filters; all rules are compiled, so that what would be refused is known before anything runs. The file explains each key and works
as it is: `wherecast pipeline run pipeline.toml`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wherecast.cli.failures import CommandError, usage_error
from wherecast.cli.files import Format, format_of, parse_json_line, reading
from wherecast.cli.report import Shortlist, say, say_note

if TYPE_CHECKING:
    import pyarrow as pa

    from wherecast.language.events.schema import Schema

#: Rows of the events that the schema is made of.
SAMPLED = 10_000
#: Lines of JSON whose texts are looked at for days.
_LOOKED_AT = 100
#: Rules that decide which column holds filters.
_TRIED = 200
_SPARK_FORMATS = {Format.CSV: "csv", Format.JSON_LINES: "json", Format.PARQUET: "parquet"}
#: Spark's names for what Arrow finds in CSV.
_CSV_TYPES = {
    "integer": "BIGINT", "float": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
_FILTERS = ("filter", "condition", "where", "predicate", "expression", "rule", "query")
_IDS = ("id", "rule_id", "subscription_id", "subscription", "key", "name")


@dataclass(frozen=True, slots=True)
class InitJob:
    """What to look at, and where to write."""

    events: Path
    rules: Path
    out: Path
    id: str | None
    filter: str | None
    force: bool


class RuleColumns(NamedTuple):
    """Where ids and filters are, and what else the rules have."""

    id: str
    filter: str
    others: tuple[str, ...]


def write_pipeline(job: InitJob) -> None:
    """Write the configuration, and say what was found."""
    from wherecast.language.events.schema import Schema

    if job.out.exists() and not job.force:
        raise usage_error(f"'{job.out}' exists already; name another file with --out, or replace it with --force")
    sample_file = _sample_file(job.events)
    sample, rules = _read(sample_file, SAMPLED), _read(job.rules, None)
    schema = Schema.of(sample.schema)
    if not len(schema):
        raise CommandError(f"'{sample_file}' has no column that a filter could ask for")
    columns = _find_columns(job, rules, schema)
    asked, refused = _compile(job.rules, rules[columns.filter].to_pylist(), schema)
    text = _render(job, sample_file, sample, schema, rules.num_rows, columns, asked)
    job.out.parent.mkdir(parents=True, exist_ok=True)
    job.out.write_text(text, encoding="utf-8")
    say(
        f"{job.out}: {len(schema)} attributes, {rules.num_rows:,} rules with {_listed(columns.others) or 'no other columns'}"
    )
    if refused:
        say_note(f"{refused:,} rules would be refused and left out; see above")
    say(f"next: wherecast pipeline run {job.out}")


def _sample_file(events: Path) -> Path:
    if events.is_file():
        return events
    files = sorted(p for p in events.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    if not files:
        raise CommandError(f"the folder '{events}' has no files; put a sample of the events there")
    return files[0]


def _read(path: Path, most: int | None) -> pa.Table:
    """The rows of a file with the types that Arrow finds in them, at most so many."""
    form = format_of(path)
    with reading(path, form):
        if form is Format.PARQUET:
            import pyarrow.parquet as pq

            table = pq.read_table(path)
        elif form is Format.CSV:
            from pyarrow import csv

            table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True))
        else:
            from pyarrow import json as arrow_json

            table = arrow_json.read_json(path)
    table = table if most is None else table.slice(0, most)
    days = _days_in_json(path) if form is Format.JSON_LINES else set()
    return table if form is Format.PARQUET else _with_moments(table, days)


def _days_in_json(path: Path) -> set[str]:
    """Columns whose texts have no room for a time; Arrow takes a day for a time at midnight."""
    with path.open(encoding="utf-8-sig") as lines:
        objects = [parse_json_line(line.encode()) for line in itertools.islice(filter(str.strip, lines), _LOOKED_AT)]
    longest: dict[str, int] = {}
    for name, value in (pair for found in objects for pair in found.items()):
        if isinstance(value, str):
            longest[name] = max(longest.get(name, 0), len(value))
    return {name for name, length in longest.items() if length <= len("2026-01-31")}


def _with_moments(table: pa.Table, days: set[str]) -> pa.Table:
    """Days as dates, and times as instants, as Spark reads them by default; Arrow takes them for local times."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            kind = pa.date32() if field.name in days else pa.timestamp("us", "UTC")
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def _find_columns(job: InitJob, rules: pa.Table, schema: Schema) -> RuleColumns:
    import pyarrow as pa

    names = rules.schema.names
    for given in (job.id, job.filter):
        if given is not None and given not in names:
            raise usage_error(f"'{job.rules}' has no column {given!r}; it has {', '.join(names)}")
    texts = [
        n
        for n in names
        if pa.types.is_string(rules.schema.field(n).type) or pa.types.is_large_string(rules.schema.field(n).type)
    ]
    ranked = sorted(texts, key=lambda n: (-_compiling(rules[n], schema), _rank(n, _FILTERS)))
    filter_column = job.filter or next((n for n in ranked if _compiling(rules[n], schema)), None)
    if filter_column is None:
        raise CommandError(
            f"no column of '{job.rules}' holds filters over {', '.join(a.name for a in schema)}; name one with --filter"
        )
    ids = [n for n in names if n != filter_column and _rank(n, _IDS) < len(_IDS)] or [
        n for n in names if n.lower().endswith("id")
    ]
    id_column = job.id or min(ids, key=lambda n: _rank(n, _IDS), default=None)
    if id_column is None:
        raise CommandError(f"no column of '{job.rules}' looks like an id ({', '.join(names)}); name one with --id")
    twice = [value for value, n in Counter(rules[id_column].to_pylist()).items() if n > 1]
    if twice:
        say_note(f"{job.rules}: the id {twice[0]!r:.80} is there more than once; rules with such ids are refused")
    return RuleColumns(id_column, filter_column, tuple(n for n in names if n not in (id_column, filter_column)))


def _rank(name: str, known: tuple[str, ...]) -> int:
    return known.index(name.lower()) if name.lower() in known else len(known)


def _compiling(texts: pa.ChunkedArray, schema: Schema) -> int:
    """How many of the first texts are filters that name an attribute; a constant such as TRUE may be anything."""
    from wherecast.language.filters.compile import Compiler

    some = [text for text in texts.slice(0, _TRIED).to_pylist() if isinstance(text, str)]
    compiled = Compiler(schema).compile_many(some)
    return len(some) - len(compiled.errors) if compiled.filters.attr.size or compiled.filters.programs else 0


def _compile(path: Path, texts: list[str], schema: Schema) -> tuple[set[str], int]:
    """The attributes that rules ask for, and how many rules are refused; those are shown."""
    import numpy as np

    from wherecast.language.filters.compile import Compiler

    compiled = Compiler(schema).compile_many(texts)
    bad = Shortlist("bad rules")
    for row, error in compiled.errors:
        bad.add(f"{path}: row {row}: {error}", error)
    bad.finish()
    attr = compiled.filters.attr
    used = np.unique(np.where(attr < 0, ~attr, attr)).tolist()
    return {schema.attributes[a].name for a in used if a < len(schema)}, len(compiled.errors)


# The file


def _render(
    job: InitJob,
    sample_file: Path,
    sample: pa.Table,
    schema: Schema,
    n_rules: int,
    columns: RuleColumns,
    asked: set[str],
) -> str:
    form = format_of(sample_file)
    folder = job.events if job.events.is_dir() else job.events.parent
    attributes = "\n".join(
        f"{_key(a.name)} = {_value(a.type_name)}{'' if a.name in asked else '  # no rule asks for it'}" for a in schema
    )
    rules_options = "\noptions = {header = true}" if format_of(job.rules) is Format.CSV else ""
    others = f"  # adds {_listed(columns.others)} to each match" if columns.others else ""
    return f"""\
# A pipeline of Wherecast, made by `wherecast init` from a sample. Relative paths are relative to this file.
#   wherecast pipeline run {job.out.name}       match what comes until stopped
#   wherecast pipeline status {job.out.name}    where it stands

[pipeline]
index = "pipeline/index"             # the rules, indexed; made by the first run
checkpoint = "pipeline/checkpoint"   # how far the stream has come: keep it together with the sink
output = "pairs"                     # a row per match; "lists": a row per event; "counts": only how many
subscribers = {_value(bool(columns.others))}{others}
trigger = "1 second"                 # or "available-now": match what is there, then stop

# The attributes that rules may ask for, with the types of the sample.
[schema.attributes]
{attributes}

# The rules: {n_rules:,} in the sample. After an edit, `wherecast pipeline build {job.out.name}` makes a new version; a running
# stream takes it up with its next batch.
[subscriptions]
path = {_value(_relative(job.rules, job.out))}
format = {_value(_SPARK_FORMATS[format_of(job.rules)])}
id = {_value(columns.id)}
filter = {_value(columns.filter)}{rules_options}

[plan]
strategy = "auto"                    # the cheapest; with few rules every worker has all of them

[events]
source = "files"                     # new files in the folder are new events
path = {_value(_relative(folder, job.out))}
format = {_value(_SPARK_FORMATS[form])}
{_event_options(form, sample_file, job.rules, sample)}
per_trigger = 10                     # files per micro-batch
# From Kafka instead, with JSON in the messages:
# source = "kafka"
# servers = "localhost:9092"
# topic = "events"
# per_trigger = 100000               # messages per micro-batch

[sink]
kind = "parquet"                     # or kafka, delta, iceberg, jdbc
path = "pipeline/matches"

# Events that do not fit the schema, with the reason. Without this table they are counted and left out.
[dead_letters]
kind = "parquet"
path = "pipeline/dead-letters"
"""


def _event_options(form: Format, file: Path, rules: Path, sample: pa.Table) -> str:
    """What reading files like the sample takes. The name filter keeps other files of the folder out, such as the rules."""
    mixed = (file.parent.resolve(), file.suffix) == (rules.parent.resolve(), rules.suffix)
    if mixed:
        say_note(f"events and rules are in one folder: only '{file.name}' is read; give events a folder of their own")
    names = f"pathGlobFilter = {_value(file.name if mixed else '*' + file.suffix)}"
    if form is not Format.CSV:
        return f"options = {{{names}}}"
    from wherecast.language.events.schema import Schema

    kinds = {a.column: a.type_name for a in Schema.of(sample.schema)}
    ddl = ", ".join(f"`{n}` {_CSV_TYPES.get(kinds.get(n, ''), 'STRING')}" for n in sample.schema.names)
    return f"columns = {_value(ddl)}\noptions = {{header = true, {names}}}"


def _relative(path: Path, out: Path) -> str:
    """A path as seen from the folder of the configuration."""
    here, there = out.parent.resolve(), path.resolve()
    return there.relative_to(here).as_posix() or "." if there.is_relative_to(here) else str(there)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _value(name)


def _value(value: object) -> str:
    """As TOML; its strings and JSON's are written alike."""
    return json.dumps(value, ensure_ascii=False)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
