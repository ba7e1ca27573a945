"""Limits of an API key or of the room, and how mails are counted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from postroom.errors import FieldError
from postroom.post.address import Address, parse_address

MOST_DOMAINS = 100  # compared for every mail
LARGEST = 2**31 - 1  # integer
YEARS = range(1970, 9999)  # of an expiry, as of the times of a delivery
ROOM = "room"
SENT = "sent"
"""The holder of mails that workers sent; `room` holds those that the room accepted from clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailLimits:
    """Limits on mail: None and an empty tuple do not limit."""

    expires_at: datetime | None = None
    rate_per_minute: int | None = None
    daily_quota: int | None = None
    from_domains: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """The values as they are stored."""
        names = ("expires_at", "rate_per_minute", "daily_quota", "from_domains")
        return {name: getattr(self, name) for name in names}

    @property
    def are_none(self) -> bool:
        return self.expires_at is None and not self.restrict_mail

    @property
    def restrict_mail(self) -> bool:
        """True if a mail may be rejected although its key is valid."""
        return self.counts or bool(self.from_domains)

    @property
    def counts(self) -> bool:
        return self.rate_per_minute is not None or self.daily_quota is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLimits(MailLimits):
    """Limits and their holder, in the table `allowances` and for people."""

    holder: str
    name: str


@dataclass(frozen=True, slots=True)
class Use:
    """The mails that a holder has used in the current minute and UTC day."""

    holder: str
    minute_used: int = 0
    day_used: int = 0


@dataclass(frozen=True, slots=True)
class AllowanceAnswer:
    """An answer of `take_allowance`: the mails granted, or the limit that has too few left."""

    granted: int
    minute: datetime
    valid_for: timedelta
    exceeded: str | None
    wait: timedelta | None
    unused: int | None


class CountedMail(Protocol):
    """A request as far as limits concern it."""

    @property
    def to(self) -> Sequence[Address]: ...
    @property
    def cc(self) -> Sequence[Address]: ...
    @property
    def bcc(self) -> Sequence[Address]: ...
    @property
    def sender(self) -> Address | None: ...


def count_mails(mail: CountedMail) -> int:
    """Each recipient in To, Cc and Bcc is one mail."""
    return len(mail.to) + len(mail.cc) + len(mail.bcc)


def facts_of(limits: MailLimits) -> dict[str, object]:
    """Limits for the audit log; those that are not set are left out."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in limits.columns.items()
        if value
    }


def clean_limits(values: dict[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    """Limits with their domains in stored form, and what is wrong with them."""
    errors: list[FieldError] = []
    for name in ("rate_per_minute", "daily_quota"):
        value = values.get(name)
        if value is not None and not 1 <= value <= LARGEST:
            errors.append(FieldError(name, f"must be from 1 to {LARGEST}"))
    expires_at = values.get("expires_at")
    if expires_at is not None and expires_at.tzinfo is None:
        errors.append(FieldError("expires_at", "needs a time zone, such as Z"))
    elif expires_at is not None and expires_at.year not in YEARS:
        errors.append(FieldError("expires_at", f"must be between the years {YEARS[0]} and {YEARS[-1]}"))
    if "from_domains" not in values:
        return values, errors
    domains = values["from_domains"] or ()
    if len(domains) > MOST_DOMAINS:
        errors.append(FieldError("from_domains", f"must be at most {MOST_DOMAINS} domains"))
        return values, errors
    cleaned = [_clean_domain(domain, index, errors) for index, domain in enumerate(domains)]
    return {**values, "from_domains": tuple(dict.fromkeys(cleaned))}, errors


def _clean_domain(domain: str, index: int, errors: list[FieldError]) -> str:
    """The domain as addresses store it: in lower case, in ASCII."""
    try:
        return parse_address(f"x@{domain.strip()}").email.rpartition("@")[2].lower()
    except ValueError:
        errors.append(FieldError(f"from_domains[{index}]", f"{domain[:100]!r} is not a domain"))
        return domain
