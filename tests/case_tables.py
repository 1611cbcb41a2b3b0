"""The case tables of tests/cases: a schema, events, and filters with the rows that each must match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wherecast.engine.engine import Engine

TABLES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(Path(__file__).parent.glob("cases/*.json"))}


def rows_by_filter(engine: Engine, table: dict[str, Any]) -> list[list[int]]:
    matched = engine.match_batch(table["events"]).to_lists()
    return [[row for row, ids in enumerate(matched) if number in ids] for number in range(len(table["cases"]))]
