"""What Google's answers amount to, in the terms in which every transport replies.

| answer                                                 | stage   | code      | means                              |
|--------------------------------------------------------|---------|-----------|------------------------------------|
| 2xx                                                    | final   | 250       | taken; the text names the message  |
| 401                                                    | login   | 535 5.7.8 | the token is not accepted          |
| 403, 429 about a rate or a quota                       | final   | 421 4.7.0 | later; with Google's hint          |
| other 403, 400 failedPrecondition                      | login   | 535 5.7.8 | this mailbox may not send          |
| 400                                                    | final   | 554 5.6.0 | the message is not acceptable      |
| 413                                                    | final   | 552 5.3.4 | it is too large                    |
| 404, 405, redirects                                    | connect | 554       | the base URL leads elsewhere       |
| 408, 409, 425, 5xx                                     | final   | 451 4.3.0 | later                              |
| any other                                              | final   | 554 5.6.0 | refused                            |
"""

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from postroom.post.reply import Reply, Stage
from postroom.transports.exchange import Answered, excerpt
from postroom.transports.webhook.verdict import parse_retry_after

_QUOTAS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded", "limitExceeded"}
)
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})
_ELSEWHERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_REDIRECT, _CLIENT, _SERVER = 300, 400, 500
_RETRY_AFTER = re.compile(r"[Rr]etry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)")
_LONGEST_WAIT_S = 7 * 86_400.0

_LOGIN = (Stage.LOGIN, 535, "5.7.8")
_SLOWER = (Stage.FINAL, 421, "4.7.0")
_AGAIN = (Stage.FINAL, 451, "4.3.0")
_REFUSED = (Stage.FINAL, 554, "5.6.0")
_TOO_LARGE = (Stage.FINAL, 552, "5.3.4")
_WRONG_PLACE = (Stage.CONNECT, 554, None)


def reply_to(answer: Answered, *, now: datetime) -> Reply:
    """Google's answer to a message, as a reply."""
    said = answer.json
    if answer.is_success:
        text = excerpt(f"taken as {said['id']}") if isinstance(said.get("id"), str) else "taken"
        return Reply(Stage.FINAL, 250, "2.0.0", text, remote_host=answer.remote_host, tls=answer.tls)
    error = said.get("error")
    error = error if isinstance(error, dict) else {}
    reason, message = _reason(error), error.get("message")
    stage, code, enhanced = _meaning(answer.status, reason)
    text = excerpt(f"HTTP {answer.status} {reason}: {message if isinstance(message, str) else ''}")
    wait = _wait(answer, text, now) if code // 100 == 4 else None  # noqa: PLR2004 - RFC 5321 4.2.1
    return Reply(stage, code, enhanced, text, wait, remote_host=answer.remote_host, tls=answer.tls)


def _meaning(status: int, reason: str) -> tuple[Stage, int, str | None]:
    if status == HTTPStatus.TOO_MANY_REQUESTS or reason in _QUOTAS or reason == _EXHAUSTED:
        return _SLOWER
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or reason == "failedPrecondition":
        return _LOGIN
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return _TOO_LARGE
    if status in _ELSEWHERE or _REDIRECT <= status < _CLIENT:
        return _WRONG_PLACE
    return _AGAIN if status in _LATER or status >= _SERVER else _REFUSED


def _reason(error: dict[str, Any]) -> str:
    """The most exact name Google gives: the first error's reason, or the status of the whole."""
    errors = error.get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    reason = first.get("reason") or error.get("status")
    return reason if isinstance(reason, str) else "error"


def _wait(answer: Answered, text: str, now: datetime) -> float | None:
    """How long to wait, from the header or from the moment that Gmail writes into its message."""
    hint = parse_retry_after(answer.headers.get("Retry-After"), now=now)
    if hint is not None or (found := _RETRY_AFTER.search(text)) is None:
        return hint
    try:
        wait = (datetime.fromisoformat(found[1]).astimezone(UTC) - now).total_seconds()
    except (ValueError, OverflowError):  # the 31st of February
        return None
    return min(wait, _LONGEST_WAIT_S) if wait > 0 else None
