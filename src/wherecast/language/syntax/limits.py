"""Limits: how large a filter may be, and how much text one event may make the engine read."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that keep one subscriber, or one event, from stalling all others.

    The first group is checked when a filter is registered. The second is checked for every event, before the work is
    done, and in bytes rather than in seconds: the same event is refused on every machine and in every replay. Work is
    counted for conditions that are evaluated one by one (see `index.residuals`); conditions that the index answers are free.
    """

    text: int = 65_536  # characters of a filter
    depth: int = 100  # nesting
    terms: int = 2_000  # names, operators and literals (an IN list counts once)
    values: int = 10_000  # values of one IN list
    clauses: int = 64  # of the normal form; beyond it, covering boxes and a residual
    pattern: int = 1_000  # characters of a LIKE or RLIKE pattern
    regexes: int = 100  # RLIKEs of one filter: a counted repetition makes a short one dear
    regex_steps: int = 10_000  # of one RLIKE pattern when it is compiled: `.{100}` has 2,400
    wildcards: int = 100  # of one LIKE pattern
    regex_bytes: int = 64 * _MIB  # of memory for regular expressions that run together, per attribute (RE2's max_mem)

    value_bytes: int = 16 * _MIB  # of one text, or of all texts of one array, in an event
    filter_work_bytes: int = 64 * _MIB  # that one filter reads of one event
    event_work_bytes: int = 1024 * _MIB  # that all filters of a segment read of one event

    @property
    def least_work(self) -> int:
        """Bytes that are within every limit of an event."""
        return min(self.value_bytes, self.filter_work_bytes, self.event_work_bytes)


DEFAULT_LIMITS = Limits()
