"""Columns: which column of a DataFrame feeds which attribute, and what matching calls the columns it adds.

Names. Whether `Price` is `price` is Spark's setting `spark.sql.caseSensitive`. Names are resolved once, on the driver, when a
query is built; tasks get positions of columns by name and never compare names themselves.

Columns that exist only on the way begin with `__wherecast`, which no column of events may do. Columns that are added to the
result have plain names; where the events have such a column, the call is refused and the caller gives ours another name.

Time zones. A timestamp without a zone means the session's zone to Spark, and the constants of an index are instants. So a
build takes the zone of its session into the schema of the version, and an index is matched in sessions of that zone only.
Changes are read in the zone of the index, whatever the session. Where no attribute is a date or a timestamp, zones do not
matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.errors import SchemaError
from wherecast.language.events.convert import field_of, struct_of
from wherecast.language.events.schema import Schema
from wherecast.language.events.schema_forms import TIME_ZONE
from wherecast.language.events.types import MOMENTS
from wherecast.language.events.zone import UTC, find_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from wherecast.language.events.schema import Attribute, SchemaSource


#: Columns that matching adds on the way begin so; no column of events may, but those of an event that cannot be read.
PREFIX = "__wherecast"
IDS, SERVER, SERVERS = f"{PREFIX}_ids", f"{PREFIX}_server", f"{PREFIX}_servers"
#: Fields of a match, where it is more than an id.
ID, WHY = "id", "why"
#: Why an event cannot be used; NULL if it can.
ERROR = f"{PREFIX}_error"
#: What was counted in a piece of a batch, as a JSON object on its first event; NULL on the others.
TALLY = f"{PREFIX}_tally"
#: Name of a file that a task has written instead of handing over what it found.
FILE = f"{PREFIX}_file"
#: Column of an event that came as a message: the text of one that cannot be read, for the dead letters; NULL otherwise.
MESSAGE = f"{PREFIX}_message"

#: A column, or a field of a struct in it.
Path = tuple[str, ...]
#: What matching gives: a row per match, a list per event, or a count per event.
Output = Literal["pairs", "lists", "counts"]
#: Which of the `Names` says what matches.
FOUND: dict[Output, str] = {"pairs": "subscription", "lists": "subscriptions", "counts": "matches"}
#: Names that are one by a `NameRule`.
Groups = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class NameRule:
    """When two names are the same."""

    case_sensitive: bool

    @classmethod
    def of(cls, spark: SparkSession) -> Self:
        """The rule of a session."""
        return cls(str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true")

    def key(self, name: str) -> str:
        """Equal for names that are the same."""
        return name if self.case_sensitive else name.lower()

    def group(self, names: Iterable[str]) -> Groups:
        """The spellings of each name, by its key."""
        groups: Groups = {}
        for name in names:
            groups.setdefault(self.key(name), []).append(name)
        return groups

    def find(self, name: str, among: Groups, what: str = "columns") -> str | None:
        """The name as it is written there; None if it is not there. Raises SchemaError if there are several."""
        found = among.get(self.key(name), [])
        if len(found) > 1:
            remedy = "drop or rename one"
            if found[0] != found[1]:
                remedy += ", or set spark.sql.caseSensitive to true"
            raise SchemaError(f"the events have the {what} {found[0]!r} and {found[1]!r}, which are one name; {remedy}")
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Names:
    """What the columns are called that matching adds."""

    subscription: str = "subscription"
    subscriptions: str = "subscriptions"
    matches: str = "matches"
    explanation: str = "explanation"
    error: str = "error"
    message: str = "message"

    @classmethod
    def of(cls, given: Mapping[str, object] | Names | None) -> Names:
        """Names by what they are of; those that are not given are the usual ones. Raises SchemaError."""
        if isinstance(given, Names):
            return given
        known = [f.name for f in fields(cls)]
        for key, name in (given or {}).items():
            if key not in known:
                raise SchemaError(f"names: matching adds no column {key!r}; it adds {', '.join(known)}")
            if not isinstance(name, str) or not name or name.lower().startswith(PREFIX):
                raise SchemaError(f"names: {key} is {name!r}; expected a text that does not begin with {PREFIX}")
        names = cls(**{key: str(name) for key, name in (given or {}).items()})
        chosen = [names.column(key) for key in known]
        twice = next((n for i, n in enumerate(chosen) if n.lower() in map(str.lower, chosen[:i])), None)
        if twice is not None:
            raise SchemaError(f"names: {twice!r} is there twice; give each column a name of its own")
        return names

    def column(self, key: str) -> str:
        """What the column of a key, such as `error`, is called."""
        return str(getattr(self, key))

    def found(self, output: Output) -> str:
        """What the column is called that says what matches."""
        return self.column(FOUND[output])

    def refuse_clashes(
        self,
        added: Iterable[str],
        events: DataFrame,
        subscribers: DataFrame | None = None,
        rules: Iterable[str] = (),
    ) -> None:
        """Raises SchemaError if the events or the subscribers have a column that is to be added, or each other's.

        `added` are keys, such as `error`; `rules` are names of rule columns.
        """
        rule, own = NameRule.of(events.sparkSession), own_columns(events)
        columns = rule.group(own)
        for name in own:
            if name.lower().startswith(PREFIX):
                raise SchemaError(
                    f"the events have a column {name!r}; names that begin with {PREFIX} are reserved: rename it"
                )
            rule.find(name, columns)
        others = rule.group([] if subscribers is None else subscribers.columns)
        others.pop("id", None)
        added, shown = list(added), rule.group(rules)
        for spellings in shown.values():
            for whose, names in (("events", columns), ("subscribers", others)):
                clash = rule.find(spellings[0], names)
                if clash is not None:
                    raise SchemaError(
                        f"both the {whose} and the rules have a column {clash!r}; give that of the rules another name: "
                        f"columns={{{clash!r}: '...'}}"
                    )
        for key in added:
            if rule.find(self.column(key), shown) is not None:
                raise SchemaError(
                    f"the rules have a column {self.column(key)!r}, and matching adds one of that name; give that of the "
                    f"rules another name: columns={{{self.column(key)!r}: '...'}}"
                )
            for whose, names in (("events", columns), ("subscribers", others)):
                clash = rule.find(self.column(key), names)
                if clash is not None:
                    raise SchemaError(
                        f"the {whose} have a column {clash!r}, and matching adds one of that name; rename it, or give "
                        f"ours another name: names={{{key!r}: '...'}}"
                    )
        for spellings in others.values():
            clash = rule.find(spellings[0], columns)
            if clash is not None:
                raise SchemaError(f"both the events and the subscribers have a column {clash!r}; rename or drop one")


def rule_field(number: int) -> str:
    """What the field of a rule column is called on the way: its own name may be that of another field."""
    return f"rule{number}"


def own_columns(events: DataFrame) -> list[str]:
    """The columns of events without those that say what is wrong with one."""
    return [name for name in events.columns if name not in (ERROR, MESSAGE)]


def quoted(name: str) -> Column:
    """A column by its name, whatever characters it has."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(quote(name))


