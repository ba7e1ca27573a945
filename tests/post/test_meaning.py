"""The meaning of replies: each row of the table, and consistency between its three users."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.delivery.outcome import Disposition
from postroom.delivery.outcome import classify as outcome_of
from postroom.feedback.model import BounceClass, classify
from postroom.post.meaning import (
    TABLE,
    Example,
    Hardness,
    Hint,
    ReplyScope,
    Row,
    find_code,
    find_enhanced,
    is_reason,
    meaning_of,
)
from postroom.post.reply import Envelope, Reply, Stage
from postroom.senders.health import FORGIVEN, AttemptKind, judge

LATER, REFUSED, GONE = Hardness.LATER, Hardness.REFUSED, Hardness.GONE
MAIL = [Stage.RECIPIENT, Stage.CONTENT, Stage.FINAL]
SUPPRESSING = {BounceClass.RECIPIENT_HARD, BounceClass.RECIPIENT_SOFT, BounceClass.INFRASTRUCTURE}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_decides_its_example(row: Row) -> None:
    """No row is hidden by those above it, and each means for its example what it says."""
    meaning = meaning_of(*row.example)
    assert meaning == (row.hardness, row.scope, row.hint, row.name)


def test_rows_have_names_of_their_own() -> None:
    """The name of a row identifies it, and each gives its reason."""
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert all(row.reason for row in TABLE)


@pytest.mark.parametrize("code", range(200, 300))
def test_every_2yz_is_taken(code: int) -> None:
    """A 2yz is a success whatever its text."""
    assert meaning_of(Stage.FINAL, code, "5.7.1", "user unknown").hardness is Hardness.TAKEN


@pytest.mark.parametrize("stage", MAIL)
@pytest.mark.parametrize(
    "code, enhanced, text",
    [
        (552, "5.2.2", "no"),
        (452, "4.2.2", "no"),
        (422, None, "The recipient's mailbox is over quota"),
        (552, None, "Quota exceeded"),
        (452, None, "mailbox has exceeded its quota"),
        (550, None, "mailbox is full: too many messages"),
        (554, None, "552 5.2.2 user is over quota"),
        (550, "5.1.1", "Mailbox full"),
        (550, "5.7.1", "recipient is over quota"),
    ],
)
def test_a_full_mailbox_is_tried_again_and_never_held_against_the_sender(
    stage: Stage, code: int, enhanced: str | None, text: str
) -> None:
    """A full mailbox is retried at every stage, with or without an enhanced code."""
    meaning = meaning_of(stage, code, enhanced, text)
    assert (meaning.hardness, meaning.scope) == (LATER, ReplyScope.RECIPIENT)
    assert judge(Reply(stage, code, enhanced, text)) is AttemptKind.NEUTRAL
    assert classify(code, enhanced, text, stage=stage) is BounceClass.RECIPIENT_SOFT


@pytest.mark.parametrize(
    "stage, code, enhanced, text",
    [
        (Stage.FINAL, 554, None, ""),
        (Stage.FINAL, 554, None, "Transaction failed"),
        (Stage.RECIPIENT, 550, "5.7.1", "user unknown, your IP is on a blocklist"),
        (Stage.RECIPIENT, 550, "5.1.1", "rejected: poor reputation"),
        (Stage.SENDER, 550, "5.1.1", "no such user"),
    ],
)
def test_a_block_on_us_suppresses_no_address(stage: Stage, code: int, enhanced: str | None, text: str) -> None:
    """A block counts against the account, and the address stays usable."""
    assert classify(code, enhanced, text, stage=stage) is BounceClass.POLICY
    assert judge(Reply(stage, code, enhanced, text)) is AttemptKind.ERROR


@pytest.mark.parametrize(
    "code, enhanced, text",
    [
        (550, "5.4.5", "congested"),
        (552, "5.3.1", "system full"),
        (552, "5.2.2", "full"),
        (550, None, "please try again later"),
        (554, "5.7.1", "temporarily rejected, reputation"),
        (550, None, "Greylisted for 300 seconds"),
        (550, "5.2.1", "Mailbox temporarily disabled"),
        (550, "4.2.0", "busy"),
    ],
)
def test_a_5yz_that_means_later_is_tried_again(code: int, enhanced: str | None, text: str) -> None:
    """A 5yz that is temporary by its text is retried, and no address is suppressed permanently."""
    reply = Reply(Stage.RECIPIENT, code, enhanced, text)
    assert outcome_of(reply, envelope()).verdict is Disposition.DEFERRED
    assert classify(code, enhanced, text, stage=Stage.RECIPIENT) is not BounceClass.RECIPIENT_HARD


@pytest.mark.parametrize("text", ["do not try again later", "this is not temporary", "permanently rejected"])
def test_a_5yz_that_says_no_stays_final(text: str) -> None:
    """A denial of "later" is no request to try again."""
    assert meaning_of(Stage.RECIPIENT, 550, "5.7.1", text).hardness is REFUSED


def test_the_words_of_an_endpoint_are_not_those_of_a_mail_server() -> None:
    """The status of a webhook decides; its body is not searched for phrases."""
    assert meaning_of(Stage.FINAL, 550, "HTTP 400", "HTTP 400: try again later").hardness is REFUSED
    assert meaning_of(Stage.FINAL, 450, "HTTP 503", "user unknown").hardness is LATER


def envelope() -> Envelope:
    return Envelope(7, "<7@example.org>", "post@example.org", ("ada@example.org",))


TEXTS = st.one_of(
    st.sampled_from([row.example.text for row in TABLE]),
    st.lists(st.sampled_from([row.example.text for row in TABLE]), max_size=3).map(". ".join),
    st.text(string.printable, max_size=60),
    st.text(max_size=40),
)
ENHANCED = st.one_of(
    st.none(),
    st.sampled_from([row.example.enhanced for row in TABLE]),
    st.builds("{}.{}.{}".format, st.sampled_from("245"), st.integers(0, 9), st.integers(0, 30)),
    st.text(max_size=8),
)
CODES = st.one_of(st.none(), st.integers(100, 700), st.sampled_from([row.example.code for row in TABLE]))


@given(st.sampled_from(Stage), CODES, ENHANCED, TEXTS)
def test_the_three_users_never_contradict_each_other(
    stage: Stage, code: int | None, enhanced: str | None, text: str
) -> None:
    """Suppressed addresses were rejected, retried mail is no bounce, and our faults suppress no address."""
    reply = Reply(stage, code, enhanced, text)
    meaning = meaning_of(*Example(stage, code, enhanced, text))
    verdict = outcome_of(reply, envelope()).verdict
    kind, bounce = judge(reply), classify(code, enhanced, text, stage=stage)
    if bounce is BounceClass.RECIPIENT_HARD:
        assert verdict is Disposition.REFUSED
        assert kind is AttemptKind.BOUNCE
        assert meaning.scope is ReplyScope.RECIPIENT
    if verdict is Disposition.DEFERRED:
        assert bounce is not BounceClass.RECIPIENT_HARD
        assert kind is not AttemptKind.BOUNCE
    if kind in {AttemptKind.ERROR, *FORGIVEN}:
        assert meaning.scope in (ReplyScope.ACCOUNT, ReplyScope.US)
        assert bounce not in SUPPRESSING
    if kind is AttemptKind.BOUNCE:
        assert verdict is Disposition.REFUSED
        assert meaning.scope not in (ReplyScope.ACCOUNT, ReplyScope.US, ReplyScope.MESSAGE)
    if kind in FORGIVEN:
        assert verdict is Disposition.DEFERRED
    assert (kind is AttemptKind.SENT) is (verdict is Disposition.DELIVERED)
    assert (meaning.hint is Hint.NONE) or meaning.hardness is LATER


@given(CODES, ENHANCED, TEXTS)
def test_a_report_is_as_careful_as_the_session(code: int | None, enhanced: str | None, text: str) -> None:
    """A mailbox is gone in a report only where the words or the code say so, never by a bare code or a 4yz."""
    meaning = meaning_of(None, code, enhanced, text)
    if meaning.hardness is GONE:
        assert meaning.row in ("no such mailbox", "no mailbox", "no domain")
        assert not (code is not None and code // 100 == 4)


@pytest.mark.parametrize(
    "text, enhanced, code",
    [
        ("550 5.1.1 no", "5.1.1", 550),
        ("550-5.1.1 no", "5.1.1", 550),
        ("(#5.1.1)", "5.1.1", None),
        ("host 10.5.1.1 said 550", None, 550),
        ("host [4.79.181.14] said: 554 user unknown", None, 554),
        ("550 no such user (from 4.16.10.200)", None, 550),
        ("5.188.20.7 is blocked, 550 5.7.1", "5.7.1", 550),
        ("550 5.1.1. no", "5.1.1", 550),
        ("queue id 4500-550x", None, None),
        ("554: delivery error", None, 554),
        ("at 12:00 on port 2525", None, None),
    ],
)
def test_finding_codes_in_prose(text: str, enhanced: str | None, code: int | None) -> None:
    """Codes are found in text, and IP addresses are not taken for codes."""
    assert (find_enhanced(text), find_code(text)) == (enhanced, code)


def test_words_that_tell_of_failure() -> None:
    """Reasons for a failure are recognised in text."""
    assert is_reason("the user is unknown")
    assert not is_reason("thank you for your letter")
