"""Every error Postroom raises on purpose.

    PostroomError
    ├── ConfigurationError          the process cannot start like this
    │   ├── ArchiveExtraMissing     the archive needs packages that are not installed
    │   ├── SettingInvalid          a POSTROOM_* variable has a bad value
    │   ├── EmbeddedServerError     the embedded PostgreSQL cannot run
    │   └── TemplateInvalid         a template in the catalog does not parse
    ├── DatabaseError               the database is not what this version needs
    │   ├── DatabaseUnreachable
    │   ├── DatabaseNewer           migrated by a later version
    │   ├── MigrationChanged        an applied migration was edited
    │   ├── MigrationPending        run `postroom migrate`
    │   └── RoomMissing             no database is configured, and no embedded one was made here
    ├── InputError                  the caller's data is wrong; nothing was stored
    │   └── BadInput                names every field that is wrong
    ├── AccessError
    │   ├── Unauthenticated         no key, or an unknown one
    │   └── ScopeMissing            the key may not do this
    ├── ConflictError               the request is well formed but cannot be honoured now
    │   ├── AlreadyResubmitted      the malformed command is a delivery already
    │   ├── ArchiveBusy             another process works on the archive
    │   ├── AppendConditionFailed   an event that matters was appended since it was read
    │   ├── BodyGone                the delivery's content was deleted, and cannot be sent again
    │   ├── CampaignCancelled       mail of a cancelled campaign is not sent again
    │   ├── CampaignFrozen          a campaign that was started says what it says
    │   ├── CampaignWrongStatus
    │   ├── ClaimLost               another worker holds the delivery
    │   ├── DeliveryExpired         it may not leave after its expires_at, neither as a resend
    │   ├── DuplicateAppend         the fact was appended before
    │   ├── EmailTaken              told to operators only: an address never reveals its account
    │   ├── EventUnreadable         a stored event holds what cannot be read
    │   ├── IdempotencyConflict     the key was used with another body
    │   ├── LoginTaken
    │   ├── MonthTaken              the month is back already, or has rows that are not in the archive
    │   ├── NotNext                 the publisher would not get that event next
    │   ├── NotProvisioned          the account does not wait for activation
    │   ├── RoomNotEmpty            a backup is restored into a room that is not there yet
    │   ├── SecretKeyMissing        without POSTROOM_SECRET_KEY no secret can be stored
    │   ├── SenderExists            the mailbox is a sender account already
    │   ├── TopicExists             a topic of this name is there already; nothing was changed
    │   ├── TopicNeeded             webhook endpoints, rules or a view still need the topic
    │   ├── VersionConflict         somebody else changed it since it was read
    │   └── WrongState              the delivery has moved on
    ├── GoneError                   it was good once
    │   ├── TokenExpired
    │   └── TokenUsed
    ├── LimitError                  too much of it; later, or another way
    │   └── GuessedTooOften         five wrong codes: the token is void
    ├── ArchiveDamaged              a file of the archive is not what its record says
    ├── ArchivePathTaken            a file lies where a new one was to be written; it was left as it is
    ├── ArchiveUnreachable          the archive's store does not answer
    │   └── ArchiveForeign          the file was written by another room, which alone may change it
    ├── BackupFailed                the backup could not be made, or is not what it should be
    ├── EventsBusy                  an append waited too long for somebody's open transaction
    ├── OutputLost                  what a command prints cannot be written
    ├── PublishFailed               a publisher could not hand a batch over; the outbox tries again
    ├── ViewFailed                  a view waits for a person, so nobody should wait for it
    ├── ReaderPaused                whoever reads a command's output did not read in time; it is tried again
    └── NotFoundError
        ├── AccountNotFound
        ├── CampaignNotFound
        ├── CampaignRecipientNotFound
        ├── DeadLetterNotFound
        ├── DeliveryNotFound
        ├── DomainNotFound          the destination has no limits
        ├── EndpointNotFound
        ├── ErasureNotFound
        ├── InboxMessageNotFound
        ├── KeyNotFound
        ├── MalformedCommandNotFound
        ├── OccasionNotFound
        ├── ProgressNotFound        no such publisher of no such topic
        ├── RuleNotFound
        ├── ScheduledEventNotFound
        ├── SegmentNotFound         no such piece in the archive
        ├── SenderNotFound
        ├── SuppressionNotFound
        ├── TemplateNotFound
        ├── TokenNotFound           no such secret, or a wrong code
        ├── TopicNotFound
        └── UserNotFound

The first line of a class's docstring is its default message. Facts are attributes. `code` is a stable slug for
programs. A failed send is not here: it is a value (`postroom.transports.Reply`).
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field of a request: its path (`to[0]`, `subject`) and what is wrong with it."""

    field: str
    message: str


