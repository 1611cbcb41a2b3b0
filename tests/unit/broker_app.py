"""A broker in this process, for tests of its API."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from wherecast.broker.app.api import create_app
from wherecast.broker.broker import Broker
from wherecast.broker.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it prefers a successor of httpx
    from starlette.testclient import TestClient

SCHEMA = {"symbol": "string", "price": "double"}
SPACE = "/v1/spaces/quotes"


class ApiCaller:
    """Requests with a token; `client` has none."""

    def __init__(self, client: TestClient, broker: Broker, token: str) -> None:
        self.client, self.broker, self.token = client, broker, token

    def __call__(self, method: str, path: str, status: int | None = None, **kwargs: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **kwargs.pop("headers", {})}
        answer = self.client.request(method, path, headers=headers, **kwargs)
        if status is not None:
            assert answer.status_code == status, answer.text
        return answer

    def with_token(self, token: str) -> ApiCaller:
        return ApiCaller(self.client, self.broker, token)

    def token_of(self, tenant: str, *scopes: str) -> ApiCaller:
        """A token of another tenant, which is made if it is new."""
        self("POST", "/v1/tenants", json={"tenant": tenant})
        body = {"name": "test", "scopes": list(scopes)}
        made = self("POST", f"/v1/tenants/{tenant}/tokens", 201, json=body).json()
        return self.with_token(made["secret"])

    def messages(self, query: str, count: int) -> list[dict[str, Any]]:
        """The next messages of a feed by WebSocket."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with self.client.websocket_connect(f"{SPACE}/feed/ws?{query}", headers=headers) as socket:
            return [socket.receive_json() for _ in range(count)]


#: What FastAPI has found out about the routes of a router, when the first application was asked.
_KNOWN: dict[int, Any] = {}


def _with_known_routes(app: FastAPI) -> FastAPI:
    """The application, whose routes are not examined again: that is half of the time that a new one takes."""
    routes = app.router.routes
    for place, route in enumerate(routes):
        router = getattr(route, "original_router", None)
        if router is not None:
            routes[place] = _KNOWN.setdefault(id(router), route)
    return app


@contextmanager
def serving(folder: Path, token: str | None = None, **settings: Any) -> Iterator[ApiCaller]:
    """A broker on a SQLite file in a folder, with the space `quotes` if it is new."""
    chosen = Settings(database=f"sqlite:///{folder / 'w.db'}", **settings)
    broker = Broker(chosen)
    with TestClient(_with_known_routes(create_app(chosen, broker)), raise_server_exceptions=False) as client:
        call = ApiCaller(client, broker, token or broker.first_token or "")
        while client.get("/readyz").status_code != 200:
            pass
        if token is None:
            call("POST", "/v1/spaces", 201, json={"name": "quotes", "schema": SCHEMA})
        yield call
