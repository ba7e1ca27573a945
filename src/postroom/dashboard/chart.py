"""Charts as SVG, drawn on the server: stacked bars, lines and areas. Pure geometry; `macros.html` writes the elements.

Shapes lie in a plot of 1000 × 100 units that is stretched to the width of the page; texts lie outside of it, at
percentages of its width, so that they keep their size. Each step of the time axis has a tooltip, and the same numbers
follow as a table.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH, HEIGHT = 1000, 100  # units of the viewBox: a tenth of a percent, and a percent
MOST_LABELS = 6  # more would touch each other on a phone
_ROOM = 0.8  # of the distance of two labels
_EDGE = 6  # percent; a label nearer to an edge is aligned with it
MOST_TICKS = 4  # gives three to five marks
_STEPS = (1, 2, 5, 10)  # round numbers for people
_LEAST = 1.2  # one failure among thousands is still seen
_GAP = 0.15  # of a bar's slot
_UNEVEN = 50  # a highest bar that is this many times the middle one hides the others on a linear scale
_LETTER = 8  # pixels; the widest digit of 12 px fonts is narrower


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, or one colour of its bars. `hue` is the name of a CSS class without `is-`."""

    label: str
    hue: str
    values: Sequence[float]
    link: str | None = None

    @property
    def total(self) -> float:
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class ChartShape:
    """A bar's block or a line, as the `d` of an SVG path."""

    hue: str
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A number beside the plot, at a percentage of its height from above, or a time below it, at one of its width."""

    at: float
    label: str
    anchor: str = "middle"  # of a time: in the middle of its slot, or near an edge its start or end


@dataclass(frozen=True, slots=True)
class Slot:
    """One step of the time axis: where it is touched, and its values by series."""

    at: float
    width: float
    label: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart; `kind` is bars, lines or areas."""

    title: str
    kind: str
    series: Sequence[Series]
    shapes: tuple[ChartShape, ...]
    ticks: tuple[Tick, ...]
    labels: tuple[Tick, ...]
    slots: tuple[Slot, ...]

    @property
    def scale_width(self) -> int:
        """The pixels left of the plot that the longest number of the axis needs."""
        return 10 + _LETTER * max((len(tick.label) for tick in self.ticks), default=0)

    is_logarithmic: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)


def draw_chart(
    title: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    *,
    write: Callable[[datetime], str],
    kind: str = "bars",
    labels: int = MOST_LABELS,
) -> Chart:
    """A chart over time; `write` writes a time of the axis in the viewer's zone, `labels` is the most of them."""
    sums = [sum(each.values[index] for each in series) for index in range(len(moments))]
    values = sums if kind == "bars" else [value for each in series for value in each.values]
    most = max(values, default=0)
    step = tick_step(most, is_whole=all(isinstance(value, int) for value in values))
    ceiling = max(1, math.ceil(most / step - 1e-9)) * step
    if is_logarithmic := kind == "bars" and _is_uneven(sums):
        ceiling = 10 ** math.ceil(math.log10(most))
    shapes = (
        _bars(series, sums, ceiling, is_logarithmic=is_logarithmic)
        if kind == "bars"
        else _lines(series, ceiling, filled=kind == "areas")
    )
    return Chart(
        title,
        kind,
        series,
        tuple(shapes),
        _powers(ceiling) if is_logarithmic else _ticks(ceiling, step),
        tuple(_labels(moments, write, labels)),
        tuple(_slots(moments, series, write)),
        is_logarithmic,
    )


def tick_step(most: float, *, is_whole: bool) -> float:
    """The distance of the axis' marks: a round number, so that there are three to five of them."""
    if most <= 0:
        return 1
    wanted = most / MOST_TICKS
    power = float(10 ** math.floor(math.log10(wanted)))
    step = next(step * power for step in _STEPS if step * power >= wanted * (1 - 1e-9))
    return max(step, 1) if is_whole else step


