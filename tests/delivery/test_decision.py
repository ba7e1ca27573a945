"""Decisions: the result of a reply for the delivery and each recipient, as columns that PostgreSQL can store."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.builders import BUSY, DELIVERED, NO_ANSWER, REFUSED, a_recipient, an_outgoing

from postroom.delivery.decision import (
    AttemptPolicy,
    AttemptResult,
    accepted,
    complete_columns,
    decide,
    expired,
    forgiven,
    suppressed,
    unwritable,
)
from postroom.delivery.model import (
    Lane,
    Outgoing,
    Recipient,
    RecipientOutcome,
)
from postroom.delivery.outcome import classify
from postroom.post.reply import Envelope, RecipientReply, Reply, Stage


def test_the_reason_is_in_the_words_that_decided() -> None:
    """A mail deferred for one recipient has that recipient's reply, not the success of the others."""
    late = RecipientReply("b@example.org", 451, "4.3.0", "try again later")
    reply = Reply(Stage.FINAL, 250, "2.0.0", "queued", recipients=(late,))
    result = decided(an_outgoing(a_recipient(), a_recipient("b@example.org", position=1)), reply)
    assert (result.outcome, result.detail) == ("deferred", "try again later")


def decided(outgoing: Outgoing, reply: Reply) -> AttemptResult:
    waiting = outgoing.open_addresses
    outcome = classify(reply, Envelope(7, "<7@example.org>", "post@example.org", waiting))
    policy = AttemptPolicy(0.0, ("bulk",))
    return decide(outgoing, reply, outcome, policy, elapsed=timedelta(seconds=1), transport="test")


@pytest.mark.parametrize(
    "reply, outcome, state, reason",
    [
        (DELIVERED, "sent", "sent", None),
        (REFUSED, "failed", "failed", "refused"),
        (BUSY, "deferred", "waiting", "deferred"),
        (NO_ANSWER, "ambiguous", "waiting", "ambiguous"),
        (Reply(Stage.CONNECT, suppress=True), "suppressed", "suppressed", "stub_transport"),
    ],
)
def test_a_reply_decides(reply: Reply, outcome: str, state: str, reason: str | None) -> None:
    """A reply decides the attempt's outcome, the delivery's state and the reason."""
    result = decided(an_outgoing(), reply)
    assert (result.outcome, result.state, result.reason) == (outcome, state, reason)


def test_ambiguous_bulk_mail_is_held() -> None:
    """An ambiguous mail becomes a dead letter in a lane that holds them."""
    result = decided(an_outgoing(lane=Lane.BULK), NO_ANSWER)
    assert (result.outcome, result.state, result.dead_letter_reason) == ("ambiguous", "dead_letter", "ambiguous")


def test_old_age_is_a_dead_letter() -> None:
    """A deferred delivery beyond its age limit is given up."""
    result = decided(replace(an_outgoing(attempt_no=9), age=timedelta(days=4)), BUSY)
    assert (result.state, result.dead_letter_reason) == ("dead_letter", "max_age")


def test_the_budget_counts_from_the_last_redrive() -> None:
    """Attempts before a redrive do not count."""
    spent = replace(an_outgoing(attempt_no=6), ladder="auth")
    assert decided(spent, BUSY).dead_letter_reason == "attempts_exhausted"
    assert decided(replace(spent, attempt_base=5), BUSY).retry_in == timedelta(seconds=5)


def test_a_refusal_after_a_success_does_not_fail_the_delivery() -> None:
    """The attempt fails; the delivery, with one recipient delivered earlier, is sent."""
    outgoing = an_outgoing(a_recipient(outcome="delivered"), a_recipient("b@example.org", position=1))
    result = decided(outgoing, REFUSED)
    assert (result.outcome, result.state) == ("failed", "sent")
    assert [(each.address, each.outcome.value) for each in result.recipients] == [("b@example.org", "refused")]


def test_a_recipient_that_was_served_is_not_touched() -> None:
    """Only open recipients are changed."""
    outgoing = an_outgoing(a_recipient(outcome="delivered"), a_recipient("b@example.org", position=1))
    assert [each.address for each in decided(outgoing, DELIVERED).recipients] == ["b@example.org"]


