"""The settings of campaigns, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import kept_for, positive, setting


@dataclass(frozen=True, kw_only=True)
class CampaignsSettings:
    campaign_queue: int = setting(positive, 10_000, "maximum number of mails of one campaign in the queue at a time")
    campaign_retention: timedelta = setting(
        kept_for,
        timedelta(days=365),
        "retention of a campaign's recipients after its end; the campaign and its counts stay",
    )