def _is_uneven(sums: Sequence[float]) -> bool:
    """Whether one bar, such as that of a campaign, would leave nothing to see of the others."""
    amounts = sorted(amount for amount in sums if amount > 0)
    return len(amounts) > 1 and amounts[-1] >= _UNEVEN * amounts[(len(amounts) - 1) // 2]


def _height(amount: float, ceiling: float, *, is_logarithmic: bool) -> float:
    """The height of a bar; on a logarithmic scale 1 has one, and nothing has none."""
    if not is_logarithmic:
        return HEIGHT * amount / ceiling
    return HEIGHT * math.log10(1 + amount) / math.log10(1 + ceiling)


def _powers(ceiling: float) -> tuple[Tick, ...]:
    """The marks of a logarithmic scale."""
    marks = [10**power for power in range(round(math.log10(ceiling)) + 1)]
    most = math.ceil(len(marks) / MOST_TICKS)
    shown = marks[::-most][::-1]
    return tuple(Tick(round(100 - _height(mark, ceiling, is_logarithmic=True), 2), short(mark)) for mark in shown)


def _ticks(ceiling: float, step: float) -> tuple[Tick, ...]:
    marks = [step * count for count in range(1, round(ceiling / step) + 1)]
    return tuple(Tick(round(100 - 100 * mark / ceiling, 2), short(mark)) for mark in marks)


def short(amount: float) -> str:
    """An amount in few characters: `950`, `1.5k`, `20M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(amount) >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:.3g}"


def _labels(moments: Sequence[datetime], write: Callable[[datetime], str], most: int) -> Iterator[Tick]:
    """Labels at equal distances from the first time on, and one at the last time if it has room for it."""
    every = max(1, math.ceil(len(moments) / most))
    labelled = list(range(0, len(moments), every))
    if labelled and len(moments) - 1 - labelled[-1] >= _ROOM * every:
        labelled.append(len(moments) - 1)
    for index in labelled:
        at = 100 * (index + 0.5) / len(moments)
        if at < _EDGE:
            yield Tick(0, write(moments[index]), "start")
        elif at > 100 - _EDGE:
            yield Tick(100, write(moments[index]), "end")
        else:
            yield Tick(round(at, 2), write(moments[index]), "middle")


def write_day(moment: datetime) -> str:
    """The UTC day that figures are of."""
    return f"{moment.astimezone(UTC):%d %b}"


def _slots(moments: Sequence[datetime], series: Sequence[Series], write: Callable[[datetime], str]) -> Iterator[Slot]:
    width = 100 / max(1, len(moments))
    for index, moment in enumerate(moments):
        values = tuple(each.values[index] for each in series)
        yield Slot(round(index * width, 3), round(width, 3), write(moment), values)


def _bars(
    series: Sequence[Series], sums: Sequence[float], ceiling: float, *, is_logarithmic: bool
) -> Iterator[ChartShape]:
    """One path per series with a rectangle for each slot, each on top of the series before it.

    A logarithmic scale is that of the whole bar; its blocks are shares of the height.
    """
    slot = WIDTH / max(1, len(sums))
    ground = [0.0] * len(sums)
    for each in series:
        path = ""
        for index, value in enumerate(each.values):
            if value > 0:
                share = value / sums[index] * _height(sums[index], ceiling, is_logarithmic=is_logarithmic)
                height = min(max(_LEAST, share), HEIGHT - ground[index])
                ground[index] += height
                left = slot * (index + _GAP / 2)
                path += f"M{left:.1f} {HEIGHT - ground[index]:.1f}h{slot * (1 - _GAP):.1f}v{height:.1f}H{left:.1f}z"
        yield ChartShape(each.hue, path)


def _lines(series: Sequence[Series], ceiling: float, *, filled: bool) -> Iterator[ChartShape]:
    """One path per series through the middle of each slot."""
    for each in series:
        slot = WIDTH / max(1, len(each.values))
        points = [(slot * (index + 0.5), HEIGHT - HEIGHT * value / ceiling) for index, value in enumerate(each.values)]
        path = "".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
        if filled and points:
            path += f"V{HEIGHT}H{points[0][0]:.1f}z"
        yield ChartShape(each.hue, path)
