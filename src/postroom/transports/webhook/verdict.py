"""What an HTTP answer amounts to, in the terms in which every transport replies.

| answer                     | code | means                                                                |
|----------------------------|------|----------------------------------------------------------------------|
| 2xx                        | 250  | delivered, whatever the body says                                    |
| 408, 425, 429              | 450  | deferred: too slow, too early, too often                             |
| 5xx                        | 450  | deferred                                                             |
| 410                        | 550  | refused, and the endpoint asks to be left alone for good             |
| any other, redirects too   | 550  | refused; a redirect is never followed                                |

The ledger keeps the status itself and what was read of the answer: `enhanced_code` is `HTTP 410`, `reply_text` begins
with it and goes on with the body. The detail of a delivery that was refused is the beginning of that, on one line.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from postroom.post.reply import Reply, Stage

DELIVERED, DEFERRED, REFUSED = 250, 450, 550
GONE = "HTTP 410"
"""The receiver asks to be left alone for good."""
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_SUCCESS, _REDIRECT, _SERVER = 200, 300, 500
_LONGEST_WAIT_S = 7 * 86_400.0


def code_of(status: int) -> int:
    """The reply code that stands for an HTTP status."""
    if _SUCCESS <= status < _REDIRECT:
        return DELIVERED
    return DEFERRED if status in _LATER or status >= _SERVER else REFUSED


def reply_to(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> Reply:
    """The answer of a receiver as a reply; `body` is as much of it as was read."""
    code = code_of(status)
    return Reply(
        Stage.FINAL,
        code=code,
        enhanced=f"HTTP {status}",
        text=_text(status, body),
        retry_after_s=parse_retry_after(headers.get("Retry-After"), now=now) if code == DEFERRED else None,
    )


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """`Retry-After` in seconds, from a number or a date; None if it says nothing of use."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(text)
        wait = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
    except (TypeError, ValueError, OverflowError):  # OverflowError: a zone that leads out of the calendar
        return None
    return min(wait, _LONGEST_WAIT_S) if wait > 0 else None


def _text(status: int, body: bytes) -> str:
    try:
        said = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"HTTP {status}"
    words = body.decode("utf-8", "replace")
    return f"{said}: {words}" if words.strip() else said
