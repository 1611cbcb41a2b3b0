"""Sessions of the console: the cookie, what protects it, how it ends; the files of the console and their headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.broker_app import SPACE, serving

from wherecast.broker.app.console import assets
from wherecast.broker.statistics import KEPT_S, KEPT_SPACES, Statistics

CONSOLE = Path(__file__).parents[2] / "src" / "wherecast" / "broker" / "console"


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("sessions")) as found:
        yield found


@pytest.fixture(autouse=True)
def no_cookies(call):
    yield
    call.client.cookies.clear()


def sign_in(call, token=None, **more):
    """A session in the client's cookies; the headers for changes."""
    answer = call.client.post("/v1/session", json={"token": token or call.token, **more})
    assert answer.status_code == 201, answer.text
    return {"X-CSRF-Token": answer.json()["csrf"]}, answer


def test_the_cookie_cannot_be_read_or_sent_from_elsewhere(call):
    """The cookie is HttpOnly and SameSite=Strict, Secure with TLS only, and not the token itself."""
    _, answer = sign_in(call)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert call.token not in cookie
    assert answer.headers["cache-control"] == "no-store"
    call.client.cookies.clear()
    secure = call.client.post("https://testserver/v1/session", json={"token": call.token})
    assert "Secure" in secure.headers["set-cookie"]


def test_a_session_has_the_rights_of_its_token(call):
    """Tenant and scopes are those of the token; what the token may not do, its session may not."""
    reader = call("POST", "/v1/tokens", 201, json={"name": "reader", "scopes": ["read"]}).json()
    headers, answer = sign_in(call, reader["secret"])
    assert (answer.json()["tenant"], answer.json()["scopes"]) == ("default", ["read"])
    assert call.client.get(SPACE).status_code == 200
    assert call.client.get("/v1/session").json() == answer.json()
    refused = call.client.put(f"{SPACE}/subscriptions/x", json={"filter": "price > 1"}, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:wherecast:problem:scope")


def test_a_change_needs_the_header(call):
    """Without the CSRF token, or with one of another session, nothing is changed; a bearer token needs none."""
    body = {"json": {"filter": "price > 1"}}
    headers, _ = sign_in(call)
    other, _ = sign_in(call)
    path = f"{SPACE}/subscriptions/c"
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "é"}, headers):
        answer = call.client.put(path, headers={k: v.encode() for k, v in wrong.items()}, **body)
        assert answer.json()["type"] == "urn:wherecast:problem:csrf", answer.text
    assert call.client.get(path).status_code == 404
    assert call.client.put(path, headers=other, **body).status_code == 201
    call("DELETE", path, 204)  # a bearer token, with the cookie beside it


def test_websockets_come_from_the_own_page(call):
    """A page of another address cannot open a feed with the cookie; the console can."""
    sign_in(call)
    for origin in ("http://evil.example", "http://testserver:81", "null", ""):
        with call.client.websocket_connect(f"{SPACE}/feed/ws", headers={"Origin": origin}) as socket:
            assert socket.receive_json()["problem"]["status"] == 403
    call("PUT", f"{SPACE}/subscriptions/w", json={"filter": "price > 1"})
    with call.client.websocket_connect(f"{SPACE}/feed/ws", headers={"Origin": "http://testserver"}) as socket:
        call("POST", f"{SPACE}/publish", 200, json={"price": 2})
        messages = iter(socket.receive_json, None)
        assert next(m["subscriptions"] for m in messages if "data" in m) == [
            "w"
        ]  # a slow machine has heartbeats before it
    call("DELETE", f"{SPACE}/subscriptions/w", 204)


