"""The meaning of replies: one table, read from the top; the first row that matches decides.

A row matches a reply if the stage and the SMTP code are among its own, and either the enhanced code or a phrase does.
It has the finality (`Hardness`), the subject (`ReplyScope`) and the request to the sender (`Hint`) of a reply. A
4yz, an enhanced code 4.y.z and words such as "try again later" make any refusal temporary. Retries
(`postroom.delivery`), the health of sender accounts (`postroom.senders`) and suppression (`postroom.feedback`) all read
the same `Meaning`.

The order puts every reason that is not the mailbox before the mailbox: a full mailbox is often also called unavailable,
and a block on us an unknown user. An address is suppressed permanently only on positive evidence that it does not
exist (`GONE`): a wrong suppression costs more than a useless mail tomorrow.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from postroom.post import phrases
from postroom.post.reply import Stage

LONGEST_TEXT = 2000  # rules match the beginning of a reply; bounds the time of their expressions
_ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?!\d)(?!\.\d)")
_CODE = re.compile(r"(?<![\d.\w-])([45]\d\d)(?![\d.]*\d)(?=[\s:;,#-]|$)")
_HTTP = "HTTP "  # the enhanced code of webhooks: their text is the body of an endpoint, not the words of a mail server


class Hardness(StrEnum):
    """The finality of a reply."""

    TAKEN = "taken"
    LATER = "later"  # temporary: retry
    REFUSED = "refused"  # this mail is rejected permanently; the next one may be accepted
    GONE = "gone"  # the mailbox does not exist: the next mail would be rejected too
    LOST = "lost"  # no reply to the complete message: it may have been accepted


class ReplyScope(StrEnum):
    """The subject of a reply."""

    RECIPIENT = "recipient"
    MESSAGE = "message"
    ACCOUNT = "account"  # the sender account or the relay that carried the mail
    DESTINATION = "destination"  # the servers of the recipient
    US = "us"  # reputation, authentication, content rules, pace
    UNKNOWN = "unknown"  # no reason is given


class Hint(StrEnum):
    """The request to the sender, besides a retry."""

    NONE = "none"
    SLOW_DOWN = "slow_down"  # send less to this destination
    PAUSE = "pause"  # send nothing through this account for a while
    LOGIN = "login"  # the account's credentials are rejected


class Meaning(NamedTuple):
    """The meaning of one reply, and the name of the row that decided it."""

    hardness: Hardness
    scope: ReplyScope
    hint: Hint
    row: str


class Example(NamedTuple):
    """A reply that a row decides. Without a stage it is quoted in a report about one recipient."""

    stage: Stage | None
    code: int | None
    enhanced: str | None
    text: str


class Row(NamedTuple):
    """One rule. `doubtful` is the scope of a GONE row whose text says that the problem is temporary."""

    name: str
    hardness: Hardness
    scope: ReplyScope
    reason: str
    example: Example
    words: re.Pattern[str] | None = None
    enhanced: str = ""  # such as "x.2.2 4.7.*"
    codes: frozenset[int | None] | None = None
    stages: frozenset[Stage | None] | None = None
    hint: Hint = Hint.NONE
    doubtful: ReplyScope | None = None


_TAKEN, _LATER, _REFUSED, _GONE, _LOST = Hardness
_RECIPIENT, _MESSAGE, _ACCOUNT, _DESTINATION, _US, _UNKNOWN = ReplyScope
_CONNECT, _TLS, _LOGIN, _SENDER, _RCPT, _CONTENT, _FINAL = Stage


def _stages(*stages: Stage | None) -> frozenset[Stage | None]:
    return frozenset(stages)


def _codes(*codes: int | None) -> frozenset[int | None]:
    return frozenset(codes)


_SESSION = _stages(*Stage)
_BEFORE_MAIL = _stages(_CONNECT, _TLS, _LOGIN)
_OURS = _stages(_CONNECT, _TLS, _LOGIN, _SENDER, _FINAL)
_WHOLE = _stages(_CONTENT, _FINAL)
_ABOUT_RECIPIENT = _stages(_RCPT, None)
_4YZ, _5YZ = _codes(*range(400, 500)), _codes(*range(500, 600))

TABLE = (
    # ── the session itself: no recipient is at fault ──
    Row("silence after the message", _LOST, _ACCOUNT, "it may have been accepted",
        Example(_FINAL, None, None, "connection lost"), codes=_codes(None), stages=_stages(_FINAL)),
    Row("silence", _LATER, _ACCOUNT, "refused connections, timeouts and dropped lines come before acceptance",
        Example(_CONTENT, None, None, "timed out"), codes=_codes(None), stages=_SESSION),
    Row("service closing", _LATER, _ACCOUNT, "421 ends the session at any stage (RFC 5321 3.8); 429 is its HTTP twin",
        Example(_RCPT, 421, "4.7.0", "rate limited"), codes=_codes(421, 429), stages=_SESSION, hint=Hint.PAUSE),
    Row("account limit", _LATER, _ACCOUNT, "providers limit logins and requests of an account",
        Example(_LOGIN, 454, "4.7.0", "Too many login attempts"), phrases.ACCOUNT_LIMIT, codes=_4YZ, stages=_OURS,
        hint=Hint.PAUSE),
    Row("login refused", _LATER, _ACCOUNT, "the credentials must be changed first; the mail is not at fault",
        Example(_LOGIN, 535, "5.7.8", "wrong password"), codes=_5YZ | {401, 403}, stages=_stages(_LOGIN),
        hint=Hint.LOGIN),
    Row("no session", _LATER, _ACCOUNT, "the problem is between us and the relay: no mail was mentioned yet",
        Example(_CONNECT, 554, "5.7.1", "go away"), stages=_BEFORE_MAIL),
    Row("too large to offer", _REFUSED, _MESSAGE, "SIZE is checked at MAIL FROM (RFC 1870)",
        Example(_SENDER, 552, "5.3.4", "too large"), phrases.SIZE, "x.2.3 x.3.4", stages=_stages(_SENDER)),
    Row("sender refused", _REFUSED, _ACCOUNT, "MAIL FROM names the sender only",
        Example(_SENDER, 550, "5.1.8", "not your address"), stages=_stages(_SENDER)),

    # ── not the mailbox, even if the text mentions it ──
    Row("mailbox full", _LATER, _RECIPIENT, "people empty mailboxes; the sender is not at fault, even under a 5yz",
        Example(_FINAL, 552, None, "mailbox full"), phrases.FULL_MAILBOX, "x.2.2"),
    Row("sending limit", _LATER, _ACCOUNT, "the quota of the sending account, such as Gmail's 550 5.4.5",
        Example(_FINAL, 550, "5.4.5", "Daily user sending quota exceeded"), phrases.SENDING_LIMIT, hint=Hint.PAUSE),
    Row("popular mailbox", _LATER, _RECIPIENT, "the person receives too much mail, from all senders together",
        Example(_RCPT, 450, "4.2.1", "is receiving mail at a rate that prevents delivery"), phrases.PACE,
        hint=Hint.SLOW_DOWN),
    Row("greylisting", _LATER, _US, "the first attempt of an unknown sender is refused to see whether it comes back",
        Example(_RCPT, 550, None, "Greylisted, see you later"), phrases.GREYLISTED),
    Row("rate limit", _LATER, _US, "we send too fast for this destination; some servers say so with a 5yz",
        Example(_FINAL, 550, None, "too many messages from your server, slow down"), phrases.RATE,
        hint=Hint.SLOW_DOWN),
    Row("policy for now", _LATER, _US, "4.7.z is how large providers ask for patience",
        Example(_RCPT, 451, "4.7.1", "please wait"), enhanced="4.7.*", hint=Hint.SLOW_DOWN),
    Row("block", _REFUSED, _US, "reputation, authentication, content and policy: they do not want this mail from us",
        Example(_RCPT, 550, "5.7.1", "listed at zen.spamhaus.org"), phrases.BLOCKED),
    Row("over quota", _LATER, _RECIPIENT, "a quota in other words than `mailbox full`",
        Example(_RCPT, 552, None, "Quota exceeded"), phrases.FULL),
    Row("too large", _REFUSED, _MESSAGE, "a smaller mail may be accepted; some servers say so under 5.1.1",
        Example(_FINAL, 550, "5.1.1", "max message size exceeded"), phrases.SIZE, "x.2.3 x.3.4"),

    # ── evidence about the mailbox: only the three GONE rows suppress an address permanently ──
    Row("no such mailbox", _GONE, _RECIPIENT, "servers say so under 5.7.1 too; it has a new owner (RFC 7293)",
        Example(_RCPT, 550, "5.7.1", "No such user"), phrases.NO_SUCH, "x.7.17 x.7.18", doubtful=_RECIPIENT),
    Row("block code", _REFUSED, _US, "security and policy, and a sender address that is refused",
        Example(_RCPT, 550, "5.7.1", "no"), enhanced="x.7.* x.1.7 x.1.8"),
    Row("no mailbox", _GONE, _RECIPIENT, "unknown, moved, closed (5.1.1, 5.1.6, 5.2.1), or no mail at all (RFC 7505)",
        Example(_RCPT, 550, "5.1.1", "box closed"), phrases.NOBODY, "x.1.1 x.1.6 x.1.10 x.2.1", doubtful=_RECIPIENT),
    Row("no domain", _GONE, _RECIPIENT, "the domain does not exist or takes no mail",
        Example(_RCPT, 550, None, "Domain does not exist"), phrases.NO_DOMAIN, doubtful=_DESTINATION),

    # ── other reasons ──
    Row("mailbox suspended", _REFUSED, _RECIPIENT, "the mailbox exists and may come back",
        Example(_RCPT, 550, None, "account has been suspended"), phrases.SUSPENDED),
    Row("not understood", _REFUSED, _MESSAGE, "the same bytes would be refused again",
        Example(_FINAL, 554, "5.6.0", "cannot be read"), phrases.MESSAGE, "x.1.9 x.3.3 x.6.*"),
    Row("mail rejected", _REFUSED, _US, "no reason is given: filters say so, under a code for the mailbox too",
        Example(_RCPT, 550, "5.2.0", "Mail rejected"), phrases.REJECTED),
    Row("system full", _LATER, _DESTINATION, "system full and congested are temporary in fact, hard in form (RFC 3463)",
        Example(_FINAL, 554, "5.4.5", "congested"), enhanced="x.3.1 x.4.5"),
    Row("too many recipients", _LATER, _MESSAGE, "the others go in the next transaction, 552 too (RFC 5321 4.5.3.1.10)",
        Example(_RCPT, 552, "5.5.3", "too many recipients"), enhanced="x.5.3"),
    Row("destination down", _REFUSED, _DESTINATION, "their servers cannot be reached or do not work",
        Example(_RCPT, 550, "5.4.4", "unable to route"), phrases.AWAY, "x.1.2 x.2.4 x.3.* x.4.*"),
    Row("mailbox trouble", _REFUSED, _RECIPIENT, "some trouble of the mailbox that is no proof against it",
        Example(_RCPT, 550, "5.2.0", "no"), enhanced="x.1.4 x.2.*"),
    Row("mailbox unavailable", _REFUSED, _UNKNOWN, "the words of RFC 5321 for any 550, even under 5.5.0",
        Example(_RCPT, 550, "5.5.0", "mailbox unavailable"), phrases.UNAVAILABLE, codes=_codes(550, 551, 553, 554),
        stages=_ABOUT_RECIPIENT),
    Row("protocol error", _REFUSED, _MESSAGE, "the server and we disagree about SMTP",
        Example(_FINAL, 554, "5.5.0", "no"), enhanced="x.5.*"),

    # ── no reason in the enhanced code or the text: the bare SMTP code ──
    Row("bare mailbox code", _LATER, _RECIPIENT, "busy (450) or out of storage (422, 452, 552)",
        Example(_RCPT, 552, None, ""), codes=_codes(422, 450, 452, 552), stages=_ABOUT_RECIPIENT),
    Row("bare login code", _REFUSED, _US, "they ask us to authenticate",
        Example(_RCPT, 530, None, ""), codes=_codes(530, 535)),
    Row("bare 552 to the content", _REFUSED, _MESSAGE, "too large or out of storage: it does not say which",
        Example(_FINAL, 552, None, ""), codes=_codes(552), stages=_WHOLE),
    Row("bare 4yz", _LATER, _DESTINATION, "temporary by definition", Example(_RCPT, 451, None, ""), codes=_4YZ),
    Row("bare 5yz to the content", _REFUSED, _US, "filters refuse at the final dot: no mailbox is meant",
        Example(_FINAL, 554, None, "Transaction failed"), codes=_5YZ, stages=_WHOLE),
    Row("bare 5yz", _REFUSED, _UNKNOWN, "a bounce of this mail and nothing more",
        Example(_RCPT, 550, None, "Requested action not taken"), codes=_5YZ),
    Row("no refusal", _LATER, _DESTINATION, "a code where it makes no sense, such as 354 to RCPT",
        Example(_CONTENT, 354, None, ""), stages=_SESSION),
    Row("failed", _REFUSED, _UNKNOWN, "a report that gives neither a code nor a reason", Example(None, None, None, "")),
)  # fmt: skip
"""Read from the top; the first row that matches decides. `x` in an enhanced code is 4 or 5, `*` any detail."""

_DELIVERED = Meaning(_TAKEN, _UNKNOWN, Hint.NONE, "accepted")


def meaning_of(stage: Stage | None, code: int | None, enhanced: str | None, text: str) -> Meaning:
    """The meaning of a reply. Without `stage`: a rejection quoted in a report, about one recipient."""
    if code is not None and 200 <= code < 300:  # noqa: PLR2004 - RFC 5321 4.2.1; nearly all replies end here
        return _DELIVERED
    return _decide(stage, code, enhanced, text)


def is_reason(text: str) -> bool:
    """True if a text alone gives a reason why a mail did not arrive."""
    said = _said(None, None, None, text)
    return any(_has_words(row, said) for row in TABLE)


def find_enhanced(text: str) -> str | None:
    """The first enhanced status code in a text."""
    found = _ENHANCED.search(text)
    return found[0] if found else None


def find_code(text: str) -> int | None:
    """The first negative SMTP code in a text."""
    found = _CODE.search(text)
    return int(found[1]) if found else None


class _Said(NamedTuple):
    """A reply, prepared for matching."""

    stage: Stage | None
    code: int | None
    patterns: frozenset[str]  # matching its enhanced code: 5.2.2 matches 5.2.2, x.2.2, 5.2.* and x.2.*
    words: str
    certain_words: str  # without the sentences that guess at reasons
    is_temporary: bool


@lru_cache(maxsize=4096)  # a block or a host that is down gives the same reply to a whole campaign
def _decide(stage: Stage | None, code: int | None, enhanced: str | None, text: str) -> Meaning:
    said = _said(stage, code, enhanced, text)
    row = next(row for row in TABLE if _fits(row, said))
    hardness, scope = row.hardness, row.scope
    if row.doubtful is not None and (said.is_temporary or phrases.DOUBT.search(said.certain_words)):
        hardness, scope = _REFUSED, row.doubtful
    if hardness is _REFUSED and (said.is_temporary or phrases.LATER.search(said.certain_words)):
        hardness = _LATER
    return Meaning(hardness, scope, row.hint, row.name)


def _said(stage: Stage | None, code: int | None, enhanced: str | None, text: str) -> _Said:
    is_http = enhanced is not None and enhanced.startswith(_HTTP)
    text = "" if is_http else text[:LONGEST_TEXT]
    words = phrases.without_addresses(text)
    status = _ENHANCED.fullmatch((enhanced or "").strip()) or _ENHANCED.search(text)
    number = find_code(text) if code is None and stage is None else code
    temporary = (number is not None and number in _4YZ) or (status is not None and status[1] == "4")
    return _Said(stage, number, _patterns(status), words, phrases.without_guesses(words), temporary)


def _patterns(status: re.Match[str] | None) -> frozenset[str]:
    if status is None or status[1] == "2":
        return frozenset()
    kind, subject, detail = status[1], int(status[2]), int(status[3])
    return frozenset(f"{first}.{subject}.{last}" for first in (kind, "x") for last in (detail, "*"))


def _fits(row: Row, said: _Said) -> bool:
    if row.stages is not None and said.stage not in row.stages:
        return False
    if row.codes is not None and said.code not in row.codes:
        return False
    if row.words is None and not row.enhanced:
        return True
    return not said.patterns.isdisjoint(row.enhanced.split()) or _has_words(row, said)


def _has_words(row: Row, said: _Said) -> bool:
    """True if the text contains the phrases of a row. Sentences that guess are no evidence against a mailbox."""
    words = said.certain_words if row.hardness is _GONE else said.words
    return row.words is not None and row.words.search(words) is not None
