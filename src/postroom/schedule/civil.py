"""Calendar days: birthdays on 29 February, the 31st in shorter months. Pure."""

from datetime import date, timedelta
from enum import StrEnum


class LeapDay(StrEnum):
    """The birthday in a common year of a person born on 29 February."""

    MARCH_1 = "mar1"
    FEBRUARY_28 = "feb28"


def day_in_year(day: date, year: int, leap_day: LeapDay) -> date:
    """The same day in another year. Pass the original day, not last year's, which may have been 1 March."""
    try:
        return day.replace(year=year)
    except ValueError:  # 29 February in a common year
        return date(year, 3, 1) if leap_day is LeapDay.MARCH_1 else date(year, 2, 28)


def day_in_month(day: int, year: int, month: int) -> date:
    """A day of a month, or the last day of a shorter month."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return min(date(year, month, 1) + timedelta(days=day - 1), following - timedelta(days=1))
