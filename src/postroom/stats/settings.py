"""The settings of stats, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import kept_for, parse_duration, setting


@dataclass(frozen=True, kw_only=True)
class StatsSettings:
    stats_interval: timedelta = setting(
        parse_duration, timedelta(seconds=2), "interval at which counts are rolled up into hours"
    )
    stats_retention: timedelta = setting(kept_for, timedelta(days=730), "retention of hourly counts")
