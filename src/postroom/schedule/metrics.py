"""Prometheus metrics of the schedule."""

from postroom.runtime.metrics import gauge
from postroom.schedule.model import Backlog

DUE = gauge("postroom_schedule_due", "Scheduled events that are due and not handed over, counted up to 10,000")
DUE_SECONDS = gauge("postroom_schedule_due_seconds", "Lateness of the oldest due scheduled event")
UNPLANNED = gauge("postroom_schedule_unplanned", "People changed by SQL and not yet planned for, counted up to 10,000")
UNPLANNABLE = gauge(
    "postroom_schedule_unplannable", "People with an event that cannot be planned, counted up to 10,000"
)


def show_backlog(backlog: Backlog) -> None:
    DUE.set(backlog.due)
    DUE_SECONDS.set(backlog.due_for.total_seconds())
    UNPLANNED.set(backlog.unplanned)
    UNPLANNABLE.set(backlog.unplannable)
