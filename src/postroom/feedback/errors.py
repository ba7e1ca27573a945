"""The errors of feedback; `postroom.errors` draws the whole tree."""

from postroom.errors import NotFoundError


class SuppressionNotFound(NotFoundError):
    """The address is not suppressed."""
