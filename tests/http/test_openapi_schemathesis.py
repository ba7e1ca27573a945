"""The served API against its own OpenAPI document, with generated values."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.core.result import Ok
from tests.support.http import Browser, Letter, open_browser, served

from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
EXAMPLES = 15
LONGEST = 60_000
"""A longer line is refused by the server in words of its own, as no HTTP at all: no application has seen it."""

FRAMING = frozenset({"connection", "content-length", "expect", "transfer-encoding", "upgrade"})
"""Headers of the connection: a wrong one is refused in the same way."""

GENERAL = re.compile(r"whole number|NUL|surrogate|between the years|unknown variable")
"""Rules that the document states once for all operations."""

# Revoking is tested elsewhere: here it would take away the key that asks.
REVOKING = "DELETE /v1/keys/{key_id}"

Operation = Any  # schemathesis' own type is generic over its transport


async def _furnish(room: Room, browser: Browser) -> None:
    """Something to find at the first ids: a delivery and a captured message."""
    await browser.post("/v1/deliveries", json={"to": "ann@example.org", "subject": "s", "text": "t"})
    transport = CaptureTransport(room.pool)
    await transport.send(Envelope(1, "<1@localhost>", "room@localhost", ("ann@example.org",)), Letter())


def _unexplained(operation: Operation, response: Any) -> list[str]:
    """Refusals of a request that the schema allows, without those for a rule that the document states."""
    if response.status_code != 400:
        return []
    rules = operation.definition.raw.get("x-rules", {})
    return [
        f"{operation.label} {each['field']}: {each['message']}"
        for each in response.json()["errors"]
        if rules.keys().isdisjoint(re.split(r"[.\[\]]+", each["field"]))
        and not GENERAL.search(each["message"])
        and not each["field"].startswith(("line ", "stored"))  # of an uploaded file, whose lines no schema describes
    ]


def _examine(
    operation: Operation, mode: GenerationMode, key: str, wanted: list[Any], session: requests.Session
) -> tuple[set[int], list[str]]:
    seen: set[int] = set()
    unexplained: list[str] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def examine(case: Any) -> None:
        assume(len(case.formatted_path) + len(urlencode(case.query or {}, doseq=True)) < LONGEST)
        assume(FRAMING.isdisjoint(map(str.lower, case.headers or ())))
        headers = {"Authorization": f"Bearer {key}"}
        response = case.call_and_validate(session=session, headers=headers, checks=wanted, timeout=60)
        seen.add(response.status_code)
        if mode is GenerationMode.POSITIVE:
            unexplained.extend(_unexplained(operation, response))

    examine()
    return seen, unexplained


def _examine_all(url: str, key: str, mode: GenerationMode, wanted: list[Any]) -> dict[str, tuple[set[int], list[str]]]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)
    found: list[Operation] = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    operations = sorted(found, key=lambda operation: operation.method == "delete")  # read before clearing
    with requests.Session() as session:
        session.trust_env = False  # no proxy
        return {
            operation.label: _examine(operation, mode, key, wanted, session)
            for operation in operations
            if operation.label != REVOKING and _can_be_wrong(operation, mode)
        }


def _can_be_wrong(operation: Operation, mode: GenerationMode) -> bool:
    """False if a request without any input is to be made wrong: there is no such thing."""
    has_input = operation.path_parameters or operation.query or operation.body or operation.headers
    return mode is GenerationMode.POSITIVE or bool(has_input)


@pytest.mark.parametrize(
    "mode,wanted",
    [
        pytest.param(GenerationMode.POSITIVE, CHECKS, id="right"),
        pytest.param(GenerationMode.NEGATIVE, [*CHECKS, checks.negative_data_rejection], id="wrong"),
    ],
)
async def test_answers_are_what_the_document_says(
    room: Room, mode: GenerationMode, wanted: list[Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any request, the response's status, type, headers and shape are documented, and none is a 5xx.

    A request that its schema allows is refused only for a rule that the operation lists.
    """
    monkeypatch.setattr("postroom.inbox.service.LONGEST_WAIT", timedelta())  # no mail arrives
    app = build_app(room)
    browser = await open_browser(room, app=app)
    assert browser.key is not None
    await _furnish(room, browser)
    async with served(app) as url:
        seen = await asyncio.to_thread(_examine_all, url, browser.key, mode, wanted)
    assert len(seen) > 15
    statuses = set().union(*(found for found, _ in seen.values()))
    assert max(statuses) < 500
    assert [each for _, unexplained in seen.values() for each in unexplained] == []
    assert mode is GenerationMode.NEGATIVE or not statuses & {401, 403}  # wrong requests may lack the key
