"""Composition of mail: from a claimed delivery to an envelope and a message.

Names and dates in the message come from the delivery and not from the attempt, so that a second attempt after an
unknown outcome sends the same message and receivers can deduplicate it. Only the timestamp of the DKIM signature
differs between attempts. The date is the first moment at which the mail could leave (the scheduled time of scheduled
mail); the Message-ID never changes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Protocol

from msgspec.structs import replace

from postroom.delivery.maintenance import MaintenanceOptions
from postroom.delivery.model import ClaimId, Lane, Outgoing, Recipient, RecipientKind, RecipientOutcome
from postroom.post import dkim
from postroom.post.address import ERASED, Address, domain_of, parse_address
from postroom.post.header import Field, encode_addresses, encode_custom, encode_mailbox, encode_text
from postroom.post.keyed_hash import RoomKey
from postroom.post.message_id import make_message_id, room_keys
from postroom.post.mime import ComposedMessage
from postroom.post.reply import Content, Envelope
from postroom.post.return_path import make_return_path
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.identity import identify
from postroom.senders.model import SenderAccount
from postroom.settings import Settings
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_AUTO_GENERATED: Field = (b"Auto-Submitted", b"auto-generated")
_ONE_CLICK: Field = (b"List-Unsubscribe-Post", b"List-Unsubscribe=One-Click")
_SHOWN = ((RecipientKind.TO, "To"), (RecipientKind.CC, "Cc"), (RecipientKind.REPLY_TO, "Reply-To"))
_NOBODY_NAMED: Field = (b"To", b"undisclosed-recipients:;")


_now = partial(datetime.now, UTC)


class Rendering(Protocol):
    """Renders content when mail leaves: see `postroom.mail.rendering` and `postroom.campaigns.rendering`."""

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId]) -> None: ...

    def write(self, outgoing: Outgoing) -> Outgoing: ...


class MailWriter:
    """Composes mail: renders its template or campaign, applies the sender account's identity, builds the message."""

    def __init__(
        self,
        composer: "Composer",
        *,
        templates: Rendering | None = None,
        campaigns: Rendering | None = None,
        accounts: AccountsInUse | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._composer, self._templates, self._campaigns = composer, templates, campaigns
        self._accounts, self._now = accounts, now

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId]) -> None:
        """Load the templates and campaigns of a claim. The worker has loaded its accounts."""
        for rendering, mail in (
            (self._templates, [outgoing for outgoing in claim if outgoing.template_id is not None]),
            (self._campaigns, [outgoing for outgoing in claim if outgoing.campaign_id is not None]),
        ):
            if rendering is not None and mail:
                await rendering.prepare(mail, open_claims)

    def write(self, outgoing: Outgoing) -> tuple[Envelope, Content]:
        """Build envelope and message; ValueError names the part that cannot be rendered or encoded."""
        if outgoing.template_id is not None and self._templates is not None:
            outgoing = self._templates.write(outgoing)
        elif outgoing.campaign_id is not None and self._campaigns is not None:
            outgoing = self._campaigns.write(outgoing)
        if outgoing.sender_account_id is not None and self._accounts is not None:
            account = self._accounts.account(outgoing.sender_account_id)
            outgoing = outgoing if account is None else written_by(outgoing, account)
        return self._composer.compose(outgoing, now=self._now())


def written_by(outgoing: Outgoing, account: SenderAccount) -> Outgoing:
    """The same mail with the From and Reply-To that this account may use: see `postroom.senders.identity`."""
    has_reply_to = any(each.kind is RecipientKind.REPLY_TO for each in outgoing.recipients)
    identity = identify(account, outgoing.sender, has_reply_to=has_reply_to)
    recipients = outgoing.recipients
    if identity.reply_to is None and identity.sender is outgoing.sender:
        return outgoing
    if (reply_to := identity.reply_to) is not None:
        added = Recipient(RecipientKind.REPLY_TO, 0, reply_to.email, reply_to.name, RecipientOutcome.PENDING)
        recipients = (*recipients, added)
    return replace(outgoing, sender=identity.sender, recipients=recipients)


