"""Read a CloudEvent in JSON as a receiver; fails on anything that CloudEvents 1.0 does not allow."""

import re
import unicodedata
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

_REQUIRED = ("id", "source", "specversion", "type")


def read_cloud_event(body: bytes) -> dict[str, Any]:
    """The attributes and the data, after checking names, types and characters."""
    read: dict[str, Any] = msgspec.json.decode(body)
    attributes = {name: value for name, value in read.items() if name != "data"}
    for name, value in attributes.items():
        assert re.fullmatch(r"[a-z0-9]{1,20}", name), name
        assert isinstance(value, str), f"{name} is not a string"
        assert value, f"{name} is empty"
        assert not any(map(_is_forbidden, value)), f"{name} contains a character that is not allowed"
    assert attributes.keys() >= set(_REQUIRED)
    assert attributes["specversion"] == "1.0"
    assert urlsplit(attributes["source"]).path.startswith("/")
    assert datetime.fromisoformat(attributes["time"]).tzinfo is not None
    return read


def _is_forbidden(character: str) -> bool:
    code = ord(character)
    is_noncharacter = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    return is_noncharacter or unicodedata.category(character) in ("Cc", "Cs")
