"""The OpenAPI document: complete, valid in its references, and true."""

import re
from typing import Any

from tests.support.http import Browser

from postroom.http import HttpApplication
from postroom.http.asgi import FOREIGN

SIGNED = {f"/v1/feedback/{provider}" for provider in ("ses", "sendgrid", "mailgun", "postmark")}

PATHS = {
    "/v1/deliveries": {"get", "post"},
    "/v1/deliveries/batch": {"post"},
    "/v1/deliveries/{delivery_id}": {"get"},
    "/v1/deliveries/{delivery_id}/attempts": {"get"},
    "/v1/deliveries/{delivery_id}/cancel": {"post"},
    "/v1/deliveries/{delivery_id}/retry": {"post"},
    "/v1/deliveries/{delivery_id}/resend": {"post"},
    "/v1/login-codes": {"post"},
    "/v1/dead-letters": {"get"},
    "/v1/dead-letters/redrive": {"post"},
    "/v1/dead-letters/{delivery_id}/settle": {"post"},
    "/v1/templates": {"get"},
    "/v1/templates/{template_id}/preview": {"post"},
    "/v1/inbox": {"get", "delete"},
    "/v1/inbox/{message_id}": {"get"},
    "/v1/inbox/{message_id}/raw": {"get"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{key_id}": {"delete"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/openapi.json": {"get"},
}


async def _document(browser: Browser) -> dict[str, Any]:
    document: dict[str, Any] = (await browser.get("/openapi.json")).json
    return document


async def test_every_endpoint_is_described(browser: Browser) -> None:
    """What is promised is there, and what is served is described."""
    document = await _document(browser)
    described = {path: set(operations) for path, operations in document["paths"].items()}
    assert PATHS.items() <= described.items()
    assert isinstance(browser.app, HttpApplication)
    ours = [endpoint for endpoint in browser.app.endpoints if endpoint.tag not in FOREIGN]
    served = {(re.sub(r":\w+", "", e.path), e.method.lower()) for e in ours}
    assert served == {(path, method) for path, methods in described.items() for method in methods}


async def test_every_reference_leads_somewhere(browser: Browser) -> None:
    """No `$ref` points into nothing, and no two operations share an id."""
    response = await browser.get("/openapi.json")
    document = response.json
    names = set(re.findall(rb'"#/components/schemas/([^"]+)"', response.body))
    assert {name.decode() for name in names} <= set(document["components"]["schemas"])
    ids = [operation["operationId"] for operations in document["paths"].values() for operation in operations.values()]
    assert len(ids) == len(set(ids))


async def test_what_needs_a_key_says_so(browser: Browser) -> None:
    """Everything under /v1 needs the bearer key, but for providers, who sign; it documents 401 and 403."""
    document = await _document(browser)
    assert document["openapi"] == "3.1.0"
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            needs_key = path.startswith("/v1/") and path not in SIGNED
            assert bool(operation["security"]) == needs_key
            assert ({"401", "403"} <= set(operation["responses"])) == needs_key


async def test_problems_and_headers_are_described(browser: Browser) -> None:
    """Accepting documents its key header, its conflict, and problems as problem documents."""
    accept = (await _document(browser))["paths"]["/v1/deliveries"]["post"]
    assert [p["name"] for p in accept["parameters"]] == ["Idempotency-Key"]
    assert {"200", "202", "400", "409", "413", "415"} <= set(accept["responses"])
    for status, response in accept["responses"].items():
        kind = "application/json" if status < "300" else "application/problem+json"
        assert list(response["content"]) == [kind]
        assert "X-Request-Id" in response["headers"]
