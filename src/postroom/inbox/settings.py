"""The settings of inbox, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import one_of, positive, setting


@dataclass(frozen=True, kw_only=True)
class InboxSettings:
    inbox_limit: int = setting(positive, 500, "newest messages that the capture inbox keeps; older ones are deleted")
    inbox_release_relay: str | None = setting(
        str, None, "relay for captured messages that a person releases: smtp://user:password@host:587", secret=True
    )
    inbox_alignment: str = setting(
        one_of("relaxed", "strict"),
        "relaxed",
        "alignment of domains that the inbox checks for SPF, DKIM and DMARC: relaxed or strict",
    )
