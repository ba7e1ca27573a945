"""The settings of the dashboard, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import setting, switch


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """The settings of the dashboard."""

    sign_in_codes: bool = setting(
        "POSTROOM_SIGN_IN_CODES",
        switch,
        default=True,
        about="operators sign in to the dashboard with a code that is mailed to them",
    )
