"""Access tokens: a claim signed by the service account, exchanged for a token valid for an hour.

A token is cached and renewed before it expires. Concurrent callers share one request and its result.
"""

import asyncio
import base64
import re
import time
from collections.abc import Callable
from urllib.parse import urlencode

import msgspec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from postroom.post.reply import Reply, Stage
from postroom.transports.exchange import Answered, Exchange, excerpt
from postroom.transports.gmail.credentials import GmailCredentials
from postroom.transports.http_reply import LOGIN_DEFERRED, LOGIN_REJECTED

SEND = "https://www.googleapis.com/auth/gmail.send"
READ = "https://www.googleapis.com/auth/gmail.readonly"

CLAIM_S = 3600  # the longest lifetime that Google accepts
MARGIN_S = 300.0
"""Seconds before its expiry at which a token is renewed; at most a tenth of its lifetime."""

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_TOKEN = re.compile(r"[!-~]{1,8192}")
_TOO_MANY, _SERVER = 429, 500  # 429 and 5xx pass by themselves


class TokenSource:
    """Tokens of one scope for one mailbox."""

    def __init__(
        self,
        exchange: Exchange,
        credentials: GmailCredentials,
        *,
        subject: str,
        scope: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._exchange, self._credentials = exchange, credentials
        self._subject, self._scope, self._clock = subject, scope, clock
        self._token, self._renew_at = "", 0.0
        self._renewal: asyncio.Task[str | Reply] | None = None

    async def get(self) -> str | Reply:
        """A valid token, or the reply that explains the failure."""
        if self._token and self._clock() < self._renew_at:
            return self._token
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(self._renewed)
        # Shielded: a cancelled caller must not cancel the request of the others.
        return await asyncio.shield(self._renewal)

    def forget(self, token: str) -> None:
        """Discard a rejected token, unless it was already replaced."""
        if token == self._token:
            self._token = ""

    async def close(self) -> None:
        """Wait for a running request; it ends with the exchange, which is closed first."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    def _renewed(self, task: asyncio.Task[str | Reply]) -> None:
        if self._renewal is task:
            self._renewal = None

    async def _renew(self) -> str | Reply:
        now = self._clock()
        assertion = _assertion(self._credentials, subject=self._subject, scope=self._scope, now=int(now))
        form = urlencode({"grant_type": _GRANT, "assertion": assertion}).encode()
        answer = await self._exchange.ask("POST", self._credentials.token_uri, headers=_FORM, content=form)
        if isinstance(answer, Reply):
            # No message has left, whatever the result of this request: the attempt is not ambiguous.
            stage = Stage.LOGIN if answer.stage in (Stage.CONTENT, Stage.FINAL) else answer.stage
            return Reply(stage, text=f"no access token: {answer.text}", remote_host=answer.remote_host)
        granted = answer.json
        token, life = granted.get("access_token"), granted.get("expires_in")
        if not (
            answer.is_success and isinstance(token, str) and _TOKEN.fullmatch(token) and isinstance(life, int | float)
        ):
            return _refusal(answer)
        self._token = token
        self._renew_at = now + life - min(MARGIN_S, life / 10)
        return token


def _assertion(credentials: GmailCredentials, *, subject: str, scope: str, now: int) -> str:
    """The signed claim by which the service account requests access to a mailbox (RFC 7523)."""
    header = {"alg": "RS256", "typ": "JWT"}
    if credentials.private_key_id is not None:
        header["kid"] = credentials.private_key_id
    claims = {
        "iss": credentials.client_email,
        "sub": subject,
        "scope": scope,
        "aud": credentials.token_uri,
        "iat": now,
        "exp": now + CLAIM_S,
    }
    content = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
    return f"{content}.{_encoded(credentials.key.sign(content.encode(), PKCS1v15(), SHA256()))}"


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _refusal(answer: Answered) -> Reply:
    said = answer.json
    reason = " ".join(str(said[name]) for name in ("error", "error_description") if isinstance(said.get(name), str))
    text = excerpt(f"no access token: HTTP {answer.status} {reason}")
    is_temporary = answer.is_success or answer.status == _TOO_MANY or answer.status >= _SERVER
    stage, code, enhanced = LOGIN_DEFERRED if is_temporary else LOGIN_REJECTED
    return Reply(stage, code, enhanced, text, remote_host=answer.remote_host, tls=answer.tls)
