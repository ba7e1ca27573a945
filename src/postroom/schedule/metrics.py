"""Prometheus metrics of the schedule.

| metric                              | meaning                                                                   |
|-------------------------------------|---------------------------------------------------------------------------|
| postroom_schedule_due               | events due and not handed over, counted up to 10,000                      |
| postroom_schedule_due_seconds       | lateness of the oldest of them                                            |
| postroom_schedule_unplanned         | people changed by SQL and not yet planned for, counted up to 10,000       |
| postroom_schedule_unplannable       | people with an event that cannot be planned, counted up to 10,000         |
"""

from prometheus_client import Gauge

from postroom.runtime.metrics import REGISTRY
from postroom.schedule.model import Backlog

DUE = Gauge(
    "postroom_schedule_due",
    "Scheduled events that are due and not handed over, counted up to 10,000",
    registry=REGISTRY,
)
DUE_SECONDS = Gauge("postroom_schedule_due_seconds", "Lateness of the oldest due scheduled event", registry=REGISTRY)
UNPLANNED = Gauge(
    "postroom_schedule_unplanned",
    "People changed by SQL and not yet planned for, counted up to 10,000",
    registry=REGISTRY,
)
UNPLANNABLE = Gauge(
    "postroom_schedule_unplannable",
    "People with an event that cannot be planned, counted up to 10,000",
    registry=REGISTRY,
)


def show_backlog(backlog: Backlog) -> None:
    DUE.set(backlog.due)
    DUE_SECONDS.set(backlog.due_for.total_seconds())
    UNPLANNED.set(backlog.unplanned)
    UNPLANNABLE.set(backlog.unplannable)
