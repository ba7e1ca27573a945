"""The settings of tracking, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from pathlib import Path

from postroom.runtime.setting import setting


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    """The settings of tracking."""

    geoip_database: Path | None = setting(
        "POSTROOM_GEOIP_DATABASE", Path, None, "MaxMind database file that maps opens and clicks to country and city"
    )
