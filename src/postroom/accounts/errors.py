"""Errors of accounts; `postroom.errors` shows the whole tree."""

from postroom.errors import ConflictError, GoneError, LimitError, NotFoundError, PostroomError


class EmailTaken(ConflictError):
    """The address already has an account."""

    code = "email_taken"


class LoginTaken(ConflictError):
    """The login is taken."""

    code = "login_taken"


class NotProvisioned(ConflictError):
    """The account is not waiting for activation."""

    code = "not_provisioned"


class TokenExpired(GoneError):
    """The token has expired; ask for a new one."""

    code = "token_expired"


class TokenUsed(GoneError):
    """The token has been used already."""

    code = "token_used"


class GuessedTooOften(LimitError):
    """The code was guessed wrong too often; ask for a new one."""

    code = "guessed_too_often"


class AccountNotFound(NotFoundError):
    """There is no such account."""

    code = "account_not_found"


class TokenNotFound(NotFoundError):
    """There is no such token, or the code is wrong."""

    code = "token_not_found"


class ReaderPaused(PostroomError):
    """The reader of the output timed out; no token was collected."""

    code = "reader_paused"
