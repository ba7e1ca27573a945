"""What a refusal means: whose trouble it is. Pure; the whole policy is the tables below.

Order. A text that says we are blocked wins over everything: better a useless mail tomorrow than a person cut off
because of our reputation. Then the enhanced status code (RFC 3463, 5248) where it says something; then texts of the
large providers; then the SMTP code, and where in the conversation it came.

| subject of the code  | means                                                                            |
|----------------------|----------------------------------------------------------------------------------|
| x.1.z addressing     | 5: nobody lives there; x.1.7 and x.1.8 are about our own address, so policy      |
| x.2.z mailbox        | 5.2.1 disabled is hard, full is soft, x.2.3 too long is the message              |
| x.3.z mail system    | theirs is full or down; x.3.4 too big is the message                             |
| x.4.z network        | theirs cannot be reached; a domain that does not exist is hard                   |
| x.5.z protocol       | this mail, unless the text knows better                                          |
| x.6.z content        | this mail                                                                        |
| x.7.z security       | policy, always                                                                   |

A 4yz that is final (a queue gave up after days) counts as its 5yz would, but nobody is ever hard by it.
"""

import re

from postroom.feedback import phrases
from postroom.feedback.model import BounceClass

_PERMANENT, _TRANSIENT = 5, 4
_ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.]\d)")
_CODE = re.compile(r"(?<![\d.\w-])([45]\d\d)(?![\d.]*\d)(?=[\s:;,#-]|$)")

_CODES: dict[tuple[int, int], BounceClass] = {
    (1, 1): BounceClass.RECIPIENT_HARD,
    (1, 2): BounceClass.RECIPIENT_HARD,
    (1, 3): BounceClass.RECIPIENT_HARD,
    (1, 4): BounceClass.RECIPIENT_SOFT,
    (1, 6): BounceClass.RECIPIENT_HARD,
    (1, 7): BounceClass.POLICY,
    (1, 8): BounceClass.POLICY,
    (1, 9): BounceClass.MESSAGE,
    (1, 10): BounceClass.RECIPIENT_HARD,  # null MX, RFC 7505
    (2, 1): BounceClass.RECIPIENT_HARD,
    (2, 2): BounceClass.RECIPIENT_SOFT,
    (2, 3): BounceClass.MESSAGE,
    (2, 4): BounceClass.INFRASTRUCTURE,
    (3, 1): BounceClass.INFRASTRUCTURE,
    (3, 2): BounceClass.INFRASTRUCTURE,
    (3, 3): BounceClass.MESSAGE,
    (3, 4): BounceClass.MESSAGE,
    (3, 5): BounceClass.INFRASTRUCTURE,
    (4, 3): BounceClass.INFRASTRUCTURE,
    (4, 5): BounceClass.INFRASTRUCTURE,
    (4, 6): BounceClass.INFRASTRUCTURE,
    (4, 7): BounceClass.INFRASTRUCTURE,
    (4, 8): BounceClass.INFRASTRUCTURE,
    (4, 14): BounceClass.INFRASTRUCTURE,
}
"""Codes that say enough by themselves."""

_SUBJECTS = {
    1: BounceClass.RECIPIENT_SOFT,
    2: BounceClass.RECIPIENT_SOFT,
    3: BounceClass.INFRASTRUCTURE,
    4: BounceClass.INFRASTRUCTURE,
    5: BounceClass.MESSAGE,
    6: BounceClass.MESSAGE,
    7: BounceClass.POLICY,
}
"""What the other codes of a subject mean when the text says nothing."""

