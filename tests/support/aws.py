"""AWS on loopback: moto, and a small SES for behaviour that moto lacks."""

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from moto.server import ThreadedMotoServer
from tests.support.aiohttp_server import answering
from tests.support.silence import fall_silent

from postroom.runtime.aws import AwsCredentials, CredentialSource, SignatureRefused, parse_authorization, verify
from postroom.transports.ses import SesTransport

CREDENTIALS = AwsCredentials("EXAMPLEKEY", "example-secret")
REGION = "eu-central-1"


@contextlib.contextmanager
def moto_running() -> Iterator[str]:
    """Run moto's server on a free port; yields its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@dataclass(slots=True)
class Aws:
    """An SES that verifies signatures. `hangs` never responds; `drops` closes the connection."""

    status: int = 200
    error: str = ""
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    drops: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def mails(self) -> list[bytes]:
        return [base64.b64decode(request["Content"]["Raw"]["Data"]) for request in self.requests]

    async def send(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            _check(request, body)
        except SignatureRefused as refused:
            return _refusal(403, "InvalidSignatureException", str(refused))
        self.requests.append(await request.json())
        if self.drops:
            assert request.transport is not None
            request.transport.close()
        if self.hangs:
            await fall_silent()
        if self.status != 200:
            return _refusal(self.status, self.error, self.message, self.headers)
        return web.json_response({"MessageId": f"id-{len(self.requests)}"})


def _check(request: web.Request, body: bytes) -> None:
    headers = {name.lower(): value for name, value in request.headers.items()}
    claim = parse_authorization(headers.get("authorization"))
    assert (claim.service, claim.region) == ("ses", REGION)
    verify(
        claim,
        request.method,
        target=request.raw_path,
        headers=headers,
        content=hashlib.sha256(body).hexdigest(),
        secret_access_key=CREDENTIALS.secret_access_key,
        now=datetime.now(UTC),
    )


def _refusal(status: int, error: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    named = {"x-amzn-ErrorType": f"{error}:http://internal.example.org/", **(headers or {})}
    return web.json_response({"message": message}, status=status, headers=named)


@contextlib.asynccontextmanager
async def aws_running(aws: Aws) -> AsyncIterator[Aws]:
    """Run the SES on a free port."""
    app = web.Application()
    app.router.add_post("/v2/email/outbound-emails", aws.send)
    async with answering(app) as aws.url:
        yield aws


@contextlib.asynccontextmanager
async def ses_to(
    aws: Aws, *, credentials: CredentialSource = CREDENTIALS, **options: Any
) -> AsyncIterator[SesTransport]:
    """A transport and its SES, over real sockets."""
    async with aws_running(aws):
        transport = SesTransport(credentials, region=REGION, endpoint_url=aws.url, **options)
        try:
            yield transport
        finally:
            await transport.close()
