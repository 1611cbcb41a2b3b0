"""The application: routers, health, metrics, and errors as problems."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import wherecast
from wherecast.broker.app import (
    console,
    deliveries,
    feeds,
    filters,
    publish,
    session,
    spaces,
    statistics,
    subscribers,
    subscriptions,
    tenants,
)
from wherecast.broker.app.access import answer_problem
from wherecast.broker.app.limits import LimitedBodies
from wherecast.broker.app.quick import QuickPublish
from wherecast.broker.app.statistics import TimedPublishes
from wherecast.broker.broker import Broker
from wherecast.broker.delivery.service import DeliveryService
from wherecast.broker.problems import Problem, problem_of
from wherecast.broker.settings import Settings
from wherecast.broker.store.deliveries import count_waiting
from wherecast.errors import WherecastError

_log = logging.getLogger(__name__)

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/problem+json": {"schema": {"type": "object"}}}}
    for status, text in {
        400: "Malformed",
        401: "No token, or one that is unknown or has expired",
        403: "The token or a quota does not allow it",
        404: "There is no such thing in this tenant",
        408: "The body came too slowly",
        409: "It contradicts what is there",
        410: "What is asked for is not kept any more",
        412: "It has changed meanwhile",
        413: "Too large",
        415: "Unknown media type",
        422: "Not valid; a wrong filter has its place",
        429: "Too much at a time",
        503: "Try again",
    }.items()
}


def create_app(settings: Settings, broker: Broker | None = None) -> FastAPI:
    """The application of one broker."""
    served = broker or Broker(settings)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.broker = served
        await served.start()
        app.state.delivery = delivery = DeliveryService(served)
        await delivery.start()
        try:
            yield
        finally:
            await delivery.stop()
            await served.stop()

    app = FastAPI(
        title="Wherecast",
        version=wherecast.__version__,
        summary="Publish/subscribe by WHERE clause",
        lifespan=life,
        responses=_PROBLEMS,
        redirect_slashes=False,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},  # /metrics has ours
    )
    parts = (spaces, subscriptions, publish, filters, feeds, subscribers, deliveries, tenants, session, statistics)
    for part in (*parts, console):
        app.include_router(part.router)
    app.add_middleware(LimitedBodies, limit=settings.max_body_bytes, seconds=settings.body_timeout_s)
    app.add_middleware(QuickPublish)
    app.add_middleware(TimedPublishes, broker=served)
    _add_health(app, served)
    _add_problems(app)
    return app


def _add_health(app: FastAPI, broker: Broker) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"])
    async def readyz() -> dict[str, str]:
        """All spaces are loaded and the database answers."""
        if not broker.is_ready:
            raise Problem(503, "loading", "spaces are being loaded", headers={"Retry-After": "1"})
        await broker.read(lambda c: c.exec_driver_sql("SELECT 1").scalar())
        return {"status": "ready"}

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        broker.metrics.subscriptions.set(sum(len(space.engine.engine) for space in broker.served()))
        with suppress(Problem):  # without the database the other figures are wanted all the more
            for state, number in (await broker.read(lambda c: count_waiting(c, None))).items():
                broker.metrics.undelivered.labels(state).set(number)
        return Response(broker.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_problems(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def on_problem(_: Request, problem: Problem) -> JSONResponse:
        return answer_problem(problem)

    @app.exception_handler(WherecastError)
    async def on_error(_: Request, error: WherecastError) -> JSONResponse:
        return answer_problem(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        errors = [{"at": ".".join(map(str, e["loc"])), "detail": e["msg"]} for e in error.errors()]
        is_malformed = any(e["type"] == "json_invalid" for e in error.errors())
        detail = f"{errors[0]['at']}: {errors[0]['detail']}"
        return answer_problem(Problem(400 if is_malformed else 422, "invalid", detail, {"errors": errors[:20]}))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> JSONResponse:
        return answer_problem(Problem(error.status_code, "http", str(error.detail), headers=dict(error.headers or {})))

    @app.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> JSONResponse:
        _log.error("internal error", exc_info=error)
        return answer_problem(Problem(500, "internal", "internal error; the log of the broker says more"))
