"""The settings of inbox, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import one_of, positive, setting


@dataclass(frozen=True, kw_only=True)
class InboxSettings:
    """The settings of inbox."""

    inbox_limit: int = setting(
        "POSTROOM_INBOX_LIMIT", positive, 500, "messages in the capture inbox; older ones are deleted"
    )
    inbox_release_relay: str | None = setting(
        "POSTROOM_INBOX_RELEASE_RELAY",
        str,
        None,
        "relay for captured messages that a person releases: smtp://user:password@host:587",
        secret=True,
    )
    inbox_alignment: str = setting(
        "POSTROOM_INBOX_ALIGNMENT",
        one_of("relaxed", "strict"),
        "relaxed",
        "alignment of domains that the inbox checks for SPF, DKIM and DMARC: relaxed or strict",
    )