class PostroomError(Exception):
    """Something Postroom refuses to do."""

    code = "error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])

    @property
    def message(self) -> str:
        return str(self.args[0])


class ConfigurationError(PostroomError):
    """The process cannot start with this configuration."""

    code = "configuration"


class ArchiveExtraMissing(ConfigurationError):
    """The archive needs packages that are not installed: pip install 'postroom[archive]'."""

    code = "archive_extra_missing"

    def __init__(self, package: str) -> None:
        super().__init__(f"The archive needs {package}, which is not installed: pip install 'postroom[archive]'.")
        self.package = package


class EmbeddedServerError(ConfigurationError):
    """The embedded PostgreSQL server cannot run."""

    code = "embedded_server"


class SettingInvalid(ConfigurationError):
    """A setting has a value that cannot be used."""

    code = "setting_invalid"

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")
        self.variable = variable
        self.problem = problem


class TemplateInvalid(ConfigurationError):
    """A template in the catalog does not parse."""

    code = "template_invalid"


class DatabaseError(PostroomError):
    """The database is not what this version of Postroom needs."""

    code = "database"


class DatabaseNewer(DatabaseError):
    """The database was migrated by a later version of Postroom; upgrade this process."""

    code = "database_newer"


class DatabaseUnreachable(DatabaseError):
    """The database does not answer."""

    code = "database_unreachable"


class MigrationChanged(DatabaseError):
    """A migration that was already applied has been edited since."""

    code = "migration_changed"


class MigrationPending(DatabaseError):
    """The database lacks migrations; run `postroom migrate`."""

    code = "migration_pending"


class RoomMissing(DatabaseError):
    """There is no room here. Run `postroom up` to create one, or set POSTROOM_DATABASE_URL."""

    code = "room_missing"


class InputError(PostroomError):
    """The request cannot be accepted; nothing was stored."""

    code = "input"


class BadInput(InputError):
    """The request has fields that cannot be accepted; nothing was stored."""

    code = "bad_input"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = tuple(errors)

    @classmethod
    def of(cls, field: str, message: str) -> "BadInput":
        return cls([FieldError(field, message)])


class AccessError(PostroomError):
    """The caller may not do this."""

    code = "access"


class ScopeMissing(AccessError):
    """The API key lacks the scope for this."""

    code = "scope_missing"

    def __init__(self, scope: str) -> None:
        super().__init__(f"The API key lacks the scope {scope!r}.")
        self.scope = scope


class Unauthenticated(AccessError):
    """A valid API key is required: `Authorization: Bearer pr_…`."""

    code = "unauthenticated"


class ConflictError(PostroomError):
    """The request conflicts with what is already true."""

    code = "conflict"


class AlreadyResubmitted(ConflictError):
    """The malformed command was resubmitted already."""

    code = "already_resubmitted"

    def __init__(self, delivery_id: int | None) -> None:
        super().__init__(f"The malformed command was resubmitted already, as delivery {delivery_id}.")
        self.delivery_id = delivery_id


class AppendConditionFailed(ConflictError):
    """An event that the decision depends on was appended since it was read; nothing was appended."""

    code = "append_condition_failed"

    def __init__(self, position: int, type_: str, tags: Sequence[str]) -> None:
        super().__init__(f"The event {type_} at position {position} was appended since; nothing was appended.")
        self.position = position
        self.type = type_
        self.tags = tuple(tags)


class ArchiveLocked(ConflictError):
    """Another transaction holds a lock on the table; nothing was changed. End that transaction, or try again later."""

    code = "archive_locked"


class ArchiveBusy(ConflictError):
    """Another process works on the archive; try again when it is done."""

    code = "archive_busy"


class BodyGone(ConflictError):
    """The delivery's content has been deleted."""

    code = "body_gone"

    def __init__(self, action: str) -> None:
        kept = "Content is kept for POSTROOM_PAYLOAD_RETENTION, in the lane auth only until the delivery ends"
        super().__init__(f"The content of this delivery has been deleted, so it cannot be {action}. {kept}.")
        self.action = action


class CampaignCancelled(ConflictError):
    """The delivery belongs to a cancelled campaign and is not sent again."""

    code = "campaign_cancelled"

    def __init__(self, delivery_id: int, campaign_id: int, action: str) -> None:
        super().__init__(
            f"Delivery {delivery_id} cannot be {action}: it belongs to campaign {campaign_id}, which was cancelled."
        )
        self.delivery_id = delivery_id
        self.campaign_id = campaign_id


class CampaignFrozen(ConflictError):
    """The campaign was started, and says what it says; nothing was changed."""

    code = "campaign_frozen"


