"""Topic patterns: names of levels with MQTT's wildcards.

A name is made of levels between slashes; a level may be empty. In a pattern the level `+` stands for any one level, and `#`,
which is the last one, for the rest: any number of levels, none included. As in MQTT (version 5.0, section 4.7) a pattern
that begins with a wildcard does not match a name that begins with `$`: such names belong to the system that carries the events.
"""

from __future__ import annotations

from functools import lru_cache


def check_topic_pattern(pattern: str) -> None:
    """Refuse with ValueError what MQTT does not allow."""
    if not pattern:
        raise ValueError("the pattern is empty; write '#' for every topic")
    if "\0" in pattern:
        raise ValueError("a topic has no character U+0000; remove it")
    if "+" not in pattern and "#" not in pattern:
        return
    levels = pattern.split("/")
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            sign = "+" if "+" in level else "#"
            raise ValueError(f"{sign} stands for a whole level, but is part of {level!r:.40}; write 'a/{sign}'")
    if "#" in levels[:-1]:
        raise ValueError("# stands for the rest, so nothing can follow it; write + for one level: 'a/+/b'")


@lru_cache(1024)
def _levels(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The levels of a pattern, without a # at the end; and whether there was one."""
    levels = tuple(pattern.split("/"))
    return (levels[:-1], True) if levels[-1] == "#" else (levels, False)


def matches_topic(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern that `check_topic_pattern` accepts."""
    wanted, is_open = _levels(pattern)
    if name.startswith("$") and pattern[0] in "+#":
        return False
    levels = name.split("/", len(wanted))  # what is behind them does not matter
    if len(levels) < len(wanted) or (len(levels) > len(wanted) and not is_open):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))
