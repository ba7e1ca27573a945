"""Outcomes of replies, for one recipient and for several."""

import pytest

from postroom.delivery.outcome import Disposition, classify
from postroom.post.reply import Envelope, RecipientReply, Reply, Stage

A, B, C = "a@example.org", "b@example.org", "c@example.org"


def envelope(*recipients: str) -> Envelope:
    return Envelope(7, "<7@example.org>", "post@example.org", recipients)


@pytest.mark.parametrize(
    "stage, code, enhanced, verdict",
    [
        (Stage.FINAL, 250, "2.0.0", Disposition.DELIVERED),
        (Stage.FINAL, 451, "4.3.0", Disposition.DEFERRED),
        (Stage.FINAL, 554, "5.7.1", Disposition.REFUSED),
        (Stage.FINAL, 552, "5.2.2", Disposition.DEFERRED),
        (Stage.FINAL, 552, "5.3.1", Disposition.DEFERRED),
        (Stage.FINAL, 554, "5.4.5", Disposition.DEFERRED),
        (Stage.FINAL, 552, None, Disposition.REFUSED),
        (Stage.FINAL, None, None, Disposition.UNKNOWN),
        (Stage.CONTENT, None, None, Disposition.DEFERRED),
        (Stage.CONTENT, 554, "5.6.0", Disposition.REFUSED),
        (Stage.CONTENT, 354, None, Disposition.DEFERRED),
        (Stage.RECIPIENT, 550, "5.1.1", Disposition.REFUSED),
        (Stage.RECIPIENT, None, None, Disposition.DEFERRED),
        (Stage.SENDER, 550, "5.7.1", Disposition.REFUSED),
        (Stage.SENDER, 421, "4.3.2", Disposition.DEFERRED),
        (Stage.LOGIN, 535, "5.7.8", Disposition.DEFERRED),
        (Stage.TLS, 554, None, Disposition.DEFERRED),
        (Stage.TLS, None, None, Disposition.DEFERRED),
        (Stage.CONNECT, 554, "5.7.1", Disposition.DEFERRED),
        (Stage.CONNECT, None, None, Disposition.DEFERRED),
    ],
)
def test_a_reply_to_the_whole_means(stage: Stage, code: int | None, enhanced: str | None, verdict: Disposition) -> None:
    """Stage and code decide; each recipient shares the verdict and the text."""
    outcome = classify(Reply(stage, code, enhanced, "words"), envelope(A))
    assert outcome.verdict is verdict
    [recipient] = outcome.recipients
    assert (recipient.address, recipient.verdict, recipient.code, recipient.text) == (A, verdict, code, "words")


def test_reply_about_a_recipient_decides_for_it_alone() -> None:
    """A reply about one recipient does not change the others."""
    reply = Reply(
        Stage.FINAL,
        250,
        "2.0.0",
        "queued",
        recipients=(
            RecipientReply(A, 250),
            RecipientReply(B, 550, "5.1.1", "who?"),
            RecipientReply(C, 451, "4.3.0", "later"),
        ),
    )
    outcome = classify(reply, envelope(A, B, C))
    assert [each.verdict for each in outcome.recipients] == [
        Disposition.DELIVERED,
        Disposition.REFUSED,
        Disposition.DEFERRED,
    ]
    assert [each.text for each in outcome.recipients] == ["queued", "who?", "later"]


def test_a_welcome_recipient_shares_the_end() -> None:
    """An accepted recipient is rejected with the content."""
    outcome = classify(Reply(Stage.FINAL, 554, "5.7.1", recipients=(RecipientReply(A, 250),)), envelope(A))
    assert outcome.recipients[0].verdict is Disposition.REFUSED


def test_a_recipient_refused_before_an_unknown_end_stays_refused() -> None:
    """Only accepted recipients become ambiguous."""
    reply = Reply(Stage.FINAL, recipients=(RecipientReply(A, 250), RecipientReply(B, 550)))
    outcome = classify(reply, envelope(A, B))
    assert [each.verdict for each in outcome.recipients] == [Disposition.UNKNOWN, Disposition.REFUSED]
    assert outcome.verdict is Disposition.UNKNOWN


@pytest.mark.parametrize(
    "codes, verdict",
    [
        ((250, 250), Disposition.DELIVERED),
        ((250, 550), Disposition.DELIVERED),
        ((250, 451), Disposition.DEFERRED),
        ((550, 451), Disposition.DEFERRED),
        ((550, 550), Disposition.REFUSED),
    ],
)
def test_the_whole_is_open_while_one_is_open(codes: tuple[int, int], verdict: Disposition) -> None:
    """An open recipient decides, then one success; only a unanimous rejection rejects the whole."""
    spoken = tuple(RecipientReply(address, code) for address, code in zip((A, B), codes, strict=True))
    assert classify(Reply(Stage.FINAL, 250, recipients=spoken), envelope(A, B)).verdict is verdict


def test_the_stub_suppresses() -> None:
    """A transport that suppresses decides for all recipients."""
    outcome = classify(Reply(Stage.CONNECT, suppress=True), envelope(A, B))
    assert {each.verdict for each in outcome.recipients} == {Disposition.SUPPRESSED}


def test_without_recipients_the_reply_is_the_verdict() -> None:
    """A channel without addresses has one verdict, that of the whole."""
    assert classify(Reply(Stage.FINAL, 204), envelope()).verdict is Disposition.DELIVERED


def test_the_hint_is_carried_on() -> None:
    """The outcome has the retry hint of the reply."""
    assert classify(Reply(Stage.FINAL, 451, retry_after_s=30), envelope(A)).retry_after_s == 30
