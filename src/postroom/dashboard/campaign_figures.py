"""The figures of a campaign for people: progress, funnel, and opens and clicks over time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from postroom.campaigns.model import CampaignHour, CampaignReport, Counts
from postroom.dashboard.chart import Chart, Series, draw_chart, write_day
from postroom.dashboard.preferences import Viewer
from postroom.stats.model import HOUR

MOST_SLOTS = 48
"""Steps of a chart: hours up to two days, then days. A step takes about 350 bytes, and a page has two charts."""

LEAST_SLOTS = 12  # bars of a campaign that has just begun are not as wide as the chart
DAY = timedelta(days=1)  # the step of a longer chart


@dataclass(frozen=True, slots=True)
class ProgressShare:
    """One colour of a progress bar; `start` and `share` are percentages of its width."""

    label: str
    hue: str
    amount: int
    start: float
    share: float


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel; `share` is a fraction of the recipients, `rate` one of what `of` names."""

    label: str
    hue: str
    amount: int
    share: float
    rate: float | None = None
    of: str = ""
    link: str | None = None


def ended_of(counts: Counts) -> int:
    """Mail that a server rejected at once, and dead letters."""
    return max(counts.total - counts.queued - counts.sent - counts.cancelled - counts.suppressed, 0)


def delivered_of(counts: Counts) -> int:
    """Sent mail that did not come back."""
    returned = counts.bounced - (ended_of(counts) - counts.failed)
    return max(counts.sent - max(returned, 0), 0)


def draw_progress(counts: Counts) -> list[ProgressShare]:
    """The recipients by result, under the names of the funnel; the rest of the bar is mail that is still to come."""
    parts = (
        ("delivered", "sent", delivered_of(counts)),
        ("bounced", "failed", counts.bounced),
        ("failed", "dead_letter", counts.failed),
        ("suppressed", "suppressed", counts.suppressed),
        ("cancelled", "cancelled", counts.cancelled),
    )
    segments, start = [], 0.0
    for label, hue, amount in parts:
        share = 100 * amount / counts.total if counts.total else 0.0
        segments.append(ProgressShare(label, hue, amount, round(start, 2), round(share, 2)))
        start += share
    return segments


def draw_funnel(report: CampaignReport) -> list[FunnelStep]:
    """From the recipients to the people who clicked, without opens and clicks of machines."""
    counts = report.figures.counts
    arrived = (delivered_of(counts), "of delivered mail")
    of_campaign = f"/deliveries?campaign={report.campaign.id}"
    result = f"/campaigns/{report.campaign.id}/people?result="
    return [
        FunnelStep("Recipients", "then", counts.total, 1.0 if counts.total else 0.0),
        _step(counts, "Sent", "sent", counts.sent, (counts.total, "of the recipients"), f"{of_campaign}&status=sent"),
        _step(counts, "Delivered", "sent", delivered_of(counts), (counts.sent, "of sent mail")),
        _step(counts, "Opened", "now", report.figures.opens.unique, arrived, f"{result}opened"),
        _step(counts, "Clicked", "now", report.figures.clicks.unique, arrived, f"{result}clicked"),
    ]


def draw_losses(report: CampaignReport) -> list[FunnelStep]:
    """Mail that did not arrive, and people who left."""
    counts, figures = report.figures.counts, report.figures
    arrived = (delivered_of(counts), "of delivered mail")
    tried = (counts.sent + ended_of(counts), "of mail that was tried")
    failed = f"/deliveries?campaign={report.campaign.id}&status=failed"
    result = f"/campaigns/{report.campaign.id}/people?result="
    suppressed = (counts.total, "of the recipients")
    return [
        _step(counts, "Bounced", "failed", counts.bounced, tried, f"{result}bounced"),
        _step(counts, "Failed", "failed", counts.failed, tried, failed),
        _step(counts, "Suppressed", "suppressed", counts.suppressed, suppressed, f"{result}suppressed"),
        _step(counts, "Unsubscribed", "dead_letter", figures.unsubscribes, arrived),
        _step(counts, "Complained", "failed", figures.complaints, arrived),
    ]


_Rate = tuple[int, str]
"""The whole that a rate is a share of, and its name."""


def _step(counts: Counts, label: str, hue: str, amount: int, rate: _Rate, link: str | None = None) -> FunnelStep:
    share = min(amount / counts.total, 1.0) if counts.total else 0.0
    whole, of = rate
    return FunnelStep(label, hue, amount, share, amount / whole if whole else None, of, link if amount else None)


def draw_engagement(report: CampaignReport, metric: str, viewer: Viewer, *, now: datetime) -> Chart:
    """Opens or clicks by people and by machines; `metric` is opened or clicked."""
    moments, step = _moments(report, now)
    by_hour = {hour.hour: hour for hour in report.hours}
    people, machines = [], []
    for moment in moments:
        hours = [by_hour[hour] for hour in _hours(moment, step) if hour in by_hour]
        by_machine = _sum(hours, f"{metric}_machine")
        machines.append(by_machine)
        people.append(max(_sum(hours, metric) - by_machine, 0))
    write = viewer.date_and_hour if step == HOUR else write_day
    series = [Series("people", "now", people), Series("machines", "then", machines)]
    return draw_chart(metric, moments, series, write=write, labels=4)


def _moments(report: CampaignReport, now: datetime) -> tuple[list[datetime], timedelta]:
    """Every hour, or every UTC day, from the start to the last count; at most `MOST_SLOTS`, the newest."""
    hours = [hour.hour for hour in report.hours]
    first = min([*hours, _hour_of(report.campaign.started_at or now)])
    last = max([*hours, first + (LEAST_SLOTS - 1) * HOUR])
    if (last - first) // HOUR < MOST_SLOTS:
        return [first + index * HOUR for index in range((last - first) // HOUR + 1)], HOUR
    begin, end = first.replace(hour=0), last.replace(hour=0)
    count = min((end - begin) // DAY + 1, MOST_SLOTS)
    return [end - (count - 1 - index) * DAY for index in range(count)], DAY


def _hours(moment: datetime, step: timedelta) -> list[datetime]:
    return [moment + index * HOUR for index in range(step // HOUR)]


def _hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _sum(hours: Sequence[CampaignHour], metric: str) -> int:
    return sum(hour.amounts.get(metric, 0) for hour in hours)
