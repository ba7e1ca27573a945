"""Composition of envelopes and messages."""

from datetime import UTC, datetime, timedelta, timezone
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
from postroom.mail.compose import Composer, format_date
from postroom.post.address import Address
from postroom.post.dkim import Signer
from postroom.post.keyed_hash import RoomKey
from postroom.post.return_path import make_return_path
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner

NOW = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
SENDER = Address("shop@example.org", "The Shop")
KEY = RoomKey(bytes(32))
LINKS = TokenSigner(KEY.key, "https://u.example", room="postroom")
UNSUBSCRIBE = f"<{LINKS.unsubscribe_url(LinkSubject(None, 42, 'ann@example.net'))}>"


def recipient(
    address: str,
    kind: RecipientKind = RecipientKind.TO,
    name: str | None = None,
    outcome: RecipientOutcome = RecipientOutcome.PENDING,
) -> Recipient:
    return Recipient(kind, 0, address, name, outcome)


OUTGOING = Outgoing(
    id=DeliveryId(42),
    claim_id=ClaimId(7),
    channel=Channel.EMAIL,
    lane=Lane.TRANSACTIONAL,
    ladder="generic",
    attempt_no=1,
    attempt_base=0,
    created_at=NOW,
    dated_at=NOW,
    expires_at=None,
    traceparent=None,
    recipients=(recipient("ann@example.net", name="Ann"),),
    sender=None,
    subject="Hello",
    text="text",
    html="<p>html</p>",
    headers={},
    attachments=(),
)
COMPOSER = Composer(default_sender=SENDER, message_domain="mail.example.org")


def key_of(domain: str, selector: str = "s") -> Signer:
    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Signer.from_pem(domain, selector, pem)


def encode(outgoing: Outgoing, composer: Composer = COMPOSER, *, now: datetime = NOW) -> bytes:
    return composer.compose(outgoing, now=now)[1].encode(eight_bit=False)


