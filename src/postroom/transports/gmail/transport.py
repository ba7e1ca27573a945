"""The Gmail transport: sends one message through one mailbox and returns the reply."""

import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.exchange import Answered, Exchange, is_private_channel
from postroom.transports.gmail.addressing import addressed
from postroom.transports.gmail.credentials import GmailCredentials
from postroom.transports.gmail.replies import reply_to
from postroom.transports.gmail.token import READ, SEND, TokenSource

BASE_URL = "https://gmail.googleapis.com"
TIMEOUT = timedelta(seconds=60)  # a large mail over a slow network; longer holds a place at the transport
QUESTION = timedelta(seconds=10)  # for a token; Google responds within a second

_UNAUTHORIZED = 401  # HTTP status: the token expired or was revoked


class GmailTransport:
    """Sends as `subject`, a mailbox of the domain. Any number of tasks may send; `max_connections` are served at once.

    `timeout` limits the time for one message; `tls` replaces the default verification, for tests.
    """

    name = "gmail"

    def __init__(
        self,
        credentials: GmailCredentials,
        *,
        subject: str,
        base_url: str = BASE_URL,
        timeout: timedelta = TIMEOUT,
        max_connections: int = 10,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not is_private_channel(base_url):
            raise ValueError("base_url must be an https address, or one of this machine")
        self._base_url = base_url.rstrip("/")
        self.max_connections = max_connections
        self._exchange = Exchange(timeout_s=timeout.total_seconds(), max_connections=max_connections, tls=tls)
        self._question_s = min(timeout, QUESTION).total_seconds()
        self._sending = TokenSource(self._exchange, credentials, subject=subject, scope=SEND)
        self._reading = TokenSource(self._exchange, credentials, subject=subject, scope=READ)

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once. If no response comes, search the mailbox for the message."""
        if not envelope.recipients:
            return Reply(Stage.RECIPIENT, 554, "5.5.1", "there is no recipient")
        async with self._exchange.turn():
            reply = await self._send(addressed(content.encode(eight_bit=True), envelope.recipients))
            is_doubtful = reply.stage is Stage.FINAL and reply.code is None
            if is_doubtful and await self._find(envelope.message_id):
                return Reply(Stage.FINAL, 250, "2.0.0", "taken: the mailbox holds the message")
            return reply

    async def was_sent(self, message_id: str) -> bool | None:
        """True if the mailbox contains this message, False if not, None if it cannot be queried."""
        async with self._exchange.turn():
            return await self._find(message_id)

    async def close(self) -> None:
        """Close connections. Idempotent."""
        await self._exchange.close()
        await self._sending.close()
        await self._reading.close()

    async def _send(self, raw: bytes) -> Reply:
        url = f"{self._base_url}/upload/gmail/v1/users/me/messages/send?uploadType=media"

        async def post(token: str) -> Answered | Reply:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "message/rfc822"}
            return await self._exchange.hand_over(url, headers=headers, content=raw)

        answer = await _with_token(self._sending, post)
        return answer if isinstance(answer, Reply) else reply_to(answer, now=datetime.now(UTC))

    async def _find(self, message_id: str) -> bool | None:
        query = quote(f"rfc822msgid:{message_id.strip('<>')}", safe="")
        url = f"{self._base_url}/gmail/v1/users/me/messages?maxResults=1&includeSpamTrash=true&q={query}"

        async def get(token: str) -> Answered | Reply:
            headers = {"Authorization": f"Bearer {token}"}
            return await self._exchange.ask("GET", url, headers=headers, timeout_s=self._question_s)

        answer = await _with_token(self._reading, get)
        if isinstance(answer, Reply) or not answer.is_success:
            return None
        return bool(answer.json.get("messages"))


async def _with_token(source: TokenSource, request: Callable[[str], Awaitable[Answered | Reply]]) -> Answered | Reply:
    """Make a request; repeat it once with a new token if the token was rejected."""
    token = await source.get()
    if isinstance(token, Reply):
        return token
    answer = await request(token)
    if isinstance(answer, Reply) or answer.status != _UNAUTHORIZED:
        return answer
    source.forget(token)
    token = await source.get()
    return token if isinstance(token, Reply) else await request(token)
