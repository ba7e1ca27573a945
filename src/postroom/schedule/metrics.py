"""What Prometheus may ask about the schedule.

| metric                              | says                                                                      |
|-------------------------------------|---------------------------------------------------------------------------|
| postroom_schedule_due               | events due and not handed over, counted up to 10,000                       |
| postroom_schedule_due_seconds       | how long the first of them could have been sent                            |
| postroom_schedule_unplanned         | people whom plain SQL changed and nobody has planned for, up to 10,000     |
| postroom_schedule_unplannable       | people who have something that nobody can plan, counted up to 10,000       |
"""

from prometheus_client import Gauge

from postroom.runtime.metrics import REGISTRY
from postroom.schedule.model import Backlog

DUE = Gauge(
    "postroom_schedule_due",
    "Scheduled events that are due and not handed over, counted up to 10,000",
    registry=REGISTRY,
)
DUE_SECONDS = Gauge(
    "postroom_schedule_due_seconds", "How long the first of them could have been sent", registry=REGISTRY
)
UNPLANNED = Gauge(
    "postroom_schedule_unplanned",
    "People whom plain SQL changed and nobody has planned for yet, counted up to 10,000",
    registry=REGISTRY,
)
UNPLANNABLE = Gauge(
    "postroom_schedule_unplannable",
    "People who have something that nobody can plan, counted up to 10,000",
    registry=REGISTRY,
)


def show_backlog(backlog: Backlog) -> None:
    DUE.set(backlog.due)
    DUE_SECONDS.set(backlog.due_for.total_seconds())
    UNPLANNED.set(backlog.unplanned)
    UNPLANNABLE.set(backlog.unplannable)
