"""The time, as something that can be handed in.

Production asks the database for the time (`now()` in every statement), so that hosts with crooked clocks agree.
A test passes a moment instead, and every statement obeys it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime | None]
"""None means: let the database's clock decide."""


def database_time() -> None:
    """Leave the time to the database."""
    return


def utc_now() -> datetime:
    """The time of this host, for log lines and headers only."""
    return datetime.now(UTC)


class DatabaseClock:
    """The database's time between two of its answers: its last word plus the time that has passed here since.

    A host whose clock is wrong thus judges age and expiry like everybody else. Until the database has said a time it is
    that of this host; a clock that is handed in has the last word.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said, self._heard_at = utc_now(), time.monotonic()

    def hear(self, now: datetime) -> None:
        """The database has just said what time it is."""
        self._said, self._heard_at = now, time.monotonic()

    def __call__(self) -> datetime:
        return self._clock() or self._said + timedelta(seconds=time.monotonic() - self._heard_at)