_SMTP = {
    421: BounceClass.INFRASTRUCTURE,
    422: BounceClass.RECIPIENT_SOFT,
    431: BounceClass.INFRASTRUCTURE,
    447: BounceClass.INFRASTRUCTURE,
    450: BounceClass.RECIPIENT_SOFT,
    451: BounceClass.INFRASTRUCTURE,
    452: BounceClass.RECIPIENT_SOFT,
    511: BounceClass.RECIPIENT_HARD,
    521: BounceClass.RECIPIENT_HARD,  # this host takes no mail, RFC 7504
    530: BounceClass.POLICY,
    535: BounceClass.POLICY,
    550: BounceClass.RECIPIENT_HARD,
    551: BounceClass.RECIPIENT_HARD,
    552: BounceClass.RECIPIENT_SOFT,
    553: BounceClass.RECIPIENT_HARD,
    554: BounceClass.POLICY,
    556: BounceClass.RECIPIENT_HARD,  # the domain takes no mail, RFC 7504
}
"""What a code means that came as the answer about a recipient, with no other word to go by."""

_TEXTS = (
    (phrases.FULL, BounceClass.RECIPIENT_SOFT),
    (phrases.NO_DOMAIN, BounceClass.RECIPIENT_HARD),
    (phrases.NOBODY, BounceClass.RECIPIENT_HARD),
    (phrases.MESSAGE, BounceClass.MESSAGE),
    (phrases.AWAY, BounceClass.INFRASTRUCTURE),
)
"""In this order: a full mailbox is often also called unavailable."""

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
    said = text[:LONGEST]
    status = _parts(enhanced) or _parts(find_enhanced(said))
    number = code if code is not None else find_code(said)
    if not is_final:
        return BounceClass.TRANSIENT
    if phrases.PACE.search(said):
        return BounceClass.RECIPIENT_SOFT
    if phrases.BLOCKED.search(_without_addresses(said)):
        return BounceClass.POLICY
    found = _by_code(status, said) if status else None
    if found is None:
        found = _by_text(said) or _by_smtp(number, is_about_recipient=is_about_recipient)
    return _softened(found, status, number)


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
    said = text[:LONGEST]
    return bool(phrases.BLOCKED.search(said)) or _by_text(said) is not None


def _parts(enhanced: str | None) -> tuple[int, int, int] | None:
    found = _ENHANCED.fullmatch(enhanced.strip()) if enhanced else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _by_code(status: tuple[int, int, int], text: str) -> BounceClass | None:
    """What an enhanced code says; None if it says only that something is wrong."""
    _, subject, detail = status
    if subject == 7:  # noqa: PLR2004 - the subject of security and policy, RFC 3463
        return BounceClass.POLICY
    known = _CODES.get((subject, detail))
    if known is not None:
        return known
    if subject not in _SUBJECTS:  # x.0.0
        return None
    return _by_text(text) or _SUBJECTS[subject]


def _by_text(text: str) -> BounceClass | None:
    return next((found for pattern, found in _TEXTS if pattern.search(text)), None)


def _by_smtp(code: int | None, *, is_about_recipient: bool) -> BounceClass:
    if code is None:
        return BounceClass.RECIPIENT_SOFT if is_about_recipient else BounceClass.MESSAGE
    if not is_about_recipient:  # said about the sender, the content or the whole: nobody's mailbox is meant
        return BounceClass.POLICY if code // 100 == _PERMANENT else BounceClass.INFRASTRUCTURE
    other = BounceClass.RECIPIENT_SOFT if code // 100 == _PERMANENT else BounceClass.INFRASTRUCTURE
    return _SMTP.get(code, other)


def _softened(found: BounceClass, status: tuple[int, int, int] | None, code: int | None) -> BounceClass:
    """Nobody is hard by a code that says `later`, even when a queue has given up since."""
    leading = status[0] if status else (code or 0) // 100
    is_later = leading == _TRANSIENT
    return BounceClass.RECIPIENT_SOFT if found is BounceClass.RECIPIENT_HARD and is_later else found


def _without_addresses(text: str) -> str:
    """An address such as spam@example.org or blocklist.example.org inside <> is nobody's judgement."""
    return re.sub(r"<[^<>\s]{1,320}@[^<>\s]{1,320}>|[\w.+-]{1,64}@[\w.-]{1,255}", " ", text)