def test_another_page_cannot_sign_a_browser_in(call):
    """A sign-in that a page of another address sends is refused, so nobody works in a stranger's tenant unawares."""
    for site in ("cross-site", "same-site"):
        answer = call.client.post("/v1/session", json={"token": call.token}, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403
    assert call.client.post("/v1/session", content=b"token=x").status_code in (400, 422)


def test_cookies_and_tokens_are_not_exchangeable(call):
    """The secret of a session is no bearer token, a token is no cookie, and a session cannot begin another."""
    sign_in(call)
    secret = call.client.cookies["wherecast_session"]
    call.client.cookies.clear()
    assert call.with_token(secret)("GET", "/v1/whoami").status_code == 401
    assert call.client.post("/v1/session", json={"token": secret}).status_code == 401
    call.client.cookies.set("wherecast_session", call.token)
    assert call.client.get("/v1/whoami").status_code == 401
    assert call.client.get("/v1/session").status_code == 401


def test_sessions_end(call):
    """A session ends when its user signs out, with its token, with a rotation's overlap, and by itself."""
    headers, _ = sign_in(call)
    secret = call.client.cookies["wherecast_session"]
    assert call.client.delete("/v1/session").status_code == 403
    assert call.client.delete("/v1/session", headers=headers).status_code == 204
    assert "wherecast_session" not in call.client.cookies
    call.client.cookies.set("wherecast_session", secret)
    assert call.client.get("/v1/session").status_code == 401
    call.client.cookies.clear()

    def begin():
        made = call("POST", "/v1/tokens", 201, json={"name": "short", "scopes": ["read"]}).json()
        sign_in(call, made["secret"])
        assert call.client.get("/v1/whoami").status_code == 200
        return made["token_id"]

    call("DELETE", f"/v1/tokens/{begin()}", 204)
    assert call.client.get("/v1/whoami").status_code == 401
    call("POST", f"/v1/tokens/{begin()}/rotate?overlap_s=0", 201)
    assert call.client.get("/v1/whoami").status_code == 401


def test_old_sessions_are_forgotten(tmp_path):
    """A session that is over leaves no row; tokens that have expired stay to be seen."""
    with serving(tmp_path, session_ms=0) as call:
        sign_in(call)
        assert call.client.get("/v1/session").status_code == 401
        assert len(call("GET", "/v1/tokens").json()) == 2
        call.client.portal.call(call.broker._tidy)
        assert len(call("GET", "/v1/tokens").json()) == 1


def test_a_link_signs_in_once(call):
    """With `once` the token is gone after the first sign-in, and its session goes on."""
    made = call("POST", "/v1/tokens", 201, json={"name": "link", "scopes": ["read"]}).json()
    sign_in(call, made["secret"], once=True)
    assert call.client.get("/v1/whoami").json()["name"] == "link"
    call.client.cookies.clear()
    again = call.client.post("/v1/session", json={"token": made["secret"], "once": True})
    assert again.status_code == 401


def test_signing_in_and_out_is_in_the_audit_log(call):
    """Who began and ended a session is recorded, without any secret."""
    headers, answer = sign_in(call)
    secret = call.client.cookies["wherecast_session"]
    call.client.delete("/v1/session", headers=headers)
    entries = call("GET", "/v1/audit?limit=1000", 200)
    actions = [row["action"] for row in entries.json() if row["subject"] == answer.json()["token_id"]]
    assert actions == ["sign in", "sign out"]
    assert secret not in entries.text


# -- the files --------------------------------------------------------------------------------------------------------


def test_the_console_lets_a_browser_run_its_own_files_only(call):
    """The page and its files have a policy without inline code, foreign sources and frames."""
    page = call.client.get("/")
    assert page.status_code == 200
    assert page.url.path == "/console"
    found = re.findall(r'(?:src|href)="console/assets/([^"]+)"', page.text)
    assert found == ["mark.svg", "console.css", "main.js"]
    for path in ("/console", *(f"/console/assets/{name}" for name in assets())):
        answer = call.client.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = call.client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["../security.py", "..%2f..%2fsecurity.py", "views", "views/", "nothing.js", "%00"])
def test_nothing_else_is_served(call, name):
    """Only files of the console are found, whatever the path says."""
    assert call.client.get(f"/console/assets/{name}").status_code == 404


