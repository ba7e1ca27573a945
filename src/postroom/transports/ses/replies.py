"""Conversion of the responses of SES into a `Reply`.

AWS names its errors, and most have status 400. `_BY_NAME` decides the named ones; an unknown name is decided by its
status: `postroom.transports.http_reply`.
"""

from datetime import datetime

from postroom.post.reply import Reply, Stage
from postroom.transports.exchange import Answered, excerpt
from postroom.transports.http_reply import (
    DEFERRED,
    LOGIN_DEFERRED,
    LOGIN_REJECTED,
    REJECTED,
    THROTTLED,
    WRONG_URL,
    SmtpEquivalent,
    parse_retry_after,
    smtp_equivalent,
)

RATE_HINT_S = 1.0
"""SES limits mails per second, so a throttled mail may start again after one."""

_BY_NAME: dict[str, SmtpEquivalent] = {
    "TooManyRequests": THROTTLED,
    "Throttling": THROTTLED,
    "RequestLimitExceeded": THROTTLED,
    "LimitExceeded": THROTTLED,
    "MessageRejected": REJECTED,
    "BadRequest": REJECTED,
    "AccountSuspended": LOGIN_REJECTED,
    "SendingPaused": LOGIN_REJECTED,
    "MailFromDomainNotVerified": LOGIN_REJECTED,
    "AccessDenied": LOGIN_REJECTED,
    "ExpiredToken": LOGIN_REJECTED,
    "IncompleteSignature": LOGIN_REJECTED,
    "InvalidClientTokenId": LOGIN_REJECTED,
    "InvalidSignature": LOGIN_REJECTED,
    "MissingAuthenticationToken": LOGIN_REJECTED,
    "NotAuthorized": LOGIN_REJECTED,
    "OptInRequired": LOGIN_REJECTED,
    "SignatureDoesNotMatch": LOGIN_REJECTED,
    "UnrecognizedClient": LOGIN_REJECTED,
    "RequestExpired": LOGIN_DEFERRED,  # the clock of this host is wrong
    "RequestTimeTooSkewed": LOGIN_DEFERRED,
    "NotFound": WRONG_URL,  # of the configuration set
}


def reply_to(answer: Answered, *, now: datetime) -> Reply:
    """Convert the response to a message."""
    said = answer.json
    if answer.is_success:
        text = excerpt(f"taken as {said['MessageId']}") if isinstance(said.get("MessageId"), str) else "taken"
        return Reply(Stage.FINAL, 250, "2.0.0", text, remote_host=answer.remote_host, tls=answer.tls)
    name = _name(answer)
    message = next((said[key] for key in ("message", "Message") if isinstance(said.get(key), str)), "")
    equivalent = _BY_NAME.get(name.removesuffix("Exception").removesuffix("Error")) or smtp_equivalent(answer.status)
    stage, code, enhanced = equivalent
    text = excerpt(f"HTTP {answer.status} {name}: {message}")
    wait = _wait(answer, equivalent, message, now)
    return Reply(stage, code, enhanced, text, wait, remote_host=answer.remote_host, tls=answer.tls)


def _name(answer: Answered) -> str:
    """`MessageRejected`, from a header such as `MessageRejected:http://…` or a body's `com.aws#MessageRejected`."""
    given = answer.headers.get("x-amzn-ErrorType") or answer.json.get("__type") or answer.json.get("code") or "error"
    return excerpt(str(given).partition(":")[0].rpartition("#")[2])


def _wait(answer: Answered, equivalent: SmtpEquivalent, message: str, now: datetime) -> float | None:
    """Seconds to wait: the header, or `RATE_HINT_S` for a rate; None for a daily quota, whose end is unknown."""
    hint = parse_retry_after(answer.headers.get("Retry-After"), now=now)
    if hint is None and equivalent is THROTTLED and "quota" not in message.lower():
        return RATE_HINT_S
    return hint if equivalent in (THROTTLED, DEFERRED, LOGIN_DEFERRED) else None
