"""Load and latency of a tenant's spaces, for charts."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.types import ASGIApp, Receive, Scope, Send

from wherecast.broker.app.access import NAME, Reader, TheBroker
from wherecast.broker.broker import Broker
from wherecast.broker.statistics import KEPT_S
from wherecast.broker.store import deliveries

router = APIRouter(prefix="/v1/statistics", tags=["statistics"])

_PUBLISH = re.compile(r"/v1/spaces/([^/]+)/publish")


class TimedPublishes:
    """A layer around the application that notes how long each publish took, once it is known whose it is."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self.app, self.broker = app, broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, with a clock if it publishes."""
        found = _PUBLISH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        state, begun = scope.setdefault("state", {}), time.perf_counter()
        is_good = False

        async def noted(message: Any) -> None:
            nonlocal is_good
            is_good = is_good or message.get("status") == 200
            await send(message)

        await self.app(scope, receive, noted)
        tenant = state.get("tenant")
        if is_good and tenant is not None:  # so the space exists, and the name is one
            self.broker.statistics.time(tenant, found.group(1), time.perf_counter() - begun)


@router.get("")
async def statistics(
    who: Reader,
    broker: TheBroker,
    space: Annotated[str | None, Query(pattern=NAME, description="Left out: all spaces.")] = None,
    seconds: Annotated[int, Query(ge=1, le=KEPT_S)] = 60,
) -> dict[str, Any]:
    """Events, matches, deliveries that ended and times of publishes for each of the last seconds, the newest last; and what there is now.

    The figures are of the process that answers. `publish_ms` has the p50 and the p99 of each second, null where nothing was published.
    `deliveries` are those of the tenant that wait or were given up, counted up to 10,000 each.
    """
    waiting = await broker.read(lambda c: deliveries.count_waiting(c, who.tenant))
    served = [s for s in broker.served() if s.tenant == who.tenant and space in (None, s.name)]
    return {
        "seconds": seconds,
        **broker.statistics.last(who.tenant, space, seconds),
        "spaces": len(served),
        "subscriptions": sum(len(s.engine.engine) for s in served),
        "feeds": broker.feeds.get(who.tenant, 0),
        "deliveries": waiting,
    }