class CampaignWrongStatus(ConflictError):
    """The campaign has a status that does not allow this."""

    code = "campaign_wrong_status"

    def __init__(self, action: str, status: str) -> None:
        super().__init__(f"A campaign that is {status} cannot be {action}.")
        self.action = action
        self.status = status


class ClaimLost(ConflictError):
    """Another worker holds this delivery now; nothing was changed."""

    code = "claim_lost"


class DeliveryExpired(ConflictError):
    """The delivery has expired and is not sent again."""

    code = "delivery_expired"

    def __init__(self, delivery_id: int, action: str) -> None:
        super().__init__(f"Delivery {delivery_id} cannot be {action}: its expires_at has passed.")
        self.delivery_id = delivery_id


class DuplicateAppend(ConflictError):
    """The fact was appended before; nothing was appended."""

    code = "duplicate_append"

    def __init__(self, position: int, type_: str, tags: Sequence[str]) -> None:
        super().__init__(f"It was appended before, as {type_} at position {position}; nothing was appended.")
        self.position = position
        self.type = type_
        self.tags = tuple(tags)


class EmailTaken(ConflictError):
    """The address already has an account."""

    code = "email_taken"


class EventUnreadable(ConflictError):
    """A stored event holds what cannot be read."""

    code = "event_unreadable"

    def __init__(self, position: int, reason: str, *, beyond: str | None = None) -> None:
        """`beyond` is the cursor to read on after, past this event and all before it."""
        way = f" To go on beyond it, read after the cursor {beyond}" if beyond else ""
        super().__init__(f"The event at position {position} cannot be read: {reason}.{way}")
        self.position = position
        self.reason = reason
        self.beyond = beyond


class IdempotencyConflict(ConflictError):
    """The idempotency key was already used with a different request."""

    code = "idempotency_conflict"


class LoginTaken(ConflictError):
    """The login is taken."""

    code = "login_taken"


class MonthTaken(ConflictError):
    """The month cannot come or go as it was asked: it is back already, or has rows that are not in the archive."""

    code = "month_taken"


class NotNext(ConflictError):
    """It is not the event the publisher would get next; nothing was skipped."""

    code = "not_next"

    def __init__(self, position: int, next_position: int | None, *, stall: str | None = None) -> None:
        following = "there is none" if next_position is None else f"it is the one at position {next_position}"
        waiting = f", and later ones wait for the open transaction of {stall}" if stall else ""
        super().__init__(
            f"The event at position {position} is not the next; {following}{waiting}. Nothing was skipped."
        )
        self.position = position
        self.next_position = next_position


class NotProvisioned(ConflictError):
    """The account does not wait for activation."""

    code = "not_provisioned"


class RoomNotEmpty(ConflictError):
    """A backup is restored into a room that does not exist yet; this one does."""

    code = "room_not_empty"


class SecretKeyMissing(ConflictError):
    """No secret can be stored here: POSTROOM_SECRET_KEY is not set."""

    code = "secret_key_missing"


class SenderExists(ConflictError):
    """The mailbox is a sender account already."""

    code = "sender_exists"


class TopicExists(ConflictError):
    """There is a topic of this name already; nothing was changed."""

    code = "topic_exists"


class TopicNeeded(ConflictError):
    """Webhook endpoints, rules or a view still need the topic; nothing was changed."""

    code = "topic_needed"

    def __init__(self, topic: str, needed_by: Sequence[str]) -> None:
        super().__init__(f"The topic {topic!r} is still named by {', '.join(needed_by)}. Nothing was changed.")
        self.topic = topic
        self.needed_by = tuple(needed_by)


class VersionConflict(ConflictError):
    """Somebody else changed it since it was read; read it again."""

    code = "version_conflict"


class WrongState(ConflictError):
    """The delivery is in a state that does not allow this."""

    code = "wrong_state"

    def __init__(self, action: str, state: str) -> None:
        super().__init__(f"A delivery that is {state} cannot be {action}.")
        self.action = action
        self.state = state


class GoneError(PostroomError):
    """It was good once, and is no more."""

    code = "gone"


class TokenExpired(GoneError):
    """The token has expired; ask for a new one."""

    code = "token_expired"


class TokenUsed(GoneError):
    """The token has been used already."""

    code = "token_used"


class LimitError(PostroomError):
    """It was asked too often."""

    code = "limit"


class WrongKeysTooOften(LimitError):
    """Too many wrong API keys came from this address; try again in a minute."""

    code = "wrong_keys"


class GuessedTooOften(LimitError):
    """The code was guessed wrong too often; ask for a new one."""

    code = "guessed_too_often"