def quote(*path: str) -> str:
    """A column, or a field in it, as SQL."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def resolve(struct: StructType, schema: Schema, needed: Iterable[str], rule: NameRule) -> dict[str, Path]:
    """Where each attribute is: its column, or the field of a column. Those that are not there are left out.

    Raises SchemaError if one that is needed could be in several places, or in none because its column has no fields.
    """
    must, found, levels = set(needed), {}, _Levels(struct, rule)
    for attribute in schema:
        try:
            path = levels.resolve(attribute)
        except SchemaError:
            if attribute.name in must:
                raise
            continue
        if path is not None:
            found[attribute.name] = path
    return found


class _Levels:
    """The names of columns, and of fields in them where somebody looked."""

    def __init__(self, struct: StructType, rule: NameRule) -> None:
        self.struct = struct
        self.rule = rule
        self._groups: dict[Path, Groups] = {}

    def resolve(self, attribute: Attribute) -> Path | None:
        """The path of an attribute; None if there is none."""
        whole = self.rule.find(attribute.column, self._inside((), self.struct))
        if whole is not None:
            return (whole,)
        path: Path = ()
        kind: DataType = self.struct
        for part in attribute.path:
            if attribute.is_array:  # of structs: a field of it is an array, too
                kind = getattr(kind, "elementType", kind)
            if not hasattr(kind, "names"):
                raise SchemaError(
                    f"the column {'.'.join(path)!r} is {kind.simpleString()}, but filters ask for its field {part!r}; "
                    "rename it, or give it that field"
                )
            what = f"fields of {'.'.join(path)}" if path else "columns"
            name = self.rule.find(part, self._inside(path, kind), what)
            if name is None:
                return None
            path, kind = (*path, name), kind[name].dataType  # type: ignore[index]  # it has names
        return path

    def _inside(self, path: Path, kind: DataType) -> Groups:
        if path not in self._groups:
            self._groups[path] = self.rule.group(kind.names)  # type: ignore[attr-defined]
        return self._groups[path]


def without_dots(columns: Iterable[str]) -> dict[str, str]:
    """Other names for columns with dots in their names, which Spark's Arrow functions take for fields."""
    return {name: f"{PREFIX}_column{number}" for number, name in enumerate(columns) if "." in name}


