"""Errors of schedule; `postroom.errors` shows the whole tree."""

from postroom.errors import NotFoundError


class OccasionNotFound(NotFoundError):
    """There is no such occasion of this person."""

    code = "occasion_not_found"


class ScheduledEventNotFound(NotFoundError):
    """There is no such scheduled event."""

    code = "scheduled_event_not_found"


class UserNotFound(NotFoundError):
    """There is no such user."""

    code = "user_not_found"
