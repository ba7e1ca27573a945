"""What a tracked link stands for, what was done with it, and where a person stands. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec


@dataclass(frozen=True, slots=True)
class LinkSubject:
    """Which mail to which person a link was made for."""

    campaign_id: int | None
    delivery_id: int
    address: str


class Agent(NamedTuple):
    """Who asked, as far as that can be known: a word for it, and whether nobody needs to have looked."""

    kind: str
    is_machine: bool


class TrackedRequest(NamedTuple):
    """One open or, with a link, one click, as it came in."""

    mark: LinkSubject
    at: float  # seconds since 1970, of this host
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
    """True if every click was a scanner's or a prefetch."""
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
    """How somebody unsubscribed."""

    ONE_CLICK = "one-click"  # their mail program did it for them, RFC 8058
    PAGE = "page"


class UnsubscribeReason(StrEnum):
    """The reasons for unsubscribing that the page offers."""

    TOO_OFTEN = "too_often"
    NOT_RELEVANT = "not_relevant"
    NEVER_SUBSCRIBED = "never_subscribed"
    OTHER = "other"


class Visitor(NamedTuple):
    """From where a request came."""

    ip_address: str | None
    user_agent: str | None


class EngagedRecipients(NamedTuple):
    """How many deliveries of a campaign a person has opened and clicked."""

    opened: int
    clicked: int


class BulkMailStatus(NamedTuple):
    """What bulk mail an address gets: none if either holds."""

    is_unsubscribed: bool
    is_closed: bool  # it bounced, complained, or an operator closed it
