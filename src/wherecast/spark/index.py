"""Index: a versioned directory of built rules, and everything that can be done with it.

On disk
-------
::

    INDEX/
      versions/000000007.json      one manifest per version, never changed; the newest is the current one
      layers/3f0c9a51b2d4e687/     saved engines and what they remove
      plans/9a51b2d4e6873f0c/      how subscriptions are spread over servers
      quarantine/51b2d4e6873f0c9a/ rules that are refused
      writers/<number>.json        who is making a new version, see `clean`
      pins/<checkpoint>/           versions that a stream may replay, see `clean`
      reports/<checkpoint>.json    what became of the last batches of a stream, see `progress`

A version comes into being when its manifest is created. Layers and plans are written before it, and readers see them only
once a manifest names them. All of it is on the disk before the manifest is. Removing is the reverse: first the manifest,
then what no other manifest names, see `clean`.

A version is immutable: a schema, a plan, and for every server the layers to lay over each other, oldest first. `manifest` has
the file, `layers` what it names.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from wherecast.engine.engine import Engine
from wherecast.errors import UnknownIdError
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.clean import GRACE_S, hold, missing_folders, remove_versions, sweep
from wherecast.spark.layers import open_layers, open_plan, open_rules
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import RuleTable, arrow_form, columns_of
from wherecast.spark.store import VERSIONS, IndexStoreError, StaleVersionError, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.engine.checks import SubscriptionId
    from wherecast.engine.explain import Explanation
    from wherecast.engine.lint import LintFindings
    from wherecast.language.events.schema import SchemaSource
    from wherecast.partition.plan import Strategy
    from wherecast.spark.changes import Applied, ChangesQuery
    from wherecast.spark.columns import Output
    from wherecast.spark.files import CheckFiles
    from wherecast.spark.follow import TableQuery
    from wherecast.spark.match import Numbers, RuleColumns
    from wherecast.spark.servers import Rebalancer
    from wherecast.spark.sinks.sink import Sink
    from wherecast.spark.stream import MatchQuery
    from wherecast.spark.sync import SyncReport

_COMMITTING = threading.Lock()


#: Versions that a notebook shows.
_SHOWN = 10


class Index:
    """An index directory: build it, match events against it, keep it up to date, look at its versions.

    Cheap to create: nothing is read before it is asked for. Tasks create their own from `url`.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.store = Store(url)
        self.url = self.store.url

    # What users do

    @classmethod
    def build(
        cls,
        rules: DataFrame,
        path: str | os.PathLike[str],
        *,
        schema: SchemaSource,
        id: str = "id",
        filter: str = "filter",
        strategy: Strategy = "broadcast",
        servers: int | None = None,
        sample: DataFrame | None = None,
        sequence: int = 0,
        start_over: bool = False,
        progress: bool = False,
    ) -> Index:
        """Build a new version of the index at `path` from a table of rules, and make it current.

        All columns besides ids and filters are stored with the rules, for `match(columns=...)`. Rules that cannot be used are
        left out, logged, and listed by `quarantine()`.

        Args:
            rules: The table; see `id` and `filter`.
            path: A folder, or the URL of one on any file system that PyArrow or fsspec reaches.
            schema: Of the events: their DataFrame, a StructType, an Arrow schema, a mapping, a file. A column whose type cannot
                be used matters only if a filter names it.
            id: What the table calls the ids, integers or strings. `sync` and `apply` expect the same name.
            filter: What it calls the filters.
            strategy: How rules are spread over servers, see `build_index`.
            servers: How many servers, by default as many as Spark runs tasks at a time.
            sample: Some events, to plan for.
            sequence: Number of the last change that the table contains, where there is a change log.
            start_over: Build even if that undoes changes.
            progress: Show on a terminal or in a notebook which step it is at; the log says it anyway.
        """
        from wherecast.spark.build import build_index

        built = build_index(
            rules,
            schema,
            os.fspath(path),
            id=id,
            filter=filter,
            strategy=strategy,
            servers=servers,
            events=sample,
            sequence=sequence,
            start_over=start_over,
            progress=progress,
        )
        return built.index

    def match(
        self,
        events: DataFrame,
        *,
        columns: RuleColumns = (),
        output: Output = "pairs",
        version: int | None = None,
        unmatched: bool = False,
        explain: bool = False,
        on_error: Literal["raise", "skip", "keep"] = "raise",
        numbers: Numbers | None = None,
        names: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Events with the rules that they satisfy: `events.transform(index.match)`.

        Args:
            events: Batch or stream; columns are found by name.
            columns: Rule columns to add to each match, such as `["severity", "owner"]`, as they are in the version; a mapping
                gives them other names, `*` asks for all.
            output: `pairs`: the event and one `subscription` per row. `lists`: one row per event with an array
                `subscriptions`, of ids, or of structs if there are `columns`. `counts`: the number `matches`.
            version: By default the current one, decided now.
            unmatched: Whether `lists` and `counts` keep events that match nothing.
            explain: Adds `explanation` to pairs; for a few events.
            on_error: For events that do not fit the schema, see `wherecast.spark.match`.
            numbers: Filled with counts once the result has been computed.
            names: Other names for added columns, such as `{"subscription": "rule_id"}`.
        """
        from wherecast.spark.match import match

        return match(
            events,
            self,
            columns=columns,
            output=output,
            version=version,
            unmatched=unmatched,
            explain=explain,
            on_error=on_error,
            numbers=numbers,
            names=names,
        )

    def write(
        self,
        events: DataFrame,
        sink: Sink,
        *,
        columns: RuleColumns = (),
        output: Output = "pairs",
        on_error: Literal["raise", "skip"] = "raise",
        names: Mapping[str, str] | None = None,
    ) -> dict[str, int]:
        """Match a DataFrame once and give a sink what it matches; the numbers, as of `Numbers`.

        All of it is in the sink or nothing. A `Parquet` sink must be empty and has one batch then, 0; a table takes a batch with each call.
        See `match` for the other arguments.
        """
        from wherecast.spark.once import write_once

        return write_once(events, self, sink, columns=columns, output=output, on_error=on_error, names=names)

    def stream(
        self,
        events: DataFrame,
        sink: Sink,
        checkpoint: str,
        *,
        columns: RuleColumns = (),
        output: Output = "pairs",
        dead_letters: Sink | None = None,
        rebalancer: Rebalancer | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        names: Mapping[str, str] | None = None,
        check_files: CheckFiles | None = None,
    ) -> MatchQuery:
        """Start matching a stream of events. Every batch pins one version, with its rules and their columns.

        See `wherecast.spark.stream` for the arguments.
        """
        from wherecast.spark.stream import stream

        return stream(
            events,
            self,
            sink,
            checkpoint,
            columns=columns,
            output=output,
            dead_letters=dead_letters,
            rebalancer=rebalancer,
            trigger=trigger,
            name=name,
            names=names,
            check_files=check_files,
        )

    def apply(self, changes: DataFrame) -> Applied:
        """Commit a version with numbered changes: `sequence`, `op` (`upsert` or `delete`), id, filter and rule columns.

        The columns of ids and filters have the names that the index was built with. A rule column that is missing is NULL.
        """
        from wherecast.spark.changes import apply_changes

        return apply_changes(changes, self)

    def sync(self, rules: DataFrame) -> SyncReport:
        """Make the index equal to a table of rules, in one new version; in none if it is so already.

        The table is the truth: a rule whose row is gone is removed, and one whose edit is refused is not live any more but in
        the quarantine. Tasks compare ids and content, so only what differs comes to the driver.

        Raises:
            SubscriptionError: Ids occur more than once, or a column has another type than in the index.
            IndexStoreError: There is no index yet, or it has numbered changes (`apply`), which a sync would undo.
        """
        from wherecast.spark.sync import sync_rules
        from wherecast.spark.tidying import KEPT_VERSIONS, needs_tidying, tidy

        synced = sync_rules(rules, self)
        if synced.committed and needs_tidying(synced.manifest):
            tidy(rules.sparkSession, self, KEPT_VERSIONS)
        return synced

    @overload
    def follow(
        self,
        source: DataFrame,
        checkpoint: str,
        *,
        trigger: Mapping[str, Any] | None = None,
        dead_letters: Sink | None = None,
    ) -> ChangesQuery: ...

    @overload
    def follow(
        self, source: str | Callable[[], DataFrame], *, trigger: Mapping[str, Any] | None = None
    ) -> TableQuery: ...

    def follow(
        self,
        source: DataFrame | str | Callable[[], DataFrame],
        checkpoint: str | None = None,
        *,
        trigger: Mapping[str, Any] | None = None,
        dead_letters: Sink | None = None,
    ) -> ChangesQuery | TableQuery:
        """Keep the index up to date in the background, with a table or with a log of changes.

        Args:
            source: The name of a table, or a function that reads one, `lambda: spark.read.parquet("rules")`: it is synced again and
                again. Or a streaming DataFrame of numbered changes, as for `apply`.
            checkpoint: For a log: where Spark remembers how far it has come.
            trigger: How often, as for `DataStreamWriter.trigger`; a table by default every 10 seconds.
            dead_letters: For a log: a sink for refused and late changes.
        """
        from wherecast.spark.changes import follow_changes
        from wherecast.spark.follow import follow_table

        if isinstance(source, str) or callable(source) or not source.isStreaming:
            return follow_table(source, self, trigger)  # type: ignore[arg-type]  # refuses a batch DataFrame
        if checkpoint is None:
            raise IndexStoreError("a log of changes is followed with a checkpoint; pass a folder for it")
        return follow_changes(source, self, checkpoint, dead_letters=dead_letters, **(trigger or {}))

    def compact(self, *, progress: bool = False) -> Manifest:
        """Merge the layers of every server into one, as a new version, in the active Spark session."""
        from wherecast.spark.servers import compact
        from wherecast.spark.session import active_session

        return compact(active_session(), self, progress=progress)

    def quarantine(self, version: int | None = None) -> DataFrame:
        """Rules of the table that a version does not have because they are refused: `id`, `filter`, `reason`, `position`."""
        from wherecast.spark.quarantine import open_quarantine
        from wherecast.spark.session import active_session
        from wherecast.spark.subscriptions import quarantine_frame

        refused = open_quarantine(self.store, self.read(version).quarantine)
        return quarantine_frame(active_session(), refused)

    def explain(self, event: Mapping[str, object], id: SubscriptionId, *, version: int | None = None) -> Explanation:
        """Why an event does or does not satisfy a rule: each clause, each predicate. Raises UnknownIdError."""
        manifest = self.read(version)
        for server in range(len(manifest.servers)):
            engine = self.serve(manifest, server)
            if id in engine:
                return engine.explain(event, id)
        raise UnknownIdError(f"version {manifest.version} of {self.url} has no rule {id!r:.80}")

    def lint(self, *, version: int | None = None, progress: bool = False) -> LintFindings:
        """What looks wrong with the rules of a version, as `Engine.lint` tells it.

        Raises IndexStoreError if the rules are spread over several servers: to compare them, they must be in one place.
        """
        manifest = self.read(version)
        if manifest.plan is not None:
            raise IndexStoreError(
                f"the rules of {self.url} are spread over {len(manifest.servers)} servers, and lint compares all of them in one "
                "place; build a broadcast index of the table and lint that"
            )
        return self.serve(manifest, 0).lint(progress=progress)

    # Versions

    def __repr__(self) -> str:
        return f"Index({self.url!r})"

    def _repr_html_(self) -> str:
        numbers, found = self.versions(), []
        for number in reversed(numbers[-_SHOWN:]):
            with suppress(FileNotFoundError, IndexStoreError):  # cleaned away meanwhile, or damaged: `read` tells
                found.append(self._read(number))
        rows = [(m.version, m.created, f"{m.subscriptions:,}", len(m.servers), m.sequence) for m in found]
        header = ("version", "created", "subscriptions", "servers", "sequence")
        return html_table(f"Index {self.url}", header, rows, more=len(numbers) - len(rows))

    def versions(self) -> list[int]:
        """All versions there are, oldest first."""
        return [int(n.removesuffix(".json")) for n in self.store.names(VERSIONS) if n.endswith(".json")]

    def latest(self) -> int:
        """The current version. Raises IndexStoreError if there is none."""
        versions = self.versions()
        if not versions:
            raise IndexStoreError(
                f"there is no index at {self.url!r}; build one with Index.build (wherecast.spark.build_index)"
            )
        return versions[-1]

    def read(self, version: int | None = None) -> Manifest:
        """The manifest of a version, by default of the current one. Raises IndexStoreError if there is none."""
        number = self.latest() if version is None else version
        while True:
            try:
                return self._read(number)
            except FileNotFoundError:
                newest = self.latest()
            if version is not None or newest == number:
                known = ", ".join(map(str, self.versions()[-5:]))
                raise IndexStoreError(f"the index {self.url} has no version {number} any more (newest: {known})")
            number = newest  # it was replaced and cleaned away between two looks

    def _read(self, number: int) -> Manifest:
        """Raises FileNotFoundError."""
        place = f"{self.url}/{_version_name(number)}"
        manifest = Manifest.from_bytes(self.store.read(_version_name(number)), place)
        if manifest.version != number:
            raise IndexStoreError(f"{place} is version {manifest.version}: it was moved; restore the folder as it was")
        return manifest

    def manifests(self) -> list[Manifest]:
        """Those of all versions, oldest first; versions that are cleaned away meanwhile are left out."""
        found = []
        for number in self.versions():
            with suppress(FileNotFoundError):
                found.append(self._read(number))
        return found

    @contextmanager
    def begin(self) -> Iterator[Manifest | None]:
        """The current version (None: there is none yet), to make the next one of.

        Until the block ends, a clean-up removes neither that version nor anything that is written meanwhile.
        """
        while True:
            newest = max(self.versions(), default=None)
            with hold(self.store, newest):
                if newest == max(self.versions(), default=None):  # a lease of an older one may have come too late
                    yield None if newest is None else self._read(newest)
                    return

    @contextmanager
    def change(self) -> Iterator[Manifest]:
        """As `begin`, but raises IndexStoreError if there is no version yet."""
        self.latest()
        with self.begin() as current:
            assert current is not None
            yield current

    def commit(self, manifest: Manifest) -> Manifest:
        """Make a version current, numbered one above the newest.

        Raises:
            StaleVersionError: another version was committed since this one was begun, or a clean-up removed its files.
            IndexStoreError: a folder of the version before is missing, which this one needs as well.
        """
        folders = manifest.folders
        # Changes and rebalancing commit from two threads; not every store keeps them apart.
        with _COMMITTING, hold(self.store, folders=folders):
            newest = max(self.versions(), default=0)
            if newest != (manifest.parent or 0):
                raise StaleVersionError(
                    f"version {newest} was committed while changing {manifest.parent or 'nothing'}; begin again from it"
                )
            self._check_folders(manifest)
            created = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
            manifest = replace(manifest, version=newest + 1, created=created)
            if not self.store.create(_version_name(manifest.version), manifest.to_bytes()):
                raise StaleVersionError(
                    f"version {manifest.version} was committed by somebody else; begin again from it"
                )
        return manifest

    def _check_folders(self, manifest: Manifest) -> None:
        """Raises if a version would name what is not there, or is being removed."""
        missing = missing_folders(self.store, manifest.folders)
        if not missing:
            return
        before = set() if manifest.parent is None else self.read(manifest.parent).folders
        if lost := sorted(missing & before):
            raise IndexStoreError(f"{self.url}/{lost[0]} is missing; restore it or build the index again")
        raise StaleVersionError(
            f"{self.url}/{min(missing)} was removed by a clean-up before a version named it; begin again"
        )

    def schema(self, version: int | None = None) -> Schema:
        return Schema.from_json(self.read(version).schema)

    def serve(self, manifest: Manifest, server: int) -> Engine:
        """The open engine of a server. Raises IndexStoreError if a file is missing or damaged."""
        with self._explained(manifest):
            return open_layers(self.url, manifest.servers[server])

    def serve_rules(self, manifest: Manifest, server: int) -> RuleTable:
        """The open columns of the rules of a server, by their place in its engine. Raises IndexStoreError as `serve` does."""
        engine = self.serve(manifest, server)
        with self._explained(manifest):
            rules = open_rules(self.url, manifest.servers[server], arrow_form(columns_of(manifest)))
        if len(rules) != engine.slots():
            raise IndexStoreError(
                f"the layers of server {server} of {self.url} have {engine.slots():,} places for subscriptions and "
                f"{len(rules):,} rules; build the index again"
            )
        return rules

    def plan(self, manifest: Manifest) -> Plan | None:
        """How events are routed; None if there is only one server. Raises IndexStoreError as `serve` does."""
        if manifest.plan is None:
            return None
        with self._explained(manifest):
            plan = open_plan(self.url, manifest.plan)
        if plan.n_servers != len(manifest.servers):
            raise IndexStoreError(
                f"{self.url}/{manifest.plan.folder} is for {plan.n_servers} servers, version {manifest.version} has "
                f"{len(manifest.servers)}; build the index again"
            )
        return plan

    @contextmanager
    def _explained(self, manifest: Manifest) -> Iterator[None]:
        """Tells a version that was cleaned away from one that is damaged."""
        try:
            yield
        except IndexStoreError:
            if self.store.exists(_version_name(manifest.version)):
                raise
            raise IndexStoreError(
                f"version {manifest.version} of {self.url} was removed by a clean-up while it was used; read the current "
                "version, or keep more of them (clean(keep=...), keep_versions, [limits] versions)"
            ) from None

    def clean(self, keep: int = 2, *, grace_s: float | None = None) -> list[int]:
        """Remove old versions, except those that a stream has pinned or a writer uses, and the newest `keep`.

        Returns the versions removed. Layers and plans that no version names go with them once they are older than
        `grace_s` (an hour) and than the work of every writer; so do drafts of processes that were killed. It may run at any
        time, beside streams, builds, changes and other clean-ups.
        """
        gone = remove_versions(self, keep)
        sweep(self, GRACE_S if grace_s is None else grace_s)
        return gone

    def forget(self, version: int) -> None:
        """Remove the manifest of a version that is no longer used."""
        self.store.remove(_version_name(version))


def _version_name(version: int) -> str:
    return f"{VERSIONS}/{version:09d}.json"
