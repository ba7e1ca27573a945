"""Errors of schedule; `postroom.errors` shows the whole tree."""

from postroom.errors import NotFoundError


class OccasionNotFound(NotFoundError):
    """There is no such occasion of this person."""


class ScheduledEventNotFound(NotFoundError):
    """There is no such scheduled event."""


class UserNotFound(NotFoundError):
    """There is no such user."""
