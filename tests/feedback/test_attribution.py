"""Whose delivery a report is about, and what a forger cannot do."""

from datetime import UTC, datetime

from tests.support.feedback import DOMAIN, KEY, PATHS, report

from postroom.feedback.attribution import Candidates, ReturnPaths, SentDelivery, attribute, find_candidates
from postroom.feedback.model import Bounce, BounceClass, Complaint
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


def test_a_valid_tag_ties_it_to_the_delivery() -> None:
    """The address as the delivery has it, verified."""
    assert attributed("postfix-unknown-user", known("Ada@example.org")) == [(7, "Ada@example.org", True)]


def test_the_envelope_s_tag_counts() -> None:
    """Servers that return no headers still answer to the return path."""
    sent = known("ada@example.org", delivery_id=9)
    assert attributed("french-unknown", sent, tag=None, envelope=9) == [(9, "ada@example.org", True)]


def test_without_a_tag_nothing_is_verified() -> None:
    """A forged bounce names no delivery."""
    assert attributed("forged-dsn", known("ada@example.org", delivery_id=1), tag=None) == [
        (None, "ada@example.org", False)
    ]


def test_whoever_has_a_tag_cannot_speak_of_others() -> None:
    """A tag proves a word about a recipient of that very mail and nobody else; who is meant remains open."""
    assert attributed("postfix-several", known("eve@evil.example")) == [(7, None, True), (7, None, True)]


def test_a_forwarded_mail_s_only_recipient_is_meant() -> None:
    """The report names where it was forwarded to; the tag says who was written to."""
    assert attributed("forwarded-elsewhere", known("ada@example.org")) == [(7, "ada@example.org", True)]


def test_with_several_recipients_a_stranger_is_nobody() -> None:
    """Nobody is suppressed on a guess."""
    assert attributed("forwarded-elsewhere", known("ada@example.org", "ben@example.org")) == [(7, None, True)]


def test_the_original_recipient_is_preferred() -> None:
    """Original-Recipient is whom we wrote to."""
    sent = known("ben@example.org", "cleo@example.org", "dora@example.org")
    assert attributed("original-recipient", sent) == [(7, "ben@example.org", True), (7, "cleo@example.org", True)]


def test_a_tag_that_outlived_its_delivery_verifies_nothing() -> None:
    """Without the row there is no list of recipients to hold the report against."""
    assert attributed("postfix-unknown-user", {}) == [(7, "ada@example.org", False)]


def test_without_a_key_tags_prove_nothing() -> None:
    """An installation without a secret key believes no return path."""
    assert attributed("postfix-unknown-user", known("ada@example.org"), paths=ReturnPaths(DOMAIN)) == [
        (None, "ada@example.org", False)
    ]


def test_a_message_id_is_checked_against_the_row() -> None:
    """The hash must fit the time of acceptance; one digit more or less is an invention."""
    read = read_report(report("arf-redacted"))
    right = Candidates((), ((7, "d2b1", "example.org"),))
    assert [each.is_verified for each in attribute(read, "smtp", right, known("ada@example.org"), keys=[KEY])] == [
        False
    ]


def test_a_message_id_alone_does_not_name_a_recipient() -> None:
    """A report that names nobody, or a stranger, says nothing about the only recipient; the return path does."""
    message = make_message_id(7, CREATED, domain="example.org", key=KEY)
    for name in ("arf-redacted", "forwarded-elsewhere"):
        read = read_report(report(name, message=message))
        found = attribute(read, "smtp", find_candidates(read, (), PATHS), known("ada@example.org"), keys=[KEY])
        assert [(each.delivery_id, each.address, each.is_verified) for each in found] == [(7, None, True)]


def test_kinds_become_what_they_are() -> None:
    """A bounce has a class, a complaint its type."""
    (bounce,) = attribute(
        read_report(report("exchange-over-quota")), "imap", Candidates((7,), ()), known("ada@example.org"), keys=[KEY]
    )
    assert isinstance(bounce, Bounce)
    assert (bounce.classification, bounce.enhanced, bounce.origin) == (BounceClass.RECIPIENT_SOFT, "5.2.2", "imap")
    (complaint,) = attribute(
        read_report(report("arf-redacted")), "imap", Candidates((7,), ()), known("ada@example.org"), keys=[KEY]
    )
    assert isinstance(complaint, Complaint)
    assert (complaint.address, complaint.text) == ("ada@example.org", "abuse")


def test_the_same_report_about_the_same_person_is_one() -> None:
    """Two ways in, one identity; another recipient is another."""
    read = read_report(report("postfix-several", delivery_id=7))
    sent = known("ada@example.org", "ben@example.org")
    first, second = (attribute(read, origin, Candidates((7,), ()), sent, keys=[KEY]) for origin in ("smtp", "imap"))
    assert [each.report_id for each in first] == [each.report_id for each in second]
    assert len({each.report_id for each in first}) == 2
