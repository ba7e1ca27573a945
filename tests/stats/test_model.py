"""Figures and their rates, without a database."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postroom.stats.model import METRICS, Figures, Grouping, Selection, in_order
from postroom.stats.plot import bar, sparkline


def test_delivered_is_sent_minus_returned() -> None:
    """Delivered is at least 0: a bounce may be counted in a later hour than its mail."""
    assert Figures(sent=10, bounced=5, returned=3).delivered == 7
    assert Figures(sent=0, bounced=3, returned=3).delivered == 0


def test_rates_are_shares_of_sent_or_delivered() -> None:
    """Opens and clicks count people, relative to delivered mail."""
    rates = Figures(sent=10, bounced=2, returned=2, opened=9, opened_unique=4, clicked_unique=2, complained=1).rates
    assert (rates.delivery, rates.bounce, rates.open, rates.click) == (0.8, 0.2, 0.5, 0.25)
    assert (rates.complaint, rates.unsubscribe) == (0.125, 0.0)


def test_rejected_recipients_are_in_the_bounce_rate() -> None:
    """9 rejections and 1 return of 100 mails are a bounce rate of a tenth."""
    rates = Figures(sent=91, refused=9, bounced=10, returned=1).rates
    assert rates.bounce == 0.1


def test_mail_that_was_refused_or_given_up_was_not_delivered() -> None:
    """Rejected in the SMTP session, given up after retries, returned later: none of it counts as delivered."""
    assert Figures(sent=91, refused=5, dead_lettered=4, bounced=6, returned=1).rates.delivery == 0.9


def test_without_mail_rates_are_null() -> None:
    """A rate without mail is null and not zero."""
    rates = Figures(opened_unique=1).rates
    assert (rates.delivery, rates.bounce, rates.open) == (None, None, None)


def test_unknown_metric_is_ignored() -> None:
    """Figures ignore metrics of a later version."""
    assert Figures.of({"sent": 2, "yodelled": 1}) == Figures(sent=2)


def test_metrics_cover_all_written_names() -> None:
    """The metrics are the names that delivery, tracking and feedback write to stat_deltas."""
    assert set(METRICS) == {
        "accepted",
        "sent",
        "deferred",
        "refused",
        "ambiguous",
        "bounced",
        "returned",
        "suppressed",
        "cancelled",
        "dead_lettered",
        "opened",
        "opened_unique",
        "opened_machine",
        "clicked",
        "clicked_unique",
        "clicked_machine",
        "unsubscribed",
        "complained",
    }


@pytest.mark.parametrize(
    "begin, hour",
    [
        (datetime(2030, 6, 1, 12, 30, tzinfo=UTC), datetime(2030, 6, 1, 12, tzinfo=UTC)),
        (datetime(2030, 6, 1, 12, tzinfo=UTC), datetime(2030, 6, 1, 12, tzinfo=UTC)),
        (datetime(2030, 6, 1, 12, tzinfo=timezone(timedelta(hours=5.5))), datetime(2030, 6, 1, 6, tzinfo=UTC)),
    ],
)
def test_period_starts_at_the_hour_of_its_begin(begin: datetime, hour: datetime) -> None:
    """Hours are in UTC, whatever the zone of the parameter."""
    assert Selection(begin=begin).begin_hour == hour


@pytest.mark.parametrize("minute, hour", [(0, 12), (1, 13), (59, 13)])
def test_period_ends_with_the_last_hour_before_its_end(minute: int, hour: int) -> None:
    """A period up to 12:00 excludes the hour of noon; up to 12:01 it includes it."""
    end = datetime(2030, 6, 1, 12, minute, tzinfo=UTC)
    assert Selection(end=end).end_hour == datetime(2030, 6, 1, hour, tzinfo=UTC)


def test_groupings_are_unique_and_ordered() -> None:
    """Repeated groupings in any order give the same list."""
    assert in_order([Grouping.DOMAIN, Grouping.DAY, Grouping.DOMAIN]) == (Grouping.DAY, Grouping.DOMAIN)


def test_sparkline_scales_to_the_largest() -> None:
    """The largest amount is a full block, the smallest is visible, and zero is a blank."""
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([0, 1, 500, 1000]) == " ▁▄█"  # a small amount is still visible
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "


@pytest.mark.parametrize("amount, drawn", [(8, "████"), (4, "██"), (5, "██▌"), (1, "▌"), (0, ""), (-3, "")], ids=str)
def test_bar_length_is_proportional(amount: int, drawn: str) -> None:
    """A bar is proportional to the largest amount, to an eighth of a character."""
    assert bar(amount, 8, width=4) == drawn


def test_bar_of_a_positive_amount_is_visible() -> None:
    """One in a million still has a bar."""
    assert bar(1, 1_000_000, width=4) == "▏"


def test_period_may_end_with_the_calendar() -> None:
    """A selection may end with the last hour of the year 9999."""
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert Selection(end=end).end_hour == end.replace(minute=0, second=0)
