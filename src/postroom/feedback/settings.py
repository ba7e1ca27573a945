"""The settings of feedback, read from the environment by `postroom.settings`."""

import re
from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import address_or_off, kept_for, parse_duration, setting


def _domain(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", value.lower()):
        raise ValueError("must be a domain such as bounces.example.org")
    return value.lower()


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class FeedbackSettings:
    bounce_domain: str | None = setting(_domain, None, "domain of return paths (bounce+<id>.<hmac>@domain)")
    bounce_addr: tuple[str, int] | None = setting(
        address_or_off, None, "address where the bounce listener accepts SMTP, or off"
    )
    bounce_imap_url: str | None = setting(
        str, None, "mailbox that receives bounces: imaps://user:password@host/INBOX", secret=True
    )
    bounce_imap_interval: timedelta = setting(
        parse_duration, timedelta(minutes=1), "interval at which that mailbox is read"
    )
    bounce_retention: timedelta = setting(kept_for, timedelta(days=365), "retention of bounce reports")
    complaint_notice_interval: timedelta = setting(
        parse_duration, timedelta(hours=1), "shortest interval between two notices of complaints to the administrator"
    )
    ses_topics: tuple[str, ...] = setting(
        _list, (), "ARNs of SNS topics whose SES notifications are accepted, separated by commas"
    )
    sendgrid_public_key: str | None = setting(str, None, "public key that verifies SendGrid's event webhook")
    mailgun_signing_key: str | None = setting(str, None, "key that verifies Mailgun's webhooks", secret=True)
    postmark_secret: str | None = setting(
        str, None, "secret that Postmark's webhooks send in a header or as password", secret=True
    )