class NotFoundError(PostroomError):
    """There is no such thing."""

    code = "not_found"


class AccountNotFound(NotFoundError):
    """There is no such account."""

    code = "account_not_found"


class CampaignNotFound(NotFoundError):
    """There is no such campaign."""

    code = "campaign_not_found"


class CampaignRecipientNotFound(NotFoundError):
    """There is no such recipient in this campaign."""

    code = "campaign_recipient_not_found"


class DeadLetterNotFound(NotFoundError):
    """There is no such dead letter."""

    code = "dead_letter_not_found"

    @classmethod
    def of(cls, *delivery_ids: int, kind: str = "dead letter") -> "DeadLetterNotFound":
        return cls(f"There is no {kind} with the id {', '.join(map(str, delivery_ids))}.")


class DeliveryNotFound(NotFoundError):
    """There is no such delivery."""

    code = "delivery_not_found"

    @classmethod
    def of(cls, delivery_id: int) -> "DeliveryNotFound":
        return cls(f"There is no delivery with the id {delivery_id}.")


class DomainNotFound(NotFoundError):
    """The destination has no limits."""

    code = "domain_not_found"


class EndpointNotFound(NotFoundError):
    """There is no such webhook endpoint."""

    code = "endpoint_not_found"


class ErasureNotFound(NotFoundError):
    """There is no such erasure."""

    code = "erasure_not_found"


class InboxMessageNotFound(NotFoundError):
    """There is no such message in the inbox."""

    code = "inbox_message_not_found"


class KeyNotFound(NotFoundError):
    """There is no such API key."""

    code = "key_not_found"


class MalformedCommandNotFound(NotFoundError):
    """There is no such malformed command."""

    code = "malformed_command_not_found"


class OccasionNotFound(NotFoundError):
    """There is no such occasion of this person."""

    code = "occasion_not_found"


class ProgressNotFound(NotFoundError):
    """No such publisher follows such a topic."""

    code = "progress_not_found"


class RuleNotFound(NotFoundError):
    """There is no such rule."""

    code = "rule_not_found"


class ScheduledEventNotFound(NotFoundError):
    """There is no such scheduled event."""

    code = "scheduled_event_not_found"


class SegmentNotFound(NotFoundError):
    """There is no such piece in the archive."""

    code = "segment_not_found"


class SenderNotFound(NotFoundError):
    """There is no such sender account."""

    code = "sender_not_found"


class SuppressionNotFound(NotFoundError):
    """The address is not suppressed."""

    code = "suppression_not_found"


class TemplateNotFound(NotFoundError):
    """There is no such template in the catalog."""

    code = "template_not_found"


class TokenNotFound(NotFoundError):
    """There is no such token, or the code is wrong."""

    code = "token_not_found"


class TopicNotFound(NotFoundError):
    """There is no such topic."""

    code = "topic_not_found"


class UserNotFound(NotFoundError):
    """There is no such user."""

    code = "user_not_found"


class ArchiveDamaged(PostroomError):
    """A file of the archive is not what its record says."""

    code = "archive_damaged"


class ArchivePathTaken(PostroomError):
    """A file lies where a new one was to be written; it was left as it is."""

    code = "archive_path_taken"


class ArchiveUnreachable(PostroomError):
    """The archive's store does not answer."""

    code = "archive_unreachable"


class ArchiveForeign(ArchiveUnreachable):
    """Another room wrote the file, and alone may change it; see `postroom archive adopt`."""

    code = "archive_foreign"


class BackupFailed(PostroomError):
    """The backup could not be made, or is not what it should be."""

    code = "backup_failed"


class EventsBusy(PostroomError):
    """Nothing was appended: another transaction has held what this append must wait for too long. Try again later."""

    code = "events_busy"


class OutputLost(PostroomError):
    """The output cannot be written."""

    code = "output_lost"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The output cannot be written: {reason}.")
        self.reason = reason


class PublishFailed(PostroomError):
    """The batch could not be published."""

    code = "publish_failed"

    def __init__(self, reason: str, *, published: int = 0) -> None:
        """`published` says how many messages at the beginning of the batch did go out."""
        super().__init__(reason)
        self.published = published


class ReaderPaused(PostroomError):
    """Whoever reads the output did not read in time; nothing was taken."""

    code = "reader_paused"


class ViewFailed(PostroomError):
    """The view has failed and waits for a person."""

    code = "view_failed"

    def __init__(self, view: str, position: int | None, reason: str | None) -> None:
        place = "" if position is None else f" at position {position}"
        super().__init__(f"The view {view} has failed{place} and waits for a person: {reason or 'no reason is known'}")
        self.view = view
        self.position = position
        self.reason = reason
