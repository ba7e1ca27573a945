"""The settings of runtime, read from the environment by `postroom.settings`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from postroom.post.keyed_hash import ANY_ROOM, LARGEST_ID, SecretKey
from postroom.runtime.setting import address_or_off, http_url, mailbox, one_of, setting, switch, up_to


def _secret_key(value: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ValueError("must be 64 hexadecimal characters")
    return bytes.fromhex(value)


def _broker_url(*schemes: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not all(part.strip().startswith(schemes) for part in value.split(",")):
            raise ValueError(f"must be a {' or '.join(schemes)} URL")
        return value

    return parse


def _redis_url(value: str) -> str:
    forms = r"(unix:///\S+|rediss?://[^/\s]+(/\d*)?(\?\S*)?|rediss?\+sentinel://[^/\s]+/[^/\s?]+(/\d+)?(\?\S*)?)"
    if not re.fullmatch(forms, value):
        raise ValueError("must be redis://host:6379/0, redis://a:6379,b:6379 or redis+sentinel://a:26379/name")
    return value


def _old_secret_keys(value: str) -> tuple[SecretKey, ...]:
    """`key`, `key@4711` or `key@shop:4711@blog:99`, separated by commas."""
    return tuple(_old_secret_key(*part.strip().split("@")) for part in value.split(","))


def _old_secret_key(key: str, *ends: str) -> SecretKey:
    pairs = [end.rpartition(":") for end in ends]
    if not all(number.isdecimal() and int(number) <= LARGEST_ID for _room, _colon, number in pairs):
        raise ValueError("must be keys, each with the last delivery that it signed, such as <key>@4711")
    return SecretKey(_secret_key(key), {room or ANY_ROOM: int(number) for room, _colon, number in pairs} or None)


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    secret_key: bytes | None = setting(
        _secret_key, None, "key of 64 hexadecimal characters that signs links and encrypts credentials", secret=True
    )
    old_secret_keys: tuple[SecretKey, ...] = setting(
        _old_secret_keys,
        (),
        "previous values of POSTROOM_SECRET_KEY, which decrypt secrets and verify links of mail up to a delivery: "
        "key@4711, or key@room:4711@room2:99 for several rooms, as `postroom secrets rotate` prints it",
        secret=True,
    )
    metrics_addr: tuple[str, int] | None = setting(
        address_or_off, None, "address where a worker serves metrics; it takes the next free port"
    )
    admin_email: str | None = setting(
        mailbox,
        None,
        "recipient of notices about dead letters, malformed commands, complaints and outages of the relay",
    )
    admin_webhook: str | None = setting(
        http_url,
        None,
        "URL that gets the same notices as JSON with the keys `kind`, `room` and `text`; it does not need the relay",
        secret=True,
    )
    log_level: str = setting(
        one_of("debug", "info", "warning", "error"), "info", "lowest level that is logged; debug may show addresses"
    )
    log_format: str = setting(
        one_of("auto", "json", "text"), "auto", "format of log lines; auto: text on a terminal, otherwise json"
    )
    tracing: bool = setting(switch, default=False, about="export OpenTelemetry spans (needs the extra `tracing`)")
    redis_url: str | None = setting(
        _redis_url,
        None,
        "Redis or Valkey of the stream mail:delivery_commands; redis://a:6379,b:6379 for a primary and its replicas, "
        "redis+sentinel://a:26379,b:26379/name for Sentinel",
        secret=True,
    )
    nats_url: str | None = setting(
        _broker_url("nats://", "tls://"),
        None,
        "NATS servers of the subject mail.delivery_commands, separated by commas",
        secret=True,
    )
    nats_replicas: int = setting(up_to(5), 1, "replicas of the streams that Postroom creates on NATS; 3 in a cluster")

    @property
    def secret_keys(self) -> tuple[SecretKey, ...]:
        """The key that signs and encrypts, then the old keys, which only verify and decrypt; empty without a key."""
        return () if self.secret_key is None else (SecretKey(self.secret_key), *self.old_secret_keys)

    @property
    def sealing_keys(self) -> tuple[bytes, ...]:
        """The key that encrypts, then those that only decrypt, whatever their end."""
        return tuple(each.key for each in self.secret_keys)
