"""The geometry of charts."""

import re
from datetime import datetime, timedelta

import pytest
from tests.support.builders import NOON

from postroom.dashboard.chart import MOST_LABELS, Series, draw_chart, short, tick_step

HOURS = [NOON + timedelta(hours=index) for index in range(24)]


def written(moment: datetime) -> str:
    return f"{moment:%H:%M}"


def test_stacked_bars_stand_on_each_other_and_fit_the_plot() -> None:
    """For any proportions, no block leaves the plot and no blocks overlap."""
    drawn = draw_chart("x", HOURS[:1], [Series(str(n), "sent", [10**n]) for n in range(7)], write=written)
    ground = 100.0
    for shape in drawn.shapes:
        [top, height] = [float(found) for found in re.findall(r"M[\d.]+ ([\d.]+)h[\d.]+v([\d.]+)", shape.path)[0]]
        assert top + height == pytest.approx(ground, abs=0.2)
        assert (top >= 0, height >= 0) == (True, True)
        ground = top


def test_a_single_failure_among_millions_is_visible() -> None:
    """The smallest block has a height that can be seen."""
    drawn = draw_chart("x", HOURS[:1], [Series("s", "sent", [1_000_000]), Series("f", "failed", [1])], write=written)
    assert "v1.2" in drawn.shapes[1].path or "v0" not in drawn.shapes[1].path


def test_one_high_bar_does_not_hide_the_others() -> None:
    """Among bars of very different heights the scale is logarithmic, and its marks are powers of ten."""
    sent, failed = Series("s", "sent", [3, 2000, 8, 0]), Series("f", "failed", [0, 1, 2, 0])
    drawn = draw_chart("x", HOURS[:4], [sent, failed], write=written)
    [heights, _failed] = [[float(each) for each in re.findall(r"v([\d.]+)H", shape.path)] for shape in drawn.shapes]
    assert heights[0] > 10
    assert heights[0] < heights[2] < heights[1] <= 100
    assert [tick.label for tick in drawn.ticks] == ["1", "100", "10k"]
    assert [tick.at for tick in drawn.ticks] == sorted((tick.at for tick in drawn.ticks), reverse=True)
    even = draw_chart("x", HOURS[:4], [Series("s", "sent", [30, 200, 80, 0])], write=written)
    assert (drawn.is_logarithmic, even.is_logarithmic) == (True, False)


def test_lines_pass_the_middle_of_each_slot() -> None:
    """A line begins in the first slot, ends in the last, and its highest point is at most the ceiling."""
    drawn = draw_chart("x", HOURS, [Series("p95", "sent", list(range(24)))], write=written, kind="lines")
    assert drawn.shapes[0].path.startswith("M20.8 100.0L62.5")
    assert drawn.shapes[0].path.endswith("L979.2 23.3")
    assert [tick.label for tick in drawn.ticks] == ["10", "20", "30"]


def test_every_slot_has_a_label_and_all_values() -> None:
    """The tooltip and the table name each series' value; the axis has few labels, so that a phone can show them."""
    drawn = draw_chart("x", HOURS, [Series("a", "sent", [1] * 24), Series("b", "failed", [2] * 24)], write=written)
    assert len(drawn.slots) == 24
    assert drawn.slots[3].values == (1, 2)
    assert drawn.slots[3].label == "15:00"
    assert len(drawn.labels) == MOST_LABELS


def test_labels_of_the_axis_stand_below_their_points() -> None:
    """The first time has one, the last one if there is room; those between are in the middle of their slot."""
    days = [NOON + timedelta(days=index) for index in range(7)]
    drawn = draw_chart("x", days, [Series("a", "now", [1] * 7)], write=lambda moment: f"{moment.day}", kind="lines")
    assert [label.label for label in drawn.labels] == [f"{day.day}" for day in days[::2]]
    assert {label.anchor for label in drawn.labels} == {"middle"}
    assert drawn.labels[-1].at == pytest.approx(100 * 6.5 / 7, abs=0.01)
    hours = draw_chart("x", HOURS, [Series("a", "sent", [1] * 24)], write=written, labels=4)
    anchors = [(label.label, label.anchor) for label in hours.labels]
    assert anchors == [("12:00", "start"), *((f"{hour:02}:00", "middle") for hour in (18, 0, 6)), ("11:00", "end")]


def test_an_empty_chart_is_known_as_empty() -> None:
    """A period without a value divides by nothing."""
    assert draw_chart("x", HOURS, [Series("a", "sent", [0] * 24)], write=written).is_empty
    assert draw_chart("x", [], [], write=written).is_empty


@pytest.mark.parametrize(
    "most, step", [(0, 1), (1, 1), (3, 1), (11, 5), (23, 10), (99, 50), (100, 50), (1_000_001, 500_000)]
)
def test_the_marks_of_counts_are_whole_round_numbers(most: float, step: float) -> None:
    """At most four marks, none of them a fraction."""
    assert tick_step(most, is_whole=True) == pytest.approx(step)


def test_the_marks_of_seconds_may_be_fractions() -> None:
    """A latency below a second has an axis too."""
    assert tick_step(0.3, is_whole=False) == pytest.approx(0.1)


def test_amounts_are_written_short() -> None:
    """At most five characters beside the plot."""
    assert [short(amount) for amount in (0.5, 950, 1500, 20_000_000, 3e9)] == ["0.5", "950", "1.5k", "20M", "3G"]
