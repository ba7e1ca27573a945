"""What an account and a token are, and everything about them that can be decided without a database."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

AccountId = NewType("AccountId", int)
TokenId = NewType("TokenId", int)


class AccountStatus(StrEnum):
    """Where an account stands: provisioned → active → suspended, and back."""

    PROVISIONED = "provisioned"
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Action(StrEnum):
    """What a token is good for."""

    ACTIVATION = "activation"
    PASSWORD_RECOVERY = "password_recovery"  # noqa: S105 - the name of an action

    @property
    def number(self) -> int:
        """How lines for a pipe write it."""
        return 1 if self is Action.ACTIVATION else 2


class CodeCheck(StrEnum):
    """What became of a guess at a code."""

    CONSUMED = "consumed"
    EXPIRED = "expired"
    USED = "used"
    VOID = "void"  # guessed too often
    WRONG = "wrong"  # or there is nothing to guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One person's account."""

    id: AccountId
    email: str
    status: AccountStatus
    login: str
    locale: str | None  # of the mail; None leaves it to the settings
    created_at: datetime
    status_changed_at: datetime | None
    activated_at: datetime | None
    suspended_at: datetime | None
    unsuspended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilter:
    """Which accounts a listing shows; None asks for all."""

    status: AccountStatus | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """A token that was just used, and whose it was."""

    action: Action
    account: Account


@dataclass(frozen=True, slots=True, kw_only=True)
class DueToken:
    """A token that is to be mailed, and to whom."""

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
        """How long it is good for, as the mail says it; the same whenever the mail is written."""
        return max(round((self.expires_at - self.created_at).total_seconds() / 60), 1)


@dataclass(frozen=True, slots=True)
class NewAccount:
    """The answer to a sign-up. To whoever asks, a taken address looks the same as a free one."""

    id: AccountId
    is_new: bool


@dataclass(frozen=True, slots=True)
class CollectorStall:
    """Tokens that are committed but held back by a transaction that does not end, and who runs it, if that is known."""

    tokens: int
    seconds: float
    holder_pid: int | None
    holder_gid: str | None  # of a prepared transaction

    @property
    def is_stalled(self) -> bool:
        return self.tokens > 0

    def is_alarming(self, patience_s: float = 60) -> bool:
        """True if people wait for their mail: longer than any ordinary transaction takes."""
        return self.is_stalled and self.seconds > patience_s


@dataclass(frozen=True, slots=True)
class TokenState:
    """Why a token that was not consumed could not be: used, void, or neither, which leaves expired."""

    is_used: bool
    is_void: bool