class Composer:
    """Composes the mail of one room, with its default sender, domains and keys.

    `keys` sign Message-IDs and return paths, so that reports that quote one can be verified. Bounces go to
    `bounce_domain`; without it or without a key, to the sender. `links` signs the one-click link for a recipient of
    bulk mail; `signers` holds the DKIM keys by the domain of From.
    """

    def __init__(
        self,
        *,
        default_sender: Address,
        message_domain: str,
        keys: Sequence[RoomKey] = (),
        bounce_domain: str | None = None,
        links: TokenSigner | None = None,
        signers: Mapping[str, Sequence[dkim.Signer]] | None = None,
    ) -> None:
        encode_addresses("From", (default_sender,))  # an invalid default sender fails at start, not per mail
        self._default_sender = default_sender
        self._message_domain, self._key = message_domain_of(message_domain), next(iter(keys), None)
        self._bounce_domain, self._links = bounce_domain, links
        self._signers = {domain.lower(): tuple(keys) for domain, keys in (signers or {}).items()}

    def compose(self, outgoing: Outgoing, *, now: datetime) -> tuple[Envelope, Content]:
        """The envelope for pending recipients, and the message; ValueError names the part that cannot be encoded."""
        sender = outgoing.sender or self._default_sender
        signers = self._signers_of(sender)
        custom, message_id = _custom_headers(outgoing.headers) if outgoing.headers else ([], None)
        if message_id is None:
            message_id = make_message_id(outgoing.id, outgoing.created_at, domain=self._message_domain, key=self._key)
        message = ComposedMessage(
            headers=(*self._own_headers(outgoing, sender, message_id), *custom),
            seed=message_id,
            text=outgoing.text,
            html=outgoing.html,
            attachments=outgoing.attachments,
            signers=signers,
            signed_at=int(now.timestamp()) if signers else 0,
            is_canonical=outgoing.is_canonical and not outgoing.attachments and not _has_dotted(outgoing.headers),
        )
        envelope = Envelope(
            delivery_id=outgoing.id,
            message_id=message_id,
            sender=self._return_path(outgoing, sender),
            recipients=outgoing.open_addresses,
            lane=outgoing.lane,
            has_utf8_headers=message.needs_smtputf8,
        )
        return envelope, message

    def _return_path(self, outgoing: Outgoing, sender: Address) -> str:
        if self._bounce_domain is None or self._key is None:
            return sender.email
        return make_return_path(outgoing.id, domain=self._bounce_domain, key=self._key)

    def _own_headers(self, outgoing: Outgoing, sender: Address, message_id: str) -> list[Field]:
        headers: list[Field] = [
            (b"From", _encode_from(sender)),
            *_recipient_headers(outgoing.recipients),
            (b"Subject", encode_text("Subject", outgoing.subject)),
            (b"Date", format_date(outgoing.dated_at)),
            (b"Message-ID", message_id.encode()),
        ]
        if outgoing.lane is Lane.BULK:
            headers += self._list_headers(outgoing)
        elif not _has(outgoing, "auto-submitted"):
            headers.append(_AUTO_GENERATED)
        return headers

    def _list_headers(self, outgoing: Outgoing) -> list[Field]:
        """One-click unsubscription (RFC 8058), unless the caller gave a header of its own."""
        url = outgoing.unsubscribe_url or self._unsubscribe_url(outgoing)
        if url is None or _has(outgoing, "list-unsubscribe"):
            return []
        return [(b"List-Unsubscribe", f"<{url}>".encode()), _ONE_CLICK]

    def _unsubscribe_url(self, outgoing: Outgoing) -> str | None:
        """The link identifies one person, so mail to several has none."""
        addresses = {each.address for each in outgoing.recipients if each.kind is not RecipientKind.REPLY_TO}
        if self._links is None or len(addresses) != 1:
            return None
        return self._links.unsubscribe_url(LinkSubject(outgoing.campaign_id, outgoing.id, addresses.pop()))

    def _signers_of(self, sender: Address) -> tuple[dkim.Signer, ...]:
        """The keys of the sender's domain or of the nearest parent domain: DMARC aligns with both."""
        domain = domain_of(sender.email) if self._signers else ""
        while domain:
            if domain in self._signers:
                return self._signers[domain]
            domain = domain.partition(".")[2]
        return ()


def _has(outgoing: Outgoing, header: str) -> bool:
    return bool(outgoing.headers) and any(name.lower() == header for name in outgoing.headers)


def _has_dotted(headers: Mapping[str, str]) -> bool:
    """True if the name of a header starts with a dot, which RFC 5322 allows and SMTP must stuff."""
    return bool(headers) and any(name.startswith(".") for name in headers)


def message_domain_of(setting: str) -> str:
    """POSTROOM_MESSAGE_DOMAIN in ASCII form; ValueError if it is not a domain."""
    return domain_of(parse_address(f"postroom@{setting}").email)


def maintenance_options(settings: Settings) -> MaintenanceOptions:
    """The options of recovery; it records the Message-IDs of ambiguous attempts, which only the composer knows."""
    return MaintenanceOptions(
        held_lanes=settings.held_lanes,
        lease=settings.lease,
        partition_interval=settings.cleanup_interval,
        message_id=partial(
            make_message_id,
            domain=message_domain_of(settings.message_domain),
            key=next(iter(room_keys(settings.secret_keys, settings.schema)), None),
        ),
    )


def format_date(moment: datetime) -> bytes:
    """A moment in the format of RFC 5322, in UTC; `strftime` depends on the locale of the host."""
    return _format_second(int(moment.timestamp()))


@lru_cache(maxsize=1024)  # mail that leaves together is dated alike
def _format_second(timestamp: int) -> bytes:
    at = datetime.fromtimestamp(timestamp, UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year:04} {at.hour:02}:{at.minute:02}:{at.second:02} +0000".encode()


def _custom_headers(given: Mapping[str, str]) -> tuple[list[Field], str | None]:
    """The caller's headers, and the Message-ID if one is among them."""
    fields: list[Field] = []
    message_id = None
    seen = set()
    for name, value in given.items():
        lowered = name.lower()
        if lowered in seen:
            raise ValueError(f"header {name!r} is given twice")
        seen.add(lowered)
        encoded = encode_custom(name, value)
        if lowered == "message-id":
            message_id = encoded.decode()
        else:
            fields.append((name.encode(), encoded))
    return fields, message_id


def _recipient_headers(recipients: Sequence[Recipient]) -> list[Field]:
    """To, Cc and Reply-To with all recipients, whatever their status, but those who were erased; never Bcc."""
    first = recipients[0] if len(recipients) == 1 else None
    if (
        first is not None
        and first.name is None
        and first.kind is RecipientKind.TO
        and not first.address.startswith(ERASED)
    ):
        return [(b"To", encode_mailbox("To", first.address))]  # nearly every mail
    shown: dict[RecipientKind, list[Address]] = {}
    for each in recipients:
        if each.address.startswith(ERASED):
            continue
        shown.setdefault(each.kind, []).append(Address(each.address, each.name))
    headers = [(name.encode(), encode_addresses(name, shown[kind])) for kind, name in _SHOWN if kind in shown]
    return headers if RecipientKind.TO in shown or RecipientKind.CC in shown else [_NOBODY_NAMED, *headers]


@lru_cache(maxsize=256)  # few senders write all mail
def _encode_from(sender: Address) -> bytes:
    return encode_addresses("From", (sender,))
