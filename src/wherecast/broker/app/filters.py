"""Check and lint filters without registering them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from wherecast.broker.app.access import Reader, SpaceName, TheBroker, find_space
from wherecast.broker.app.models import FilterIn, FiltersIn
from wherecast.broker.problems import filter_place
from wherecast.engine.lint import lint
from wherecast.errors import FilterError

router = APIRouter(prefix="/v1/spaces/{space}/filters", tags=["filters"])


@router.post("/check")
async def check(who: Reader, broker: TheBroker, name: SpaceName, asked: FilterIn) -> dict[str, Any]:
    """Whether a filter compiles, and if not, where it is wrong."""
    space = await find_space(broker, who, name)
    try:
        filters = await broker.compute(lambda: space.engine.compiler.compile(asked.filter))
    except FilterError as error:
        return {"ok": False, "detail": error.message, **filter_place(error)}
    return {"ok": True, "clauses": int(filters.clause_ptr[-1])}


@router.post("/lint")
async def lint_filters(who: Reader, broker: TheBroker, name: SpaceName, asked: FiltersIn) -> dict[str, Any]:
    """Find filters that are probably wrong or cost more than they need to."""
    space = await find_space(broker, who, name)
    findings = await broker.compute(lambda: lint(asked.filters, space.schema, limits=broker.limits))
    return {"summary": findings.summary, "findings": [finding.to_dict() for finding in findings]}
