"""Attribution of reports to deliveries, and its resistance to forgery."""

from datetime import UTC, datetime

from tests.support.feedback import DOMAIN, KEY, PATHS, report

from postroom.feedback.attribution import Candidates, ReturnPaths, SentDelivery, attribute, find_candidates
from postroom.feedback.model import BounceClass, FeedbackKind
from postroom.post.message_id import make_message_id
from postroom.post.report import read_report
from postroom.post.return_path import make_return_path

CREATED = datetime(2030, 6, 1, 12, tzinfo=UTC)


def known(*recipients: str, delivery_id: int = 7) -> dict[int, SentDelivery]:
    return {delivery_id: SentDelivery(delivery_id, CREATED, recipients)}


def attributed(
    name: str,
    sent: dict[int, SentDelivery],
    *,
    tag: int | None = 7,
    envelope: int | None = None,
    paths: ReturnPaths = PATHS,
) -> list[tuple[int | None, str | None, bool]]:
    read = read_report(report(name, delivery_id=tag))
    to = (make_return_path(envelope, domain=DOMAIN, key=KEY),) if envelope is not None else ()
    found = attribute(read, "smtp", find_candidates(read, to, paths), sent, keys=paths.keys)
    return [(each.delivery_id, each.address, each.is_verified) for each in found]


def test_valid_return_path_identifies_the_delivery() -> None:
    """The report gets the address of the delivery, and is verified."""
    assert attributed("postfix-unknown-user", known("Ada@example.org")) == [(7, "Ada@example.org", True)]


def test_return_path_of_the_envelope_is_used() -> None:
    """Reports without returned headers are identified by their envelope."""
    sent = known("ada@example.org", delivery_id=9)
    assert attributed("french-unknown", sent, tag=None, envelope=9) == [(9, "ada@example.org", True)]


def test_report_without_a_tag_is_unverified() -> None:
    """A forged bounce is tied to no delivery."""
    assert attributed("forged-dsn", known("ada@example.org", delivery_id=1), tag=None) == [
        (None, "ada@example.org", False)
    ]


def test_tag_proves_only_its_own_recipients() -> None:
    """A tag verifies reports about recipients of that mail only; the recipient stays unknown otherwise."""
    assert attributed("postfix-several", known("eve@evil.example")) == [(7, None, True), (7, None, True)]


def test_forwarded_mail_is_attributed_to_its_only_recipient() -> None:
    """The report names the forwarding target; the tag identifies the original recipient."""
    assert attributed("forwarded-elsewhere", known("ada@example.org")) == [(7, "ada@example.org", True)]


def test_forwarded_mail_with_several_recipients_is_ambiguous() -> None:
    """No address is suppressed on a guess."""
    assert attributed("forwarded-elsewhere", known("ada@example.org", "ben@example.org")) == [(7, None, True)]


def test_original_recipient_is_preferred() -> None:
    """Original-Recipient takes precedence over Final-Recipient."""
    sent = known("ben@example.org", "cleo@example.org", "dora@example.org")
    assert attributed("original-recipient", sent) == [(7, "ben@example.org", True), (7, "cleo@example.org", True)]


def test_tag_without_a_delivery_verifies_nothing() -> None:
    """Without the row there is no list of recipients to compare with."""
    assert attributed("postfix-unknown-user", {}) == [(7, "ada@example.org", False)]


def test_without_a_key_tags_prove_nothing() -> None:
    """An installation without a secret key trusts no return path."""
    assert attributed("postfix-unknown-user", known("ada@example.org"), paths=ReturnPaths(DOMAIN)) == [
        (None, "ada@example.org", False)
    ]


def test_message_id_is_verified_against_the_row() -> None:
    """The hash must match the time of acceptance; a changed digit is a forgery."""
    read = read_report(report("arf-redacted"))
    right = Candidates((), ((7, "d2b1", "example.org"),))
    assert [each.is_verified for each in attribute(read, "smtp", right, known("ada@example.org"), keys=[KEY])] == [
        False
    ]


def test_message_id_alone_identifies_no_recipient() -> None:
    """A report without a known recipient is not attributed by a Message-ID; the return path attributes it."""
    message = make_message_id(7, CREATED, domain="example.org", key=KEY)
    for name in ("arf-redacted", "forwarded-elsewhere"):
        read = read_report(report(name, message=message))
        found = attribute(read, "smtp", find_candidates(read, (), PATHS), known("ada@example.org"), keys=[KEY])
        assert [(each.delivery_id, each.address, each.is_verified) for each in found] == [(7, None, True)]


def test_report_kinds_are_mapped() -> None:
    """A bounce has a class, and a complaint its feedback type."""
    (bounce,) = attribute(
        read_report(report("exchange-over-quota")), "imap", Candidates((7,), ()), known("ada@example.org"), keys=[KEY]
    )
    assert bounce.kind is FeedbackKind.BOUNCE
    assert (bounce.classification, bounce.enhanced, bounce.origin) == (BounceClass.RECIPIENT_SOFT, "5.2.2", "imap")
    (complaint,) = attribute(
        read_report(report("arf-redacted")), "imap", Candidates((7,), ()), known("ada@example.org"), keys=[KEY]
    )
    assert complaint.kind is FeedbackKind.COMPLAINT
    assert (complaint.address, complaint.text) == ("ada@example.org", "abuse")


def test_report_key_is_the_same_for_all_sources() -> None:
    """The same report from two sources has one key; another recipient has another."""
    read = read_report(report("postfix-several", delivery_id=7))
    sent = known("ada@example.org", "ben@example.org")
    first, second = (attribute(read, origin, Candidates((7,), ()), sent, keys=[KEY]) for origin in ("smtp", "imap"))
    assert [each.report_id for each in first] == [each.report_id for each in second]
    assert len({each.report_id for each in first}) == 2
