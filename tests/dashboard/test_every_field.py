"""Stored XSS in every field: hostile text in each column of the schema that can hold text, on every page.

The catalogue lists the columns. A new column is filled without a change here, or the test fails until `REFUSED` says
why the column cannot hold the text.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from html.parser import HTMLParser

from playwright.async_api import Browser
from tests.support.dashboard import Guest, dashboard_app, open_guest, open_office, rooms_of, signed_in
from tests.support.dashboard_walk import fill, walk
from tests.support.hostile_rows import TextColumn, add_rows, list_columns, shown_marks, store_text

from postroom.cli.doctor import examine
from postroom.db.pool import Pool
from postroom.db.room import Room

KEYWORD = "one of a few words, by a CHECK"
FORM = "a form without <, > and quotes, by a CHECK"
KEY = "a key of fixed length, by a CHECK"
TOPIC = "the name of a topic, by a foreign key"

REFUSED = {
    **dict.fromkeys(
        (
            *("accounts.email", "accounts.locale", "outbox_topic_progress.publisher", "outbox_topics.name"),
            *("recorded_facts.type", "scheduled_events.event_type", "user_occasions.event_type"),
            *("user_occasions.template", "users.locale", "users.template"),
        ),
        FORM,
    ),
    **dict.fromkeys(
        (
            *(
                "bounces.class",
                "bounces.kind",
                "bounced_addresses.bounce_type",
                "mass_actions.kind",
                "operators.origin",
            ),
            *("dashboard_sessions.owner_kind", "operators.role"),
            *("outbox_mail_rules.lane", "outbox_topic_progress.status", "sender_accounts.auth_type"),
            *("sender_accounts.paused_by", "sender_accounts.resume_status", "sender_accounts.status"),
            *("suppression_changes.change", "unsubscriptions.origin", "webhook_endpoints.format"),
            "webhook_endpoints.status",
        ),
        KEYWORD,
    ),
    **dict.fromkeys(("erasure_key.inner_pad", "erasure_key.outer_pad", "tokens.secret"), KEY),
    **dict.fromkeys(("outbox_mail_rules.topic", "outbox_topic_progress.topic"), TOPIC),
    "tokens.code": "five digits, by a CHECK",
    "users.timezone": "the name of a time zone, by a trigger",
}
"""Columns that the schema keeps from holding the text, and how."""

SHOWN = 120
"""Columns that the pages show, at least; the others are hashes, keys, or read by workers only."""

FULLEST = 12
"""Pages with the most columns, which Chromium loads too."""


class Suspect(HTMLParser):
    """Elements, handlers and addresses that only hostile text can have made, and the links of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: (value or "").strip() for name, value in attrs}
        if tag == "a" and given.get("href", "").startswith("/"):
            self.links.append(given["href"])
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.found.append(f"script {given}")
        self.found += [f"{tag} {name}={value}" for name, value in given.items() if is_hostile(name, value)]


def is_hostile(name: str, value: str) -> bool:
    """Whether an attribute runs a script; the value of a field and the text of a tooltip do not."""
    is_script = "".join(value.split()).lower().startswith(("javascript:", "vbscript:", "data:text"))
    return name.startswith("on") or name == "srcdoc" or (is_script and name not in ("value", "title"))


async def fill_every_column(pool: Pool) -> list[TextColumn]:
    """Store hostile text wherever the schema accepts it; the columns that have it."""
    await fill(pool)
    columns = await list_columns(pool)
    async with pool.acquire() as connection:
        await add_rows(connection, dict.fromkeys(column.table for column in columns))
        refused = {column.path: await store_text(connection, column) for column in columns}
    assert {path: why for path, why in refused.items() if why and path not in REFUSED} == {}
    assert {path for path in REFUSED if refused.get(path) is None} == set()
    return [column for column in columns if column.path not in REFUSED]


async def visit(guest: Guest, columns: list[TextColumn]) -> Counter[str]:
    """Look at every page; the number of columns that each of them shows."""
    problems: list[str] = []
    shown: dict[str, set[str]] = {}

    async def look(path: str) -> Iterable[str]:
        answer = await guest.get(path)
        page = answer.body.decode()
        is_html = answer.headers["content-type"].startswith("text/html")
        parsed = Suspect(page if is_html else "")  # a CSV is downloaded, and no browser reads it as a page
        problems.extend(f"{path} {problem}" for problem in parsed.found)
        if answer.status not in (200, 400, 404):  # a link by a text that is no address, or no key of the other table
            problems.append(f"{path} {answer.status}")
        shown[path] = shown_marks(page, columns)
        return parsed.links

    assert (await walk(look, each=6), problems) == (set(), [])
    found = set().union(*shown.values())
    assert len(found) >= SHOWN
    return Counter({path: len(marks) for path, marks in shown.items()})


async def test_no_field_becomes_markup(chromium: Browser, room: Room) -> None:
    """No page has an element, a handler or an address that came from a column; Chromium runs nothing of it."""
    columns = await fill_every_column(room.pool)
    app = dashboard_app(room, examine=partial(examine, room.settings), discover=rooms_of(room))
    shown = await visit(await open_guest(room, name="walker", app=app), columns)
    problems: list[str] = []
    async with open_office(room) as office, signed_in(chromium, office) as page:
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("console", lambda message: problems.append(f"{page.url} {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"{page.url} {error}"))
        for path, _count in shown.most_common(FULLEST):
            await page.goto(office.url + path)
            assert await page.evaluate("document.querySelectorAll('[onx], [href^=\"javascript:\" i]').length") == 0
    assert problems == []


def test_the_check_finds_markup() -> None:
    """A check that finds nothing would prove nothing."""
    for page in (
        "<b onx=1>x</b>",
        '<a href=" java\tscript:alert(1)">x</a>',
        "<script>alert(1)</script>",
        '<script src="https://x.example/a.js"></script>',
        '<iframe srcdoc="x"></iframe>',
    ):
        assert Suspect(page).found != [], page
    assert Suspect('<input value="javascript:x"><script src="/static/app.js"></script>&lt;b onx=1&gt;').found == []
