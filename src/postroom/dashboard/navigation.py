"""The pages in the navigation, in groups, each with its icon, scope and keyboard shortcut.

To add a page to the navigation, add a row to `GROUPS`; a key or an operator sees the rows that their scopes allow.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from minijinja import safe

from postroom.http.model import Principal

ICONS = {
    "accounts": '<circle cx="12" cy="8" r="4"/><path d="M4 21c0-4.4 3.6-7 8-7s8 2.6 8 7"/>',
    "archive": '<path d="M3 4h18v5H3zM5 9v11h14V9M10 13h4"/>',
    "audit": '<path d="M6 3h9l4 4v14H6zM9 11h7M9 15h7M9 7h3"/>',
    "campaigns": '<path d="M3 10v4l11 5V5zM14 9c3 0 4 1.3 4 3s-1 3-4 3M6 15v5h3v-4"/>',
    "clip": '<path d="m20 11-8 8a5 5 0 0 1-7-7l8-8a3.4 3.4 0 0 1 5 5l-8 8a1.7 1.7 0 0 1-2.5-2.5l7.5-7.5"/>',
    "dead_letters": '<path d="M3 6h18v12H3zM3 6l9 7 9-7"/><path d="m15 15 5 5m0-5-5 5"/>',
    "deliveries": '<path d="M3 6h18v12H3zM3 6l9 7 9-7"/>',
    "destinations": '<path d="M12 21s7-6.2 7-11a7 7 0 0 0-14 0c0 4.8 7 11 7 11z"/><circle cx="12" cy="10" r="2.5"/>',
    "erasures": '<path d="m14 4 6 6-9 9H6l-3-3zM9 9l6 6M11 19h9"/>',
    "events": '<path d="M13 2 5 14h6l-1 8 9-13h-6z"/>',
    "health": '<path d="M3 12h4l2-6 4 12 3-8 1.5 2H21"/>',
    "inbox": '<path d="M4 5h16l1 9v5H3v-5zM3 14h5l1.5 2.5h5L16 14h5"/>',
    "keys": '<circle cx="8" cy="15" r="4"/><path d="m11 12 8-8m-3 3 3 3"/>',
    "malformed": '<path d="M12 3 2 20h20zM12 9v5m0 3v.5"/>',
    "menu": '<path d="M4 6h16M4 12h16M4 18h16"/>',
    "operators": '<circle cx="9" cy="8" r="3.5"/><path d="M2.5 20c0-3.9 2.9-6 6.5-6s6.5 2.1 6.5 6"/>'
    '<path d="M15 4.8a3.5 3.5 0 0 1 0 6.4M18 14.6c2.2.8 3.5 2.6 3.5 5.4"/>',
    "outbox": '<path d="M4 13v6h16v-6M12 15V4m-4 4 4-4 4 4"/>',
    "overview": '<path d="M4 13h4v7H4zM10 4h4v16h-4zM16 9h4v11h-4z"/>',
    "preferences": '<path d="M4 7h9m6 0h1M4 17h1m6 0h9"/><circle cx="16" cy="7" r="2.5"/>'
    '<circle cx="8" cy="17" r="2.5"/>',
    "schedule": '<path d="M4 6h16v14H4zM4 10h16M8 3v5m8-5v5"/>',
    "search": '<circle cx="11" cy="11" r="6"/><path d="m16 16 5 5"/>',
    "senders": '<path d="M21 3 3 10l7 3 3 8z"/><path d="m10 13 11-10"/>',
    "settings": '<circle cx="12" cy="12" r="3"/><path d="M12 3v3m0 12v3m9-9h-3M6 12H3m15.4-6.4-2.2 2.2'
    'M7.8 16.2l-2.2 2.2m12.8 0-2.2-2.2M7.8 7.8 5.6 5.6"/>',
    "statistics": '<path d="M4 4v16h16"/><path d="m7 15 4-5 3 3 5-7"/>',
    "storage": '<ellipse cx="12" cy="5.5" rx="8" ry="3"/><path d="M4 5.5v13c0 1.7 3.6 3 8 3s8-1.3 8-3v-13M4 12c0 1.7 '
    '3.6 3 8 3s8-1.3 8-3"/>',
    "suppressions": '<circle cx="12" cy="12" r="8.5"/><path d="m6 6 12 12"/>',
    "templates": '<path d="M4 4h16v5H4zM4 12h7v8H4zM14 12h6v8h-6z"/>',
    "webhooks": '<circle cx="7" cy="17" r="3"/><circle cx="17" cy="17" r="3"/><circle cx="12" cy="7" r="3"/>'
    '<path d="m10.7 9.7-2.6 4.5M10 17h4m1.9-2.8-2.6-4.5"/>',
    "workers": '<path d="M7 7h10v10H7zM10 10h4v4h-4zM10 3v4m4-4v4m-4 10v4m4-4v4M3 10h4m-4 4h4m10-4h4m-4 4h4"/>',
}
"""Shapes in a square of 24 units, drawn as lines."""


@dataclass(frozen=True, slots=True)
class Link:
    """A page in the navigation. `g` followed by `letter` opens it."""

    path: str
    name: str
    icon: str
    scope: str
    letter: str


@dataclass(frozen=True, slots=True)
class Group:
    """Links under one heading."""

    name: str
    links: tuple[Link, ...]


GROUPS = (
    Group(
        "Mail",
        (
            Link("/", "Overview", "overview", "deliveries:read", "o"),
            Link("/deliveries", "Deliveries", "deliveries", "deliveries:read", "d"),
            Link("/dead-letters", "Dead letters", "dead_letters", "deliveries:read", "l"),
            Link("/inbox", "Inbox", "inbox", "inbox:read", "i"),
            Link("/templates", "Templates", "templates", "templates:read", "e"),
            Link("/senders", "Senders", "senders", "senders:read", "s"),
            Link("/destinations", "Destinations", "destinations", "senders:read", "t"),
        ),
    ),
    Group(
        "Audience",
        (
            Link("/campaigns", "Campaigns", "campaigns", "campaigns:read", "c"),
            Link("/suppressions", "Suppressions", "suppressions", "suppressions:read", "u"),
            Link("/statistics", "Statistics", "statistics", "stats:read", "n"),
        ),
    ),
    Group(
        "People",
        (
            Link("/schedule", "Schedule", "schedule", "users:read", "j"),
            Link("/accounts", "Accounts", "accounts", "accounts:read", "a"),
            Link("/erasures", "Erasures", "erasures", "erasures:manage", "q"),
        ),
    ),
    Group(
        "Events",
        (
            Link("/events", "Events", "events", "events:read", "m"),
            Link("/outbox", "Outbox", "outbox", "outbox:read", "b"),
            Link("/webhooks", "Webhooks", "webhooks", "webhooks:manage", "w"),
            Link("/malformed", "Malformed", "malformed", "deliveries:read", "f"),
        ),
    ),
    Group(
        "System",
        (
            Link("/health", "Health", "health", "audit:read", "h"),
            Link("/workers", "Workers", "workers", "audit:read", "r"),
            Link("/keys", "API keys", "keys", "keys:manage", "k"),
            Link("/operators", "Operators", "operators", "operators:manage", "p"),
            Link("/audit", "Audit log", "audit", "audit:read", "y"),
            Link("/storage", "Storage", "storage", "audit:read", "x"),
            Link("/archive", "Archive", "archive", "archive:operate", "v"),
            Link("/settings", "Settings", "settings", "audit:read", "z"),
        ),
    ),
)


def icon(name: str) -> str:
    """An icon as inline SVG; it is decoration, so a name stands beside it."""
    return safe(f'<svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">{ICONS[name]}</svg>')


def groups_for(principal: Principal) -> Iterator[Group]:
    """The groups with the links that an API key or an operator may open."""
    for group in GROUPS:
        allowed = tuple(link for link in group.links if principal.allows(link.scope))
        if allowed:
            yield Group(group.name, allowed)


_UNDER = {"/people": "/schedule"}
"""Pages that are reached from a page at another path."""


def current(groups: Iterable[Group], path: str) -> Link | None:
    """The link of the page that is shown, or of the page above it: the longest one that begins its path."""
    path = next((above + path for known, above in _UNDER.items() if path.startswith(known)), path)
    links = [link for group in groups for link in group.links]
    fitting = [link for link in links if path == link.path or (link.path != "/" and path.startswith(link.path + "/"))]
    return max(fitting, key=lambda link: len(link.path), default=None)
