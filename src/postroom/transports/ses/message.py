"""The request to SES: `SendEmail` of version 2 with a raw message."""

import base64
from email.parser import BytesHeaderParser
from email.utils import parseaddr
from typing import Any

import msgspec

from postroom.post.reply import Envelope

MOST_RECIPIENTS = 50
"""Limit of SES for the recipients of one request."""


def request_body(
    envelope: Envelope, raw: bytes, *, return_path: bool = False, configuration_set: str | None = None
) -> bytes:
    """The JSON body for the first recipients of the envelope."""
    body: dict[str, Any] = {
        "Destination": {"ToAddresses": list(envelope.recipients[:MOST_RECIPIENTS])},
        "Content": {"Raw": {"Data": base64.b64encode(raw).decode()}},
        "EmailTags": [{"Name": "postroom-delivery", "Value": str(envelope.delivery_id)}],
    }
    if sender := _sender(raw) or envelope.sender:
        body["FromEmailAddress"] = sender
    if return_path and envelope.sender:
        body["FeedbackForwardingEmailAddress"] = envelope.sender
    if configuration_set is not None:
        body["ConfigurationSetName"] = configuration_set
    return msgspec.json.encode(body)


def _sender(raw: bytes) -> str:
    """The address in From, which SES has verified. The envelope sender may only receive bounces."""
    head = raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return parseaddr(str(BytesHeaderParser().parsebytes(head).get("From", "")))[1]