def test_the_files_have_no_markup_from_data_and_no_foreign_source():
    """No script makes markup of texts, no file has inline code or names another host."""
    for file in CONSOLE.rglob("*.*"):
        text = file.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=",
        ):
            assert word not in text, (file.name, word)
        hosts = set(re.findall(r"https?://([\w.]+)", text)) - {"www.w3.org", "example.org"}
        assert not hosts, (file.name, hosts)
    assert set(assets()) == {str(f.relative_to(CONSOLE)) for f in CONSOLE.rglob("*.*")}


# -- history, quotas, statistics --------------------------------------------------------------------------------------


def test_the_history_of_a_subscription(call):
    """Each change with its author, the newest first, of this space only, and also after the end."""
    call("POST", "/v1/spaces", 201, json={"name": "more", "schema": {"price": "double"}})
    for space in (SPACE, "/v1/spaces/more"):
        call("PUT", f"{space}/subscriptions/h", 201, json={"filter": "price > 1"})
    call("POST", f"{SPACE}/subscriptions/h/pause", 200)
    call("PUT", f"{SPACE}/subscriptions/h", 200, json={"filter": "price > 2"})
    call("DELETE", f"{SPACE}/subscriptions/h", 204)
    found = call("GET", f"{SPACE}/subscriptions/h/history", 200).json()
    assert [row["action"] for row in found] == ["deleted", "replace", "paused", "create"]
    assert [row["filter"] for row in found] == [None, "price > 2", None, "price > 1"]
    assert all(row["actor"].startswith("first (") for row in found)
    assert len(call("GET", "/v1/spaces/more/subscriptions/h/history", 200).json()) == 1


def test_quotas_and_what_is_used(call):
    """A tenant's own quotas with its use."""
    found = call("GET", "/v1/quotas", 200).json()
    assert found["quotas"]["spaces"] == 1000
    assert found["used"]["spaces"] == len(call("GET", "/v1/spaces").json())


def test_statistics_are_of_the_own_tenant(call):
    """Events, matches and times are counted by tenant and space."""
    for _ in range(3):
        call("POST", f"{SPACE}/publish", 200, json=[{"price": 2}, {"price": 3}])
    call("POST", f"{SPACE}/publish", 422, json={"price": "x"})
    foreign = call.token_of("counted", "read")
    call.broker.statistics._clock_s = lambda clock=call.broker.statistics._clock_s: clock() + 1  # the second is over
    found = call("GET", "/v1/statistics?seconds=300&space=quotes", 200).json()
    assert sum(found["events"]) >= 6
    assert sum(found["publishes"]) >= 3
    assert max(value or 0 for value in found["publish_ms"]["p99"]) > 0
    other = foreign("GET", "/v1/statistics?seconds=300", 200).json()
    assert (sum(other["events"]), other["subscriptions"], other["spaces"]) == (0, 0, 0)
    call("GET", "/v1/statistics?seconds=301", 422)


def test_statistics_by_the_second():
    """Rows are reused after KEPT_S, quantiles are the ends of classes, and many spaces take bounded room."""
    now = [1000.0]
    statistics = Statistics(lambda: now[0])
    statistics.count("t", "a", 5, 7)
    statistics.count("t", "b", 1, 1)
    for milliseconds in (1, 1, 1, 100):
        statistics.time("t", "a", milliseconds / 1000)
    now[0] += 1
    assert statistics.last("t", "a", 3)["events"] == [0, 0, 5]
    assert statistics.last("t", None, 1)["matches"] == [8]
    times = statistics.last("t", None, 2)["publish_ms"]
    assert times["p50"][0] is None
    assert 1 <= times["p50"][1] <= 1.25
    assert 100 <= times["p99"][1] <= 125
    now[0] += KEPT_S
    statistics.count("t", "a", 2, 0)
    now[0] += 1
    assert sum(statistics.last("t", None, KEPT_S)["events"]) == 2
    for number in range(KEPT_SPACES + 50):
        statistics.count("t", f"s{number}", 1, 1)
    now[0] += 1
    assert sum(statistics.last("t", None, 1)["events"]) == KEPT_SPACES
