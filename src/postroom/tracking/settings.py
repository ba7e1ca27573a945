"""The settings of tracking, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from pathlib import Path

from postroom.runtime.setting import setting


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    geoip_database: Path | None = setting(
        Path, None, "MaxMind database file that maps opens and clicks to country and city"
    )
