"""What comes back, and what it does to an address. Pure.

| report                                   | what follows                                                            |
|------------------------------------------|-------------------------------------------------------------------------|
| complaint                                | suppressed for good, and an administrator is told                       |
| bounce, `recipient_hard`                 | suppressed for good                                                     |
| bounce, `recipient_soft`/`infrastructure`| held for 24 h, three times; the fourth time for good; a success ends it |
| bounce, `policy`, `message`, `unknown`,  | nothing: it is about us, about this mail, without a reason, or not the  |
| `transient`                              | last word                                                               |
| unsubscribe                              | no bulk mail; one-time codes and receipts still arrive                  |
| any of them, unverified                  | nothing: it is kept, for people to look at                              |

Severity only rises: soft bounce < manual < hard bounce < complaint. The rules themselves are in
`functions/record_feedback.sql` and `functions/merge_suppressions.sql`, where two connections cannot both win.
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
"""The origin of what was said in the SMTP session itself."""

LONGEST_TEXT = 2000


class BounceClass(StrEnum):
    """Whose trouble a failed delivery is."""

    RECIPIENT_HARD = "recipient_hard"  # the mailbox does not exist
    RECIPIENT_SOFT = "recipient_soft"  # the mailbox is full or suspended; it may come back
    INFRASTRUCTURE = "infrastructure"  # their servers are down or cannot be found
    POLICY = "policy"  # they do not want mail from us: reputation, authentication, content rules
    MESSAGE = "message"  # this mail was too large or not understood
    UNKNOWN = "unknown"  # refused without a reason
    TRANSIENT = "transient"  # still being tried


_CLASSES = {
    ReplyScope.RECIPIENT: BounceClass.RECIPIENT_SOFT,
    ReplyScope.MESSAGE: BounceClass.MESSAGE,
    ReplyScope.ACCOUNT: BounceClass.POLICY,
    ReplyScope.DESTINATION: BounceClass.INFRASTRUCTURE,
    ReplyScope.US: BounceClass.POLICY,
    ReplyScope.UNKNOWN: BounceClass.UNKNOWN,
}


def classify(code: int | None, enhanced: str | None, text: str, *, stage: Stage | None = None) -> BounceClass:
    """Whose trouble a failed delivery is, by `postroom.post.meaning`; without a stage, as a report quotes the reply."""
    meaning = meaning_of(stage, code, enhanced, text)
    return BounceClass.RECIPIENT_HARD if meaning.hardness is Hardness.GONE else _CLASSES[meaning.scope]


class FeedbackKind(StrEnum):
    """What a report says."""

    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    UNSUBSCRIBE = "unsubscribe"


class SuppressionReason(StrEnum):
    """Why an address is suppressed."""

    SOFT_BOUNCE = "soft_bounce"
    UNSUBSCRIBE = "unsubscribe"
    MANUAL = "manual"
    HARD_BOUNCE = "hard_bounce"
    COMPLAINT = "complaint"


class Scope(StrEnum):
    """Which mail a suppression stops."""

    BULK = "bulk"
    ALL = "all"


def scope_of(reason: SuppressionReason) -> Scope:
    """What a suppression stops unless somebody says otherwise: an unsubscribe bulk mail, all others everything."""
    return Scope.BULK if reason is SuppressionReason.UNSUBSCRIBE else Scope.ALL


def report_identity(*parts: object) -> bytes:
    """One name for one report about one recipient, however often and by whichever way it comes in."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode("utf-8", "backslashreplace")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """The fields of every report. `is_verified` is a promise: a stranger cannot have invented the report."""

    address: str | None  # None: some recipient of the delivery
    origin: str
    report_id: bytes
    is_verified: bool
    delivery_id: int | None = None
    text: str = ""  # of a complaint, the type of feedback: abuse, fraud
    reported_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounce(_Report):
    """A mail that did not arrive."""

    classification: BounceClass
    code: int | None = None
    enhanced: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint(_Report):
    """A recipient reported our mail to their provider as spam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe(_Report):
    """A recipient asked their provider for no more bulk mail."""


Feedback = Bounce | Complaint | Unsubscribe


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecipient:
    """One recipient refused for good in the session."""

    delivery_id: int
    attempt_no: int
    address: str
    code: int | None
    enhanced: str | None
    text: str
    stage: Stage | None = None  # of the reply that decided; None where Postroom itself refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """Why an address gets nothing, or nothing in bulk."""

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
    """An address to suppress, in any case. An unsubscribe stops bulk mail only; every other reason stops all mail."""

    email: Annotated[str, Meta(min_length=3, max_length=320, pattern=r"^[^\x00]*$")]
    reason: SuppressionReason = SuppressionReason.MANUAL
    origin: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    campaign_id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    scope: Scope | None = None  # None: the scope of the reason
    detail: Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionChange:
    """One step in the history of an address."""

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
    """One report as it is kept."""

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
