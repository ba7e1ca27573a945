"""Figures and what follows from them; no database."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postroom.stats.model import METRICS, Figures, Grouping, Selection, in_order
from postroom.stats.plot import bar, sparkline


def test_delivered_is_what_was_sent_and_did_not_come_back() -> None:
    """Sent less returned, and never less than nothing: a bounce may be counted in a later hour than its mail."""
    assert Figures(sent=10, bounced=5, returned=3).delivered == 7
    assert Figures(sent=0, bounced=3, returned=3).delivered == 0


def test_rates_are_shares_of_what_was_sent_or_delivered() -> None:
    """Opens and clicks count people, against what was delivered."""
    rates = Figures(sent=10, bounced=2, returned=2, opened=9, opened_unique=4, clicked_unique=2, complained=1).rates
    assert (rates.delivery, rates.bounce, rates.open, rates.click) == (0.8, 0.2, 0.5, 0.25)
    assert (rates.complaint, rates.unsubscribe) == (0.125, 0.0)


def test_mail_that_was_refused_for_its_recipient_is_part_of_the_bounce_rate() -> None:
    """Of 100 mails, 9 refused at once and 1 returned later."""
    rates = Figures(sent=91, refused=9, bounced=10, returned=1).rates
    assert rates.bounce == 0.1


def test_without_mail_there_is_no_rate() -> None:
    """Nothing of nothing is not zero per cent."""
    rates = Figures(opened_unique=1).rates
    assert (rates.delivery, rates.bounce, rates.open) == (None, None, None)


def test_a_metric_of_a_later_version_is_left_out() -> None:
    """Figures are made of what is known; the rest is not lost, only not shown."""
    assert Figures.of({"sent": 2, "yodelled": 1}) == Figures(sent=2)


def test_metrics_are_those_that_others_write() -> None:
    """The names that delivery, tracking and feedback put into stat_deltas."""
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
def test_a_period_begins_with_the_hour_of_its_first_moment(begin: datetime, hour: datetime) -> None:
    """Hours are those of UTC, whatever zone a moment was given in."""
    assert Selection(begin=begin).begin_hour == hour


@pytest.mark.parametrize("minute, hour", [(0, 12), (1, 13), (59, 13)])
def test_a_period_ends_with_the_last_hour_that_began_before_its_end(minute: int, hour: int) -> None:
    """A period up to 12:00 leaves the hour of noon out; up to 12:01 it does not."""
    end = datetime(2030, 6, 1, 12, minute, tzinfo=UTC)
    assert Selection(end=end).end_hour == datetime(2030, 6, 1, hour, tzinfo=UTC)


def test_groupings_come_once_and_in_one_order() -> None:
    """However they were given."""
    assert in_order([Grouping.DOMAIN, Grouping.DAY, Grouping.DOMAIN]) == (Grouping.DAY, Grouping.DOMAIN)


def test_a_sparkline_shows_each_amount_against_the_largest() -> None:
    """The largest is a full block, the smallest something, nothing is a blank."""
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "


@pytest.mark.parametrize("amount, drawn", [(8, "████"), (4, "██"), (5, "██▌"), (1, "▌"), (0, ""), (-3, "")], ids=str)
def test_a_bar_is_as_long_as_its_share(amount: int, drawn: str) -> None:
    """To an eighth of a character, of the width that the largest has."""
    assert bar(amount, 8, width=4) == drawn


def test_a_bar_of_something_is_never_nothing() -> None:
    """One among a million can still be seen."""
    assert bar(1, 1_000_000, width=4) == "▏"


def test_figures_can_be_asked_for_up_to_the_end_of_the_calendar() -> None:
    """There is no hour after the last one of the year 9999; the selection ends with it."""
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert Selection(end=end).end_hour == end.replace(minute=0, second=0)
