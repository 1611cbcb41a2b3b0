"""No operation reaches another tenant: generated from the OpenAPI, none left out."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import event
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter
from tests.unit.broker_app import SCHEMA, SPACE, serving

from wherecast.broker.store.tables import metadata

#: Operations that name nothing of a tenant, and may answer anybody who has a token or none at all.
OPEN = {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics"), ("get", "/v1/whoami")}
#: Operations on the session of a cookie: no token reaches another's.
SESSION = {("post", "/v1/session"), ("get", "/v1/session"), ("delete", "/v1/session")}
#: Operations on all things of the token's own tenant; they never show another's.
OWN = {
    ("get", "/v1/spaces"),
    ("post", "/v1/spaces"),
    ("get", "/v1/tokens"),
    ("post", "/v1/tokens"),
    ("get", "/v1/audit"),
    ("get", "/v1/subscribers"),
    ("put", "/v1/subscribers/{name}"),
    ("get", "/v1/deliveries"),
    ("post", "/v1/deliveries/replay"),
    ("get", "/v1/quotas"),
    ("get", "/v1/statistics"),
    *SESSION,
}

BODIES = {
    "SubscriptionIn": {"filter": "price > 1"},
    "MatchIn": {"event": {"price": 3}},
    "FilterIn": {"filter": "price > 1"},
    "FiltersIn": {"filters": {"a": "price > 1"}},
    "SpaceIn": {"name": "more", "schema": {"price": "double"}},
    "SpaceChange": {"schema": {"volume": "bigint"}},
    "QuotasIn": {},
    "TenantIn": {"tenant": "third"},
    "TokenIn": {"name": "x", "scopes": ["read"]},
    "SessionIn": {"token": "wc_unknown"},
    "SubscriberIn": {"routes": [{"route": "r1", "kind": "feed"}]},
    "SnoozeIn": {"minutes": 1},
    "RouteTestIn": {},
    "ReplayIn": {},
}


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("tenants")) as found:
        found("PUT", f"{SPACE}/subscriptions/s", 201, json={"filter": "price > 1", "subscriber": "alice"})
        found("PUT", "/v1/subscribers/alice", 201, json=BODIES["SubscriberIn"])
        yield found


def operations(call):
    spec = call.client.get("/openapi.json").json()
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def body_of(operation) -> dict:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return {}
    reference = content.get("application/json", {}).get("schema", {}).get("$ref")
    if reference:
        return {"json": BODIES[reference.rsplit("/", 1)[-1]]}
    if "application/json" in content:
        return {"json": {"price": 3}}
    return {"content": b'{"id":"x","filter":"price > 1"}', "headers": {"Content-Type": "application/x-ndjson"}}


def filled(path: str, token_id: str) -> str:
    names = {"space": "quotes", "id": "s", "tenant": "default", "token_id": token_id, "name": "alice", "route": "r1"}
    return re.sub(r"\{(\w+)\}", lambda m: names[m.group(1)], path)


class SessionCaller:
    """Requests with the console's cookie in place of a token."""

    def __init__(self, call):
        self.client, self.messages = call.client, call.messages
        made = call.client.post("/v1/session", json={"token": call.token})
        self.headers = {"X-CSRF-Token": made.json()["csrf"], "Cookie": made.headers["set-cookie"].split(";")[0]}
        call.client.cookies.clear()

    def __call__(self, method, path, **kwargs):
        headers = {**self.headers, **kwargs.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("by", [lambda call: call, SessionCaller], ids=["token", "session"])
def test_a_foreigner_reaches_nothing(call, by):
    """Every operation on a thing of a tenant answers another tenant's admin with 403 or 404, and changes nothing."""
    foreign = by(call.token_of("other", "admin", "publish", "subscribe", "read"))
    assert foreign("GET", "/v1/whoami").json()["tenant"] == "other"
    token_id = call("GET", "/v1/whoami").json()["token_id"]
    before = call("GET", SPACE).json()
    looked = 0
    for method, path, operation in operations(call):
        if (method, path) in OPEN | OWN:
            continue
        answer = foreign(method.upper(), filled(path, token_id), **body_of(operation))
        assert answer.status_code in (403, 404), (method, path, answer.text)
        looked += 1
    assert looked >= 20
    assert call("GET", SPACE).json() == before
    assert call("GET", f"{SPACE}/subscriptions/s", 200).json()["state"] == "active"
    assert foreign.messages("", 1)[0]["problem"]["status"] == 404


def test_lists_show_the_own_tenant_only(call):
    """Spaces, tokens and the audit log of a tenant have nothing of another."""
    foreign = call.token_of("lists", "admin")
    assert foreign("GET", "/v1/spaces", 200).json() == []
    assert foreign("GET", "/v1/audit", 200).json() == []
    assert {token["name"] for token in foreign("GET", "/v1/tokens", 200).json()} == {"test"}
    foreign("POST", "/v1/spaces", 201, json={"name": "quotes", "schema": {"other": "string"}})
    foreign("PUT", f"{SPACE}/subscriptions/s", 201, json={"filter": "other = 'x'"})
    assert call("GET", f"{SPACE}/subscriptions/s", 200).json()["filter"] == "price > 1"
    assert call("GET", SPACE, 200).json()["schema"].keys() == SCHEMA.keys()


def test_every_operation_needs_a_token(call):
    """Without a token everything but the probes is 401."""
    for method, path, operation in operations(call):
        if (method, path) in OPEN - {("get", "/v1/whoami")}:
            continue
        answer = call.client.request(method.upper(), filled(path, "x"), **body_of(operation))
        assert answer.status_code == 401, (method, path)


@pytest.mark.slow
def test_every_statement_names_the_tenant(call):
    """Whatever is asked of a table with tenants compares its tenant, or gives it: the queries cannot forget it.

    The exceptions are what a process does for all tenants by itself, and the search for a token.
    """
    allowed = {"tokens": {"digest", "expires_ms"}, "subscriptions": {"expires_ms"}, "answers": {"created_ms"}}
    allowed |= {
        "subscribers": {"next_ms", "lease_ms"},
        "deliveries": {"finished_ms", "since_ms"},
        "presence": {"until_ms"},
    }
    owned = {table.name for table in metadata.tables.values() if "tenant" in table.c}
    seen, wrong = set(), []

    def look(connection, statement, multiparams, params, options):
        if not hasattr(statement, "get_final_froms") and not hasattr(statement, "table"):
            return
        tables = [statement.table] if hasattr(statement, "table") else statement.get_final_froms()
        names = {t.name for t in tables if getattr(t, "name", None) in owned}
        if not names or getattr(statement, "is_insert", False):
            return
        compared = set()
        for part in visitors.iterate(statement):
            sides = (getattr(part, "left", None), getattr(part, "right", None))
            if isinstance(sides[1], BindParameter) and getattr(sides[0], "table", None) is not None:
                compared.add(sides[0].name)
        seen.update(names)
        if "tenant" not in compared and not all(compared & allowed.get(name, set()) for name in names):
            wrong.append(str(statement))

    engine = call.broker.database.engine
    event.listen(engine, "before_execute", look)
    try:
        for method, path, operation in operations(call):
            if "feed" not in path and method != "delete":
                call(method.upper(), filled(path, "none"), **body_of(operation))
        call("PUT", f"{SPACE}/subscriptions/s", json={"filter": "price > 2"}, headers={"Idempotency-Key": "k"})
        call("DELETE", f"{SPACE}/subscriptions/s", 204)
        space = next(s for s in call.broker.served() if s.tenant == "default")
        call.client.portal.call(call.broker.trim, space, 10**14)
        call.client.portal.call(call.broker._expire)
        call("DELETE", SPACE, 204)
    finally:
        event.remove(engine, "before_execute", look)
    # Looking at all tenants or all spaces is what an operator and the process itself do.
    wrong = [text for text in wrong if "ORDER BY tenants.tenant" not in text and "ORDER BY spaces.space" not in text]
    assert not wrong, wrong
    assert seen >= {"spaces", "subscriptions", "tokens", "event_log", "audit"}
