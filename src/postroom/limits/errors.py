"""Errors of limits; `postroom.errors` shows the whole tree."""

import math
from datetime import UTC, datetime, timedelta

from postroom.errors import AccessError, FieldError, LimitError


class RateExceeded(LimitError):
    """The API key or the room has reached its mails per minute; try again later."""

    def __init__(self, text: str, wait: timedelta) -> None:
        self.retry_after_s = _seconds(wait)
        super().__init__(f"{text} Try again in {self.retry_after_s} seconds.")


class QuotaExceeded(LimitError):
    """The API key or the room has reached its mails per day; try again after midnight UTC."""

    def __init__(self, text: str, wait: timedelta) -> None:
        self.retry_after_s = _seconds(wait)
        super().__init__(f"{text} The quota resets at {datetime.now(UTC) + wait:%Y-%m-%d} 00:00 UTC.")


def _seconds(wait: timedelta) -> int:
    return max(math.ceil(wait.total_seconds()), 1)


class FromNotAllowed(AccessError):
    """The API key or the room does not permit this From address."""

    sqlstate = "PR121"

    def __init__(self, message: str, field: str = "from") -> None:
        super().__init__(message)
        self.errors = (FieldError(field, message),)


class RoomClosed(AccessError):
    """The room accepts no mail: it has expired."""

    sqlstate = "PR120"