def renamed(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """A frame with other names for some columns."""
    return frame.toDF(*(names.get(name, name) for name in frame.columns)) if names else frame


def select_attributes(events: DataFrame, schema: Schema) -> DataFrame:
    """The attributes that events have, each a column of its own name."""
    found = resolve(events.schema, schema, (), NameRule.of(events.sparkSession))
    if not found:
        return events
    from pyspark.sql import functions as F  # noqa: N812

    return events.select(*(F.col(quote(*path)).alias(schema[name].column) for name, path in found.items()))


def field_at(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """A column of a batch, or a field in it."""
    array = batch.column(path[0])
    for name in path[1:]:
        struct = struct_of(array.type, in_lists=True)
        assert struct is not None  # the driver has looked
        array = field_of(array, struct.get_field_index(name))
    return array


def conform(events: pa.RecordBatch, form: pa.Schema, rule: NameRule) -> pa.RecordBatch:
    """The columns of `form` that a batch has, under the names of `form`; so are the fields of structs."""
    found, columns = {}, rule.group(events.schema.names)
    for field in form:
        name = rule.find(field.name, columns)
        if name is not None:
            found[field.name] = _conformed(events.column(events.schema.get_field_index(name)), field.type, rule)
    if not found:
        raise SchemaError(f"the events have none of the columns {', '.join(form.names)}; check their names")
    return pa.RecordBatch.from_arrays(list(found.values()), list(found))


def _conformed(array: pa.Array, kind: pa.DataType, rule: NameRule) -> pa.Array:
    if array.type == kind or not (pa.types.is_struct(kind) and pa.types.is_struct(array.type)):
        return array
    inside = [field.name for field in array.type]
    groups, children = rule.group(inside), []
    for field in kind:
        name = rule.find(field.name, groups, "fields")
        if name is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(_conformed(pc.struct_field(array, [inside.index(name)]), field.type, rule))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


# Time zones

_ZONE, _LITERALS = "spark.sql.session.timeZone", "spark.sql.timestampType"


def schema_in_session(schema: SchemaSource, spark: SparkSession) -> Schema:
    """The schema of an index that a session builds. Raises SchemaError if it has a zone of its own, and another one."""
    read = Schema.of(schema)
    if not _has_moments(read):
        return read
    zone = _session_zone(spark)
    if read.time_zone not in (UTC.name, zone):
        raise SchemaError(
            f"the schema has the time zone {read.time_zone}, the session {zone}; leave out the zone of the schema, "
            f"or set {_ZONE} to it"
        )
    if isinstance(schema, dict) and TIME_ZONE not in schema:  # its domains are read in the session's zone, too
        return Schema.of(schema, time_zone=zone)
    return read.in_time_zone(zone)


def check_session(spark: SparkSession, schema: Schema) -> None:
    """Raises SchemaError if the answers of an index are not those of a session."""
    if _has_moments(schema):
        _check_zone(_session_zone(spark), schema)


def check_moments(columns: StructType, schema: Schema, where: Mapping[str, Path]) -> None:
    """Raises SchemaError where a column is another kind of date or timestamp than its attribute, which is at `where`.

    Spark compares by the type of the column: a wall clock or a day is not the instant that it would be converted to.
    """
    for attribute in (schema[name] for name in where):
        for own, found in zip(_parts(attribute), _types_of(columns, where[attribute.name]), strict=False):
            if own.type in MOMENTS and found in tuple(MOMENTS) and found != own.type:
                raise SchemaError(
                    f"the column {attribute.name!r} is a {found}, its attribute a {own.kind}; cast the column, or build "
                    f"the index with {attribute.name!r} as {found}"
                )


def check_batch(batch: pa.RecordBatch, schema: Schema) -> None:
    """Raises SchemaError if the timestamps of a batch come from a session of another zone, which they tell."""
    zones = {getattr(kind, "tz", None) for kind in batch.schema.types} - {None}
    if _has_moments(schema):
        for zone in zones:
            _check_zone(find_zone(zone).name, schema)


def _check_zone(zone: str, schema: Schema) -> None:
    if zone != schema.time_zone:
        raise SchemaError(
            f"the index was built in the time zone {schema.time_zone}, the session has {zone}, and timestamps without a "
            f"zone would mean different times; set {_ZONE} to {schema.time_zone}, or build the index again in this session"
        )


def _session_zone(spark: SparkSession) -> str:
    if str(spark.conf.get(_LITERALS)).upper() == "TIMESTAMP_NTZ":
        raise SchemaError(
            f"{_LITERALS} is TIMESTAMP_NTZ; set it to TIMESTAMP_LTZ and write TIMESTAMP_NTZ '...' in filters"
        )
    return find_zone(str(spark.conf.get(_ZONE))).name


def _has_moments(schema: Schema) -> bool:
    return any(part.type in MOMENTS for attribute in schema for part in _parts(attribute))


def _parts(attribute: Attribute) -> list[Attribute]:
    """The attribute; of a map, what stands for its keys and what stands for its values."""
    return [attribute] if attribute.value is None else [attribute, attribute.value]


def _types_of(columns: StructType, path: Path) -> list[str]:
    """Spark's name for the type of a column or field, of the elements of an array, or of keys and values of a map."""
    found: Any = columns
    for name in path:
        found = getattr(found, "elementType", found)[name].dataType
    parts = [found.keyType, found.valueType] if hasattr(found, "keyType") else [getattr(found, "elementType", found)]
    return [str(part.typeName()) for part in parts]
