"""The tree of errors that Postroom raises on purpose.

    PostroomError
    ├── ApiUnreachable              the HTTP client got no response
    ├── ConfigurationError          the process cannot start with this configuration
    │   ├── SettingInvalid          a POSTROOM_* variable has an invalid value
    │   ├── archive: ArchiveExtraMissing
    │   ├── embedded: EmbeddedServerError
    │   └── mail: TemplateInvalid
    ├── db: DatabaseError           the database does not match this version
    │   ├── rooms: RoomNotReady, ServerUnreachable
    │   └── DatabaseUnreachable, DatabaseNewer, MigrationChanged, MigrationPending,
    │       OldProcessRuns, RoomMissing
    ├── InputError                  the caller's data is invalid; nothing was stored
    │   ├── BadInput                names every invalid field
    │   └── inbox: MessageTooComplex
    ├── AccessError
    │   ├── Unauthenticated         no API key, or an unknown one
    │   │   └── KeyExpired          the API key was valid until its expiry
    │   ├── ScopeMissing            the API key or the operator lacks a scope
    │   └── limits: FromNotAllowed, RoomClosed
    ├── ConflictError               the request is valid, but the current state does not allow it
    │   ├── IdempotencyConflict     the idempotency key was used with another request
    │   ├── SettingsMissing         settings without which no mail should leave are not set
    │   ├── SecretKeyMissing        POSTROOM_SECRET_KEY is not set, so no secret can be stored
    │   ├── VersionConflict         another client changed the record since it was read
    │   ├── accounts: EmailTaken, LoginTaken, NotProvisioned
    │   ├── archive: ArchiveBusy, ArchiveLocked, MonthTaken
    │   ├── backup: RoomNotEmpty
    │   ├── campaigns: CampaignFrozen, CampaignWouldFail, CampaignWrongStatus
    │   ├── delivery: BodyGone, CampaignCancelled, ClaimLost, DeliveryExpired, WrongState
    │   ├── events: AppendConditionFailed, DuplicateAppend, EventUnreadable
    │   ├── inbox: ReleaseOff
    │   ├── intake: AlreadyResubmitted
    │   ├── rooms: DeliveriesWaiting, MoveUnfinished, RoomExists
    │   ├── outbox: NotNext, TopicExists, TopicNeeded
    │   └── senders: SenderExists
    ├── GoneError                   it existed but is no longer valid
    │   └── accounts: TokenExpired, TokenUsed
    ├── LimitError                  too many requests
    │   ├── WrongKeysTooOften       too many invalid API keys from one address
    │   ├── accounts: GuessedTooOften
    │   ├── dashboard: CodesTooOften
    │   └── limits: QuotaExceeded, RateExceeded
    ├── NotFoundError               each capability has its own; KeyNotFound and OperatorNotFound are here
    ├── OutputLost                  a command cannot write its output
    └── accounts: ReaderPaused   archive: ArchiveDamaged, ArchivePathTaken, ArchiveUnreachable (ArchiveForeign)
        backup: BackupFailed     events: EventsBusy     outbox: PublishFailed, ViewFailed

Errors that belong to one capability are in its `errors.py`; errors that several capabilities raise are here. The first
line of a class's docstring is its default message. Facts are attributes. `code` is a stable slug for programs, and
`sqlstate` is the SQLSTATE by which a stored function raises the error. A failed send is not an error: it is a value
(`postroom.transports.Reply`).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.resources import files
from typing import ClassVar, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field of a request: its path (`to[0]`, `subject`) and what is wrong with it."""

    field: str
    message: str


class PostroomError(Exception):
    """Postroom cannot do this."""

    code: ClassVar[str] = "error"
    sqlstate: ClassVar[str | None] = None
    errors: Sequence[FieldError] = ()  # the fields that it is about
    retry_after_s: int | None = None  # when the same request may succeed; None: unknown

    def __init_subclass__(cls) -> None:
        """The code is the class name in lower case, `month_taken` of `MonthTaken`, unless the class sets another."""
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])

    @property
    def message(self) -> str:
        return str(self.args[0])


