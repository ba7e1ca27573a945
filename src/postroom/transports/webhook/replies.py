"""Conversion of a receiver's HTTP response into a `Reply`.

| status                   | code | meaning                                            |
|--------------------------|------|----------------------------------------------------|
| 2xx                      | 250  | delivered; the body is ignored                     |
| 408, 425, 429            | 450  | deferred: timeout, too early, too many requests    |
| 5xx                      | 450  | deferred                                           |
| 410                      | 550  | rejected; the endpoint asks to be disabled         |
| other, redirects too     | 550  | rejected; redirects are never followed             |

The ledger keeps the status and the part of the body that was read: `enhanced_code` is `HTTP 410`, `reply_text` starts
with it and continues with the body. The detail of a rejected delivery is the start of that text, on one line.
"""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus

from postroom.post.reply import Reply, Stage
from postroom.transports.http_reply import parse_retry_after

DELIVERED, DEFERRED, REFUSED = 250, 450, 550  # the SMTP codes with the same meaning
GONE = "HTTP 410"
"""Enhanced code of an endpoint that asks to be disabled."""
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_SUCCESS, _REDIRECT, _SERVER = 200, 300, 500  # the first status of each class


def code_of(status: int) -> int:
    """The reply code of an HTTP status."""
    if _SUCCESS <= status < _REDIRECT:
        return DELIVERED
    return DEFERRED if status in _LATER or status >= _SERVER else REFUSED


def reply_to(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> Reply:
    """Convert a response; `body` is the part that was read."""
    code = code_of(status)
    return Reply(
        Stage.FINAL,
        code=code,
        enhanced=f"HTTP {status}",
        text=_text(status, body),
        retry_after_s=parse_retry_after(headers.get("Retry-After"), now=now) if code == DEFERRED else None,
    )


def _text(status: int, body: bytes) -> str:
    try:
        said = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"HTTP {status}"
    words = body.decode("utf-8", "replace")
    return f"{said}: {words}" if words.strip() else said
