"""Dead letters: counted by reason, and listed. A redrive of many is a mass action: a retry with a filter."""

from postroom.dashboard.page import PageRequest
from postroom.delivery import service
from postroom.delivery.dead_letter_api import Reason
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer


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


def _reason(asked: str | None) -> str | None:
    try:
        return Reason(asked).value if asked else None
    except ValueError:
        raise BadInput.of("reason", f"must be one of {', '.join(Reason)}") from None
