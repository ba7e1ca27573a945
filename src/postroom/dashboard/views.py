"""Templates, and how moments and sizes are written in them. Every value is escaped, except HTML that is made here."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from minijinja import Environment, safe

from postroom.delivery.model import DeliveryState

LONGEST_TEXT = 200_000

STATIC_TYPES = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def read_static() -> Mapping[str, bytes]:
    """The style, the script and the icon; there are no other files."""
    directory = files("postroom.dashboard").joinpath("static")
    return {name: directory.joinpath(name).read_bytes() for name in STATIC_TYPES}


class PageTemplates:
    """The templates of the dashboard, ready to draw."""

    def __init__(self, room: str, static: Mapping[str, bytes]) -> None:
        # Without a version in its address, a browser would keep yesterday's style.
        versions = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in static.items()}
        self._environment = Environment(
            templates=_read_templates(),  # parsed now: an invalid one stops the start, not a page
            filters={"utc": utc, "span": span, "size": size, "words": words, "cut": cut, "number": "{:,}".format},
            globals={
                "room": room,
                "states": [state.value for state in DeliveryState],
                "static": lambda name: f"/static/{name}?v={versions[name]}",
                "seconds": seconds,
            },
            finalizer=_escape,
            undefined_behavior="strict",
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def draw(self, template: str, **values: Any) -> str:
        return self._environment.render_template(template, **values)


def _escape(value: object) -> object:
    """Text as HTML. minijinja, which escapes all other values, would write each `/` of a link as `&#x2f;`."""
    return safe(escape(value)) if type(value) is str else value


def _read_templates() -> dict[str, str]:
    """The templates by name: `deliveries.html`, `parts/day.html`."""
    folder = Path(str(files("postroom.dashboard").joinpath("templates")))
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*.html")}


def utc(moment: datetime | None) -> str:
    """A moment for people, with the same moment for programs in its title."""
    if moment is None:
        return safe('<span class="none">–</span>')
    there = moment.astimezone(UTC)
    exact = there.isoformat().replace("+00:00", "Z")
    shown = f"{there:%Y-%m-%d %H:%M:%S}"
    return safe(f'<time datetime="{exact}" title="{exact}">{shown} <span class="zone">UTC</span></time>')


def seconds(start: datetime | None, end: datetime) -> float | None:
    """From one moment to another; templates cannot subtract moments."""
    return None if start is None else (end - start).total_seconds()


def span(length: float) -> str:
    """A number of seconds in the largest unit that fits: `3 min`."""
    whole = max(0, int(length))
    for unit, name in _UNITS:
        if whole >= unit:
            return f"{whole // unit} {name}"
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
