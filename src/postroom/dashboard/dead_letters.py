"""Dead letters: counted by reason, and listed. A redrive of many is a mass action: a retry with a filter."""

from postroom.dashboard.delivery_actions import letter_actions
from postroom.dashboard.listing import Filter, ListColumn, options_of
from postroom.dashboard.page import PageRequest, listing_page
from postroom.delivery import service
from postroom.delivery.dead_letter_api import Reason
from postroom.runtime.endpoint import Answer

_LETTER = (
    ListColumn("delivery_id", "Id", "code", link=lambda letter: f"/deliveries/{letter.delivery_id}"),
    ListColumn("recipients", "Recipient", "recipients"),
    ListColumn("subject", "Subject", "subject"),
    ListColumn("reason", "Reason", "noted", value=lambda letter: (letter.reason.replace("_", " "), letter.detail)),
    ListColumn("source", "Source", "noted", value=lambda letter: (letter.source, letter.lane)),
    ListColumn("attempt_count", "Attempts", "number", is_minor=True),
    ListColumn("created_at", "Given up", "when"),
)


_FILTERS = (Filter("reason", "Reason", options=options_of(Reason), type=Reason),)


async def list_page(request: PageRequest) -> Answer:
    chosen = request.chosen(_FILTERS)
    found, next_cursor = await service.list_dead_letters(request.pool, **chosen, cursor=request.asked("cursor"))
    counts = await service.count_dead_letters(request.pool)
    rows = request.rows(
        _LETTER,
        (await request.contents.fill_subjects(found), next_cursor),
        path="/dead-letters",
        filters=_FILTERS,
        empty="None. Nothing was given up.",
        row_actions=letter_actions,
    )
    return request.page(
        "dead_letters.html",
        rows=rows,
        filters=request.filters(_FILTERS),
        by_reason=list(counts.items()),
        is_more=sum(counts.values()) >= service.COUNTED,
        reasons=[known.value for known in Reason],
        reason=request.asked("reason"),
    )


PAGES = (listing_page("/dead-letters", list_page),)
