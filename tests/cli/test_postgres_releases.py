"""Minor releases of PostgreSQL by the calendar."""

from datetime import date

import pytest

from postroom.cli.postgres_releases import newest_minor


@pytest.mark.parametrize(
    "major, today, minor",
    [
        (18, date(2026, 5, 14), 4),
        (18, date(2026, 8, 12), 4),
        (18, date(2026, 8, 13), 5),
        (18, date(2026, 11, 12), 6),
        (18, date(2027, 2, 11), 7),
        (15, date(2026, 11, 19), 20),
        (19, date(2026, 11, 1), 0),
        (19, date(2026, 11, 12), 1),
        (20, date(2028, 2, 10), 2),
        (15, date(2027, 11, 11), 24),
        (15, date(2031, 1, 1), 24),
    ],
)
def test_a_minor_release_comes_every_quarter(major: int, today: date, minor: int) -> None:
    """On the second Thursday of February, May, August and November, for five years."""
    assert newest_minor(major, today) == minor
