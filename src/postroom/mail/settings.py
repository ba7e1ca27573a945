"""The settings of mail, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.runtime.setting import duration_from, kept_for, mailbox, setting, switch

UNSET_FROM, UNSET_MESSAGE_DOMAIN = "Postroom <postroom@localhost>", "postroom.localhost"
"""For captured mail; no other server accepts answers to them."""


@dataclass(frozen=True, kw_only=True)
class MailSettings:
    template_dir: Path | None = setting(Path, None, "folder of your templates, in addition to the built-in ones")
    template_reload: timedelta = setting(
        duration_from(timedelta(seconds=1)),
        timedelta(seconds=5),
        "interval at which workers look for changed template files, and publish them",
    )
    template_version_retention: timedelta = setting(
        kept_for,
        timedelta(days=90),
        "retention of replaced versions of templates; a version that a delivery keeps is not deleted",
    )
    store_rendered: bool = setting(
        switch,
        default=False,
        about="store the content of templated mail before it first leaves, and use it for retry, resend and readers; "
        "otherwise it is rendered again each time",
    )
    default_locale: str = setting(str, "en", "language of account mail to people without a locale")
    given_from: str | None = setting(
        mailbox,
        None,
        "From address of mail without one; absent: Postroom <postroom@localhost>, and no campaign or account mail "
        "leaves unless it is captured",
        variable="POSTROOM_FROM",
    )
    given_message_domain: str | None = setting(
        str, None, "domain of Message-IDs; absent: that of POSTROOM_FROM", variable="POSTROOM_MESSAGE_DOMAIN"
    )
    dkim_keys: str | None = setting(
        str, None, "DKIM keys as domain:selector:path-of-PEM, separated by commas; each key of a domain signs"
    )

    @property
    def default_from(self) -> str:
        """The From address of mail without one."""
        return self.given_from or UNSET_FROM

    @property
    def message_domain(self) -> str:
        """The domain of Message-IDs: as given, or that of the From address."""
        if self.given_message_domain is not None or self.given_from is None:
            return self.given_message_domain or UNSET_MESSAGE_DOMAIN
        from postroom.post.address import domain_of, parse_address

        return domain_of(parse_address(self.given_from).email)
