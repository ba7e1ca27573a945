"""Templates, and how times and sizes are written in them. Every value is escaped, except HTML that is made here."""

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from minijinja import Environment, safe

from postroom.dashboard.navigation import icon
from postroom.dashboard.preferences import Viewer
from postroom.delivery.model import DeliveryState

LONGEST_TEXT = 200_000  # characters; a browser shows more of them slowly

STATIC_TYPES = {
    "campaign.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
_RELATIVE = timedelta(days=14)
"""Times further away are shown as dates."""

_VIEWER: ContextVar[Viewer] = ContextVar("viewer")
"""The preferences of the viewer for whom a template is drawn; filters get no other arguments."""

_ADDRESS = r"""(\s(?:(?:href|action|formaction|src|data-[a-z-]+)="|content="0;url=))(?=/(?!/))"""
"""The beginning of an attribute with an address of ours. Text has no such quotation marks: they are escaped."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def read_static() -> Mapping[str, bytes]:
    """The style, the script and the icon; there are no other files."""
    directory = files("postroom.dashboard").joinpath("static")
    return {name: directory.joinpath(name).read_bytes() for name in STATIC_TYPES}


class PageTemplates:
    """The templates of the dashboard, ready to draw."""

    def __init__(self, room: str, static: Mapping[str, bytes], *, url_path: str = "") -> None:
        self._url_path = url_path
        # Part of a page may have been drawn before, so an address may have the path already.
        self._address = re.compile(rf"{_ADDRESS}(?!{re.escape(url_path)}/)")
        # Without a version in its address, a browser would keep yesterday's style.
        versions = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in static.items()}
        self._environment = Environment(
            templates=_read_templates(),  # parsed now: an invalid one stops the start, not a page
            filters={
                "clock": clock,
                "cut": cut,
                "exact": exact,
                "latency": latency,
                "marked": marked,
                "number": number,
                "percent": percent,
                "size": size,
                "span": span,
                "when": when,
                "words": words,
                "breakable": breakable,
            },
            globals={
                "room": room,
                "icon": icon,
                "states": [state.value for state in DeliveryState],
                "static": lambda name: f"/static/{name}?v={versions[name]}",
                "seconds": seconds,
            },
            finalizer=_escape,
            undefined_behavior="strict",
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def draw(self, template: str, *, viewer: Viewer, **values: Any) -> str:
        before = _VIEWER.set(viewer)
        try:
            drawn = self._environment.render_template(template, viewer=viewer, **values)
        finally:
            _VIEWER.reset(before)
        return self._address.sub(rf"\1{self._url_path}", drawn) if self._url_path else drawn


_SPECIAL = re.compile("[&<>\"'/]").search


def _escape(value: object) -> object:
    """Text as HTML. minijinja, which escapes all other values, would write each `/` of a link as `&#x2f;`.

    A table has thousands of values; those without a special character are the same in HTML.
    """
    return safe(escape(value)) if type(value) is str and _SPECIAL(value) else value


def _read_templates() -> dict[str, str]:
    """The templates by name: `deliveries.html`, `parts/day.html`."""
    folder = Path(str(files("postroom.dashboard").joinpath("templates")))
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*.html")}


_NONE = safe('<span class="none">–</span>')


def when(moment: datetime | None) -> str:
    """A time for people: `3 min ago`, and the exact time with its zone in its title."""
    return _NONE if moment is None else _time(moment, _relative(moment))


def exact(moment: datetime | None) -> str:
    """A time to the second in the viewer's zone."""
    return _NONE if moment is None else _time(moment, f"{_VIEWER.get().local(moment):%Y-%m-%d %H:%M:%S %Z}")


def clock(moment: datetime) -> str:
    """The hour and minute of a time in the viewer's zone."""
    return f"{_VIEWER.get().local(moment):%H:%M}"


def _time(moment: datetime, shown: str) -> str:
    viewer = _VIEWER.get()
    there = viewer.local(moment)
    machine = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    title = escape(f"{there:%Y-%m-%d %H:%M:%S} {viewer.zone} (UTC{there.isoformat()[-6:]})")
    return safe(f'<time datetime="{machine}" title="{title}">{escape(shown)}</time>')


def _relative(moment: datetime) -> str:
    distance = datetime.now(UTC) - moment
    if abs(distance) > _RELATIVE:
        return f"{_VIEWER.get().local(moment):%Y-%m-%d}"
    if abs(distance) < timedelta(seconds=1):
        return "now"
    length = span(abs(distance).total_seconds())
    return f"{length} ago" if distance > timedelta() else f"in {length}"


def number(amount: float) -> str:
    """`1,234`; a fraction with at most two decimals."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.2f}".rstrip("0").rstrip(".")


def percent(share: float | None) -> str:
    if share in (0, 1):  # exactly; a rounded 100.0 % keeps its digit
        return f"{share * 100:.0f} %"
    return "–" if share is None else f"{share * 100:.1f} %"


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


def latency(length: float) -> str:
    """Seconds with as many digits as people compare: `85 ms`, `1.4 s`, `3 min`."""
    if length < 1:
        return f"{max(0, length) * 1000:.0f} ms"
    return f"{length:.1f} s" if length < 60 else span(length)  # noqa: PLR2004 - a minute


def size(count: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1000, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def indented(value: Any) -> str:
    """A value as JSON with indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def breakable(address: str) -> str:
    """An address that a narrow column breaks behind its @ first, and within a word only if it must."""
    return safe(escape(address).replace("@", "@<wbr>"))


def marked(text: str) -> str:
    """A text whose `code` is set as code."""
    return safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def words(slug: object) -> str:
    """A slug as words: `dead_letter` is a dead letter."""
    return str(slug).replace("_", " ")


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "\n[… cut here]"
