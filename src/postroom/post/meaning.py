"""The meaning of a refusal: the recipient's fault, ours, or another's. Pure; the whole policy is the table RULES below.

The first rule that fits decides. The order puts every reason that is not the mailbox first: a block on us, a full
mailbox, a temporary failure. A person is suppressed for good only on positive evidence that the mailbox does not exist
or is closed: 5.1.1, 5.1.6, 5.1.10, 5.2.1, or words that say so. A bare 550 or 554 is a bounce of that mail and nothing
more: the wrong suppression of a person costs more than a useless mail tomorrow.

| rule       | codes               | words                                       | class            |
|------------|---------------------|---------------------------------------------|------------------|
| pace       |                     | the person gets too much mail               | `recipient_soft` |
| block      | x.7.z, x.1.7, x.1.8 | reputation, authentication, content, policy | `policy`         |
| full       | x.2.2               | full, over quota                            | `recipient_soft` |
| no mailbox | those above         | unknown, does not exist, closed             | `recipient_hard` |
| no domain  |                     | the domain does not exist or takes no mail  | `recipient_hard` |
| suspended  |                     | suspended, inactive, locked                 | `recipient_soft` |
| message    | x.2.3, x.3.4, x.6.z | too large, not understood                   | `message`        |
| away       | x.3.z, x.4.z, x.1.2 | timed out, unreachable, system errors       | `infrastructure` |

The two hard rules give a soft class where the text says `temporary` or `try again`, or the code is a 4yz (a queue that
gave up after days). Where no rule fits, the SMTP code decides (`_SMTP`), and never for good.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from postroom.post import phrases

_PERMANENT, _TRANSIENT = 5, 4
_ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.]\d)")
_CODE = re.compile(r"(?<![\d.\w-])([45]\d\d)(?![\d.]*\d)(?=[\s:;,#-]|$)")
_ANY = None


class BounceClass(StrEnum):
    """Whose trouble a failed delivery is."""

    RECIPIENT_HARD = "recipient_hard"  # nobody lives there, and nobody will
    RECIPIENT_SOFT = "recipient_soft"  # the mailbox is full or asleep; it may come back
    INFRASTRUCTURE = "infrastructure"  # their servers are down or cannot be found
    POLICY = "policy"  # they do not want mail from us: reputation, authentication, content rules
    MESSAGE = "message"  # this mail was too large or not understood
    UNKNOWN = "unknown"  # refused, and the reason was not given
    TRANSIENT = "transient"  # not the last word: it is still being tried


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the policy: enhanced codes (`(subject, detail)`, None for any detail) or words, and the class."""

    name: str
    found: BounceClass
    words: re.Pattern[str]
    codes: frozenset[tuple[int, int | None]] = frozenset()
    later: BounceClass | None = None  # the class where the text says that it is temporary

    def fits(self, status: tuple[int, int, int] | None, words: str) -> bool:
        subject, detail = status[1:] if status else (0, 0)
        return (subject, detail) in self.codes or (subject, _ANY) in self.codes or bool(self.words.search(words))


def _codes(*codes: tuple[int, int | None]) -> frozenset[tuple[int, int | None]]:
    return frozenset(codes)


_EVIDENCE = _codes((1, 1), (1, 6), (1, 10), (2, 1))
"""No such mailbox, moved, the domain takes no mail (RFC 7505), disabled."""

RULES = (
    Rule("pace", BounceClass.RECIPIENT_SOFT, phrases.PACE),
    Rule("block", BounceClass.POLICY, phrases.BLOCKED, _codes((7, _ANY), (1, 7), (1, 8))),
    Rule("full", BounceClass.RECIPIENT_SOFT, phrases.FULL, _codes((2, 2))),
    Rule("size", BounceClass.MESSAGE, phrases.SIZE),
    Rule("no mailbox", BounceClass.RECIPIENT_HARD, phrases.NOBODY, _EVIDENCE, BounceClass.RECIPIENT_SOFT),
    Rule("no domain", BounceClass.RECIPIENT_HARD, phrases.NO_DOMAIN, later=BounceClass.INFRASTRUCTURE),
    Rule("suspended", BounceClass.RECIPIENT_SOFT, phrases.SUSPENDED),
    Rule("message", BounceClass.MESSAGE, phrases.MESSAGE, _codes((1, 9), (2, 3), (3, 3), (3, 4), (6, _ANY))),
    Rule("away", BounceClass.INFRASTRUCTURE, phrases.AWAY, _codes((1, 2), (2, 4), (3, _ANY), (4, _ANY))),
    Rule("mailbox", BounceClass.RECIPIENT_SOFT, phrases.NEVER, _codes((1, 4), (2, _ANY))),
    Rule("protocol", BounceClass.MESSAGE, phrases.NEVER, _codes((5, _ANY))),
)
"""In this order: a full mailbox is often also called unavailable, and a block is often also called an unknown user."""

_SMTP = {
    422: BounceClass.RECIPIENT_SOFT,
    450: BounceClass.RECIPIENT_SOFT,
    452: BounceClass.RECIPIENT_SOFT,
    530: BounceClass.POLICY,
    535: BounceClass.POLICY,
    552: BounceClass.RECIPIENT_SOFT,
}
"""Bare codes that say something; every other 4yz is `infrastructure`, every other 5yz `unknown`."""

LONGEST = 2000


def classify(
    code: int | None,
    enhanced: str | None,
    text: str,
    *,
    is_final: bool = True,
    is_about_recipient: bool = True,
) -> BounceClass:
    """Whose trouble it is. `is_final` is false while it will be tried again; the words are then not even read."""
    if not is_final:
        return BounceClass.TRANSIENT
    said = text[:LONGEST]
    status = _parts(enhanced) or _parts(find_enhanced(said))
    number = code if code is not None else find_code(said)
    words = phrases.without_addresses(said)
    rule = _rule(status, words)
    if rule is None:
        return _by_smtp(number, is_about_recipient=is_about_recipient)
    leading = status[0] if status else (number or 0) // 100
    is_later = leading == _TRANSIENT or bool(phrases.LATER.search(phrases.without_guesses(words)))
    return rule.later if rule.later is not None and is_later else rule.found


def find_enhanced(text: str) -> str | None:
    """The first enhanced status code in a text."""
    found = _ENHANCED.search(text)
    return found[0] if found else None


def find_code(text: str) -> int | None:
    """The first SMTP code of a refusal in a text."""
    found = _CODE.search(text)
    return int(found[1]) if found else None


def says_failure(text: str) -> bool:
    """True if words alone tell of a mail that did not arrive."""
    return _rule(None, phrases.without_addresses(text[:LONGEST])) is not None


def _rule(status: tuple[int, int, int] | None, words: str) -> Rule | None:
    """The first rule that fits. Sentences that guess at reasons prove nothing about a mailbox."""
    plain = phrases.without_guesses(words)
    for rule in RULES:
        if rule.fits(status, plain if rule.found is BounceClass.RECIPIENT_HARD else words):
            return rule
    return None


def _parts(enhanced: str | None) -> tuple[int, int, int] | None:
    found = _ENHANCED.fullmatch(enhanced.strip()) if enhanced else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _by_smtp(code: int | None, *, is_about_recipient: bool) -> BounceClass:
    if code is not None and not is_about_recipient:  # about the sender, the content or the whole: no mailbox is meant
        return BounceClass.POLICY if code // 100 == _PERMANENT else BounceClass.INFRASTRUCTURE
    other = BounceClass.INFRASTRUCTURE if code is not None and code // 100 == _TRANSIENT else BounceClass.UNKNOWN
    return _SMTP.get(code or 0, other)
