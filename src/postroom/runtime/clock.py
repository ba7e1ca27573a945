"""The time as a parameter.

Production uses the database's time (`now()` in every statement), so that hosts with wrong clocks agree. Tests pass a
fixed time instead.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime | None]
"""None: use the database's clock."""


def database_time() -> None:
    """Use the database's time."""
    return


def utc_now() -> datetime:
    """The time of this host, for log lines and headers only."""
    return datetime.now(UTC)


class DatabaseClock:
    """An estimate of the database's time: its last known time plus the time that has passed on this host since.

    So a host with a wrong clock decides about age and expiry like the others. Before the first known time it is this
    host's time. A clock given by the caller takes precedence.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said, self._heard_at = utc_now(), time.monotonic()

    def hear(self, now: datetime) -> None:
        """Record the database's current time."""
        self._said, self._heard_at = now, time.monotonic()

    def __call__(self) -> datetime:
        return self._clock() or self._said + timedelta(seconds=time.monotonic() - self._heard_at)
