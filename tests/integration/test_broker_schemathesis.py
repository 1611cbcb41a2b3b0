"""Requests made up from the OpenAPI: whatever is sent, no answer is a 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from tests.examples import scaled
from tests.unit.broker_app import SPACE, serving

pytestmark = pytest.mark.slow


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def write_text(_, value):
    """Bodies that are no JSON are sent as they were made up."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def test_no_request_is_a_server_error(tmp_path):
    """Schemathesis sends valid and invalid requests to every operation; each answer is documented and below 500."""
    with serving(tmp_path, heartbeat_s=0.05) as call:
        call("PUT", f"{SPACE}/subscriptions/cheap-ibm", 201, json={"filter": "price > 1"})
        schema = schemathesis.openapi.from_dict(call.client.get("/openapi.json").json())
        signed_in = call.client.post("/v1/session", json={"token": call.token})
        cookie = {"X-CSRF-Token": signed_in.json()["csrf"], "Cookie": signed_in.headers["set-cookie"].split(";")[0]}
        call.client.cookies.clear()
        tried = set()
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path.endswith("/feed"):
                continue  # an answer without an end; tests of feeds read it

            @settings(max_examples=scaled(8), deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy())
            def send(case):
                kwargs = case.as_transport_kwargs(base_url="http://testserver")
                by = cookie if case.operation.path == "/v1/session" else {"Authorization": f"Bearer {call.token}"}
                headers = {**dict(kwargs.pop("headers", None) or {}), **by}
                kwargs.pop("cookies", None)
                if "data" in kwargs:
                    kwargs["content"] = kwargs.pop("data")
                answer = call.client.request(headers=headers, **kwargs)
                assert answer.status_code < 500, (case.method, case.formatted_path, answer.text)

            send()
            tried.add(operation.label)
        assert len(tried) >= 25
