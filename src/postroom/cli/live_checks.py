"""The doctor's checks of an installation that sends real mail: `doctor --live`, and the page Going live.

Each check is judged in two ways: `is_live` asks whether real mail may leave with these settings; otherwise captured
mail is fine without them.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from postroom.cli import host_checks
from postroom.post.address import Address, domain_of, parse_address
from postroom.runtime.finding import Finding, Severity, fail, ok, warn
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.delivery.model import Outgoing

LOCAL_DOMAINS = ("localhost", "local", "localdomain", "internal")
"""Last labels of names that lead to this machine or network."""


async def examine(settings: Settings, *, is_live: bool | None = None) -> list[Finding]:
    """The findings; without `is_live`, as strict as the transport of the settings needs.

    Advice that a person may have decided against, such as a backup by other means, is given only if it is asked for.
    """
    live, advises = settings.uses_senders if is_live is None else is_live, is_live is True
    return [
        sender(settings, is_live=live),
        public_url(settings, is_live=live),
        message_domain(settings),
        dkim(settings, is_live=live),
        await transport(settings, is_live=live),
        bounces(settings, is_live=advises),
        administrator(settings, is_live=advises),
        secret_key(settings, is_live=live),
        backups(settings, is_live=advises),
        alerts(settings, is_live=advises),
        await archive(settings, is_live=live),
    ]


def sender(settings: Settings, *, is_live: bool) -> Finding:
    """The From address of mail without one."""
    if settings.given_from is None:
        advice = "set POSTROOM_FROM, such as 'Shop <post@shop.example>'"
        if is_live:
            return fail("from", f"not set: mail would leave from {settings.default_from}", advice)
        return ok("from", f"not set; captured mail is from {settings.default_from}")
    address = parse_address(settings.given_from)
    if is_local(domain_of(address.email)):
        return warn("from", f"{address.email}: no other server accepts answers to it", "use a domain of your own")
    return ok("from", address.email)


def public_url(settings: Settings, *, is_live: bool) -> Finding:
    """The address of the links in mail."""
    if settings.public_url is None:
        advice = "set POSTROOM_PUBLIC_URL to the https address of `postroom serve`"
        if is_live:
            return fail("public url", f"not set: links would lead to {settings.base_url}, this machine", advice)
        return ok("public url", f"not set; links in captured mail lead to {settings.base_url}")
    parts = urlsplit(settings.public_url)
    if is_local(parts.hostname or ""):
        return warn("public url", f"{settings.public_url} leads to this machine", "use a name that recipients resolve")
    if parts.scheme != "https":
        return warn("public url", f"{settings.public_url} is not encrypted", "serve it by https, behind a proxy")
    return ok("public url", settings.public_url)


def message_domain(settings: Settings) -> Finding:
    """The domain of Message-IDs, which is part of every mail."""
    domain = settings.message_domain
    if settings.given_message_domain is None:
        return ok("message domain", f"{domain}, that of POSTROOM_FROM" if settings.given_from else domain)
    if is_local(domain):
        return warn("message domain", domain, "leave POSTROOM_MESSAGE_DOMAIN out: it is then that of POSTROOM_FROM")
    return ok("message domain", domain)


def dkim(settings: Settings, *, is_live: bool) -> Finding:
    """The keys that sign; each must belong to the domain of From, or receivers count no signature as ours."""
    found = host_checks.signatures(settings)
    if is_live and not settings.dkim_keys and settings.transport != "senders":
        return warn("dkim", "mail leaves unsigned", "set POSTROOM_DKIM_KEYS, unless the relay signs")
    if found.verdict is not Severity.OK or not settings.dkim_keys or settings.given_from is None:
        return found
    domain = domain_of(parse_address(settings.given_from).email)
    signing = {entry.split(":", 1)[0].strip().lower() for entry in settings.dkim_keys.split(",")}
    if domain not in signing:
        return warn("dkim", f"{found.found}, not for {domain}, the domain of POSTROOM_FROM", "add a key of that domain")
    return found


async def transport(settings: Settings, *, is_live: bool) -> Finding:
    """The relay: connect, TLS and login."""
    if is_live and not settings.uses_senders:
        advice = "set POSTROOM_TRANSPORT=smtp with POSTROOM_SMTP_RELAY, or POSTROOM_TRANSPORT=senders"
        return fail("transport", f"{settings.transport}: no mail leaves this installation", advice)
    return await host_checks.transport(settings)


def bounces(settings: Settings, *, is_live: bool) -> Finding:
    """The ways by which bounces come back."""
    ways = {
        "POSTROOM_BOUNCE_IMAP_URL": settings.bounce_imap_url,
        "POSTROOM_BOUNCE_ADDR": settings.bounce_addr,
        "POSTROOM_SES_TOPICS": settings.ses_topics,
        "POSTROOM_SENDGRID_PUBLIC_KEY": settings.sendgrid_public_key,
        "POSTROOM_MAILGUN_SIGNING_KEY": settings.mailgun_signing_key,
        "POSTROOM_POSTMARK_SECRET": settings.postmark_secret,
    }
    used = [variable for variable, value in ways.items() if value]
    if used:
        return ok("bounces", f"read by {', '.join(used)}")
    advice = "see docs/how-to/handle-bounces.md: a mailbox, a listener, or your provider's webhooks"
    judge = partial(warn, advice=advice) if is_live else ok
    return judge("bounces", "only refusals in the session are known; bounces that come later are not read")


def administrator(settings: Settings, *, is_live: bool) -> Finding:
    """The person who learns of dead letters, complaints and outages."""
    email, webhook = settings.admin_email, settings.admin_webhook
    if webhook is not None:
        return ok("administrator", f"by webhook{f' and at {email}' if email else ''}")
    if email is not None:
        found, advice = f"{email}, by the same relay", "set POSTROOM_ADMIN_WEBHOOK: it reports an outage of the relay"
        return warn("administrator", found, advice) if is_live else ok("administrator", email)
    advice = "set POSTROOM_ADMIN_EMAIL, POSTROOM_ADMIN_WEBHOOK, or both"
    judge = partial(warn, advice=advice) if is_live else ok
    return judge("administrator", "not set: no person is notified of dead letters, complaints and outages")


def secret_key(settings: Settings, *, is_live: bool) -> Finding:
    """The key that signs links and seals passwords."""
    found = host_checks.secret(settings)
    if is_live and found.verdict is not Severity.OK:
        advice = "set POSTROOM_SECRET_KEY to 64 hex characters, the same on every host: openssl rand -hex 32"
        return fail("secret key", "not set: links cannot be signed, and passwords cannot be sealed", advice)
    return found


def backups(settings: Settings, *, is_live: bool) -> Finding:
    """Scheduled backups of the room; a backup of the whole database is not known here."""
    if settings.backup_url is not None:
        return ok("backups", settings.backup_url)
    advice = "set POSTROOM_BACKUP_URL, unless your own backup covers this database"
    judge = partial(warn, advice=advice) if is_live else ok
    return judge("backups", "Postroom makes none")


def alerts(settings: Settings, *, is_live: bool) -> Finding:
    """The metrics of workers; the API always serves its own."""
    if settings.metrics_addr is not None:
        return ok("alerts", f"workers serve metrics at {':'.join(map(str, settings.metrics_addr))}")
    advice = "set POSTROOM_METRICS_ADDR, and load deploy/prometheus/alerts.yaml in Prometheus"
    judge = partial(warn, advice=advice) if is_live else ok
    return judge("alerts", "workers serve no metrics")


async def archive(settings: Settings, *, is_live: bool) -> Finding:
    """The store of old months; while mail is only captured, none is needed."""
    found = await host_checks.archive(settings)
    return found if is_live or settings.archive_url is not None else ok("archive", found.found)


def is_local(host: str) -> bool:
    """True for a name or an address that only this machine or network reaches."""
    try:
        return not ip_address(host.strip("[]")).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").rpartition(".")[2].lower() in LOCAL_DOMAINS


async def send_probe(settings: Settings, to: Address | None) -> Finding:
    """Send one mail through the relay, signed and addressed as every other, and report each step."""
    from postroom.app import make_composer
    from postroom.senders.trial import tell
    from postroom.transports.smtp import SmtpRelay, SmtpTransport

    if settings.transport == "senders":
        return Finding("probe mail", Severity.OK, "not sent: there is no relay", "run `postroom senders test ID`")
    if settings.transport != "smtp" or settings.given_from is None:
        return warn("probe mail", "not sent", "set a relay and POSTROOM_FROM: see the rows above")
    if to is None:
        return warn("probe mail", "not sent", "name a recipient: `--to ADDRESS`, or set POSTROOM_ADMIN_EMAIL")
    try:
        relay = SmtpRelay.parse(settings.smtp_relay or "")
    except ValueError:
        return warn("probe mail", "not sent", "correct POSTROOM_SMTP_RELAY: see the row of the transport")
    mail = probe_mail(to, now=datetime.now(UTC))
    envelope, content = make_composer(settings).compose(mail, now=mail.created_at)
    transport = SmtpTransport(relay, local_name=settings.message_domain)
    try:
        async with asyncio.timeout(host_checks.CONNECT_TIMEOUT_S * 6):
            reply = await transport.send(envelope, content)
    except TimeoutError:
        return fail("probe mail", "the relay does not reply", "check the relay and its log")
    finally:
        await transport.close()
    steps = tell(reply)
    shown = ", ".join(f"{step.name}: {step.detail or 'ok'}" for step in steps if not step.ok or step is steps[-1])
    return ok("probe mail", shown) if steps[-1].ok else fail("probe mail", shown, "see the reply, and the relay's log")


def probe_mail(to: Address, *, now: datetime) -> "Outgoing":
    """A mail that no room knows."""
    from postroom.delivery.model import (
        Channel,
        ClaimId,
        DeliveryId,
        Lane,
        Outgoing,
        Recipient,
        RecipientKind,
        RecipientOutcome,
    )

    return Outgoing(
        id=DeliveryId(0),
        claim_id=ClaimId(0),
        channel=Channel.EMAIL,
        lane=Lane.TRANSACTIONAL,
        ladder="generic",
        attempt_no=1,
        attempt_base=0,
        created_at=now,
        dated_at=now,
        expires_at=None,
        traceparent=None,
        recipients=(Recipient(RecipientKind.TO, 0, to.email, to.name, RecipientOutcome.PENDING),),
        sender=None,
        subject="Postroom: a probe of the relay",
        text="`postroom doctor --live` sent this mail. Check its From address and its DKIM signature.\n",
        html=None,
        headers={"Auto-Submitted": "auto-generated"},
        attachments=(),
    )
