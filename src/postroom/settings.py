"""Every setting of a Postroom process, read once from `POSTROOM_*` variables.

A bad value stops the start with the variable's name. A test keeps the table in docs/reference/settings.md equal to this
file.
"""

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import time, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from postroom.errors import SettingInvalid

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LONGEST_DAYS = 36_525
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PORTS = range(65536)
_WEBHOOK_KEY_BYTES = range(24, 65)
_TRANSPORTS = ("capture", "smtp", "senders", "stub", "noop")

ARCHIVED_TABLES = ("attempts", "open_events", "click_events")
"""Tables partitioned by month whose closed months move to the archive. One that is not there is passed over."""


def parse_duration(value: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `7d`; a plain number is seconds."""
    text = value.strip()
    if _NUMBER.fullmatch(text):
        text += "s"
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError("must be a duration such as 30s, 5m, 12h or 7d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST_DAYS * _UNITS["d"]:  # no moment so long ago can be written down
        raise ValueError(f"must be at most {_LONGEST_DAYS}d, a hundred years")
    return timedelta(seconds=seconds)


def _kept(value: str) -> timedelta:
    """How long something is kept, which is days and not seconds: `30` is a slip that would delete nearly everything."""
    if _NUMBER.fullmatch(value.strip()) and float(value) != 0:
        raise ValueError(f"must have a unit, such as {value.strip()}d")
    return parse_duration(value)


def _duration_from(least: timedelta) -> Callable[[str], timedelta]:
    def parse(value: str) -> timedelta:
        duration = parse_duration(value)
        if duration < least:
            days, seconds = least.days, least.total_seconds()
            raise ValueError(f"must be at least {f'{days}d' if days else f'{seconds:g}s'}")
        return duration

    return parse


def parse_address(value: str) -> tuple[str, int]:
    """`127.0.0.1:8025` or `[::1]:8025`."""
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) not in _PORTS:
        raise ValueError("must be host:port")
    return host.strip("[]"), int(port)


def _positive(value: str) -> int:
    if not value.strip().isdigit() or int(value) < 1:
        raise ValueError("must be a whole number above zero")
    return int(value)


def _up_to(most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = _positive(value)
        if number > most:
            raise ValueError(f"must be at most {most}")
        return number

    return parse


def _domain(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", value.lower()):
        raise ValueError("must be a domain such as bounces.example.org")
    return value.lower()


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _source(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError("must be letters, digits, dashes and underscores, at most 64")
    return value


def _switch(value: str) -> bool:
    known = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if value.strip().lower() not in known:
        raise ValueError("must be 1 or 0")
    return known[value.strip().lower()]


def _secret_key(value: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ValueError("must be 64 hexadecimal characters")
    return bytes.fromhex(value)


def parse_schema(value: str) -> str:
    """The name of a room. PostgreSQL keeps names that begin with pg_ for itself."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", value) or value.startswith("pg_") or value == "information_schema":
        raise ValueError("must be a lower-case identifier of at most 48 characters that does not begin with pg_")
    return value


FACTS = (
    "DeliveryAccepted",
    "DeliverySent",
    "DeliveryDeferred",
    "DeliveryFailed",
    "DeliveryDeadLettered",
    "DeliverySuppressed",
    "DeliveryCancelled",
    "DeliveryRedriven",
    "RecipientUnsubscribed",
    "RecipientBounced",
    "RecipientComplained",
    "RecipientSuppressed",
    "SuppressionLifted",
)


def _facts(value: str) -> tuple[str, ...]:
    names = {"all": FACTS, "none": ()}.get(value, tuple(name.strip() for name in value.split(",")))
    unknown = [name for name in names if name not in FACTS]
    if unknown:
        raise ValueError(f"must be all, none, or some of {', '.join(FACTS)}")
    return names


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


def _url(value: str) -> str:
    if not re.match(r"https?://[^/\s]+", value):
        raise ValueError("must be an http or https URL")
    return value.rstrip("/")


def _webhook_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/@\s?#]+([/?][!-~]*)?", value) or "#" in value:
        raise ValueError("must be an http or https URL without a user name, a password or a fragment")
    return value


def _database_url(value: str) -> str:
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be a postgresql:// URL")
    return value


