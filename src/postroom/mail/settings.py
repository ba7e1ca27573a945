"""The settings of mail, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.runtime.setting import duration_from, kept_for, setting, switch


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
    default_from: str = setting(
        str, "Postroom <postroom@localhost>", "From address of mail without one", variable="POSTROOM_FROM"
    )
    message_domain: str = setting(str, "postroom.localhost", "domain of Message-IDs")
    dkim_keys: str | None = setting(
        str, None, "DKIM keys as domain:selector:path-of-PEM, separated by commas; each key of a domain signs"
    )
