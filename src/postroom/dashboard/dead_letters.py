"""Dead letters: the list, and bringing them back, counted before anything moves."""

from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.responses import Response

from postroom.dashboard.visit import OPERATE, Visit, checked, go
from postroom.delivery import service
from postroom.delivery.dead_letter_api import Reason
from postroom.delivery.model import DeadLetterFilter
from postroom.errors import BadInput

FILTERS = ("reason", "source", "template")


async def list_page(visit: Visit) -> Response:
    reason = _reason(visit.asked("reason"))
    cursor = visit.asked("cursor")
    letters, next_cursor = await service.list_dead_letters(visit.pool, reason=reason, cursor=cursor)
    return visit.page(
        "dead_letters.html",
        letters=letters,
        reasons=[known.value for known in Reason],
        reason=reason,
        next_cursor=next_cursor,
        is_first=cursor is None,
    )


async def ask_page(visit: Visit) -> Response:
    """The dry run: how many would come back. What is given up after this moment is not among them."""
    visit.need(OPERATE)
    asked = {name: visit.asked(name) for name in FILTERS}
    before = datetime.now(UTC)
    found = await service.redrive(visit.pool, _chosen(asked, before), actor=visit.actor, dry_run=True)
    return visit.page("redrive.html", count=found.count, skipped=found.skipped, asked=asked, before=before)


async def redrive_page(visit: Visit) -> Response:
    visit.need(OPERATE)
    asked = {name: checked(name, visit.form.get(name)) for name in FILTERS}
    await service.redrive(visit.pool, _chosen(asked, _moment(visit.form.get("before"))), actor=visit.actor)
    return go("/dead-letters?done=redrive")


def _chosen(asked: Mapping[str, str | None], before: datetime) -> DeadLetterFilter:
    return DeadLetterFilter(
        reason=_reason(asked["reason"]),
        source=asked["source"],
        template_id=asked["template"],
        created_before=before,
    )


def _reason(asked: str | None) -> str | None:
    try:
        return Reason(asked).value if asked else None
    except ValueError:
        raise BadInput.of("reason", "is not a reason for giving up") from None


def _moment(written: str | None) -> datetime:
    try:
        moment = datetime.fromisoformat(written or "")
    except ValueError:
        raise BadInput.of("before", "is not a moment") from None
    if moment.tzinfo is None:
        raise BadInput.of("before", "lacks its zone")
    return moment
