"""The OpenAPI document: complete, valid in its references, and true."""

import re
from typing import Any
from uuid import UUID

import msgspec
from tests.support.http import Browser

from postroom.http.asgi import FOREIGN, HttpApplication
from postroom.http.examples import EXAMPLES
from postroom.http.request import decode_body

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
    "/v1/dead-letters/{delivery_id}/settle": {"post"},
    "/v1/templates": {"get"},
    "/v1/templates/{template_id}/preview": {"post"},
    "/v1/inbox": {"get", "delete"},
    "/v1/inbox/latest": {"get"},
    "/v1/inbox/wait": {"get"},
    "/v1/inbox/{message_id}": {"get", "patch", "delete"},
    "/v1/inbox/{message_id}/checks": {"get"},
    "/v1/inbox/{message_id}/links": {"post"},
    "/v1/inbox/{message_id}/release": {"post"},
    "/v1/inbox/{message_id}/raw": {"get"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{key_id}": {"delete", "patch"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/openapi.json": {"get"},
}


async def _document(browser: Browser) -> dict[str, Any]:
    document: dict[str, Any] = (await browser.get("/openapi.json")).json
    return document


async def test_every_endpoint_is_described(browser: Browser) -> None:
    """Every documented endpoint is served, and every served one is documented."""
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


async def test_flags_and_times_have_their_types(browser: Browser) -> None:
    """A flag of a query is a boolean, and every time has the format of one; a local time is marked."""
    document = await _document(browser)
    parameters = document["paths"]["/v1/events"]["get"]["parameters"]
    assert {"type": "boolean"}.items() <= next(p for p in parameters if p["name"] == "backwards")["schema"].items()
    assert (await browser.get("/v1/events?backwards=true")).status == 200
    assert (await browser.get("/v1/events?backwards=yes")).fields == ["backwards"]
    schemas = document["components"]["schemas"]
    assert schemas["Delivery"]["properties"]["created_at"] == {"type": "string", "format": "date-time"}
    assert schemas["ScheduledEvent"]["properties"]["target_local"]["format"] == "date-time-local"


async def test_document_names_endpoints_that_need_a_key(browser: Browser) -> None:
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


async def test_schemas_have_readable_names(browser: Browser) -> None:
    """No name holds a Python path, the title is the name, and every schema is used."""
    response = await browser.get("/openapi.json")
    schemas = response.json["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}
    used = set(re.findall(rb'"#/components/schemas/([^"]+)"', response.body))
    assert {name.encode() for name in schemas} == used


async def test_operations_have_names_of_their_own(browser: Browser) -> None:
    """An operation is a verb and what it is about, so that a generated function can be understood."""
    paths = (await _document(browser))["paths"]
    ids = {operation["operationId"] for operations in paths.values() for operation in operations.values()}
    assert {name for name in ids if "_" not in name} == {"healthz", "readyz", "metrics"}


def _values(document: Any, key: str) -> list[Any]:
    if isinstance(document, list):
        return [found for each in document for found in _values(each, key)]
    if not isinstance(document, dict):
        return []
    own = [document[key]] if key in document else []
    return own + [found for each in document.values() for found in _values(each, key)]


async def test_no_schema_has_a_default(browser: Browser) -> None:
    """A default would be sent by generated clients; it is a sentence of the description instead."""
    document = await _document(browser)
    assert _values(document["components"], "default") == []
    limit = next(p for p in document["paths"]["/v1/deliveries"]["get"]["parameters"] if p["name"] == "limit")
    assert "default" not in limit["schema"]
    assert limit["schema"]["description"].endswith("Without it: 50.")


async def test_addresses_are_lists(browser: Browser) -> None:
    """A string is accepted too, and generators see one type."""
    properties = (await _document(browser))["components"]["schemas"]["DeliveryBody"]["properties"]
    assert {properties[name]["type"] for name in ("to", "cc", "bcc", "reply_to")} == {"array"}


async def test_security_names_the_scope(browser: Browser) -> None:
    """The scope an operation needs stands where generators and readers look for it."""
    document = await _document(browser)
    assert document["paths"]["/v1/deliveries"]["post"]["security"] == [{"key": ["deliveries:write"]}]


async def test_examples_are_accepted_by_their_endpoints(browser: Browser) -> None:
    """Each example belongs to an endpoint and has the form that the endpoint asks for."""
    assert isinstance(browser.app, HttpApplication)
    bodies = {(endpoint.method, endpoint.path): endpoint.body for endpoint in browser.app.endpoints}
    for where, example in EXAMPLES.items():
        assert decode_body(msgspec.json.encode(example), bodies[where]) is not None, where
    accept = (await _document(browser))["paths"]["/v1/deliveries"]["post"]
    assert accept["requestBody"]["content"]["application/json"]["example"]["subject"] == "Your order has shipped"


async def test_examples_get_documented_answers(browser: Browser) -> None:
    """Sent twice to an empty room, an example is answered as the document says: accepted, or refused for a reason."""
    document = await _document(browser)
    for method, path in EXAMPLES:
        plain = re.sub(r":\w+", "", path)
        documented = document["paths"][plain][method.lower()]["responses"]
        target = re.sub(r"\{\w+:uuid\}", str(UUID(int=7)), re.sub(r"\{\w+:int\}", "999", path))
        target = re.sub(r"\{\w+\}", "welcome", target)
        for _ in range(2):
            answer = await browser.ask(method, target, json=EXAMPLES[method, path])
            assert str(answer.status) in documented, (method, path, answer.status, answer.body)
