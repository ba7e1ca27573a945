"""What the results of attempts say about the account that made them. Pure.

| reply                                                   | for the account                                         |
|---------------------------------------------------------|---------------------------------------------------------|
| taken                                                   | sent                                                    |
| login refused (5xx, or 401 and 403 of an HTTP API)      | suspended at once; the mail goes back as if never tried  |
| 421, 429, or a rate limit in words                      | rests for the hinted time; the mail goes back likewise   |
| the same, where a second account heard it for this mail | neither: the mail is at fault and follows its ladder     |
| no answer, or any no before the recipients' turn        | error                                                   |
| 5.7.x: the other side objects to us                     | error                                                   |
| 5.6.x, 5.3.4: the message itself                        | neither                                                 |
| other refusals for good                                 | bounce                                                  |
| other 4xx about a recipient or the content              | neither: it may be tried again                          |
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from postroom.post.reply import Reply, Stage
from postroom.senders.model import Slot

DEFAULT_REST_S = 60.0
LONGEST_REST_S = 86_400.0

_BEFORE_MAIL = frozenset({Stage.CONNECT, Stage.TLS, Stage.LOGIN})
_OURS = _BEFORE_MAIL | {Stage.SENDER}
_SERVICE_CLOSING, _TOO_MANY = 421, 429
_LOGIN_REFUSED = frozenset({401, 403})
_PERMANENT, _SUCCESS = 500, 300
_CONTENT = ("5.3.4", "5.6.")
_LIMIT_WORDS = re.compile(
    r"(user)?rate[ -]?limit[ -]?exceeded|quota[ -]?exceeded|too many (login|request)s?", re.IGNORECASE
)
_SLOW_WORDS = re.compile(
    r"rate|throttl|too (many|fast|much)|slow(er| down)|exceed|limit|temporarily (deferred|blocked)|unusual",
    re.IGNORECASE,
)


class Kind(StrEnum):
    """What one attempt counts as."""

    SENT = "sent"
    BOUNCE = "bounce"
    ERROR = "error"
    NEUTRAL = "neutral"
    THROTTLED = "throttled"
    LOGIN_REFUSED = "login_refused"
    UNTRIED = "untried"


FORGIVEN = frozenset({Kind.THROTTLED, Kind.LOGIN_REFUSED})
"""What is the account's affair: the mail is due again at once, and its budget is untouched."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One result, as far as accounts and destinations care."""

    slot: Slot
    reply: Reply | None  # None: it was not tried
    domain: str | None
    blames_mail: bool = False  # a throttle that is not the account's fault
    is_forgiven: bool = False  # it used nothing of the account's quota


@dataclass(slots=True)
class Tally:
    """What a batch of results adds to one account, in the order in which they came."""

    tried: int = 0
    bounces: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    only_errors: bool = True
    rest_s: float | None = None
    login_problem: str | None = None

    def add(self, kind: Kind, reply: Reply) -> None:
        self.tried += 1
        self.bounces += kind is Kind.BOUNCE
        if kind is Kind.ERROR:
            self.errors += 1
            self.errors_in_a_row += 1
        elif kind not in FORGIVEN:
            self.errors_in_a_row, self.only_errors = 0, False
        if kind is Kind.THROTTLED:
            self.rest_s = max(self.rest_s or 0.0, rest_after(reply))
        if kind is Kind.LOGIN_REFUSED:
            self.login_problem = f"login refused: {reply.code} {reply.text}"[:500]


def judge(reply: Reply | None) -> Kind:
    """What a reply counts as; see the table above."""
    if reply is None or reply.suppress:
        return Kind.UNTRIED
    if reply.code is None:
        return Kind.ERROR
    if reply.code < _SUCCESS:
        return Kind.SENT
    if _is_throttle(reply, reply.code):
        return Kind.THROTTLED
    return _judge_refusal(reply, reply.code)


def _judge_refusal(reply: Reply, code: int) -> Kind:
    enhanced = reply.enhanced or ""
    if reply.stage is Stage.LOGIN and (code >= _PERMANENT or code in _LOGIN_REFUSED):
        return Kind.LOGIN_REFUSED
    if reply.stage in _OURS or enhanced.startswith("5.7."):
        return Kind.ERROR
    return Kind.NEUTRAL if code < _PERMANENT or enhanced.startswith(_CONTENT) else Kind.BOUNCE


def is_about_account(reply: Reply) -> bool:
    """True if the reply came before the mail was mentioned, so that no mail can be the reason for it."""
    return reply.stage in _BEFORE_MAIL


def rest_after(reply: Reply) -> float:
    """How long an account rests after it was told to slow down."""
    return min(reply.retry_after_s or DEFAULT_REST_S, LONGEST_REST_S)


def is_slowdown(reply: Reply | None) -> bool:
    """True if the destination, not the account, is told to be sent to more slowly."""
    if reply is None or judge(reply) is not Kind.NEUTRAL or (reply.code or 0) >= _PERMANENT:
        return False
    return (reply.enhanced or "").startswith("4.7.") or _SLOW_WORDS.search(reply.text) is not None


def tally(outcomes: Iterable[Outcome]) -> dict[int, Tally]:
    """What a batch of results adds to each account."""
    tallies: dict[int, Tally] = {}
    for outcome in outcomes:
        kind, account_id = judge(outcome.reply), outcome.slot.account_id
        if outcome.blames_mail:
            kind = Kind.NEUTRAL
        if account_id is not None and kind is not Kind.UNTRIED and outcome.reply is not None:
            tallies.setdefault(account_id, Tally()).add(kind, outcome.reply)
    return tallies


def _is_throttle(reply: Reply, code: int) -> bool:
    if code in (_SERVICE_CLOSING, _TOO_MANY):
        return True
    return code < _PERMANENT and reply.stage in (*_OURS, Stage.FINAL) and _LIMIT_WORDS.search(reply.text) is not None
