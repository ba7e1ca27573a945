"""Values of tracking: links, hits, clicks and unsubscribes. Pure."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec


class LinkSubject(msgspec.Struct, frozen=True):
    """The mail and the recipient of a link."""

    campaign_id: int | None
    delivery_id: int
    address: str


class Agent(NamedTuple):
    """The visitor behind a request: a kind, and whether it is a machine."""

    kind: str
    is_machine: bool


class TrackedRequest(NamedTuple):
    """One open or, with a link, one click, as received."""

    mark: LinkSubject
    at: float  # seconds since 1970, by the clock of this host
    agent: Agent
    link_url: str | None
    ip_address: str | None
    user_agent: str | None


class ClickedLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link and one person who followed it."""

    email: str
    url: str
    clicks: int
    is_machine: bool
    """True if every click came from a scanner or a prefetch."""
    first_at: datetime
    last_at: datetime


class LinkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a campaign, and the clicks on it."""

    url: str
    people: int
    clicks: int
    machine_clicks: int
    first_at: datetime
    last_at: datetime


class Origin(StrEnum):
    """The way of an unsubscribe."""

    ONE_CLICK = "one-click"  # one-click by the mail client, RFC 8058
    PAGE = "page"


class UnsubscribeReason(StrEnum):
    """The reasons for unsubscribing that the page offers."""

    TOO_OFTEN = "too_often"
    NOT_RELEVANT = "not_relevant"
    NEVER_SUBSCRIBED = "never_subscribed"
    OTHER = "other"


class Visitor(NamedTuple):
    """The geographic origin of a request."""

    ip_address: str | None
    user_agent: str | None


class DeliveryEngagement(NamedTuple):
    """The first open and click of one delivery: by anyone, machines included, and by a person."""

    first_open_at: datetime | None
    first_human_open_at: datetime | None
    first_click_at: datetime | None
    first_human_click_at: datetime | None


class BulkMailStatus(NamedTuple):
    """The bulk mail status of an address: no bulk mail if either is true."""

    is_unsubscribed: bool
    is_closed: bool  # after a bounce, a complaint or an operator's action
