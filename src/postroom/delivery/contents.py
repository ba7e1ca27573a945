"""The content of mail by template and of campaigns, for readers.

The rendered content is not stored: it is rendered again from the version that the delivery keeps, and gives the same
bytes. Templates belong to mail and letters to campaigns, above this package, so surfaces get a `Contents` with their
functions. Content of the lane `auth`, which has one-time codes, is never shown and therefore not rendered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from postroom.delivery.model import DeadLetter, Delivery, DeliverySummary, Lane

Listed = TypeVar("Listed", DeadLetter, DeliverySummary)


@dataclass(frozen=True, slots=True)
class RenderedContent:
    """The parts of one mail."""

    subject: str
    text: str | None
    html: str | None


Render = Callable[[Sequence[int]], Awaitable[Mapping[int, RenderedContent]]]
"""Renders deliveries by id; one that cannot be rendered, or whose variables are deleted, is not in the answer."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Completes records of deliveries for readers."""

    render: Render

    async def fill(self, delivery: Delivery) -> Delivery:
        """The delivery with its rendered content."""
        if not _is_wanted(delivery):
            return delivery
        content = (await self.render([delivery.id])).get(delivery.id)
        if content is None:
            return delivery
        return replace(delivery, subject=content.subject, text=content.text, html=content.html)

    async def fill_subjects(self, found: Sequence[Listed]) -> list[Listed]:
        """The items of a page with their subjects."""
        wanted = [_id(each) for each in found if _is_wanted(each)]
        contents = await self.render(wanted) if wanted else {}
        return [
            each if (content := contents.get(_id(each))) is None else replace(each, subject=content.subject)
            for each in found
        ]


def _id(each: DeadLetter | DeliverySummary) -> int:
    return each.delivery_id if isinstance(each, DeadLetter) else each.id


def _is_wanted(each: DeadLetter | DeliverySummary | Delivery) -> bool:
    """True for mail by template, and for mail of a campaign, which has the campaign's subject until then."""
    is_of_template = each.template_id is not None and each.subject is None
    return (is_of_template or each.campaign_name is not None) and each.lane is not Lane.AUTH
