"""What the answers of SES amount to, in the terms in which every transport replies.

AWS names its errors; the status says little (most are 400). A name that is not known is judged by its status.

| answer                                                        | stage   | code      | means                       |
|---------------------------------------------------------------|---------|-----------|-----------------------------|
| 2xx                                                           | final   | 250       | taken; the text has the id  |
| TooManyRequests, Throttling, LimitExceeded, 429               | final   | 421 4.7.0 | later; with a hint          |
| MessageRejected, BadRequest                                   | final   | 554 5.6.0 | refused                     |
| AccountSuspended, SendingPaused, unverified MAIL FROM,        | login   | 535 5.7.8 | this account may not send   |
| anything about keys, tokens, signatures and permissions, 401, |         |           |                             |
| 403                                                           |         |           |                             |
| RequestExpired, RequestTimeTooSkewed                          | login   | 454 4.7.0 | a clock is wrong            |
| NotFound (a configuration set), 404, redirects                | connect | 554       | our settings lead elsewhere |
| 408, 5xx                                                      | final   | 451 4.3.0 | later                       |
| any other                                                     | final   | 554 5.6.0 | refused                     |
"""

from datetime import datetime
from http import HTTPStatus

from postroom.post.reply import Reply, Stage
from postroom.transports.exchange import Answered, excerpt
from postroom.transports.webhook.verdict import parse_retry_after

RATE_HINT_S = 1.0
"""The sending rate of SES is counted by the second."""

_LOGIN = (Stage.LOGIN, 535, "5.7.8")
_CLOCK = (Stage.LOGIN, 454, "4.7.0")
_SLOWER = (Stage.FINAL, 421, "4.7.0")
_AGAIN = (Stage.FINAL, 451, "4.3.0")
_REFUSED = (Stage.FINAL, 554, "5.6.0")
_WRONG_PLACE = (Stage.CONNECT, 554, None)

_Meaning = tuple[Stage, int, str | None]
_BY_NAME: dict[str, _Meaning] = {
    "TooManyRequests": _SLOWER,
    "Throttling": _SLOWER,
    "RequestLimitExceeded": _SLOWER,
    "LimitExceeded": _SLOWER,
    "MessageRejected": _REFUSED,
    "BadRequest": _REFUSED,
    "AccountSuspended": _LOGIN,
    "SendingPaused": _LOGIN,
    "MailFromDomainNotVerified": _LOGIN,
    "AccessDenied": _LOGIN,
    "ExpiredToken": _LOGIN,
    "IncompleteSignature": _LOGIN,
    "InvalidClientTokenId": _LOGIN,
    "InvalidSignature": _LOGIN,
    "MissingAuthenticationToken": _LOGIN,
    "NotAuthorized": _LOGIN,
    "OptInRequired": _LOGIN,
    "SignatureDoesNotMatch": _LOGIN,
    "UnrecognizedClient": _LOGIN,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "NotFound": _WRONG_PLACE,
}
_REDIRECT, _CLIENT, _SERVER = 300, 400, 500


def reply_to(answer: Answered, *, now: datetime) -> Reply:
    """The answer of SES to a message, as a reply."""
    said = answer.json
    if answer.is_success:
        text = excerpt(f"taken as {said['MessageId']}") if isinstance(said.get("MessageId"), str) else "taken"
        return Reply(Stage.FINAL, 250, "2.0.0", text, remote_host=answer.remote_host, tls=answer.tls)
    name = _name(answer)
    message = next((said[key] for key in ("message", "Message") if isinstance(said.get(key), str)), "")
    meaning = _BY_NAME.get(name.removesuffix("Exception").removesuffix("Error")) or _by_status(answer.status)
    stage, code, enhanced = meaning
    text = excerpt(f"HTTP {answer.status} {name}: {message}")
    wait = _wait(answer, meaning, message, now)
    return Reply(stage, code, enhanced, text, wait, remote_host=answer.remote_host, tls=answer.tls)


def _name(answer: Answered) -> str:
    """`MessageRejected`, from a header such as `MessageRejected:http://…` or a body's `com.aws#MessageRejected`."""
    given = answer.headers.get("x-amzn-ErrorType") or answer.json.get("__type") or answer.json.get("code") or "error"
    return excerpt(str(given).partition(":")[0].rpartition("#")[2])


def _by_status(status: int) -> _Meaning:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return _SLOWER
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _LOGIN
    if status == HTTPStatus.NOT_FOUND or _REDIRECT <= status < _CLIENT:
        return _WRONG_PLACE
    return _AGAIN if status == HTTPStatus.REQUEST_TIMEOUT or status >= _SERVER else _REFUSED


def _wait(answer: Answered, meaning: _Meaning, message: str, now: datetime) -> float | None:
    """What the header asks for; for a rate, the second it is counted by; for a day's quota nobody can say."""
    hint = parse_retry_after(answer.headers.get("Retry-After"), now=now)
    if hint is None and meaning is _SLOWER and "quota" not in message.lower():
        return RATE_HINT_S
    return hint if meaning in (_SLOWER, _AGAIN, _CLOCK) else None
