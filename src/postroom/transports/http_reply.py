"""SMTP equivalents of HTTP statuses and of `Retry-After`, shared by the transports that use HTTP.

| HTTP status          | stage   | code      | meaning                                |
|----------------------|---------|-----------|----------------------------------------|
| 401, 403             | login   | 535 5.7.8 | this account may not send              |
| 429                  | final   | 421 4.7.0 | throttled; retry after the hinted time |
| 404, 405, redirects  | connect | 554       | the configured URL is wrong            |
| 408, 409, 425, 5xx   | final   | 451 4.3.0 | retry                                  |
| 413                  | final   | 552 5.3.4 | the message is too large               |
| other                | final   | 554 5.6.0 | rejected                               |
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from postroom.post.reply import Stage

SmtpEquivalent = tuple[Stage, int, str | None]
LOGIN_REJECTED: SmtpEquivalent = (Stage.LOGIN, 535, "5.7.8")
LOGIN_DEFERRED: SmtpEquivalent = (Stage.LOGIN, 454, "4.7.0")
THROTTLED: SmtpEquivalent = (Stage.FINAL, 421, "4.7.0")
DEFERRED: SmtpEquivalent = (Stage.FINAL, 451, "4.3.0")
REJECTED: SmtpEquivalent = (Stage.FINAL, 554, "5.6.0")
TOO_LARGE: SmtpEquivalent = (Stage.FINAL, 552, "5.3.4")
WRONG_URL: SmtpEquivalent = (Stage.CONNECT, 554, None)

LONGEST_WAIT_S = 7 * 86_400.0
"""Longest wait taken from a reply; a wrong clock on the other side must not postpone mail for years."""
_BY_STATUS: dict[int, SmtpEquivalent] = {
    HTTPStatus.UNAUTHORIZED: LOGIN_REJECTED,
    HTTPStatus.FORBIDDEN: LOGIN_REJECTED,
    HTTPStatus.NOT_FOUND: WRONG_URL,
    HTTPStatus.METHOD_NOT_ALLOWED: WRONG_URL,
    HTTPStatus.REQUEST_TIMEOUT: DEFERRED,
    HTTPStatus.CONFLICT: DEFERRED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TOO_LARGE,
    HTTPStatus.TOO_EARLY: DEFERRED,
    HTTPStatus.TOO_MANY_REQUESTS: THROTTLED,
}


def smtp_equivalent(status: int) -> SmtpEquivalent:
    """The stage, code and enhanced code of an HTTP status that is no success; see the table above."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return DEFERRED
    return _BY_STATUS.get(status) or (
        WRONG_URL if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST else REJECTED
    )


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """`Retry-After` in seconds, from a number or a date; None if absent, invalid or past."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(text)
        return wait_until(moment if moment.tzinfo else moment.replace(tzinfo=UTC), now=now)
    except (TypeError, ValueError, OverflowError):  # OverflowError: a time zone moves the date out of range
        return None


def wait_until(moment: datetime, *, now: datetime) -> float | None:
    """Seconds from now until a moment, at most `LONGEST_WAIT_S`; None if it is past."""
    wait = (moment - now).total_seconds()
    return min(wait, LONGEST_WAIT_S) if wait > 0 else None
