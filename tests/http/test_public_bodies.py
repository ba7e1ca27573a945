"""A client that has proven nothing makes a process read at most 64 kB, on every path."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.http import Browser

from postroom.cli.listeners import open_application
from postroom.db.room import Room
from postroom.http.asgi import HttpApplication, make_combiner
from postroom.http.auth import Authenticator
from postroom.runtime.endpoint import PARAMETER, PUBLIC_BODY, Endpoint

CHUNK = bytes(8 * 1024)
LARGEST = 5 * 1024 * 1024  # more than any form
SIGNED_AS_A_WHOLE = {"/v2/email/outbound-emails": "SES hashes and drops it", "/v1/feedback/sendgrid": "two at a time"}


@dataclass(slots=True)
class Upload:
    """A large body in chunks, of which the client has sent `taken` bytes."""

    taken: int = field(default=0)

    def __iter__(self) -> "Upload":
        return self

    def __next__(self) -> bytes:
        if self.taken >= LARGEST:
            raise StopIteration
        self.taken += len(CHUNK)
        return CHUNK


@pytest.fixture
async def application(room: Room) -> AsyncIterator[HttpApplication]:
    """All endpoints that `postroom serve` has, with every webhook configured."""
    settings = replace(
        room.settings,
        secret_key=bytes(range(32)),
        ses_topics=("arn:aws:sns:eu-central-1:000000000000:bounces",),
        sendgrid_public_key="AAAA",
        mailgun_signing_key="example",
        postmark_secret="example",
    )
    keyed = replace(room, settings=settings)
    async with open_application(
        keyed,
        stop=asyncio.Event(),
        auth=Authenticator(room.pool),
        accepting=make_combiner(keyed),
        replica=None,
        discover=None,
    ) as application:
        yield application


def target_of(endpoint: Endpoint) -> str:
    kinds = {"int": "1", "uuid": "00000000-0000-4000-8000-000000000000", "path": "x", None: "x", "": "x"}
    return PARAMETER.sub(lambda found: kinds[found[2]], endpoint.path)


async def test_a_stranger_makes_no_endpoint_read_a_large_body(application: HttpApplication) -> None:
    """Without a key, a session, a signature or a secret, 64 kB of a body are read, whatever its announced type."""
    browser, read_too_much = Browser(application), list[Any]()
    for endpoint in application.endpoints:
        if endpoint.method in ("GET", "HEAD") or endpoint.path in SIGNED_AS_A_WHOLE:
            continue
        upload = Upload()
        kind = (endpoint.accepts or ("application/json",))[0]
        headers = {"content-type": f"{kind}; boundary=x" if "multipart" in kind else kind}
        response = await browser.ask(endpoint.method, target_of(endpoint), content=iter(upload), headers=headers)
        if upload.taken > PUBLIC_BODY + len(CHUNK) or response.status in (500, 503):
            read_too_much.append((endpoint.method, endpoint.path, upload.taken, response.status))
    assert read_too_much == []
