"""Effects of replies on accounts, and the thresholds that pause one. No database."""

from dataclasses import replace

import pytest

from postroom.post.reply import Reply, Stage
from postroom.senders.health import AttemptKind, HealthResult, is_slowdown, judge, rest_after, tally
from postroom.senders.model import HealthPolicy, SenderFigures, StartSlot, find_trouble

POLICY = HealthPolicy()


@pytest.mark.parametrize(
    "reply, kind",
    [
        (Reply(Stage.FINAL, 250, "2.0.0"), AttemptKind.SENT),
        (Reply(Stage.LOGIN, 535, "5.7.8", "wrong password"), AttemptKind.LOGIN_REFUSED),
        (Reply(Stage.LOGIN, 550), AttemptKind.LOGIN_REFUSED),
        (Reply(Stage.LOGIN, 401, text="invalid_grant"), AttemptKind.LOGIN_REFUSED),
        (Reply(Stage.LOGIN, 403, text="forbidden"), AttemptKind.LOGIN_REFUSED),
        (Reply(Stage.LOGIN, 454, "4.7.0", "temporary"), AttemptKind.ERROR),
        (Reply(Stage.LOGIN, 421, text="too many logins"), AttemptKind.THROTTLED),
        (Reply(Stage.LOGIN, text="neither PLAIN nor LOGIN"), AttemptKind.ERROR),
        (Reply(Stage.CONNECT, text="connection refused"), AttemptKind.UNREACHED),
        (Reply(Stage.CONTENT, text="timed out"), AttemptKind.UNREACHED),
        (Reply(Stage.CONNECT, 554), AttemptKind.ERROR),
        (Reply(Stage.CONNECT, 421, "4.3.2"), AttemptKind.THROTTLED),
        (Reply(Stage.TLS, text="certificate expired"), AttemptKind.ERROR),
        (Reply(Stage.SENDER, 550, "5.1.8", "not your address"), AttemptKind.ERROR),
        (Reply(Stage.RECIPIENT, 421), AttemptKind.THROTTLED),
        (Reply(Stage.FINAL, 421, "4.7.0", "rateLimitExceeded"), AttemptKind.THROTTLED),
        (Reply(Stage.FINAL, 429), AttemptKind.THROTTLED),
        (Reply(Stage.FINAL, 403, text="userRateLimitExceeded"), AttemptKind.THROTTLED),
        (Reply(Stage.RECIPIENT, 550, "5.1.1", "no such user"), AttemptKind.BOUNCE),
        (Reply(Stage.FINAL, 552, "5.2.2"), AttemptKind.NEUTRAL),
        (Reply(Stage.FINAL, 554), AttemptKind.ERROR),
        (Reply(Stage.FINAL, 550, "5.4.5", "Daily user sending quota exceeded"), AttemptKind.THROTTLED),
        (Reply(Stage.FINAL, 554, "5.7.1", "your address is on a list"), AttemptKind.ERROR),
        (Reply(Stage.FINAL, 554, "5.6.0", "cannot be read"), AttemptKind.NEUTRAL),
        (Reply(Stage.FINAL, 552, "5.3.4", "too large"), AttemptKind.NEUTRAL),
        (Reply(Stage.RECIPIENT, 451, "4.2.1", "greylisted"), AttemptKind.NEUTRAL),
        (Reply(Stage.FINAL, text="the connection was lost"), AttemptKind.ERROR),
        (Reply(Stage.FINAL, suppress=True), AttemptKind.UNTRIED),
        (None, AttemptKind.UNTRIED),
    ],
)
def test_each_reply_has_a_category(reply: Reply | None, kind: AttemptKind) -> None:
    """Each case of the module's table has its category."""
    assert judge(reply) is kind


@pytest.mark.parametrize(
    "figures, is_in_trouble",
    [
        (SenderFigures(49, 49, 0, 0), False),  # too few to say anything
        (SenderFigures(50, 2, 0, 0), False),
        (SenderFigures(50, 3, 0, 0), True),  # 6 %
        (SenderFigures(100, 5, 0, 0), False),  # 5 % is not above 5 %
        (SenderFigures(100, 6, 0, 0), True),
        (SenderFigures(100, 0, 10, 0), False),
        (SenderFigures(100, 0, 11, 0), True),
        (SenderFigures(5, 0, 5, 9), False),
        (SenderFigures(5, 0, 5, 10), True),  # ten in a row need no sample
        (SenderFigures(10_000, 0, 10, 10), True),
        (SenderFigures(0, 0, 0, 0), False),
    ],
)
def test_when_figures_are_trouble(figures: SenderFigures, is_in_trouble: bool) -> None:  # noqa: FBT001 - a case
    """More than 5 % bounces or 10 % errors of at least fifty, or ten errors in a row."""
    assert (find_trouble(figures, POLICY) is not None) is is_in_trouble


