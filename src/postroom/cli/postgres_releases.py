"""Minor releases of PostgreSQL by the calendar: they come on the second Thursday of February, May, August and November.

The host may not reach the internet, so the newest release is computed: from the last ones that were known when this was
written, which include those out of turn. Pure.
"""

from datetime import date, timedelta

MOST_BEHIND = 1  # distributions and providers take some weeks

_KNOWN_AT = date(2026, 5, 14)
_KNOWN = {14: 23, 15: 18, 16: 14, 17: 10, 18: 4}
_MONTHS = (2, 5, 8, 11)
_FIRST_YEAR = 2007  # a major release n appears in the autumn of this year and n, with n.1 in November
_MAINTAINED_YEARS = 5  # https://www.postgresql.org/support/versioning


def newest_minor(major: int, today: date) -> int:
    """The minor release of a major one that is out by the calendar; the last one after the end of its maintenance."""
    begin = _KNOWN_AT if major in _KNOWN else date(_FIRST_YEAR + major, 10, 31)
    last = date(_FIRST_YEAR + major + _MAINTAINED_YEARS, 11, 30)
    return _KNOWN.get(major, 0) + sum(begin < day <= min(today, last) for day in _release_days(begin, today))


def _release_days(begin: date, end: date) -> list[date]:
    return [_second_thursday(year, month) for year in range(begin.year, end.year + 1) for month in _MONTHS]


def _second_thursday(year: int, month: int) -> date:
    first = date(year, month, 1)
    return first + timedelta(days=(3 - first.weekday()) % 7 + 7)
