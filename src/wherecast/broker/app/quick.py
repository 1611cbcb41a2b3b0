"""The way of a publish around FastAPI.

Most requests of a busy broker are single events. FastAPI spends four times as long on finding the route, solving dependencies and
closing stacks as the broker spends on the event (docs/decisions/0072-single-publishes.md). This layer stands before the
application, takes a publish that looks as it should, and calls what the endpoint calls. Anything else, a wrong name for example, goes on to
the application, which has the endpoint too: it says what is wrong, and its OpenAPI is that of both ways.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from wherecast.broker.app.access import MAX_KEY, NAME, answer_problem, broker_of, principal
from wherecast.broker.app.publish import publish_body
from wherecast.broker.problems import Problem, problem_of
from wherecast.broker.security import TokenScope
from wherecast.errors import WherecastError

_PATH = re.compile(rf"/v1/spaces/({NAME[1:-1]})/publish")


class QuickPublish:
    """A layer around the application that answers publishes itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a publish, or hand the request on."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        key = request.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= MAX_KEY:
            await self.app(scope, receive, send)
            return
        response = await _publish(request, found[1], key)
        await response(scope, receive, send)


async def _publish(request: Request, space: str, key: str | None) -> Response:
    try:
        who = await principal(request)
        who.must(TokenScope.PUBLISH)
        return await publish_body(request, broker_of(request), who, space, key)
    except Problem as problem:
        return answer_problem(problem)
    except WherecastError as error:
        return answer_problem(problem_of(error))
