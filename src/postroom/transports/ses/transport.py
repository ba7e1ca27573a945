"""The SES transport: sends one raw message by `SendEmail` of version 2 and returns the reply."""

import base64
import ssl
from datetime import UTC, datetime, timedelta
from email.parser import BytesHeaderParser
from email.utils import parseaddr
from typing import Any

import msgspec
from msgspec.structs import replace

from postroom.errors import ConfigurationError
from postroom.post.reply import Content, Envelope, RecipientReply, Reply, Stage
from postroom.runtime.aws import CredentialSource, sign
from postroom.transports.exchange import Exchange, is_http
from postroom.transports.ses.replies import reply_to

TIMEOUT = timedelta(seconds=60)  # a large mail over a slow network; longer holds a place at the transport

MOST_RECIPIENTS = 50
"""Limit of SES for the recipients of one request."""

_PATH = "/v2/email/outbound-emails"
_JSON = {"Content-Type": "application/json"}
_NEXT_TIME = "SES takes 50 recipients of a message at once"


class SesTransport:
    """Sends through one account. Any number of tasks may send at once; `max_connections` of them are served.

    `endpoint_url` replaces the endpoint of the region; `configuration_set` is the one that publishes bounce and
    complaint events; `return_path` sends those to the envelope's sender, which SES must have verified.
    """

    name = "ses"

    def __init__(  # noqa: PLR0913 - account, region, options and connection settings
        self,
        credentials: CredentialSource,
        *,
        region: str,
        endpoint_url: str | None = None,
        configuration_set: str | None = None,
        return_path: bool = False,
        timeout: timedelta = TIMEOUT,
        max_connections: int = 20,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._credentials, self._region = credentials, region
        self._url = (endpoint_url or f"https://email.{region}.amazonaws.com").rstrip("/") + _PATH
        if not is_http(self._url):
            raise ValueError("endpoint_url must be an http or https address")
        self._configuration_set, self._return_path = configuration_set, return_path
        self.max_connections = max_connections
        self._exchange = Exchange(timeout_s=timeout.total_seconds(), max_connections=max_connections, tls=tls)

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once. Never raises for an error of the network or of AWS."""
        if not envelope.recipients:
            return Reply(Stage.RECIPIENT, 554, "5.5.1", "there is no recipient")
        if envelope.needs_smtputf8:
            return Reply(Stage.SENDER, 553, "5.6.7", "SES does not take internationalised addresses")
        async with self._exchange.turn():
            reply = await self._post(self._body(envelope, content.encode(eight_bit=False)))
        return replace(reply, recipients=_left_over(envelope)) if reply.code == 250 else reply  # noqa: PLR2004 - accepted

    async def close(self) -> None:
        """Close connections. Idempotent."""
        await self._exchange.close()

    def _body(self, envelope: Envelope, raw: bytes) -> bytes:
        """The JSON body for the first recipients of the envelope."""
        body: dict[str, Any] = {
            "Destination": {"ToAddresses": list(envelope.recipients[:MOST_RECIPIENTS])},
            "Content": {"Raw": {"Data": base64.b64encode(raw).decode()}},
            "EmailTags": [{"Name": "postroom-delivery", "Value": str(envelope.delivery_id)}],
        }
        if sender := _sender(raw) or envelope.sender:
            body["FromEmailAddress"] = sender
        if self._return_path and envelope.sender:
            body["FeedbackForwardingEmailAddress"] = envelope.sender
        if self._configuration_set is not None:
            body["ConfigurationSetName"] = self._configuration_set
        return msgspec.json.encode(body)

    async def _post(self, body: bytes) -> Reply:
        now = datetime.now(UTC)
        try:
            credentials = await self._credentials.current()
        except ConfigurationError as error:  # such as a role that cannot be assumed: nothing was sent
            return Reply(Stage.LOGIN, 454, "4.7.0", str(error))
        signed = sign(
            "POST",
            self._url,
            _JSON,
            body,
            credentials=credentials,
            region=self._region,
            service="ses",
            now=now,
        )
        answer = await self._exchange.hand_over(self._url, headers={**_JSON, **signed}, content=body)
        return answer if isinstance(answer, Reply) else reply_to(answer, now=now)


def _left_over(envelope: Envelope) -> tuple[RecipientReply, ...]:
    """Replies that defer the recipients beyond the limit of one request."""
    return tuple(RecipientReply(address, 452, "4.5.3", _NEXT_TIME) for address in envelope.recipients[MOST_RECIPIENTS:])


def _sender(raw: bytes) -> str:
    """The address in From, which SES has verified. The envelope sender may only receive bounces."""
    head = raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return parseaddr(str(BytesHeaderParser().parsebytes(head).get("From", "")))[1]