def test_reply_to_has_no_outcome() -> None:
    """Reply-To has no outcome, because it receives nothing."""
    outgoing = an_outgoing(a_recipient(), a_recipient(kind="reply_to"))
    assert [each.kind.value for each in decided(outgoing, DELIVERED).recipients] == ["to"]


def test_words_about_a_recipient_are_kept_short() -> None:
    """The reply about a recipient is truncated to 500 characters."""
    reply = Reply(
        Stage.RECIPIENT, 550, "5.1.1", "x" * 9000, recipients=(RecipientReply("a@example.org", 550, None, "y" * 9000),)
    )
    result = decided(an_outgoing(), reply)
    assert result.recipients[0].detail == "y" * 500
    assert result.detail == "x" * 500


def test_a_silence_is_described() -> None:
    """Without a reply the detail names the stage."""
    assert decided(an_outgoing(), Reply(Stage.CONNECT)).detail == "no answer at connect"


def test_expired_delivery_is_cancelled() -> None:
    """An expired delivery is cancelled with a reason, without an attempt."""
    result = expired(an_outgoing())
    assert (result.outcome, result.state, result.reason) == ("cancelled", "cancelled", "expired")


def test_suppressed_recipients_decide_the_state() -> None:
    """With all suppressed the delivery is suppressed; with one delivered earlier it is sent."""
    nobody = suppressed(an_outgoing(a_recipient(outcome="suppressed")))
    somebody = suppressed(an_outgoing(a_recipient(outcome="delivered"), a_recipient("b@example.org", "suppressed")))
    assert (nobody.outcome, nobody.state, nobody.reason) == ("suppressed", "suppressed", "recipient_suppressed")
    assert (somebody.outcome, somebody.state) == ("suppressed", "sent")


def test_mail_that_cannot_be_composed_fails() -> None:
    """The detail contains the problem."""
    result = unwritable(an_outgoing(), "half a character")
    assert (result.state, result.reason, result.detail) == ("failed", "compose_failed", "half a character")


def test_columns_are_in_the_same_order() -> None:
    """Accepted mail comes last, columns end with their last value, and only other results name addresses."""
    results = [taken(an_outgoing()), decided(an_outgoing(), REFUSED), decided(an_outgoing(), BUSY)]
    columns = complete_columns(results)
    assert columns["state"] == ["failed", "waiting", "sent"]
    assert columns["is_plain"] == [False, False, True]
    assert columns["recipient"] == ["a@example.org"] * 2
    assert [len(columns[name]) for name in ("reason", "retry_in", "dead_letter_reason", "is_forgiven")] == [2, 2, 0, 0]
    assert columns["first_outcome"] == ["refused", "pending"]
    assert {len(values) for name, values in columns.items() if name.startswith("recipient_")} == {0}


def test_a_repeated_value_is_written_once() -> None:
    """The driver needs longer to encode a value than the rest of a result costs."""
    columns = complete_columns([taken(an_outgoing()) for _ in range(3)])
    assert len(columns["delivery_id"]) == len(columns["elapsed"]) == len(columns["message_id"]) == 3
    assert (columns["state"], columns["claim_id"], columns["is_plain"]) == (["sent"], [3], [True])
    assert columns["recipient"] == columns["domain"] == columns["reason"] == []


def test_recipients_after_the_first_have_columns_of_their_own() -> None:
    """The outcome of the first recipient is stored with the delivery, that of another in its own row."""
    both = an_outgoing(a_recipient(), a_recipient("b@example.org", position=1))
    columns = complete_columns([taken(an_outgoing()), decided(both, DELIVERED)])
    assert (columns["first_outcome"], columns["first_code"]) == (["delivered"], [250])
    assert (columns["recipient_delivery_id"], columns["recipient_position"]) == ([7], [1])
    assert (columns["recipient_outcome"], columns["recipient_code"]) == (["delivered"], [250])


def taken(outgoing: Outgoing, reply: Reply = DELIVERED) -> AttemptResult:
    result = accepted(outgoing, reply, elapsed=timedelta(), transport="smtp", message_id="<1@example.org>")
    assert result is not None
    return result


