"""The settings of intake, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.runtime.setting import address_or_off, kept_for, positive, setting, switch


@dataclass(frozen=True, kw_only=True)
class IntakeSettings:
    malformed_command_retention: timedelta = setting(kept_for, timedelta(days=30), "retention of malformed commands")
    room_commands: bool = setting(
        switch,
        default=False,
        about="read commands from the room's own stream mail:delivery_commands:<room> or subject "
        "mail.delivery_commands.<room>, as a worker of many rooms does",
    )
    smtp_addr: tuple[str, int] | None = setting(
        address_or_off, ("127.0.0.1", 2525), "address where SMTP submission listens, or off"
    )
    smtps_addr: tuple[str, int] | None = setting(
        address_or_off, None, "address where SMTP submission listens with implicit TLS, or off"
    )
    smtp_tls_cert: Path | None = setting(Path, None, "PEM certificate chain for STARTTLS, and for POSTROOM_SMTPS_ADDR")
    smtp_tls_key: Path | None = setting(Path, None, "PEM private key; absent: in the certificate's file")
    smtp_any_login: bool = setting(
        switch,
        default=False,
        about="accept any SMTP user name and password from this machine; needs POSTROOM_TRANSPORT=capture and loopback",
    )
    smtp_max_mb: int = setting(positive, 35, "largest message accepted by SMTP submission, in megabytes")
