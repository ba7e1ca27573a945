"""Days of the calendar: birthdays on 29 February, the 31st of a shorter month. Pure."""

from datetime import date, timedelta
from enum import StrEnum


class LeapDay(StrEnum):
    """The birthday in a common year of a person born on 29 February."""

    MARCH_1 = "mar1"
    FEBRUARY_28 = "feb28"


def day_in_year(day: date, year: int, leap_day: LeapDay) -> date:
    """The same day in another year. Always from the original day, never from last year's."""
    try:
        return day.replace(year=year)
    except ValueError:  # 29 February in a common year
        return date(year, 3, 1) if leap_day is LeapDay.MARCH_1 else date(year, 2, 28)


def day_in_month(day: int, year: int, month: int) -> date:
    """That day of a month, or the month's last if it is shorter."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return min(date(year, month, 1) + timedelta(days=day - 1), following - timedelta(days=1))