def test_an_accepted_mail_has_the_same_result_as_by_the_rules() -> None:
    """The short way for accepted mail and the rules for every reply agree, but for the entry of the recipient."""
    outgoing = an_outgoing()
    short, ruled = taken(outgoing), decided(outgoing, DELIVERED)
    named = replace(ruled, elapsed=short.elapsed, transport=short.transport, message_id=short.message_id)
    assert replace(named, recipients=(), is_plain=True) == short
    assert {(each.address, each.outcome, each.code) for each in ruled.recipients} == {
        (address, RecipientOutcome.DELIVERED, 250) for address in outgoing.open_addresses
    }


@pytest.mark.parametrize(
    "reply",
    [
        BUSY,
        REFUSED,
        Reply(Stage.FINAL),
        Reply(Stage.FINAL, 250, suppress=True),
        Reply(Stage.FINAL, 250, recipients=(RecipientReply("a@example.org", 550),)),
    ],
)
def test_other_replies_need_the_rules(reply: Reply) -> None:
    """Refusals, silence, the stub's reply and replies to single recipients are never taken for an acceptance."""
    assert accepted(an_outgoing(), reply, elapsed=timedelta(), transport="smtp", message_id="<1@example.org>") is None


@pytest.mark.parametrize(
    "recipients",
    [
        (a_recipient(outcome="suppressed"),),
        (a_recipient(), a_recipient("b@example.org", position=1)),
        (a_recipient(), a_recipient("b@example.org", outcome="suppressed", position=1)),
    ],
)
def test_mail_with_several_or_suppressed_recipients_needs_the_rules(recipients: tuple[Recipient, ...]) -> None:
    """The outcome of each has to be written."""
    outgoing = an_outgoing(*recipients)
    assert accepted(outgoing, DELIVERED, elapsed=timedelta(), transport="smtp", message_id="<1@example.org>") is None


def test_columns_hold_nothing_that_text_cannot_hold() -> None:
    """NUL and lone surrogates in replies are replaced."""
    spoken = (RecipientReply("a@example.org", 550, None, "no\x00"),)
    columns = complete_columns(
        [decided(an_outgoing(), Reply(Stage.RECIPIENT, 550, None, "no\x00\udc80", recipients=spoken))]
    )
    mended = "no\N{REPLACEMENT CHARACTER}"
    assert columns["first_detail"] == [mended]
    assert columns["reply_text"] == columns["detail"] == [f"{mended}\N{REPLACEMENT CHARACTER}"]


THROTTLED = Reply(Stage.FINAL, 421, "4.7.0", "slow down")


def throttled(
    *earlier: int, account: int = 1, age: timedelta = timedelta(), about_account: bool = False
) -> AttemptResult:
    outgoing = replace(an_outgoing(attempt_no=9), sender_account_id=account, throttled_by=earlier, age=age)
    return forgiven(decided(outgoing, THROTTLED), about_account=about_account)


@pytest.mark.parametrize("earlier", [(), (1,), (1, 1)])
def test_a_throttled_account_costs_its_mail_nothing(earlier: tuple[int, ...]) -> None:
    """The mail is due at once for another account, and the attempt does not count."""
    result = throttled(*earlier)
    assert (result.state, result.retry_in, result.is_forgiven) == ("waiting", timedelta(), True)
    assert not result.blames_mail


@pytest.mark.parametrize("earlier", [(1, 1, 1), (2,), (1, 2), (1, 2, 1)])
def test_a_mail_that_throttles_again_is_at_fault(earlier: tuple[int, ...]) -> None:
    """After the same reply from a second account, or too often, the ladder applies and no account is blamed."""
    result = throttled(*earlier)
    assert (result.is_forgiven, result.blames_mail, result.is_throttled) == (False, True, True)
    assert result.retry_in == timedelta(days=1)


def test_a_reply_before_the_mail_was_mentioned_never_blames_it() -> None:
    """A 421 greeting is about the account; the mail is still forgiven only three times."""
    assert throttled(2, about_account=True).is_forgiven
    used_up = throttled(2, 3, 4, about_account=True)
    assert (used_up.is_forgiven, used_up.blames_mail) == (False, False)


def test_nothing_is_forgiven_beyond_the_age_limit() -> None:
    """A mail beyond its age limit is given up, throttled or not."""
    result = throttled(age=timedelta(days=4))
    assert (result.state, result.dead_letter_reason, result.is_forgiven) == ("dead_letter", "max_age", False)
