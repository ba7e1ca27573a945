"""The settings of inbox, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import positive, setting


@dataclass(frozen=True, kw_only=True)
class InboxSettings:
    """The settings of inbox."""

    inbox_limit: int = setting(
        "POSTROOM_INBOX_LIMIT", positive, 500, "messages in the capture inbox; older ones are deleted"
    )
