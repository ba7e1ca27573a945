"""Templates, and how moments and sizes are written in them. Everything is escaped unless it was made here."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from postroom.delivery.model import State

LONGEST_TEXT = 200_000

STATIC_TYPES = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def read_static() -> Mapping[str, bytes]:
    """Our own style, script and icon: there are no others."""
    directory = files("postroom.dashboard").joinpath("static")
    return {name: directory.joinpath(name).read_bytes() for name in STATIC_TYPES}


class Views:
    """The templates of the dashboard, ready to draw."""

    def __init__(self, room: str, static: Mapping[str, bytes]) -> None:
        # Without a version in its address, a browser would keep yesterday's style.
        versions = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in static.items()}
        self._environment = Environment(
            loader=PackageLoader("postroom.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(utc=utc, span=span, size=size, words=words, cut=cut)
        self._environment.globals.update(
            room=room,
            states=list(State),
            static=lambda name: f"/static/{name}?v={versions[name]}",
        )
        for name in self._environment.list_templates():  # one that does not parse stops the start, not a page
            self._environment.get_template(name)

    def draw(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)


def utc(moment: datetime | None) -> Markup:
    """A moment for people, with the same moment for programs in its title."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    there = moment.astimezone(UTC)
    exact = there.isoformat().replace("+00:00", "Z")
    shown = f"{there:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{0}" title="{0}">{1} <span class="zone">UTC</span></time>').format(exact, shown)


def span(length: timedelta) -> str:
    """How long, in the largest unit that fits: `3 min`."""
    seconds = max(0, int(length.total_seconds()))
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return "0 s"


def size(count: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1000, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def words(slug: object) -> str:
    """A slug as words: `dead_letter` is a dead letter."""
    return str(slug).replace("_", " ")


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "\n[… cut here]"
