"""Requests that break one rule each: one table for `delivery/check.py` and for SQL `send`.

Each case names the field that must be reported and the arguments of `postroom.send` that differ from a good mail.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.post.mime import Attachment

GOOD: dict[str, Any] = {"to": ["ada@example.org"], "subject": "Hello", "text": "Hello, Ada."}
NOTE: dict[str, Any] = {"subject": None, "text": None, "template": "welcome"}
MEGABYTES_5 = 5 * 1024 * 1024
KILOBYTES_64 = 64 * 1024
KILOBYTES_256 = 256 * 1024


def nested(levels: int) -> dict[str, Any]:
    """An object with this many levels of objects."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def sized(size: int, letter: str = "x", name: str = "X-A") -> dict[str, str]:
    """An object of one text that takes this many bytes as JSON, as PostgreSQL writes it."""
    left = size - len(json.dumps({name: ""}))
    count = left // len(letter.encode())
    return {name: letter * count + "x" * (left - count * len(letter.encode()))}


def a_file(**fields: Any) -> Attachment:
    return Attachment(**{"filename": "a", "content_type": "a/b", "content": "aGk=", **fields})


BAD: list[tuple[str, dict[str, Any]]] = [
    ("max_retries", {"max_retries": -1}),
    ("max_retries", {"max_retries": 101}),
    ("give_up_after", {"give_up_after": timedelta()}),
    ("give_up_after", {"give_up_after": timedelta(days=31)}),
    ("to", {"to": []}),
    ("to", {"to": ["a@example.org"] * 101}),
    ("to", {"cc": ["a@example.org"] * 100}),
    ("to[0]", {"to": ["nobody"]}),
    ("to[1]", {"to": ["a@example.org", "b@"]}),
    ("to[0]", {"to": ["a@example.org, b@example.org"]}),
    ("to[0]", {"to": ["a@example.org\r\nBcc: b@example.org"]}),
    ("cc[0]", {"cc": ["nobody"]}),
    ("bcc[0]", {"bcc": ["nobody"]}),
    ("reply_to[0]", {"reply_to": ["nobody"]}),
    ("reply_to", {"reply_to": ["r@example.org"] * 101}),
    ("from", {"sender": "nobody"}),
    ("subject", {"subject": None}),
    ("subject", {"subject": "  "}),
    ("subject", {"subject": "two\nlines"}),
    ("subject", {"subject": "x" * 999}),
    ("text", {"text": None}),
    ("text", {"text": "x" * (MEGABYTES_5 + 1)}),
    ("html", {"html": "x" * (MEGABYTES_5 + 1)}),
    ("subject", {"template": "welcome"}),
    ("text", {"template": "welcome", "subject": None}),
    ("template", {**NOTE, "template": "../etc"}),
    ("locale", {"locale": "../etc"}),
    ("lane", {"lane": "fast"}),
    ("source", {"source": ""}),
    ("source", {"source": "x" * 101}),
    ("source", {"source": "a\nb"}),
    ("source", {"source": "accounts"}),
    ("source", {"source": "outbox"}),
    ("idempotency_key", {"idempotency_key": ""}),
    ("idempotency_key", {"idempotency_key": "x" * 256}),
    ("idempotency_key", {"idempotency_key": "a\nb"}),
    ("send_at", {"send_at": datetime(1969, 12, 31, tzinfo=UTC)}),
    ("expires_at", {"expires_at": datetime(9999, 1, 1, tzinfo=UTC)}),
    ("variables", {**NOTE, "variables": nested(33)}),
    ("variables", {**NOTE, "variables": {"n": 2**63}}),
    ("variables", {**NOTE, "variables": {"n": [1e300]}}),
    ("variables", {**NOTE, "variables": sized(KILOBYTES_256 + 1)}),
    ("variables", {**NOTE, "variables": sized(KILOBYTES_256 + 1, "€")}),
    ("variables", {**NOTE, "variables": {"x": ['"'] * (KILOBYTES_256 // 6)}}),
    ("headers", {"headers": sized(KILOBYTES_64 + 1)}),
    ("tags", {"tags": sized(KILOBYTES_64 + 1)}),
    ("custom_data", {"custom_data": sized(KILOBYTES_64 + 1)}),
    ("custom_data", {"custom_data": nested(40)}),
    ("custom_data", {"custom_data": {"n": -(2**63)}}),
    ("tags", {"tags": {str(n): "x" for n in range(51)}}),
    ("headers.From", {"headers": {"From": "a@example.org"}}),
    ("headers.Content-Type", {"headers": {"Content-Type": "text/plain"}}),
    ("headers.Postroom-Endpoint", {"headers": {"Postroom-Endpoint": "1"}}),
    ("headers.a b", {"headers": {"a b": "x"}}),
    ("headers.X-A", {"headers": {"X-A": "two\r\nlines"}}),
    ("headers.x-a", {"headers": {"X-A": "1", "x-a": "2"}}),
    ("headers.List-Id", {"headers": {"List-Id": "é"}}),
    ("headers.Message-ID", {"headers": {"Message-ID": "mine"}}),
    ("headers.References", {"headers": {"References": "<a@example.org> " + "x" * 921}}),
    ("attachments[0].filename", {"attachments": [a_file(filename="")]}),
    ("attachments[0].filename", {"attachments": [a_file(filename="a\nb")]}),
    ("attachments[0].filename", {"attachments": [a_file(filename="x" * 256)]}),
    ("attachments[0].content_type", {"attachments": [a_file(content_type="nonsense")]}),
    ("attachments[0].content_type", {"attachments": [a_file(content_type="a/b; c")]}),
    ("attachments[0].content_type", {"attachments": [a_file(content_type="a/b;\r\n c=d")]}),
    ("attachments[0].content_type", {"attachments": [a_file(content_type="a/" + "b" * 128)]}),
    ("attachments[1].content", {"attachments": [a_file(), a_file(content="not base64")]}),
    ("attachments[0].content", {"attachments": [a_file(content="aGk")]}),
    ("attachments[0].content", {"attachments": [a_file(content="aGk==")]}),
    ("subject", {"subject": "\x1c\u3000"}),
    ("attachments[0].content_id", {"attachments": [a_file(content_id="a b")]}),
    (
        "attachments",
        {"attachments": [a_file(content="AAAA" * (4 * 1024 * 1024)), a_file(content="AAAA" * (5 * 1024 * 1024))]},
    ),
]


ALLOWED: list[dict[str, Any]] = [
    {**NOTE, "variables": nested(32)},
    {**NOTE, "variables": sized(KILOBYTES_256)},
    {**NOTE, "variables": sized(KILOBYTES_256, "€")},
    {"headers": sized(KILOBYTES_64), "tags": sized(KILOBYTES_64), "custom_data": sized(KILOBYTES_64)},
    {"custom_data": {"n": 2**63 - 1, "deep": nested(31)}},
    {"subject": "tab\tand \x7f"},
    {"headers": {"X-A": "\x01é", "List-Id": "<a.example.org>", "Message-ID": "<a@example.org>"}},
    {"attachments": [a_file(content=""), a_file(content_id="logo@1")]},
    {"tags": {str(n): "x" for n in range(50)}},
    {"send_at": datetime(9998, 12, 31, tzinfo=UTC), "expires_at": datetime(1970, 1, 2, tzinfo=UTC)},
    {"source": "shop"},
]
"""At the edge of the rules: both accept these."""


def as_sql(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of SQL `send` that mean the same."""
    named = {f"p_{'from' if name == 'sender' else name}": value for name, value in arguments.items()}
    for name in ("p_variables", "p_custom_data", "p_tags", "p_headers"):
        if name in named:
            named[name] = json.dumps(named[name])
    if "p_attachments" in named:
        files = [{name: getattr(each, name) for name in each.__slots__} for each in named["p_attachments"]]
        named["p_attachments"] = json.dumps(files)
    return named
