"""Opaque cursors: a position in a listing as a short string that callers hand back unchanged."""

import base64
import binascii
from typing import Any

import msgspec

from postroom.errors import BadInput


def encode_cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str, shape: Any) -> Any:
    """The position inside a cursor, checked against its shape, such as `tuple[int]`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=shape)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadInput.of("cursor", "is not a cursor of this listing") from error