def _address_or_off(value: str) -> tuple[str, int] | None:
    return None if value.strip().lower() == "off" else parse_address(value)


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


def parse_archive_url(value: str) -> str:
    """A folder, `file:///folder` or `s3://bucket/prefix`, as it is recorded: whole, and without credentials."""
    scheme, separator, rest = value.strip().partition("://")
    if not separator:
        return f"file://{Path(value.strip()).absolute()}"
    if scheme == "file" and rest.startswith("/"):
        return f"file://{Path(rest)}"
    if scheme == "s3" and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]+(/[^@?#\s]*)?", rest):
        return f"s3://{rest.rstrip('/')}"
    raise ValueError("must be a folder, file:///folder or s3://bucket/prefix, without credentials")


def _per_table(*tables: str) -> Callable[[str], "timedelta | tuple[tuple[str, timedelta], ...]"]:
    """`90d` for all of them, or `attempts=90d,open_events=30d`; a table that is not named keeps the default."""

    def parse(value: str) -> "timedelta | tuple[tuple[str, timedelta], ...]":
        if "=" not in value:
            return _kept(value)
        chosen = tuple((table.lower(), duration) for table, duration in _per_kind(_kept)(value))
        if any(table not in tables for table, _ in chosen):
            raise ValueError(f"must be a duration, or table=duration for some of {', '.join(tables)}")
        return chosen

    return parse


def _per_kind(parse: Callable[[str], Any], *kinds: str) -> Callable[[str], tuple[tuple[str, Any], ...]]:
    """`birthday=08:30,recurring=07:00`: a value for each kind of scheduled event, of these if any are named."""

    def parse_all(value: str) -> tuple[tuple[str, Any], ...]:
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not kind.strip() or not separator for kind, separator, _ in pairs):
            raise ValueError("must be kind=value, separated by commas")
        if kinds and any(kind.strip().lower() not in kinds for kind, _, _ in pairs):
            raise ValueError(f"must be for some of {', '.join(kinds)}, such as {kinds[0]}={pairs[0][2].strip()}")
        return tuple((kind.strip().upper(), parse(text.strip())) for kind, _, text in pairs)

    return parse_all


def _time_of_day(value: str) -> time:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
        raise ValueError("must be a time of day such as 09:00")
    return time.fromisoformat(value)


def _is_webhook_secret(value: str) -> bool:
    try:
        key = base64.b64decode(value.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return False
    return value.startswith("whsec_") and len(key) in _WEBHOOK_KEY_BYTES


def _networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in value.split(","))
    except ValueError as error:
        raise ValueError(f"must be addresses or networks such as 10.0.0.0/8: {error}") from None


def _secret_keys(value: str) -> tuple[bytes, ...]:
    return tuple(_secret_key(part.strip()) for part in value.split(","))


def _webhook_secrets(value: str) -> tuple[str, ...]:
    secrets = tuple(part.strip() for part in value.split(","))
    if not all(map(_is_webhook_secret, secrets)):
        raise ValueError("must be whsec_ and 24 to 64 bytes in base64; two, separated by a comma, while rotating")
    return secrets


def _setting(variable: str, parse: Callable[[str], Any], default: Any, about: str, *, secret: bool = False) -> Any:
    metadata = {"variable": variable, "parse": parse, "about": about}
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One frozen value handed to everything that needs it; nothing else reads the environment."""

    database_url: str | None = _setting(
        "POSTROOM_DATABASE_URL",
        _database_url,
        None,
        "PostgreSQL to use; absent: the embedded server",
        secret=True,
    )
    database_direct_url: str | None = _setting(
        "POSTROOM_DATABASE_DIRECT_URL",
        _database_url,
        None,
        "the same database without the transaction pooler that POSTROOM_DATABASE_URL goes through",
        secret=True,
    )
    data_dir: Path = _setting("POSTROOM_DATA_DIR", Path, Path(".postroom"), "where the embedded server lives")
    schema: str = _setting("POSTROOM_SCHEMA", parse_schema, "postroom", "the room: one PostgreSQL schema")
    pool_size: int = _setting("POSTROOM_POOL_SIZE", _positive, 20, "database connections per process")
    database_timeout: timedelta = _setting(
        "POSTROOM_DATABASE_TIMEOUT",
        _duration_from(timedelta(seconds=1)),
        timedelta(seconds=30),
        "longest time for one statement of an API or worker process; its connection is dropped then",
    )
    secret_key: bytes | None = _setting(
        "POSTROOM_SECRET_KEY",
        _secret_key,
        None,
        "64 hex characters that sign links and encrypt credentials",
        secret=True,
    )
    old_secret_keys: tuple[bytes, ...] = _setting(
        "POSTROOM_OLD_SECRET_KEYS",
        _secret_keys,
        (),
        "keys that were POSTROOM_SECRET_KEY before: links already sent and secrets already sealed stay readable",
        secret=True,
    )
    http_addr: tuple[str, int] = _setting(
        "POSTROOM_HTTP_ADDR", parse_address, ("127.0.0.1", 8025), "where the API listens"
    )
    metrics_addr: tuple[str, int] | None = _setting(
        "POSTROOM_METRICS_ADDR",
        _address_or_off,
        None,
        "where a worker shows its metrics; the next free port from there",
    )
    public_url: str | None = _setting("POSTROOM_PUBLIC_URL", _url, None, "how people reach the API from outside")
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = _setting(
        "POSTROOM_TRUSTED_PROXIES", _networks, (), "networks whose X-Forwarded-For is believed, separated by commas"
    )
    geoip_database: Path | None = _setting(
        "POSTROOM_GEOIP_DATABASE", Path, None, "a MaxMind file that tells country and city of opens and clicks"
    )
    max_body_mb: int = _setting("POSTROOM_MAX_BODY_MB", _positive, 35, "largest accepted request, in megabytes")
    http_connections: int = _setting("POSTROOM_HTTP_CONNECTIONS", _positive, 800, "open HTTP connections per process")
    connections_per_peer: int = _setting(
        "POSTROOM_CONNECTIONS_PER_PEER",
        _positive,
        100,
        "open connections from one address, for HTTP and for SMTP submission; "
        "not for this host and POSTROOM_TRUSTED_PROXIES",
    )
    template_dir: Path | None = _setting(
        "POSTROOM_TEMPLATE_DIR", Path, None, "your templates, beside the built-in ones"
    )
    default_locale: str = _setting(
        "POSTROOM_DEFAULT_LOCALE", str, "en", "language of account mail to people who have none of their own"
    )
    default_from: str = _setting(
        "POSTROOM_FROM", str, "Postroom <postroom@localhost>", "sender of mail that names none"
    )
    message_domain: str = _setting("POSTROOM_MESSAGE_DOMAIN", str, "postroom.localhost", "right side of Message-IDs")
    dkim_keys: str | None = _setting(
        "POSTROOM_DKIM_KEYS",
        str,
        None,
        "comma-separated domain:selector:path-of-PEM; several per domain sign twice",
    )
    transport: str = _setting(
        "POSTROOM_TRANSPORT", _one_of(*_TRANSPORTS), "capture", "how mail leaves: capture, smtp, senders, stub or noop"
    )
    inbox_limit: int = _setting(
        "POSTROOM_INBOX_LIMIT", _positive, 500, "messages that the capture transport keeps; the oldest are deleted"
    )
    smtp_relay: str | None = _setting(
        "POSTROOM_SMTP_RELAY", str, None, "smtp://user:password@host:587, for the smtp transport", secret=True
    )
    smtp_connections: int = _setting(
        "POSTROOM_SMTP_CONNECTIONS", _positive, 20, "connections to the relay, per lane and process"
    )
    worker_batch: int = _setting("POSTROOM_WORKER_BATCH", _positive, 500, "deliveries claimed at once")
    worker_chunk: int = _setting(
        "POSTROOM_WORKER_CHUNK",
        _positive,
        100,
        "mails started at once; one crash makes at most twice as many ambiguous in each lane",
    )
    worker_mb: int = _setting(
        "POSTROOM_WORKER_MB",
        _positive,
        32,
        "megabytes of mail content that a lane claims, and has in memory, at once",
    )
    lease: timedelta = _setting(
        "POSTROOM_LEASE", parse_duration, timedelta(seconds=30), "how long a claim holds unrenewed"
    )
    poll_interval: timedelta = _setting(
        "POSTROOM_POLL_INTERVAL",
        parse_duration,
        timedelta(milliseconds=500),
        "how often a sleeping worker looks anyway",
    )
    shutdown_grace: timedelta = _setting(
        "POSTROOM_SHUTDOWN_GRACE",
        parse_duration,
        timedelta(seconds=25),
        "time to finish what is in flight at SIGTERM",
    )
    ambiguous_auth: str = _setting(
        "POSTROOM_AMBIGUOUS_AUTH", _one_of("resend", "hold"), "resend", "a code that may have arrived already"
    )
    ambiguous_transactional: str = _setting(
        "POSTROOM_AMBIGUOUS_TRANSACTIONAL",
        _one_of("resend", "hold"),
        "resend",
        "a mail that may have arrived already",
    )
    ambiguous_bulk: str = _setting(
        "POSTROOM_AMBIGUOUS_BULK",
        _one_of("resend", "hold"),
        "hold",
        "bulk mail that may have arrived already",
    )
    admin_email: str | None = _setting(
        "POSTROOM_ADMIN_EMAIL", str, None, "who is told about dead letters and malformed commands"
    )
    idempotency_ttl: timedelta = _setting(
        "POSTROOM_IDEMPOTENCY_TTL",
        parse_duration,
        timedelta(days=7),
        "how long an idempotency key is remembered",
    )
    delivery_retention: timedelta = _setting(
        "POSTROOM_DELIVERY_RETENTION",
        _kept,
        timedelta(days=7),
        "how long finished deliveries are kept, and at least as long as their idempotency keys",
    )
    dead_letter_retention: timedelta = _setting(
        "POSTROOM_DEAD_LETTER_RETENTION",
        _kept,
        timedelta(days=30),
        "how long dead letters are kept, which wait for a person; at least as long as finished deliveries",
    )
    payload_retention: timedelta = _setting(
        "POSTROOM_PAYLOAD_RETENTION",
        _kept,
        timedelta(days=3),
        "how long bodies of finished deliveries are kept",
    )
    stats_interval: timedelta = _setting(
        "POSTROOM_STATS_INTERVAL", parse_duration, timedelta(seconds=2), "how often counts are folded into their hours"
    )
    stats_retention: timedelta = _setting(
        "POSTROOM_STATS_RETENTION", _kept, timedelta(days=730), "how long the counts of an hour are kept"
    )
    senders_allow_private: bool = _setting(
        "POSTROOM_SENDERS_ALLOW_PRIVATE",
        _switch,
        default=False,
        about="let sender accounts name SMTP servers on loopback and in private networks",
    )
    gmail_base_url: str | None = _setting(
        "POSTROOM_GMAIL_BASE_URL", _url, None, "another server than Google's for senders of type gmail"
    )
    ses_endpoint_url: str | None = _setting(
        "POSTROOM_SES_ENDPOINT_URL", _url, None, "another server than Amazon's for senders of type ses"
    )
    kms_key_id: str | None = _setting(
        "POSTROOM_KMS_KEY_ID", str, None, "a key of AWS KMS that seals the credentials of senders"
    )
    kms_region: str | None = _setting("POSTROOM_KMS_REGION", str, None, "region of that key; absent: AWS_REGION")
    kms_access_key_id: str | None = _setting(
        "POSTROOM_KMS_ACCESS_KEY_ID", str, None, "AWS access key id used for KMS; absent: AWS's default chain"
    )
    kms_secret_access_key: str | None = _setting(
        "POSTROOM_KMS_SECRET_ACCESS_KEY", str, None, "secret of that access key", secret=True
    )
    kms_endpoint_url: str | None = _setting(
        "POSTROOM_KMS_ENDPOINT_URL", _url, None, "another server than Amazon's for KMS"
    )
    campaign_queue: int = _setting(
        "POSTROOM_CAMPAIGN_QUEUE", _positive, 10_000, "mails of one campaign that wait in the queue at most"
    )
    campaign_retention: timedelta = _setting(
        "POSTROOM_CAMPAIGN_RETENTION",
        _kept,
        timedelta(days=365),
        "how long the recipients of a campaign are kept after its end; the campaign and its counts stay",
    )
    bounce_domain: str | None = _setting(
        "POSTROOM_BOUNCE_DOMAIN", _domain, None, "domain of return paths: bounce+<id>.<hmac>@ that domain"
    )
    bounce_addr: tuple[str, int] | None = _setting(
        "POSTROOM_BOUNCE_ADDR", _address_or_off, None, "where bounces and complaints are received by SMTP, or off"
    )
    bounce_imap_url: str | None = _setting(
        "POSTROOM_BOUNCE_IMAP_URL", str, None, "imaps://user:password@host/INBOX, a mailbox of bounces", secret=True
    )
    bounce_imap_interval: timedelta = _setting(
        "POSTROOM_BOUNCE_IMAP_INTERVAL", parse_duration, timedelta(minutes=1), "how often that mailbox is read"
    )
    bounce_retention: timedelta = _setting(
        "POSTROOM_BOUNCE_RETENTION", _kept, timedelta(days=365), "how long reports of bounces are kept"
    )
    complaint_notice_interval: timedelta = _setting(
        "POSTROOM_COMPLAINT_NOTICE_INTERVAL",
        parse_duration,
        timedelta(hours=1),
        "administrators get at most one notice of complaints in this time",
    )
    ses_topics: tuple[str, ...] = _setting(
        "POSTROOM_SES_TOPICS", _list, (), "SNS topics, by ARN, whose notices about SES mail are believed"
    )
    sendgrid_public_key: str | None = _setting(
        "POSTROOM_SENDGRID_PUBLIC_KEY", str, None, "verifies SendGrid's event webhook"
    )
    mailgun_signing_key: str | None = _setting(
        "POSTROOM_MAILGUN_SIGNING_KEY", str, None, "verifies Mailgun's webhooks", secret=True
    )
    postmark_secret: str | None = _setting(
        "POSTROOM_POSTMARK_SECRET", str, None, "what Postmark's webhooks bring in a header or as password", secret=True
    )
    archive_url: str | None = _setting(
        "POSTROOM_ARCHIVE_URL",
        parse_archive_url,
        None,
        "a folder that all workers share, or s3://bucket/prefix, for old rows; absent: <data dir>/archive with the "
        "embedded server, and nothing is archived with another database",
    )
    archive_endpoint: str | None = _setting(
        "POSTROOM_ARCHIVE_ENDPOINT", _url, None, "an S3-compatible server instead of Amazon's, for archive and backups"
    )
    archive_after: timedelta | tuple[tuple[str, timedelta], ...] = _setting(
        "POSTROOM_ARCHIVE_AFTER",
        _per_table(*ARCHIVED_TABLES),
        timedelta(days=90),
        "how old a month of attempts, opens and clicks is when it moves into the archive; "
        "or by table, such as attempts=90d,open_events=30d",
    )
    archive_retention: timedelta | tuple[tuple[str, timedelta], ...] = _setting(
        "POSTROOM_ARCHIVE_RETENTION",
        _per_table(*ARCHIVED_TABLES),
        timedelta(days=365),
        "how long the archive keeps a month; or by table, such as attempts=365d,click_events=90d",
    )
    archive_interval: timedelta = _setting(
        "POSTROOM_ARCHIVE_INTERVAL", parse_duration, timedelta(hours=1), "how often the archive looks for old months"
    )
    backup_url: str | None = _setting(
        "POSTROOM_BACKUP_URL",
        parse_archive_url,
        None,
        "a folder or s3://bucket/prefix for scheduled backups; absent: none are made on a schedule",
    )
    backup_interval: timedelta = _setting(
        "POSTROOM_BACKUP_INTERVAL", _kept, timedelta(days=7), "how often a worker makes the scheduled backup"
    )
    backup_keep: int = _setting(
        "POSTROOM_BACKUP_KEEP", _positive, 4, "scheduled backups that are kept; older ones are deleted"
    )
    token_retention: timedelta = _setting(
        "POSTROOM_TOKEN_RETENTION",
        _kept,
        timedelta(days=30),
        "how long tokens are kept after they have expired",
    )
    schedule_retention: timedelta = _setting(
        "POSTROOM_SCHEDULE_RETENTION",
        _duration_from(timedelta(days=400)),
        timedelta(days=400),
        "how long scheduled events are kept after their time; at least 400d, or what is done could be done again",
    )
    malformed_command_retention: timedelta = _setting(
        "POSTROOM_MALFORMED_COMMAND_RETENTION",
        _kept,
        timedelta(days=30),
        "how long unreadable commands are kept",
    )
    cleanup_interval: timedelta = _setting(
        "POSTROOM_CLEANUP_INTERVAL", parse_duration, timedelta(minutes=5), "how often retention runs"
    )
    account_mail: bool = _setting(
        "POSTROOM_ACCOUNT_MAIL",
        _switch,
        default=True,
        about="workers mail the tokens of accounts; off leaves them to `postroom tokens collect`",
    )
    batch_limit: int = _setting(
        "POSTROOM_BATCH_LIMIT", _up_to(10_000), 10, "tokens the collector gathers before it mails them"
    )
    batch_timeout: timedelta = _setting(
        "POSTROOM_BATCH_TIMEOUT",
        parse_duration,
        timedelta(seconds=5),
        "how long the collector gathers; 0 mails each token at once",
    )
    facts: tuple[str, ...] | None = _setting(
        "POSTROOM_FACTS",
        _facts,
        None,
        "which facts about deliveries `migrate` and `up` have recorded: all, none, or names; absent: as it is",
    )
    log_level: str = _setting(
        "POSTROOM_LOG_LEVEL", _one_of("debug", "info", "warning", "error"), "info", "debug may show addresses"
    )
    log_format: str = _setting(
        "POSTROOM_LOG_FORMAT", _one_of("auto", "json", "text"), "auto", "auto: text on a terminal"
    )
    tracing: bool = _setting(
        "POSTROOM_TRACING", _switch, default=False, about="OpenTelemetry spans for accept and attempt (extra: tracing)"
    )
    smtp_addr: tuple[str, int] | None = _setting(
        "POSTROOM_SMTP_ADDR", _address_or_off, ("127.0.0.1", 2525), "where SMTP submission listens; off: nowhere"
    )
    smtps_addr: tuple[str, int] | None = _setting(
        "POSTROOM_SMTPS_ADDR", _address_or_off, None, "where submission listens under TLS from the first byte, or off"
    )
    smtp_tls_cert: Path | None = _setting(
        "POSTROOM_SMTP_TLS_CERT", Path, None, "PEM certificate chain for STARTTLS, and for POSTROOM_SMTPS_ADDR"
    )
    smtp_tls_key: Path | None = _setting(
        "POSTROOM_SMTP_TLS_KEY", Path, None, "PEM private key; absent: it stands beside the certificate"
    )
    smtp_max_mb: int = _setting("POSTROOM_SMTP_MAX_MB", _positive, 35, "largest submitted message, in megabytes")
    redis_url: str | None = _setting(
        "POSTROOM_REDIS_URL",
        _redis_url,
        None,
        "Redis or Valkey with the stream mail:delivery_commands; redis://a:6379,b:6379 for a primary and its replicas, "
        "redis+sentinel://a:26379,b:26379/name for Sentinel",
        secret=True,
    )
    nats_url: str | None = _setting(
        "POSTROOM_NATS_URL",
        _broker_url("nats://", "tls://"),
        None,
        "NATS JetStream with the subject mail.delivery_commands; several servers with commas",
        secret=True,
    )
    nats_replicas: int = _setting(
        "POSTROOM_NATS_REPLICAS", _up_to(5), 1, "copies of a stream that Postroom makes on NATS; 3 in a cluster"
    )
    schedule_webhook_url: str | None = _setting(
        "POSTROOM_SCHEDULE_WEBHOOK_URL",
        _webhook_url,
        None,
        "where greetings go for people without a destination of their own",
    )
    schedule_times: tuple[tuple[str, time], ...] = _setting(
        "POSTROOM_SCHEDULE_TIMES",
        _per_kind(_time_of_day, "birthday", "anniversary", "recurring"),
        (),
        "local time of day by kind, such as birthday=08:30; otherwise 09:00",
    )
    schedule_max_lateness: tuple[tuple[str, timedelta], ...] = _setting(
        "POSTROOM_SCHEDULE_MAX_LATENESS",
        _per_kind(parse_duration, "birthday", "anniversary", "recurring", "reminder"),
        (),
        "by kind, such as birthday=12h: what is later is skipped; otherwise everything is sent, however late",
    )
    leap_day: str = _setting(
        "POSTROOM_LEAP_DAY", _one_of("mar1", "feb28"), "mar1", "birthday of 29 February in common years"
    )
    webhook_secrets: tuple[str, ...] = _setting(
        "POSTROOM_WEBHOOK_SECRET",
        _webhook_secrets,
        (),
        "whsec_… that signs webhooks, two while rotating; absent: derived from POSTROOM_SECRET_KEY",
        secret=True,
    )
    webhook_timeout: timedelta = _setting(
        "POSTROOM_WEBHOOK_TIMEOUT",
        _duration_from(timedelta(milliseconds=100)),
        timedelta(seconds=10),
        "how long a webhook's receiver may take; at least 100ms",
    )
    webhook_allow_private: bool = _setting(
        "POSTROOM_WEBHOOK_ALLOW_PRIVATE",
        _switch,
        default=False,
        about="post webhooks to loopback and private addresses too",
    )

    outbox_source: str | None = _setting(
        "POSTROOM_OUTBOX_SOURCE",
        _source,
        None,
        "this installation in message ids, where several share a broker; absent: the room's name",
    )
    outbox_format: str = _setting(
        "POSTROOM_OUTBOX_FORMAT",
        _one_of("postroom", "cloudevents"),
        "postroom",
        "how messages to Redis and NATS are written: postroom or cloudevents",
    )
    outbox_batch: int = _setting("POSTROOM_OUTBOX_BATCH", _up_to(1000), 100, "events published at once, at most 1000")
    outbox_max_errors: int = _setting(
        "POSTROOM_OUTBOX_MAX_ERRORS", _positive, 10, "errors in a row before a publisher waits for a person"
    )
    outbox_stream_length: int = _setting(
        "POSTROOM_OUTBOX_STREAM_LENGTH", _positive, 100_000, "messages a Redis stream of events keeps, about"
    )

    @property
    def secret_keys(self) -> tuple[bytes, ...]:
        """The key that signs and encrypts, then the old ones, which only verify and decrypt; empty without a key."""
        return () if self.secret_key is None else (self.secret_key, *self.old_secret_keys)

    @property
    def base_url(self) -> str:
        """How people reach us; without a public URL, the address we listen at."""
        host, port = self.http_addr
        return self.public_url or f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def held_lanes(self) -> tuple[str, ...]:
        """Lanes in which a mail that may have arrived waits for a person instead of being sent again."""
        policies = {
            "auth": self.ambiguous_auth,
            "transactional": self.ambiguous_transactional,
            "bulk": self.ambiguous_bulk,
        }
        return tuple(lane for lane, policy in policies.items() if policy == "hold")

    @property
    def uses_senders(self) -> bool:
        """True if mail may leave through sender accounts; every other transport stands in for all ways out."""
        return self.transport in ("smtp", "senders")

    @property
    def is_pooled(self) -> bool:
        """True behind a transaction pooler: no prepared statements there, and LISTEN goes around it."""
        return self.database_direct_url is not None


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment; an unknown POSTROOM_* variable is a typing mistake and refused like a bad value."""
    given = os.environ if environ is None else environ
    known = {entry.metadata["variable"]: entry for entry in fields(Settings)}
    values: dict[str, Any] = {}
    for variable, text in given.items():
        if not variable.startswith("POSTROOM_"):
            continue
        if variable not in known:
            raise SettingInvalid(variable, "is not a setting of Postroom")
        if text == "":
            continue
        try:
            values[known[variable].name] = known[variable].metadata["parse"](text)
        except ValueError as error:
            raise SettingInvalid(variable, str(error)) from error
    settings = Settings(**values)
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    if settings.transport == "smtp" and settings.smtp_relay is None:
        raise SettingInvalid("POSTROOM_SMTP_RELAY", "is required with POSTROOM_TRANSPORT=smtp")
    for table in ARCHIVED_TABLES:
        if _of_table(settings, "archive_retention", table) < _of_table(settings, "archive_after", table):
            problem = f"must not be shorter than POSTROOM_ARCHIVE_AFTER: {table} would be deleted on arrival"
            raise SettingInvalid("POSTROOM_ARCHIVE_RETENTION", problem)


def _of_table(settings: Settings, name: str, table: str) -> timedelta:
    chosen, default = getattr(settings, name), getattr(Settings(), name)
    found: timedelta = chosen if isinstance(chosen, timedelta) else dict(chosen).get(table, default)
    return found
