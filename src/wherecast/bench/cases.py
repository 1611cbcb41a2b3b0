"""The declared cases, read from `benchmarks/cases.toml`.

In a checkout the declarations and the prototypes (`floor.py`) are in `benchmarks/`; in an installed package they lie
beside this module.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherecast.errors import WherecastError

KINDS = ("match", "updates", "latency", "growth")
OUTPUTS = ("counts", "ids", "lists")
GROUPS = ("floor", "growth", "memory", "build", "updates", "latency", "threads", "papers")
BASELINES = ("floor", "scan", "duckdb", "one-thread")


class CaseError(WherecastError):
    """A case that is declared wrongly, or asked for and not declared."""


@dataclass(frozen=True, slots=True)
class Case:
    """What to measure, and what must be found before it is."""

    name: str
    workload: str
    expected: int  # matches of the first 50 events at the declared size
    groups: tuple[str, ...]
    kind: str = "match"
    scale: float = 1.0  # of the workload
    matcher: str = "adaptive"
    output: str = "counts"
    threads: int = 1
    baselines: tuple[str, ...] = ()
    events: int | None = None  # how many; default all
    batch: int | None = None  # events per call; default all
    budget_s: float = 2.0  # a pass that would take longer gets fewer events
    sizes: tuple[int, ...] = ()  # growth: subscriptions
    delta: float = 0.05  # updates: share of subscriptions that arrive after loading
    seconds: float = 5.0  # updates: how long changes and matching run side by side
    goals: tuple[tuple[str, float], ...] = ()  # figure of the result -> at most

    def scaled(self, factor: float) -> Case:
        """The case at another size; what it must find is then counted by brute force."""
        if factor == 1.0:
            return self
        sizes = tuple(max(int(n * factor), 10) for n in self.sizes)
        seconds = max(self.seconds * min(factor * 10, 1.0), 0.2)
        return dataclasses.replace(self, scale=self.scale * factor, sizes=sizes, seconds=seconds, expected=-1)


def declared_folder() -> Path:
    """Where cases.toml and floor.py are."""
    here = Path(__file__).resolve().parent
    for folder in (here, here.parents[2] / "benchmarks"):
        if (folder / "cases.toml").is_file():
            return folder
    raise CaseError("no declared cases: cases.toml is neither in the package nor in benchmarks/; name one with --cases")


def read_cases(path: Path | None = None) -> list[Case]:
    """All declared cases, in order."""
    path = path or declared_folder() / "cases.toml"
    try:
        declared = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CaseError(f"'{path}' cannot be read: {error}") from None
    cases = [_read_case(path, fields) for fields in declared.get("case", [])]
    names = [c.name for c in cases]
    for name in names:
        if names.count(name) > 1:
            raise CaseError(f"'{path}': case {name!r} is declared twice")
    return cases


def choose_cases(cases: list[Case], names: list[str], group: str | None) -> list[Case]:
    """The cases of these names, or of a group, or all."""
    known = {c.name: c for c in cases}
    for name in names:
        if name not in known:
            raise CaseError(f"no case {name!r}; there are: {', '.join(known)}")
    if group is not None and group not in GROUPS:
        raise CaseError(f"no group {group!r}; there are: {', '.join(GROUPS)}")
    chosen = [known[name] for name in names] or cases
    return [c for c in chosen if group is None or group in c.groups]


def _read_case(path: Path, fields: dict[str, Any]) -> Case:
    label = fields.get("name", "without a name")
    known = {f.name for f in dataclasses.fields(Case)}
    required = {f.name for f in dataclasses.fields(Case) if f.default is dataclasses.MISSING}
    if unknown := sorted(fields.keys() - known):
        raise CaseError(f"'{path}': case {label!r} has unknown fields {', '.join(unknown)}")
    if missing := sorted(required - fields.keys()):
        raise CaseError(f"'{path}': case {label!r} lacks {', '.join(missing)}")
    for key, allowed in (("kind", KINDS), ("output", OUTPUTS), ("groups", GROUPS), ("baselines", BASELINES)):
        given = fields.get(key, [])
        for value in [given] if isinstance(given, str) else given:
            if value not in allowed:
                raise CaseError(f"'{path}': case {label!r}: {key} {value!r}; there are: {', '.join(allowed)}")
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "goals"}
    return Case(**plain, goals=tuple(fields.get("goals", {}).items()))
