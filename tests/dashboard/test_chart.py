"""The geometry of the day's bars."""

from datetime import timedelta
from itertools import pairwise

from tests.support.builders import NOON

from postroom.dashboard.chart import HEIGHT, draw_day
from postroom.dashboard.model import EndedCount
from postroom.delivery.model import DeliveryState


def test_bars_stand_on_the_ground_and_fit_the_picture() -> None:
    """For any proportions, no block leaves the picture and no blocks overlap."""
    ended = [EndedCount(NOON, DeliveryState.SENT, 1_000_000), *(EndedCount(NOON, state, 1) for state in DeliveryState)]
    chart = draw_day([*ended[:1], *ended[2:]], first=NOON, hours=1)
    blocks = chart.hours[0].blocks
    assert blocks[0].y + blocks[0].height == HEIGHT
    assert all(upper.y + upper.height < lower.y for lower, upper in pairwise(blocks))
    assert all(block.y >= 0 and block.height >= 2 for block in blocks)


def test_an_hour_without_deliveries_is_an_empty_bar() -> None:
    """There is a bar for each hour, and the totals count all of them."""
    later = NOON + timedelta(hours=3)
    ended = [EndedCount(NOON, DeliveryState.SENT, 2), EndedCount(later, DeliveryState.FAILED, 4)]
    chart = draw_day(ended, first=NOON, hours=24)
    assert [hour.total for hour in chart.hours] == [2, 0, 0, 4, *[0] * 20]
    assert (chart.totals[DeliveryState.SENT], chart.totals[DeliveryState.FAILED], chart.tallest, chart.total) == (
        2,
        4,
        4,
        6,
    )


def test_nothing_at_all_draws_nothing() -> None:
    """An empty day divides by nothing."""
    assert draw_day([], first=NOON, hours=24).total == 0
