"""Errors of senders; `postroom.errors` shows the whole tree."""

from postroom.errors import ConflictError, NotFoundError


class SenderExists(ConflictError):
    """A sender account for this mailbox already exists."""


class DomainNotFound(NotFoundError):
    """No limits are set for this destination."""


class SenderNotFound(NotFoundError):
    """There is no such sender account."""
