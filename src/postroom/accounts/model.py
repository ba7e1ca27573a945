"""Accounts and tokens as values, without a database."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

AccountId = NewType("AccountId", int)
TokenId = NewType("TokenId", int)


class AccountStatus(StrEnum):
    """The status of an account: provisioned → active → suspended, and back."""

    PROVISIONED = "provisioned"
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Action(StrEnum):
    """The purpose of a token."""

    ACTIVATION = "activation"
    PASSWORD_RECOVERY = "password_recovery"  # noqa: S105 - the name of an action

    @property
    def number(self) -> int:
        """The number of the action in CSV and JSON lines."""
        return 1 if self is Action.ACTIVATION else 2


class CodeCheck(StrEnum):
    """The result of checking a code."""

    CONSUMED = "consumed"
    EXPIRED = "expired"
    USED = "used"
    VOID = "void"  # too many wrong guesses
    WRONG = "wrong"  # also if the address has no token


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One person's account."""

    id: AccountId
    email: str
    status: AccountStatus
    login: str
    locale: str | None  # language of the mail; None: POSTROOM_DEFAULT_LOCALE
    created_at: datetime
    status_changed_at: datetime | None
    activated_at: datetime | None
    suspended_at: datetime | None
    unsuspended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilter:
    """Filters of a list of accounts; None does not filter."""

    status: AccountStatus | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """A token that was just consumed, and its account."""

    action: Action
    account: Account


@dataclass(frozen=True, slots=True, kw_only=True)
class DueToken:
    """A token that is due to be mailed, with its recipient."""

    id: TokenId
    action: Action
    account: AccountId
    email: str
    login: str
    secret: bytes
    code: str
    expires_at: datetime
    created_at: datetime
    locale: str | None = None

    @property
    def minutes(self) -> int:
        """Lifetime in minutes, shown in the mail; independent of when the mail is rendered."""
        return max(round((self.expires_at - self.created_at).total_seconds() / 60), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptToken:
    """A token as operators see it: without its secret and its code."""

    id: TokenId
    action: Action
    created_at: datetime
    expires_at: datetime
    consumed_at: datetime | None
    wrong_guesses: int
    is_void: bool

    def state(self, now: datetime) -> str:
        """Consumed, void, expired or live."""
        if self.consumed_at is not None:
            return "consumed"
        if self.is_void:
            return "void"
        return "expired" if self.expires_at <= now else "live"


@dataclass(frozen=True, slots=True)
class NewAccount:
    """The result of a sign-up. Clients see only the id, so a taken address looks like a free one."""

    id: AccountId
    is_new: bool


@dataclass(frozen=True, slots=True)
class CollectorStall:
    """Committed tokens that a running transaction delays, and the session that runs it, if known."""

    tokens: int
    seconds: float
    holder_pid: int | None
    holder_gid: str | None  # of a prepared transaction

    @property
    def is_stalled(self) -> bool:
        return self.tokens > 0

    def is_alarming(self, patience_s: float = 60) -> bool:
        """True if the delay exceeds the duration of any ordinary transaction."""
        return self.is_stalled and self.seconds > patience_s


@dataclass(frozen=True, slots=True)
class TokenState:
    """The reason a token could not be consumed: used, void, or otherwise expired."""

    is_used: bool
    is_void: bool
