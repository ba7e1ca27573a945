"""Google on loopback: tokens for verified claims, and a mailbox that sends, rejects, hangs and can be searched."""

import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.aiohttp_server import answering
from tests.support.silence import fall_silent

from postroom.transports.gmail import GmailCredentials, GmailTransport
from postroom.transports.gmail import transport as gmail
from postroom.transports.gmail.token import READ, SEND

ACCOUNT = "mailer@project.iam.example.org"
SUBJECT = "sales@example.org"


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def private_pem() -> str:
    return private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@dataclass(slots=True)
class Google:
    """Behaviour and records. `hangs` keeps the message and never answers; `loses` does not keep it."""

    scopes: set[str] = field(default_factory=lambda: {SEND, READ})
    subjects: set[str] = field(default_factory=lambda: {SUBJECT})
    life_s: int = 3600
    clock: Callable[[], float] = time.time
    token_status: int = 200
    status: int = 200
    reason: str = ""
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    loses: bool = False
    drops: bool = False
    claims: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)  # token → scope
    mails: list[bytes] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    url: str = ""

    def revoke_tokens(self) -> None:
        self.tokens.clear()

    async def grant(self, request: web.Request) -> web.Response:
        form = await request.post()
        if self.token_status != 200:
            return web.json_response({"error": "internal_failure"}, status=self.token_status)
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        claims = verified(str(form["assertion"]))
        self.claims.append(claims)
        if claims["aud"] != f"{self.url}/token" or not claims["iat"] <= self.clock() + 10 < claims["exp"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if claims["iss"] != ACCOUNT or claims["sub"] not in self.subjects:
            description = "Not a valid email or user ID."
            return web.json_response({"error": "invalid_grant", "error_description": description}, status=400)
        if claims["scope"] not in self.scopes:
            return web.json_response({"error": "unauthorized_client"}, status=401)
        token = f"token-{len(self.claims)}"
        self.tokens[token] = claims["scope"]
        return web.json_response({"access_token": token, "expires_in": self.life_s, "token_type": "Bearer"})

    async def send(self, request: web.Request) -> web.Response:
        if self.scope_of(request) != SEND:
            return refusal(401, "authError", "Invalid Credentials")
        assert request.query["uploadType"] == "media"
        assert request.content_type == "message/rfc822"
        mail = await request.read()
        if self.drops:
            assert request.transport is not None
            request.transport.close()
        if self.loses:
            await fall_silent()
        if self.status != 200:
            return refusal(self.status, self.reason, self.message, self.headers)
        self.mails.append(mail)
        if self.hangs:
            await fall_silent()
        return web.json_response({"id": f"m{len(self.mails)}", "threadId": "t", "labelIds": ["SENT"]})

    async def find(self, request: web.Request) -> web.Response:
        if self.scope_of(request) != READ:
            return refusal(403, "insufficientPermissions", "Metadata scope does not support 'q' parameter")
        self.questions.append(request.query["q"])
        wanted = f"Message-ID: <{request.query['q'].removeprefix('rfc822msgid:')}>".encode()
        found = [{"id": f"m{number}"} for number, mail in enumerate(self.mails, start=1) if wanted in mail]
        return web.json_response({"messages": found} if found else {"resultSizeEstimate": 0})

    def scope_of(self, request: web.Request) -> str | None:
        return self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))


def verified(assertion: str) -> dict[str, Any]:
    """The claims of a token, if the service account's key signed them."""
    header, claims, signature = assertion.split(".")
    assert json.loads(_decoded(header)) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
    content = f"{header}.{claims}".encode()
    private_key().public_key().verify(_decoded(signature), content, PKCS1v15(), SHA256())
    decoded: dict[str, Any] = json.loads(_decoded(claims))
    return decoded


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def refusal(status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    return web.json_response({"error": error}, status=status, headers=headers)


def credentials_for(google: Google) -> GmailCredentials:
    """The service account, as its key file describes it."""
    file = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "key-1",
        "private_key": private_pem(),
        "client_email": ACCOUNT,
        "token_uri": f"{google.url}/token",
    }
    return GmailCredentials.from_json(json.dumps(file))


@contextlib.asynccontextmanager
async def google_running(google: Google) -> AsyncIterator[Google]:
    """Google behind a real server on a free port."""
    app = web.Application()
    app.router.add_post("/token", google.grant)
    app.router.add_post("/upload/gmail/v1/users/me/messages/send", google.send)
    app.router.add_get("/gmail/v1/users/me/messages", google.find)
    async with answering(app) as google.url:
        yield google


@contextlib.asynccontextmanager
async def gmail_to(
    google: Google,
    *,
    base_url: str | None = None,
    max_connections: int = 10,
) -> AsyncIterator[GmailTransport]:
    """A transport and its Google, both real."""
    async with google_running(google):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gmail, "QUESTION", gmail.TIMEOUT)  # as patient with a question as with a message
            transport = GmailTransport(
                credentials_for(google),
                subject=SUBJECT,
                base_url=base_url or google.url,
                max_connections=max_connections,
            )
        try:
            yield transport
        finally:
            await transport.close()
