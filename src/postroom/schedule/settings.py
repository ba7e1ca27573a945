"""The settings of schedule, read from the environment by `postroom.settings`."""

import re
from dataclasses import dataclass
from datetime import time, timedelta

from postroom.runtime.setting import duration_from, one_of, parse_duration, per_kind, setting


def _webhook_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/@\s?#]+([/?][!-~]*)?", value) or "#" in value:
        raise ValueError("must be an http or https URL without a user name, a password or a fragment")
    return value


def _time_of_day(value: str) -> time:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
        raise ValueError("must be a time of day such as 09:00")
    return time.fromisoformat(value)


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    schedule_retention: timedelta = setting(
        duration_from(timedelta(days=400)),
        timedelta(days=400),
        "retention of scheduled events after their time; at least 400d, less could send a yearly greeting twice",
    )
    schedule_webhook_url: str | None = setting(
        _webhook_url, None, "webhook URL of greetings for people without their own destination"
    )
    schedule_times: tuple[tuple[str, time], ...] = setting(
        per_kind(_time_of_day, "birthday", "anniversary", "recurring"),
        (),
        "local time of day by kind, such as birthday=08:30; default 09:00",
    )
    schedule_max_lateness: tuple[tuple[str, timedelta], ...] = setting(
        per_kind(parse_duration, "birthday", "anniversary", "recurring", "reminder"),
        (),
        "greatest lateness by kind, such as birthday=12h; later greetings are skipped; default: no limit",
    )
    leap_day: str = setting(
        one_of("mar1", "feb28"), "mar1", "day on which a birthday of 29 February is greeted in common years"
    )
