"""Validation of sender accounts before they are stored. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from email_validator import EmailNotValidError, validate_email
from msgspec import Meta

from postroom.errors import BadInput, FieldError
from postroom.runtime.record import Shape, Text
from postroom.senders.model import (
    BATCH_SIZE,
    DAILY_LIMIT,
    LANES,
    SEND_DELAY_MS,
    WARMUP_DAYS,
    WARMUP_LIMITS,
    AuthType,
)
from postroom.transports.smtp.relay import is_loopback

WARMUP_LANES = ("bulk",)
MOST_PER_DAY, MOST_PER_BATCH, LONGEST_DELAY_MS = 100_000_000, 10_000, 3_600_000
"""Beyond every provider: larger numbers are typing errors."""

_LARGEST_PORT = 65_535  # TCP
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:.]{2,45}")
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


_Port = Annotated[int, Meta(ge=1, le=_LARGEST_PORT)]
_Daily = Annotated[int, Meta(ge=1, le=MOST_PER_DAY)]
_Batch = Annotated[int, Meta(ge=1, le=MOST_PER_BATCH)]
_Delay = Annotated[int, Meta(ge=0, le=LONGEST_DELAY_MS)]
_Days = Annotated[int, Meta(ge=1, le=365)]
_Stages = Annotated[tuple[_Daily, ...], Meta(min_length=1, max_length=50)]
_Lanes = Annotated[tuple[Annotated[str, Meta(pattern=f"^({'|'.join(LANES)})$")], ...], Meta(min_length=1, max_length=3)]
_KeyFile = Annotated[str, Meta(max_length=20_000)]


class SenderRequest(Shape, frozen=True, kw_only=True):
    """A sender account to create. A field of another account type is rejected."""

    email: Text
    auth_type: AuthType
    display_name: Text | None = None
    smtp_host: Text | None = None
    smtp_port: _Port | None = None
    smtp_username: Text | None = None
    smtp_password: Text | None = None
    smtp_use_tls: bool = True
    gmail_subject_email: Text | None = None
    gmail_credentials: _KeyFile | None = None  # the service account's key file
    ses_region: Text | None = None
    ses_access_key_id: Text | None = None
    ses_secret_access_key: Text | None = None
    daily_limit: _Daily = DAILY_LIMIT
    batch_size: _Batch = BATCH_SIZE
    send_delay_ms: _Delay | None = None  # None: the default of its type
    lanes: _Lanes | None = None  # None: all lanes, or bulk alone if it begins with a warm-up
    warmup: bool = False
    warmup_limits: _Stages = WARMUP_LIMITS
    warmup_days_per_stage: _Days = WARMUP_DAYS
    notes: Text | None = None

    def __repr__(self) -> str:
        """Leave out the secrets: representations end up in logs and tracebacks."""
        return f"SenderRequest({self.email!r}, {self.auth_type!r})"

    @property
    def served_lanes(self) -> tuple[str, ...]:
        """Its lanes: as given; otherwise all. A warm-up has bulk alone, or codes would wait for its small quota."""
        return self.lanes or (WARMUP_LANES if self.warmup else LANES)

    @property
    def delay_ms(self) -> int:
        return SEND_DELAY_MS[self.auth_type] if self.send_delay_ms is None else self.send_delay_ms


OF_TYPE: Mapping[AuthType, frozenset[str]] = {
    AuthType.SMTP: frozenset({"smtp_host", "smtp_port", "smtp_username", "smtp_password"}),
    AuthType.GMAIL: frozenset({"gmail_subject_email", "gmail_credentials"}),
    AuthType.SES: frozenset({"ses_region", "ses_access_key_id", "ses_secret_access_key"}),
}
"""The fields of each account type; fields of another type are rejected, not ignored."""


_CONNECTION: Mapping[AuthType, tuple[str, tuple[str, ...]]] = {
    AuthType.SMTP: ("smtp_password", ("smtp_host", "smtp_port", "smtp_username", "smtp_use_tls")),
    AuthType.GMAIL: ("gmail_credentials", ("gmail_subject_email",)),
    AuthType.SES: ("ses_secret_access_key", ("ses_region",)),
}
"""For each type, the secret field and the fields that decide where and as whom it is used."""


def check_sender(request: SenderRequest, *, has_secret: bool = False) -> None:
    """Raise `BadInput` with every invalid field. `has_secret`: a secret is already stored."""
    errors = [FieldError(name, problem) for name, problem in _problems(request, has_secret)]
    if errors:
        raise BadInput(errors)


def check_same_connection(old: SenderRequest, asked: SenderRequest) -> None:
    """Raise `BadInput` if a stored secret would be sent to another server, user or mailbox."""
    secret, fields = _CONNECTION[asked.auth_type]
    changed = [name for name in fields if getattr(old, name) != getattr(asked, name)]
    if changed:
        raise BadInput.of(secret, f"must be given again when {' and '.join(changed)} change{'s' * (len(changed) == 1)}")


def check_domain(domain: str) -> str:
    """Return a destination in its stored form. Raises `BadInput`."""
    lowered = domain.strip().rstrip(".").lower()
    try:
        lowered = lowered.encode("idna").decode() if not lowered.isascii() else lowered
    except UnicodeError:
        lowered = ""
    if not _DOMAIN.fullmatch(lowered):
        raise BadInput.of("domain", "is not the name of a domain")
    return lowered


def address_problem(email: str) -> str | None:
    try:
        validate_email(email, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        return str(error)
    return None


def _problems(request: SenderRequest, has_secret: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - handed on
    if (problem := address_problem(request.email)) is not None:
        yield "email", problem
    for name in ("display_name", "smtp_username", "smtp_password", "gmail_subject_email", "ses_access_key_id"):
        if _CONTROL.search(getattr(request, name) or ""):
            yield name, "contains a control character"
    for kind, names in OF_TYPE.items():
        for name in sorted(names) if kind is not request.auth_type else ():
            if getattr(request, name) is not None:
                yield name, f"does not belong to an account of type {request.auth_type}"
    yield from _TYPE_PROBLEMS[request.auth_type](request, has_secret)
    yield from _limit_problems(request)


def _smtp_problems(request: SenderRequest, has_secret: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - handed on
    host = request.smtp_host
    if host is None or not _HOST.fullmatch(host):
        yield "smtp_host", "must be a host name or an address"
    if request.smtp_port is None or not 1 <= request.smtp_port <= _LARGEST_PORT:
        yield "smtp_port", "must be between 1 and 65535"
    has_password = request.smtp_password is not None or has_secret
    if request.smtp_username is not None and not has_password:
        yield "smtp_password", "must come with the user name"
    if request.smtp_username is None and request.smtp_password is not None:
        yield "smtp_username", "must come with the password"
    if request.smtp_username is not None and not request.smtp_use_tls and not is_loopback(host or ""):
        yield "smtp_use_tls", "credentials are never sent without TLS"


def _gmail_problems(request: SenderRequest, has_secret: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - handed on
    if request.gmail_subject_email is None:
        yield "gmail_subject_email", "is required: the mailbox that the service account speaks for"
    elif (problem := address_problem(request.gmail_subject_email)) is not None:
        yield "gmail_subject_email", problem
    if request.gmail_credentials is None and not has_secret:
        yield "gmail_credentials", "is required: the service account's key file"


def _ses_problems(request: SenderRequest, _has_secret: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - handed on
    """Check SES fields. Without an access key the worker uses AWS's default credential chain."""
    if request.ses_region is None or not _REGION.fullmatch(request.ses_region):
        yield "ses_region", "must be a region such as eu-west-1"
    given = [request.ses_access_key_id is not None, request.ses_secret_access_key is not None]
    if any(given) != all(given):
        yield "ses_secret_access_key", "must come with ses_access_key_id"


def _limit_problems(request: SenderRequest) -> Iterator[tuple[str, str]]:
    for name, value, least, most in (
        ("daily_limit", request.daily_limit, 1, MOST_PER_DAY),
        ("batch_size", request.batch_size, 1, MOST_PER_BATCH),
        ("send_delay_ms", request.delay_ms, 0, LONGEST_DELAY_MS),
        ("warmup_days_per_stage", request.warmup_days_per_stage, 1, 365),
    ):
        if not least <= value <= most:
            yield name, f"must be between {least} and {most}"
    if request.lanes == () or not set(request.served_lanes) <= set(LANES):
        yield "lanes", f"must be some of {', '.join(LANES)}"
    if not request.warmup_limits or min(request.warmup_limits) < 1 or max(request.warmup_limits) > MOST_PER_DAY:
        yield "warmup_limits", "must be numbers above zero"


_TYPE_PROBLEMS: Mapping[AuthType, Any] = {
    AuthType.SMTP: _smtp_problems,
    AuthType.GMAIL: _gmail_problems,
    AuthType.SES: _ses_problems,
}
