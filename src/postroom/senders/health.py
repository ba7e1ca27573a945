"""The effect of attempt results on the account that made them, from `postroom.post.meaning`. Pure.

| meaning                                                  | for the account                                         |
|----------------------------------------------------------|---------------------------------------------------------|
| taken                                                    | sent                                                    |
| hint `login`                                             | suspended at once; the mail goes back as if never tried  |
| hint `pause`                                             | paused for the hinted time; mail goes back likewise      |
| the same, where a second account got it for this mail    | neither: the mail is at fault and is retried later    |
| no reply in a session, before the message was handed over | not counted: our own network may be dead                |
| about the account, or refused because of us              | error                                                   |
| refused: recipient, destination, or no reason            | bounce                                                  |
| about the message, or temporary                          | neither                                                 |
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from postroom.post.meaning import Hardness, Hint, ReplyScope, meaning_of
from postroom.post.reply import Reply, Stage
from postroom.senders.model import StartSlot

DEFAULT_REST_S = 60.0  # servers that throttle without a time usually count per minute
LONGEST_REST_S = 86_400.0  # daily limits end within a day; a longer hint is an error of the server

_PERMANENT = frozenset({Hardness.REFUSED, Hardness.GONE})
_BOUNCED = frozenset({ReplyScope.RECIPIENT, ReplyScope.DESTINATION, ReplyScope.UNKNOWN})


class AttemptKind(StrEnum):
    """The category that one attempt is counted in."""

    SENT = "sent"
    BOUNCE = "bounce"
    ERROR = "error"
    NEUTRAL = "neutral"
    THROTTLED = "throttled"
    LOGIN_REFUSED = "login_refused"
    UNREACHED = "unreached"
    UNTRIED = "untried"


_FORGIVING = {Hint.PAUSE: AttemptKind.THROTTLED, Hint.LOGIN: AttemptKind.LOGIN_REFUSED}
_WITHOUT_REPLY = frozenset({Stage.CONNECT, Stage.SENDER, Stage.RECIPIENT, Stage.CONTENT})
"""Stages at which a missing reply says nothing about the account. TLS and login have reasons of their own, such as an
expired certificate; after the message each silence may mean a mail that is sent twice."""
_UNCOUNTED = frozenset({AttemptKind.UNREACHED, AttemptKind.UNTRIED})
FORGIVEN = frozenset(_FORGIVING.values())
"""Results caused by the account: the mail is due again at once, and its attempts are not counted."""


class HealthResult(msgspec.Struct, frozen=True):
    """The part of one result that concerns accounts and destinations."""

    slot: StartSlot
    reply: Reply | None  # None: not attempted
    domain: str | None
    blames_mail: bool = False  # a throttle caused by the mail, not the account
    is_forgiven: bool = False  # used none of the account's quota


@dataclass(slots=True)
class HealthCounts:
    """The changes that a batch of results makes to one account, in order."""

    tried: int = 0
    bounces: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    only_errors: bool = True
    rest_s: float | None = None
    rest_problem: str | None = None
    login_problem: str | None = None

    def add(self, kind: AttemptKind, reply: Reply) -> None:
        self.tried += 1
        self.bounces += kind is AttemptKind.BOUNCE
        if kind is AttemptKind.ERROR:
            self.errors += 1
            self.errors_in_a_row += 1
        elif kind not in FORGIVEN:
            self.errors_in_a_row, self.only_errors = 0, False
        if kind is AttemptKind.THROTTLED:
            self.rest_s = max(self.rest_s or 0.0, rest_after(reply))
            self.rest_problem = f"rests: {reply.code or ''} {reply.text}".replace("  ", " ")[:500]
        if kind is AttemptKind.LOGIN_REFUSED:
            self.login_problem = f"login refused: {reply.code} {reply.text}"[:500]


def judge(reply: Reply | None) -> AttemptKind:
    """Return the category of a reply; see the table above."""
    if reply is None or reply.suppress:
        return AttemptKind.UNTRIED
    meaning = meaning_of(reply.stage, reply.code, reply.enhanced, reply.text)
    if meaning.hardness is Hardness.TAKEN:
        return AttemptKind.SENT
    if reply.code is None and reply.stage in _WITHOUT_REPLY:
        return AttemptKind.UNREACHED
    if meaning.hint in _FORGIVING:
        return _FORGIVING[meaning.hint]
    is_permanent = meaning.hardness in _PERMANENT
    if meaning.scope is ReplyScope.ACCOUNT or (is_permanent and meaning.scope is ReplyScope.US):
        return AttemptKind.ERROR
    return AttemptKind.BOUNCE if is_permanent and meaning.scope in _BOUNCED else AttemptKind.NEUTRAL


def is_about_account(reply: Reply) -> bool:
    """True if the reply came before the mail was mentioned, so the mail cannot be its reason."""
    return reply.stage in (Stage.CONNECT, Stage.TLS, Stage.LOGIN)


def rest_after(reply: Reply) -> float:
    """The duration of an account's pause after a throttling reply."""
    return min(reply.retry_after_s or DEFAULT_REST_S, LONGEST_REST_S)


def is_slowdown(reply: Reply | None) -> bool:
    """True if the destination, not the account, asks for a lower rate."""
    if reply is None or reply.suppress:
        return False
    return meaning_of(reply.stage, reply.code, reply.enhanced, reply.text).hint is Hint.SLOW_DOWN


def tally(outcomes: Iterable[HealthResult]) -> dict[int, HealthCounts]:
    """Return the changes that a batch of results makes to each account."""
    tallies: dict[int, HealthCounts] = {}
    for outcome in outcomes:
        kind, account_id = judge(outcome.reply), outcome.slot.account_id
        if outcome.blames_mail:
            kind = AttemptKind.NEUTRAL
        if account_id is not None and kind not in _UNCOUNTED and outcome.reply is not None:
            tallies.setdefault(account_id, HealthCounts()).add(kind, outcome.reply)
    return tallies
