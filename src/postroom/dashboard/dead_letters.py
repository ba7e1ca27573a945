"""Dead letters: the list, and redriving them after a dry run."""

from collections.abc import Mapping
from datetime import UTC, datetime

from postroom.dashboard.page import PageRequest, checked
from postroom.delivery import service
from postroom.delivery.dead_letter_api import Reason
from postroom.delivery.model import DeadLetterFilter
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer

FILTERS = ("reason", "source", "template")


async def list_page(request: PageRequest) -> Answer:
    reason = _reason(request.asked("reason"))
    cursor = request.asked("cursor")
    found, next_cursor = await service.list_dead_letters(request.pool, reason=reason, cursor=cursor)
    letters = await request.contents.fill_subjects(found)
    counts = await service.count_dead_letters(request.pool)
    return request.page(
        "dead_letters.html",
        letters=letters,
        by_reason=list(counts.items()),
        is_more=sum(counts.values()) >= service.COUNTED,
        reasons=[known.value for known in Reason],
        reason=reason,
        next_cursor=next_cursor,
        is_first=cursor is None,
    )


async def ask_page(request: PageRequest) -> Answer:
    """The dry run: how many would be redriven. Later dead letters are not among them."""
    asked = {name: request.asked(name) for name in FILTERS}
    before = datetime.now(UTC)
    found = await service.redrive(request.pool, _chosen(asked, before), actor=request.actor, dry_run=True)
    return request.page("redrive.html", count=found.count, skipped=found.skipped, asked=asked, before=before)


async def redrive_page(request: PageRequest) -> Answer:
    asked = {name: checked(name, request.form.get(name)) for name in FILTERS}
    await service.redrive(request.pool, _chosen(asked, _moment(request.form.get("before"))), actor=request.actor)
    return request.done("/dead-letters", "The dead letters are back in the queue.")


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
