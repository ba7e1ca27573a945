"""The settings of transports, read from the environment by `postroom.settings`."""

import base64
import binascii
from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import duration_from, one_of, positive, setting, switch

_WEBHOOK_KEY_BYTES = range(24, 65)  # Standard Webhooks
_TRANSPORTS = ("capture", "smtp", "senders", "stub", "noop")


def _is_webhook_secret(value: str) -> bool:
    try:
        key = base64.b64decode(value.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return False
    return value.startswith("whsec_") and len(key) in _WEBHOOK_KEY_BYTES


def _webhook_secrets(value: str) -> tuple[str, ...]:
    secrets = tuple(part.strip() for part in value.split(","))
    if not all(map(_is_webhook_secret, secrets)):
        raise ValueError("must be whsec_ and 24 to 64 bytes in base64; two, separated by a comma, while rotating")
    return secrets


@dataclass(frozen=True, kw_only=True)
class TransportsSettings:
    transport: str = setting(one_of(*_TRANSPORTS), "capture", "transport of mail: capture, smtp, senders, stub or noop")
    smtp_relay: str | None = setting(
        str, None, "relay of the smtp transport: smtp://user:password@host:587", secret=True
    )
    smtp_connections: int = setting(positive, 20, "most connections to the relay, per lane and process")
    webhook_secrets: tuple[str, ...] = setting(
        _webhook_secrets,
        (),
        "secret (whsec_…) that signs webhooks, two while rotating; absent: derived from POSTROOM_SECRET_KEY",
        secret=True,
        variable="POSTROOM_WEBHOOK_SECRET",
    )
    webhook_timeout: timedelta = setting(
        duration_from(timedelta(milliseconds=100)),
        timedelta(seconds=10),
        "timeout of a webhook request; at least 100ms",
    )
    webhook_allow_private: bool = setting(
        switch, default=False, about="post webhooks to loopback and private addresses too"
    )
    webhook_allow_loopback: bool | None = setting(
        switch,
        None,
        "post webhooks to loopback addresses too; absent: only by `postroom up` while mail is captured and the API "
        "listens on loopback",
    )

    @property
    def uses_senders(self) -> bool:
        """True if mail may leave through sender accounts; every other transport replaces them."""
        return self.transport in ("smtp", "senders")
