"""Following a table that knows its versions: what is compared, and when."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from wherecast.spark import follow
from wherecast.spark.feeds import ChangeFeed
from wherecast.spark.follow import Fed


class Table(ChangeFeed):
    """A table with the ids that each of its versions has touched; None: it cannot tell."""

    def __init__(self) -> None:
        super().__init__(None, "rules")  # type: ignore[arg-type]
        self.touched: list[list[int] | None] = [[]]

    def version(self) -> int | None:
        return len(self.touched) - 1

    def changes(self, since: int, until: int) -> Any:
        raise AssertionError

    def read(self, version: int | None) -> Any:
        return version

    def changed_ids(self, since: int, until: int, column: str) -> pa.Table | None:
        assert column == "rule_id"
        steps = self.touched[since + 1 : until + 1]
        return None if None in steps else pa.table({"id": [id for ids in steps for id in ids or []]})


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The version of the table and the ids of each comparison; every one commits a version of the index."""
    seen: list[Any] = []

    def sync(rules: int, index: Any, only: pa.Table | None) -> Any:
        seen.append((rules, None if only is None else only["id"].to_pylist()))
        index.number += 1
        return SimpleNamespace(version=index.number)

    monkeypatch.setattr(follow, "sync_rules", sync)
    return seen


def test_only_what_changed_is_compared(looks: list[Any]) -> None:
    """The first look compares the whole table, one at the same version nothing, a later one the ids of all versions between."""
    index, table = _index(), Table()
    fed = Fed(table)
    fed.sync(index)
    assert fed.sync(index) is None
    table.touched += [[1], [2, 3]]
    fed.sync(index)
    assert fed.sync(index) is None
    assert looks == [(0, None), (2, [1, 2, 3])]


def test_the_whole_table_is_compared_when_in_doubt(looks: list[Any]) -> None:
    """Somebody else has committed a version of the index, or the table cannot tell what changed."""
    index, table = _index(), Table()
    fed = Fed(table)
    fed.sync(index)
    index.number += 1
    fed.sync(index)
    table.touched.append(None)
    fed.sync(index)
    table.touched.append([7])
    index.number += 1
    fed.sync(index)
    assert looks == [(0, None), (0, None), (1, None), (2, None)]


def test_a_look_that_fails_is_made_again(looks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it should have compared is compared by the next look, with what has changed since."""
    index, table = _index(), Table()
    fed = Fed(table)
    fed.sync(index)
    table.touched.append([1])
    with monkeypatch.context() as patch:
        patch.setattr(follow, "sync_rules", _fail)
        with pytest.raises(ValueError, match="an id is there twice"):
            fed.sync(index)
    table.touched.append([2])
    fed.sync(index)
    assert looks == [(0, None), (2, [1, 2])]


def _fail(*_: Any) -> None:
    raise ValueError("an id is there twice")


def _index() -> Any:
    index = SimpleNamespace(number=1)
    index.latest = lambda: index.number
    index.read = lambda: SimpleNamespace(id_column="rule_id")
    return index


def test_files_that_are_being_replaced_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state that an overwrite goes through is passed over, and the table is read when it is whole again."""
    synced: list[int] = []
    monkeypatch.setattr(follow, "sync_rules", lambda rules, _: synced.append(len(rules.inputFiles())))
    folder = tmp_path / "rules v1"
    (folder / "day=1").mkdir(parents=True)
    listed: list[int] = []

    def files() -> list[str]:
        return [path.as_uri() for path in sorted(folder.rglob("*.parquet"))]

    def read() -> Any:
        listed.append(1)
        found = files()  # a DataFrame keeps the files that it was made with
        return SimpleNamespace(inputFiles=lambda: found)

    def look() -> int:
        polled.sync(SimpleNamespace(url="index"))  # type: ignore[arg-type]
        return len(synced)

    polled = follow.Polled(read)
    (folder / "day=1" / "a.parquet").touch()
    (folder / "b.parquet").touch()
    assert look() == 1
    (folder / "_SUCCESS").touch()
    assert look() == 2
    for path in (folder / "_SUCCESS", folder / "b.parquet"):
        path.unlink()
    assert look() == 2, "a mark that was there is missing"
    (folder / "day=1" / "a.parquet").unlink()
    assert look() == 2, "no files"
    (folder / "_temporary").mkdir()
    (folder / "c.parquet").touch()
    (folder / "_SUCCESS").touch()
    assert look() == 2, "somebody is writing"
    (folder / "_temporary").rmdir()
    seen = files()
    (folder / "d.parquet").touch()
    counted = len(listed)
    monkeypatch.setattr(
        follow.TableFiles,
        "of",
        classmethod(
            lambda cls, rules: cls(frozenset(seen if len(listed) == counted + 1 else files()), None, True, False)
        ),
    )
    assert look() == 2, "the files were moved in while it looked"
    monkeypatch.undo()
    monkeypatch.setattr(follow, "sync_rules", lambda rules, _: synced.append(len(rules.inputFiles())))
    assert look() == 3
    assert synced == [2, 2, 2]


def test_tables_without_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database has none, and neither has a folder before its first file."""
    synced: list[Any] = []
    monkeypatch.setattr(follow, "sync_rules", lambda rules, _: synced.append(rules))
    polled = follow.Polled(lambda: SimpleNamespace(inputFiles=list))  # type: ignore[arg-type,return-value]
    polled.sync(SimpleNamespace(url="index"))  # type: ignore[arg-type]
    assert len(synced) == 1


class SparkError(Exception):
    """As PySpark raises them."""


SparkError.__module__ = "pyspark.errors"


@pytest.mark.parametrize(
    ("error", "has_trace"), [(SparkError("a file is gone\nJVM stacktrace"), False), (KeyError("x"), True)]
)
def test_a_failed_look_is_a_line_in_the_log(
    error: Exception, has_trace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What Java says is pages long, and its first line is enough; an error of our own has its trace."""

    class Gone(follow.FollowedTable):
        def sync(self, index: Any) -> Any:
            raise error

    follower = follow.TableQuery(Gone(), SimpleNamespace(url="index"), 0.01)  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        follower.processAllAvailable()
    follower.stop()
    record = caplog.records[0]
    assert "the table could not be followed, trying again: index=index" in record.getMessage()
    assert str(error).partition("\n")[0] in record.getMessage()
    assert "JVM" not in record.getMessage()
    assert bool(record.exc_info) == has_trace
