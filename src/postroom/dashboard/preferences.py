"""A viewer's preferences: time zone, light or dark, height of rows. They are kept in a cookie, not in the room."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo

from postroom.errors import BadInput
from postroom.http.model import Operator
from postroom.runtime.endpoint import Answer
from postroom.runtime.zones import find_zone, is_zone

if TYPE_CHECKING:
    from postroom.dashboard.page import PageRequest

COOKIE = "postroom_view"
THEMES = ("auto", "light", "dark")
ROWS = ("comfortable", "dense")

_AGE_S = 365 * 86_400  # browsers keep a cookie for at most 400 days
_LONGEST = 200  # ours is shorter; a longer one is not parsed


@dataclass(frozen=True, slots=True)
class Viewer:
    """The preferences of one browser."""

    theme: str = "auto"
    rows: str = "comfortable"
    zone: str = "UTC"

    @property
    def clock(self) -> ZoneInfo:
        return find_zone(self.zone)

    def local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.clock)

    def clock_time(self, moment: datetime) -> str:
        """`14:05` in the viewer's zone."""
        return f"{self.local(moment):%H:%M}"

    def date_and_hour(self, moment: datetime) -> str:
        """`Mon 14:00` in the viewer's zone."""
        return f"{self.local(moment):%a %H:%M}"


def read_viewer(cookie: str | None) -> Viewer:
    """The preferences in a cookie; an unknown value counts as its default."""
    given = dict(parse_qsl(cookie or "")) if len(cookie or "") <= _LONGEST else {}
    standard = Viewer()
    return Viewer(
        theme=given["theme"] if given.get("theme") in THEMES else standard.theme,
        rows=given["rows"] if given.get("rows") in ROWS else standard.rows,
        zone=given["zone"] if is_zone(given.get("zone", "")) else standard.zone,
    )


def zones() -> list[str]:
    """The names of all zones."""
    listed = files("tzdata").joinpath("zones").read_text("utf-8").split()
    return ["UTC", *sorted(name for name in listed if "/" in name and not name.startswith("Etc/") and is_zone(name))]


def tabs(request: "PageRequest") -> list[tuple[str, str, bool]]:
    """The pages about the viewer; an API key has no second factor."""
    named = [("Preferences", "/preferences"), ("Sessions", "/sessions")]
    named += [("Second factor", "/second-factor")] if isinstance(request.principal, Operator) else []
    here = request.call.asgi["path"]
    return [(name, path, path == here) for name, path in named]


async def show_page(request: "PageRequest") -> Answer:
    now = datetime.now(UTC)
    return request.page("preferences.html", tabs=tabs(request), zones=zones(), themes=THEMES, rows=ROWS, now=now)


async def save_page(request: "PageRequest") -> Answer:
    """Set the given preferences and keep the others."""
    given = {name: request.form[name] for name in ("theme", "rows", "zone") if name in request.form}
    chosen = replace(request.viewer, **given)
    if read_viewer(urlencode(given)) != replace(Viewer(), **given):
        raise BadInput.of("zone", "must be a time zone such as Europe/Berlin; theme and rows must be listed values")
    secure = "; Secure" if request.dashboard.is_secure else ""
    values = urlencode({"theme": chosen.theme, "rows": chosen.rows, "zone": chosen.zone}, safe="/")
    path = f"{request.dashboard.room.settings.url_path}/"
    cookie = f"{COOKIE}={values}; HttpOnly; Max-Age={_AGE_S}; Path={path}; SameSite=strict{secure}"
    answer = request.done(request.form.get("back", "/preferences"), "The preferences are saved in this browser.")
    return replace(answer, headers={**answer.headers, "set-cookie": cookie})
