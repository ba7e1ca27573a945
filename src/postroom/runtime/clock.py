"""The time, as something that can be handed in.

Production asks the database for the time (`now()` in every statement), so that hosts with crooked clocks agree.
A test passes a moment instead, and every statement obeys it.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime | None]
"""None means: let the database's clock decide."""


def database_time() -> None:
    """Leave the time to the database."""
    return


def utc_now() -> datetime:
    """The time of this host, for log lines and headers only."""
    return datetime.now(UTC)
