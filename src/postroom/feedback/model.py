"""Reports, and their effect on an address. Pure.

| report                                   | effect                                                                  |
|------------------------------------------|-------------------------------------------------------------------------|
| complaint                                | suppressed permanently, with a notice to the administrator              |
| bounce, `recipient_hard`                 | suppressed permanently                                                  |
| bounce, `recipient_soft`/`infrastructure`| held for 24 h, three times, then permanently; an accepted mail resets   |
|                                          | the count if nothing bounces for a week                                 |
| one of these by mail, about a delivery   | held for three days; permanently once a report about another delivery   |
| with several recipients                  | says the same                                                           |
| bounce, `policy`, `message`, `unknown`,  | none: caused by our server or this mail, without a reason, or not final |
| `transient`                              |                                                                         |
| unsubscribe                              | no bulk mail; one-time codes and receipts still arrive                  |
| any of them, unverified                  | none: stored for operators                                              |

Severity only rises: soft bounce < manual < hard bounce < complaint. The rules are in `functions/record_feedback.sql`
and `functions/merge_suppressions.sql`, where row locks serialise concurrent reports.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from postroom.post.meaning import Hardness, ReplyScope, meaning_of
from postroom.post.reply import Stage
from postroom.runtime.record import Shape

SESSION = "session"
"""The origin of replies in the SMTP session."""

LONGEST_TEXT = 2000  # of a stored reply; a longer one explains nothing more


class BounceClass(StrEnum):
    """The cause of a failed delivery."""

    RECIPIENT_HARD = "recipient_hard"  # the mailbox does not exist
    RECIPIENT_SOFT = "recipient_soft"  # the mailbox is full or suspended; possibly temporary
    INFRASTRUCTURE = "infrastructure"  # the receiving servers are down or cannot be found
    POLICY = "policy"  # the receiver blocks mail from us: reputation, authentication, content rules
    MESSAGE = "message"  # this mail was too large or malformed
    UNKNOWN = "unknown"  # rejected without a reason
    TRANSIENT = "transient"  # still being retried


_CLASSES = {
    ReplyScope.RECIPIENT: BounceClass.RECIPIENT_SOFT,
    ReplyScope.MESSAGE: BounceClass.MESSAGE,
    ReplyScope.ACCOUNT: BounceClass.POLICY,
    ReplyScope.DESTINATION: BounceClass.INFRASTRUCTURE,
    ReplyScope.US: BounceClass.POLICY,
    ReplyScope.UNKNOWN: BounceClass.UNKNOWN,
}


def classify(code: int | None, enhanced: str | None, text: str, *, stage: Stage | None = None) -> BounceClass:
    """The cause of a failed delivery by `postroom.post.meaning`; without a stage, for a reply quoted in a report."""
    meaning = meaning_of(stage, code, enhanced, text)
    return BounceClass.RECIPIENT_HARD if meaning.hardness is Hardness.GONE else _CLASSES[meaning.scope]


class FeedbackKind(StrEnum):
    """The type of a report."""

    BOUNCE = "bounce"  # a mail was not delivered
    COMPLAINT = "complaint"  # a recipient reported our mail to their provider as spam
    UNSUBSCRIBE = "unsubscribe"  # a recipient asked their provider to stop bulk mail


class SuppressionReason(StrEnum):
    """The reason of a suppression."""

    SOFT_BOUNCE = "soft_bounce"
    UNSUBSCRIBE = "unsubscribe"
    MANUAL = "manual"
    HARD_BOUNCE = "hard_bounce"
    COMPLAINT = "complaint"


class Scope(StrEnum):
    """The mail that a suppression blocks."""

    BULK = "bulk"
    ALL = "all"


def scope_of(reason: SuppressionReason) -> Scope:
    """The default scope of a reason: an unsubscribe blocks bulk mail, all others block all mail."""
    return Scope.BULK if reason is SuppressionReason.UNSUBSCRIBE else Scope.ALL


def report_identity(*parts: object) -> bytes:
    """The key of a report about one recipient; the same for repeated reports from any source."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode("utf-8", "backslashreplace")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A report about one recipient. `is_verified` guarantees that a stranger cannot have forged the report.

    The classification and the codes of a reply are stored for a bounce only.
    """

    kind: FeedbackKind
    address: str | None  # None: unknown recipient of the delivery
    origin: str
    report_id: bytes
    is_verified: bool
    delivery_id: int | None = None
    classification: BounceClass | None = None
    code: int | None = None
    enhanced: str | None = None
    text: str = ""  # feedback type of a complaint: abuse, fraud
    reported_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecipient:
    """One recipient rejected permanently in the SMTP session."""

    delivery_id: int
    attempt_no: int
    address: str
    code: int | None
    enhanced: str | None
    text: str
    stage: Stage | None = None  # of the decisive reply; None where Postroom itself rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A stored suppression of an address."""

    id: int
    email: str
    reason: SuppressionReason
    scope: Scope
    origin: str
    created_at: datetime
    until: datetime | None
    campaign_id: int | None
    sender_account_id: int | None
    first_seen_at: datetime
    last_seen_at: datetime
    bounce_count: int
    code: str | None
    detail: str | None


class NewSuppression(Shape, frozen=True, kw_only=True):
    """An address to suppress; case does not matter. An unsubscribe blocks bulk mail, other reasons all mail."""

    email: Annotated[str, Meta(min_length=3, max_length=320, pattern=r"^[^\x00]*$")]
    reason: SuppressionReason = SuppressionReason.MANUAL
    origin: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    campaign_id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    scope: Scope | None = None  # None: the scope of the reason
    detail: Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionChange:
    """One entry in the history of an address."""

    id: int
    at: datetime
    change: str  # suppressed, raised, held, cleared, lifted
    reason: SuppressionReason
    scope: Scope
    until: datetime | None
    origin: str
    actor: str | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedReport:
    """One stored report."""

    id: int
    kind: FeedbackKind
    classification: BounceClass | None
    delivery_id: int | None
    campaign_id: int | None
    sender_account_id: int | None
    email: str | None
    code: int | None
    enhanced: str | None
    text: str | None
    origin: str
    reported_at: datetime
    verified: bool
