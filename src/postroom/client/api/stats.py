"""The endpoints of stats, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from postroom.client.api.shared import Engagement
from postroom.client.calls import Kind, Resource, call, listing


class StatsPage(Struct, frozen=True, kw_only=True):
    """Rows: ordered by time, or by the number of sent mails."""

    items: list[StatsLine]
    next_cursor: str | None


class StatsLine(Struct, frozen=True, kw_only=True):
    """Figures of one group, with the grouping columns only; id 0 and an empty text mean none.

    Template `*`, tag `key=*` and tag `*` stand for further values of an hour with very many.
    """

    accepted: int
    sent: int
    delivered: int
    bounced: int
    returned: int
    refused: int
    deferred: int
    ambiguous: int
    suppressed: int
    cancelled: int
    dead_lettered: int
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int
    rates: Rates
    hour: datetime | None = None
    day: str | None = None
    campaign_id: int | None = None
    sender_id: int | None = None
    domain: str | None = None
    template: str | None = None
    tag: str | None = None


class Rates(Struct, frozen=True, kw_only=True):
    """Shares between 0 and 1, null without any mail.

    `delivery` of mail that was sent, refused or given up; `bounce` of mail that was sent or bounced; others of
    delivered mail.
    """

    delivery: float | None
    bounce: float | None
    open: float | None
    click: float | None
    unsubscribe: float | None
    complaint: float | None


class Figures(Struct, frozen=True, kw_only=True):
    """Counts. Delivered is sent minus returned; bounced is returned plus rejected because of the recipient."""

    accepted: int
    sent: int
    delivered: int
    bounced: int
    returned: int
    refused: int
    deferred: int
    ambiguous: int
    suppressed: int
    cancelled: int
    dead_lettered: int
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int
    rates: Rates


class StatsApi(Resource[Kind]):
    """The endpoints of stats."""

    @listing("/v1/stats")
    def list(
        self,
        *,
        campaign_id: int | None = None,
        sender_id: int | None = None,
        domain: str | None = None,
        template: str | None = None,
        tag: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        by: Literal["campaign", "day", "domain", "hour", "sender", "tag", "template"]
        | Sequence[Literal["campaign", "day", "domain", "hour", "sender", "tag", "template"]] = "day",
        limit: int = 1000,
    ) -> StatsPage:
        """List figures by hour, day, campaign, sender, domain, template or tag."""

    @call("GET", "/v1/stats/summary")
    def get_summary(
        self,
        *,
        campaign_id: int | None = None,
        sender_id: int | None = None,
        domain: str | None = None,
        template: str | None = None,
        tag: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
    ) -> Figures:
        """Read the total of the figures."""