def read(outgoing: Outgoing, composer: Composer = COMPOSER) -> EmailMessage:
    message = message_from_bytes(encode(outgoing, composer), policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


class TestEnvelope:
    def test_carries_who_still_waits(self) -> None:
        """To, Cc and Bcc receive once per address; decided recipients and Reply-To do not."""
        outgoing = replace(
            OUTGOING,
            recipients=(
                recipient("a@example.net"),
                recipient("done@example.net", outcome=RecipientOutcome.DELIVERED),
                recipient("no@example.net", outcome=RecipientOutcome.REFUSED),
                recipient("shh@example.net", outcome=RecipientOutcome.SUPPRESSED),
                recipient("c@example.net", RecipientKind.CC),
                recipient("a@example.net", RecipientKind.CC),
                recipient("b@example.net", RecipientKind.BCC),
                recipient("r@example.net", RecipientKind.REPLY_TO),
            ),
        )
        envelope, _ = COMPOSER.compose(outgoing, now=NOW)
        assert envelope.recipients == ("a@example.net", "c@example.net", "b@example.net")
        assert (envelope.delivery_id, envelope.lane) == (42, "transactional")

    @pytest.mark.parametrize(
        "domain, keys, expected",
        [
            (None, [KEY], "shop@example.org"),
            ("bounce.example", [], "shop@example.org"),
            ("bounce.example", [KEY], make_return_path(42, domain="bounce.example", key=KEY)),
        ],
    )
    def test_return_path(self, domain: str | None, keys: list[RoomKey], expected: str) -> None:
        """Bounces go to the signed address of the delivery, without a domain or a key to the sender."""
        composer = Composer(default_sender=SENDER, message_domain="example.org", keys=keys, bounce_domain=domain)
        assert composer.compose(OUTGOING, now=NOW)[0].sender == expected


class TestRecipients:
    def test_headers_show_all_but_bcc(self) -> None:
        """Headers show all To and Cc recipients and no Bcc."""
        outgoing = replace(
            OUTGOING,
            recipients=(
                recipient("a@example.net", name="Zoë, the first"),
                recipient("done@example.net", outcome=RecipientOutcome.DELIVERED),
                recipient("c@example.net", RecipientKind.CC),
                recipient("hidden@example.net", RecipientKind.BCC, "Hidden"),
                recipient("r@example.net", RecipientKind.REPLY_TO, "Reply"),
            ),
        )
        message = read(outgoing)
        assert message["To"] == '"Zoë, the first" <a@example.net>, done@example.net'
        assert message["Cc"] == "c@example.net"
        assert message["Reply-To"] == "Reply <r@example.net>"
        assert message["Bcc"] is None
        assert b"idden" not in encode(outgoing)

    def test_only_blind_copies(self) -> None:
        """A message with only Bcc recipients has undisclosed recipients."""
        message = read(replace(OUTGOING, recipients=(recipient("b@example.net", RecipientKind.BCC),)))
        assert message["To"] == "undisclosed-recipients:;"
        assert message["To"].addresses == ()

    def test_sender_is_the_delivery_s_or_the_default(self) -> None:
        """A delivery may name its sender; otherwise the room's stands."""
        assert read(OUTGOING)["From"] == "The Shop <shop@example.org>"
        assert read(replace(OUTGOING, sender=Address("me@example.com")))["From"] == "me@example.com"


class TestIdentity:
    def test_attempts_are_identical(self) -> None:
        """A later attempt under another claim sends the same bytes under the same Message-ID."""
        later = replace(OUTGOING, claim_id=ClaimId(8), attempt_no=3)
        assert encode(later, now=NOW + timedelta(hours=2)) == encode(OUTGOING)

    def test_mail_scheduled_ahead_is_dated_when_it_may_leave(self) -> None:
        """The Date is that of the first possible attempt; the Message-ID stays that of the delivery."""
        ahead = replace(OUTGOING, dated_at=NOW + timedelta(days=30))
        assert read(ahead)["Date"].datetime == (NOW + timedelta(days=30)).replace(microsecond=0)
        assert read(ahead)["Message-ID"] == read(OUTGOING)["Message-ID"]

    def test_created_at_counts_not_its_zone(self) -> None:
        """The same moment written in another zone gives the same message."""
        zoned = replace(OUTGOING, created_at=NOW.astimezone(timezone(timedelta(hours=5, minutes=30))))
        assert encode(zoned) == encode(OUTGOING)

    def test_message_id_is_unique(self) -> None:
        """Another delivery, another moment or another domain is another Message-ID of the documented form."""
        other_domain = Composer(default_sender=SENDER, message_domain="example.com")
        ids = {
            COMPOSER.compose(OUTGOING, now=NOW)[0].message_id,
            COMPOSER.compose(replace(OUTGOING, id=DeliveryId(43)), now=NOW)[0].message_id,
            COMPOSER.compose(replace(OUTGOING, created_at=NOW + timedelta(seconds=1)), now=NOW)[0].message_id,
            other_domain.compose(OUTGOING, now=NOW)[0].message_id,
        }
        assert len(ids) == 4
        envelope, _ = COMPOSER.compose(OUTGOING, now=NOW)
        assert read(OUTGOING)["Message-ID"] == envelope.message_id
        head, _, digest = envelope.message_id.removesuffix("@mail.example.org>").rpartition(".")
        assert head == "<pr.42"
        assert len(bytes.fromhex(digest)) == 8

    def test_given_message_id_stands(self) -> None:
        """A Message-ID among the headers replaces ours, once, in envelope and message."""
        outgoing = replace(OUTGOING, headers={"message-id": "<own@example.org>"})
        assert COMPOSER.compose(outgoing, now=NOW)[0].message_id == "<own@example.org>"
        assert read(outgoing).get_all("Message-ID") == ["<own@example.org>"]

    def test_date_is_acceptance(self) -> None:
        """The date is when the delivery was accepted, as RFC 5322 writes it."""
        assert read(OUTGOING)["Date"].datetime == NOW

    @given(st.integers(min_value=0, max_value=4_000_000_000))
    @settings(max_examples=100)
    def test_dates_agree_with_the_library(self, seconds: int) -> None:
        """Our own formatting says what the standard library says."""
        moment = datetime.fromtimestamp(seconds, UTC)
        assert format_date(moment).decode() == format_datetime(moment)


class TestHeaders:
    @pytest.mark.parametrize(
        "lane, given_headers, expected",
        [
            (Lane.AUTH, {}, ["auto-generated"]),
            (Lane.TRANSACTIONAL, {}, ["auto-generated"]),
            (Lane.BULK, {}, None),
            (Lane.AUTH, {"AUTO-Submitted": "no"}, ["no"]),
        ],
    )
    def test_auto_submitted(self, lane: Lane, given_headers: dict[str, str], expected: list[str] | None) -> None:
        """Mail a machine sends by itself says so (RFC 3834), unless the caller said something else."""
        assert read(replace(OUTGOING, lane=lane, headers=given_headers)).get_all("Auto-Submitted") == expected

    @pytest.mark.parametrize(
        "changes, expected",
        [
            ({}, [UNSUBSCRIBE]),
            ({"lane": Lane.TRANSACTIONAL}, None),
            ({"lane": Lane.AUTH}, None),
            ({"headers": {"list-unsubscribe": "<https://own/>"}}, ["<https://own/>"]),
            ({"recipients": (recipient("ann@example.net"), recipient("bob@example.net", RecipientKind.BCC))}, None),
            (
                {"recipients": (recipient("ann@example.net"), recipient("us@example.org", RecipientKind.REPLY_TO))},
                [UNSUBSCRIBE],
            ),
        ],
    )
    def test_bulk_mail_to_one_person_can_be_ended_by_one_click(
        self, changes: dict[str, object], expected: list[str] | None
    ) -> None:
        """RFC 8058 headers on bulk mail of every intake; a header given by the caller stays."""
        composer = Composer(
            default_sender=SENDER,
            message_domain="mx.example.org",
            links=LINKS,
        )
        message = read(replace(OUTGOING, **{"lane": Lane.BULK, **changes}), composer)
        assert message.get_all("List-Unsubscribe") == expected
        is_ours = expected is not None and expected == [UNSUBSCRIBE]
        assert message["List-Unsubscribe-Post"] == ("List-Unsubscribe=One-Click" if is_ours else None)

    def test_custom_headers_arrive(self) -> None:
        """The caller's headers are in the message, in any script."""
        message = read(replace(OUTGOING, headers={"X-Note": "Zoë 🎉", "List-Id": "<n.example.org>"}))
        assert message["X-Note"] == "Zoë 🎉"
        assert message["List-Id"] == "<n.example.org>"

    @pytest.mark.parametrize(
        "changes, field",
        [
            ({"subject": "a\r\nBcc: e@example.net"}, "Subject"),
            ({"headers": {"X-A": "b\r\nBcc: e@example.net"}}, "X-A"),
            ({"headers": {"X-A\r\nBcc": "e"}}, "Bcc"),
            ({"headers": {"From": "e@example.net"}}, "From"),
            ({"headers": {"X-A": "1", "x-a": "2"}}, "x-a"),
            ({"sender": Address("a@example.org", "A\nBcc: e@example.net")}, "From"),
            ({"recipients": (recipient("a@example.org\r\nX: y"),)}, "To"),
            ({"recipients": (recipient("a@example.org", RecipientKind.REPLY_TO, "\0"),)}, "Reply-To"),
        ],
    )
    def test_refuses_injection(self, changes: dict[str, object], field: str) -> None:
        """Nothing a delivery carries can add a header; the error names where it was tried."""
        with pytest.raises(ValueError, match=field):
            COMPOSER.compose(replace(OUTGOING, **changes), now=NOW)

    def test_bad_names_stop_the_start(self) -> None:
        """A sender or message domain that cannot be written is refused when the composer is made."""
        with pytest.raises(ValueError, match="From"):
            Composer(default_sender=Address("nobody"), message_domain="example.org")
        with pytest.raises(ValueError, match="@-sign"):
            Composer(default_sender=SENDER, message_domain="exa mple.org")


class TestSigning:
    @pytest.mark.parametrize(
        "sender, expected",
        [
            ("a@example.org", ["example.org", "example.org"]),
            ("a@EXAMPLE.org", ["example.org", "example.org"]),
            ("a@mail.example.org", ["example.org", "example.org"]),
            ("a@own.example.org", ["own.example.org"]),
            ("a@deep.own.example.org", ["own.example.org"]),
            ("a@notexample.org", []),
            ("a@example.com", []),
        ],
    )
    def test_keys_follow_the_sender(self, sender: str, expected: list[str]) -> None:
        """The keys of From's domain sign, or those of the nearest domain above it, all of them."""
        composer = Composer(
            default_sender=SENDER,
            message_domain="example.org",
            signers={
                "Example.org": [key_of("example.org", "a"), key_of("example.org", "b")],
                "own.example.org": [key_of("own.example.org")],
            },
        )
        message = read(replace(OUTGOING, sender=Address(sender)), composer)
        fields = message.get_all("DKIM-Signature") or []
        assert [field.partition(" d=")[2].partition(";")[0] for field in fields] == expected

    def test_timestamp_is_the_attempt(self) -> None:
        """The signature is dated by the attempt; everything below it stays the same."""
        composer = Composer(
            default_sender=SENDER,
            message_domain="example.org",
            signers={"example.org": [key_of("example.org")]},
        )
        first, second = encode(OUTGOING, composer), encode(OUTGOING, composer, now=NOW + timedelta(hours=1))
        assert b" t=1767609000;" in first
        assert b" t=1767612600;" in second
        assert first.partition(b"\r\nFrom:")[2] == second.partition(b"\r\nFrom:")[2]
        assert encode(OUTGOING, composer) == first
