"""The settings of intake, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.runtime.setting import address_or_off, kept_for, positive, setting, switch


@dataclass(frozen=True, kw_only=True)
class IntakeSettings:
    """The settings of intake."""

    malformed_command_retention: timedelta = setting(
        "POSTROOM_MALFORMED_COMMAND_RETENTION",
        kept_for,
        timedelta(days=30),
        "retention of malformed commands",
    )
    smtp_addr: tuple[str, int] | None = setting(
        "POSTROOM_SMTP_ADDR", address_or_off, ("127.0.0.1", 2525), "address where SMTP submission listens, or off"
    )
    smtps_addr: tuple[str, int] | None = setting(
        "POSTROOM_SMTPS_ADDR", address_or_off, None, "address where SMTP submission listens with implicit TLS, or off"
    )
    smtp_tls_cert: Path | None = setting(
        "POSTROOM_SMTP_TLS_CERT", Path, None, "PEM certificate chain for STARTTLS, and for POSTROOM_SMTPS_ADDR"
    )
    smtp_tls_key: Path | None = setting(
        "POSTROOM_SMTP_TLS_KEY", Path, None, "PEM private key; absent: in the certificate's file"
    )
    smtp_any_login: bool = setting(
        "POSTROOM_SMTP_ANY_LOGIN",
        switch,
        default=False,
        about="accept any SMTP user name and password from this machine; needs POSTROOM_TRANSPORT=capture and loopback",
    )
    smtp_max_mb: int = setting(
        "POSTROOM_SMTP_MAX_MB", positive, 35, "largest message accepted by SMTP submission, in megabytes"
    )