def list_errors() -> list[type[PostroomError]]:
    """Every class of the tree, with the leaves of all capabilities, by code."""
    for folder in files("postroom").iterdir():
        if folder.joinpath("errors.py").is_file():
            import_module(f"postroom.{folder.name}.errors")
    return sorted(_descend(PostroomError), key=lambda kind: kind.code)


def _descend(root: type[PostroomError]) -> Iterator[type[PostroomError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _descend(kind)


class ConfigurationError(PostroomError):
    """The process cannot start with this configuration."""


class SettingInvalid(ConfigurationError):
    """A setting has an invalid value."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")
        self.variable = variable
        self.problem = problem


class InputError(PostroomError):
    """The request cannot be accepted; nothing was stored."""


class BadInput(InputError):
    """The request has fields that cannot be accepted; nothing was stored."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = tuple(errors)

    @classmethod
    def of(cls, field: str, message: str) -> "BadInput":
        return cls([FieldError(field, message)])

    @classmethod
    @contextmanager
    def naming(cls, field: str, message: str = "") -> Iterator[None]:
        """Raise a ValueError of the block as `BadInput` of this field, with its own message unless one is given."""
        try:
            yield
        except ValueError as error:
            raise cls.of(field, message or str(error)) from None


class AccessError(PostroomError):
    """The API key does not permit this."""


class ScopeMissing(AccessError):
    """The API key or the operator lacks the scope for this."""

    def __init__(self, scope: str, holder: str = "The API key") -> None:
        super().__init__(f"{holder} lacks the scope {scope!r}.")
        self.scope = scope


class Unauthenticated(AccessError):
    """A valid API key is required: `Authorization: Bearer pr_…`."""


class KeyExpired(Unauthenticated):
    """The API key has expired; create another key or extend this one."""

    def __init__(self, name: str, expired_at: datetime) -> None:
        super().__init__(
            f"The API key {name} expired at {expired_at:%Y-%m-%d %H:%M} UTC; create another key or extend this one."
        )


class ConflictError(PostroomError):
    """The request conflicts with the current state."""


class IdempotencyConflict(ConflictError):
    """The idempotency key was already used with a different request."""

    sqlstate = "PR002"

    @classmethod
    def of(cls, key: str | None, delivery_id: int) -> "IdempotencyConflict":
        return cls(f"The idempotency key {key!r} was already used with a different request: delivery {delivery_id}.")


class SettingsMissing(ConflictError):
    """Mail would leave with a sender that no recipient can answer, or with links to this machine."""

    @classmethod
    def unless_none(cls, variables: Sequence[str]) -> None:
        """Raise it if there are such variables."""
        if variables:
            raise cls(f"{' and '.join(variables)} must be set before mail of campaigns or accounts leaves.")


class SecretKeyMissing(ConflictError):
    """No secret can be stored: POSTROOM_SECRET_KEY is not set. Set it to 64 hexadecimal characters."""


class VersionConflict(ConflictError):
    """Another client changed the record since it was read; read it again."""


class GoneError(PostroomError):
    """It existed but is no longer valid."""


class LimitError(PostroomError):
    """There were too many requests; try again later."""


class WrongKeysTooOften(LimitError):
    """Too many invalid API keys came from this address; try again in a minute."""

    code = "wrong_keys"
    retry_after_s = 60


class NotFoundError(PostroomError):
    """The requested object does not exist."""

    @classmethod
    def unless(cls, found: T | None) -> T:
        """The value; raises this error for None."""
        if found is None:
            raise cls
        return found


class KeyNotFound(NotFoundError):
    """There is no such API key."""


class OperatorNotFound(NotFoundError):
    """There is no such operator."""


class OutputLost(PostroomError):
    """The output cannot be written."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The output cannot be written: {reason}.")
        self.reason = reason


class ApiUnreachable(PostroomError):
    """The API server cannot be reached."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"There is no response from {url}: {reason}.")
        self.url = url
        self.reason = reason