def test_the_policy_can_be_chosen() -> None:
    """Every threshold is a field of the policy."""
    strict = replace(POLICY, minimum=10, bounce_rate=0.0, errors_in_a_row=3)
    assert find_trouble(SenderFigures(10, 1, 0, 0), strict) == "1 of 10 mails bounced"
    assert find_trouble(SenderFigures(3, 0, 3, 3), strict) == "3 errors in a row"


@pytest.mark.parametrize(
    "hint, seconds",
    [(None, 60.0), (5.0, 5.0), (300.0, 300.0), (10_000_000.0, 86_400.0)],
)
def test_how_long_an_account_rests(hint: float | None, seconds: float) -> None:
    """The pause follows the hint, is a minute without one, and at most a day."""
    assert rest_after(Reply(Stage.FINAL, 421, retry_after_s=hint)) == seconds


@pytest.mark.parametrize(
    "reply, slows",
    [
        (Reply(Stage.RECIPIENT, 451, "4.7.1", "please wait"), True),
        (Reply(Stage.RECIPIENT, 450, "4.2.1", "receiving mail at a rate that prevents delivery"), True),
        (Reply(Stage.FINAL, 451, None, "Too many messages, slow down"), True),
        (Reply(Stage.RECIPIENT, 450, "4.2.0", "mailbox busy"), False),
        (Reply(Stage.RECIPIENT, 421, "4.7.0", "rate limited"), False),  # the account's affair
        (Reply(Stage.LOGIN, 454, "4.7.0", "later"), False),
        (Reply(Stage.RECIPIENT, 550, "5.7.1", "rate"), False),
        (Reply(Stage.FINAL, 250), False),
        (None, False),
    ],
)
def test_when_a_destination_asks_to_slow_down(reply: Reply | None, slows: bool) -> None:  # noqa: FBT001 - a case
    """A temporary refusal about reputation or rates, said about the recipient or the content."""
    assert is_slowdown(reply) is slows


def outcomes(*replies: Reply | None, account: int = 1) -> list[HealthResult]:
    return [HealthResult(StartSlot(claim_id=1, account_id=account), reply, "example.org") for reply in replies]


SENT, LOST = Reply(Stage.FINAL, 250), Reply(Stage.FINAL, text="the connection was lost")
BOUNCED, BUSY = Reply(Stage.RECIPIENT, 550, "5.1.1"), Reply(Stage.FINAL, 421, retry_after_s=9.0)


@pytest.mark.parametrize(
    "replies, in_a_row, only",
    [
        ([LOST, LOST], 2, True),
        ([LOST, SENT, LOST], 1, False),
        ([LOST, SENT], 0, False),
        ([LOST, BOUNCED], 0, False),  # a bounce is an answer: the account works
        ([LOST, BUSY, LOST], 2, True),  # a rest that was asked for neither helps nor hurts
        ([LOST, None, LOST], 2, True),
    ],
)
def test_errors_in_a_row_are_counted_across_batches(
    replies: list[Reply | None],
    in_a_row: int,
    only: bool,  # noqa: FBT001 - a case
) -> None:
    """A batch has its trailing errors and whether earlier ones still count."""
    counted = tally(outcomes(*replies))[1]
    assert (counted.errors_in_a_row, counted.only_errors) == (in_a_row, only)


def test_a_batch_is_added_up_per_account() -> None:
    """Attempts, bounces, errors and the longest pause are counted; mail not attempted is not."""
    first = outcomes(SENT, BOUNCED, LOST, BUSY, None)
    second = outcomes(Reply(Stage.LOGIN, 535, text="no"), account=2)
    counted = tally([*first, *second])
    one, two = counted[1], counted[2]
    assert (one.tried, one.bounces, one.errors, one.rest_s, one.login_problem) == (4, 1, 1, 9.0, None)
    assert (two.tried, two.errors, two.login_problem) == (1, 0, "login refused: 535 no")


def test_mail_through_the_relay_changes_no_account() -> None:
    """A result without an account changes no account."""
    assert tally([HealthResult(StartSlot(claim_id=1, domain="example.org"), SENT, "example.org")]) == {}
