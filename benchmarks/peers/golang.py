"""quamina: a small Go program, compiled when it is first needed by the `go` on PATH."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import DRIVERS, DriverPeer, call
from benchmarks.peers.jvm import levels_of
from benchmarks.peers.peer import CannotError
from benchmarks.peers.workloads import Clause, PeerWorkload


class Quamina(DriverPeer):
    """Tim Bray's quamina."""

    name = "quamina"
    form = "`AddPattern` with patterns in JSON, `MatchesForEvent` with the event as JSON bytes, as its README recommends; topics are split into a field per level, with the number of levels beside them"
    most = 10_000

    def command(self) -> list[str]:
        return ["env", "GOMAXPROCS=1", program()]

    def filters(self, workload: PeerWorkload) -> Iterable[Any]:
        if workload.name == "words":
            raise CannotError("a rule cannot ask one field for several values")
        if workload.name == "rules":
            raise CannotError("a rule cannot have two patterns for one field (`cmd LIKE a AND cmd LIKE b`)")
        return [(number, pattern(clause)) for number, clauses in enumerate(workload.filters) for clause in clauses]

    def event(self, workload: PeerWorkload, event: dict[str, Any]) -> Any:
        if workload.name != "topics":
            return event
        found = levels_of(event["topic"])
        return {**found, "levels": str(len(found))}


def pattern(clause: Clause) -> dict[str, list[Any]]:
    """A conjunction of equalities, or a topic. Raises CannotError."""
    if clause[0].kind == "topic":
        return topic_pattern(clause[0].value)
    if any(test.kind != "is" for test in clause):
        raise CannotError("a rule cannot compare numbers but for equality")
    values: dict[str, list[Any]] = {}
    for test in clause:
        if values.setdefault(test.attribute, [test.value]) != [test.value]:
            return {test.attribute: []}  # two values at once: never holds
    return values


def topic_pattern(topic: str) -> dict[str, list[Any]]:
    """A pattern over a field per level.

    The number of levels says that there are no more: quamina 1.4 loses matches of patterns with `exists: true` and `exists: false`.
    """
    levels = topic.split("/")
    if levels[-1] == "#":
        return {f"l{n}": [{"exists": True}] if level == "+" else [level] for n, level in enumerate(levels[:-1])}
    return {f"l{n}": [level] for n, level in enumerate(levels) if level != "+"} | {"levels": [str(len(levels))]}


@cache
def program() -> str:
    """The compiled driver."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise SystemExit("quamina needs Go: install it, or leave it out with --peers")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    call(go, "build", "-o", folder, ".", cwd=DRIVERS / "quamina")
    return str(Path(folder) / "quamina")
