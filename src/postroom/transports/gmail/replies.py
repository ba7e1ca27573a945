"""Conversion of Google's responses into a `Reply`.

Errors about a rate or a quota are throttling, whatever their status; `failedPrecondition` (the mailbox may not send) is
a rejected login. Everything else is decided by its status: `postroom.transports.http_reply`.
"""

import re
from datetime import UTC, datetime
from typing import Any

from postroom.post.reply import Reply, Stage
from postroom.transports.exchange import Answered, excerpt
from postroom.transports.http_reply import (
    LOGIN_REJECTED,
    THROTTLED,
    SmtpEquivalent,
    parse_retry_after,
    smtp_equivalent,
    wait_until,
)

_QUOTAS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded", "limitExceeded"}
)
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_RETRY_AFTER = re.compile(r"[Rr]etry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)")


def reply_to(answer: Answered, *, now: datetime) -> Reply:
    """Convert the response to a message."""
    said = answer.json
    if answer.is_success:
        text = excerpt(f"taken as {said['id']}") if isinstance(said.get("id"), str) else "taken"
        return Reply(Stage.FINAL, 250, "2.0.0", text, remote_host=answer.remote_host, tls=answer.tls)
    error = said.get("error")
    error = error if isinstance(error, dict) else {}
    reason, message = _reason(error), error.get("message")
    stage, code, enhanced = _equivalent(answer.status, reason)
    text = excerpt(f"HTTP {answer.status} {reason}: {message if isinstance(message, str) else ''}")
    wait = _wait(answer, text, now) if code // 100 == 4 else None  # noqa: PLR2004 - RFC 5321 4.2.1
    return Reply(stage, code, enhanced, text, wait, remote_host=answer.remote_host, tls=answer.tls)


def _equivalent(status: int, reason: str) -> SmtpEquivalent:
    if reason in _QUOTAS or reason == _EXHAUSTED:
        return THROTTLED
    return LOGIN_REJECTED if reason == "failedPrecondition" else smtp_equivalent(status)


def _reason(error: dict[str, Any]) -> str:
    """The reason of the first error, or the status of the whole response."""
    errors = error.get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    reason = first.get("reason") or error.get("status")
    return reason if isinstance(reason, str) else "error"


def _wait(answer: Answered, text: str, now: datetime) -> float | None:
    """Seconds to wait, from the header or from the time in the error message."""
    hint = parse_retry_after(answer.headers.get("Retry-After"), now=now)
    if hint is not None or (found := _RETRY_AFTER.search(text)) is None:
        return hint
    try:
        return wait_until(datetime.fromisoformat(found[1]).astimezone(UTC), now=now)
    except (ValueError, OverflowError):  # such as the 31st of February
        return None
