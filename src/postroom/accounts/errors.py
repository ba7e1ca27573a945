"""Errors of accounts; `postroom.errors` shows the whole tree."""

from postroom.errors import ConflictError, GoneError, LimitError, NotFoundError, PostroomError


class EmailTaken(ConflictError):
    """The address already has an account."""


class LoginTaken(ConflictError):
    """The login is taken."""


class NotProvisioned(ConflictError):
    """The account is not waiting for activation."""


class TokenExpired(GoneError):
    """The token has expired; ask for a new one."""


class TokenUsed(GoneError):
    """The token has been used already."""


class GuessedTooOften(LimitError):
    """The code was guessed wrong too often; ask for a new one."""


class AccountNotFound(NotFoundError):
    """There is no such account."""


class TokenNotFound(NotFoundError):
    """There is no such token, or the code is wrong."""


class ReaderPaused(PostroomError):
    """The reader of the output timed out; no token was collected."""
