"""The reference pages are those that `./dev docs` writes from the code, and every link of the documentation works."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.docs import reference
from tests.support.http import open_browser

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.db.room import Room
from postroom.delivery.selection import DeliverySelection

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "postroom"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TOLD = re.compile(r"(?:`|SELECT |FROM )(?:postroom\.)?(\w+)(?:\(|` \| `p_)")  # a call, or a row with its parameters
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")

SEND = """
    SELECT name, replace(format_type(kind, NULL), 'timestamp with time zone', 'timestamptz'),
        pg_get_function_arg_default(oid, place::integer)
    FROM pg_proc, unnest(proargnames, proargtypes::oid[]) WITH ORDINALITY AS parameters (name, kind, place)
    WHERE oid = to_regproc('send')
    ORDER BY place
"""


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def check(name: str, expected: str) -> None:
    """Compare a page with the generated one; under `./dev docs`, write it."""
    if os.environ.get("POSTROOM_WRITE_DOCS"):
        (REFERENCE / name).write_text(expected, "utf-8")
    assert page(name) == expected, f"docs/reference/{name} differs from the code: run ./dev docs"


async def test_the_http_page_lists_every_endpoint(room: Room) -> None:
    """http.md has a row per endpoint of the OpenAPI document."""
    document = (await (await open_browser(room)).get("/openapi.json")).json
    check("http.md", reference.http_page(page("http.md"), document))


def test_the_http_page_names_every_filter_of_deliveries() -> None:
    """The section about following deliveries has the name of each filter that the listing takes."""
    section = page("http.md").partition("| `GET /v1/deliveries` |")[2].partition("\n## ")[0]
    assert {name for name in DeliverySelection.__struct_encode_fields__ if f"`{name}`" not in section} == set()


async def test_every_endpoint_is_in_the_dashboard_or_has_a_reason(room: Room) -> None:
    """dashboard.md names pages that exist, or says for whom the endpoint is and why there is no page."""
    document = (await (await open_browser(room)).get("/openapi.json")).json
    check("dashboard.md", reference.dashboard_page(page("dashboard.md"), document))
    pages = {re.sub(r":\w+\}", "}", endpoint.path) for endpoint in ENDPOINTS if endpoint.method == "GET"}
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \| (.*) \|$", page("dashboard.md"), re.MULTILINE)
    reason = re.compile(r"(API|API and command line) only: \S+( \S+){3,}")
    named = {name: set(re.findall(r"`(/[^`]*)`", cell)) for name, cell in rows if not reason.fullmatch(cell)}
    assert {name: paths - pages for name, paths in named.items() if not paths or paths - pages} == {}


async def test_the_sql_page_lists_the_parameters_of_send(room: Room) -> None:
    """sql.md has a row per parameter with its type and default, and the rest of the row is written by people."""
    found = [tuple(row) for row in await room.pool.fetch(SEND)]
    check("sql.md", reference.sql_page(page("sql.md"), found))


@pytest.mark.parametrize(
    "name, write",
    [
        ("cli.md", reference.cli_page),
        ("errors.md", reference.errors_page),
        ("metrics.md", reference.metrics_page),
        ("roles.md", reference.roles_page),
        ("settings.md", reference.settings_page),
    ],
)
def test_the_page_is_generated(name: str, write: Callable[[str], str]) -> None:
    """The page has each command, error, metric, role or setting of the code, and no other."""
    check(name, write(page(name)))


def test_every_option_is_explained() -> None:
    """`--help` of each command explains every option and argument."""
    unexplained = [
        f"{name} {each.opts[0]}"
        for name, command in reference.commands()
        for each in command.params
        if not each.hidden and not each.help
    ]
    assert unexplained == []


async def test_every_sqlstate_is_in_the_reference(room: Room) -> None:
    """errors.md has a row per SQLSTATE of ours that a function of the room raises."""
    sources = await room.pool.fetch("SELECT prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
    raised = {found for row in sources for found in re.findall(r"'(PR\d{3})'", row["prosrc"])}
    assert re.findall(r"^\| `(PR\d{3})` \|", page("errors.md"), re.MULTILINE) == sorted(raised)


FUNCTIONS = """
    SELECT DISTINCT proname
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND prorettype <> 'trigger'::regtype
"""
TABLES = """
    SELECT relname
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
"""


def public_functions(names: set[str]) -> set[str]:
    """Functions that a how-to page documents, and functions without a caller in Postroom, which must be for users."""
    told = {name for path in HOW_TO for name in _TOLD.findall(path.read_text("utf-8"))}
    sources = [
        path for path in SOURCE.rglob("*") if path.suffix in (".sql", ".py") and path.parent.name != "migrations"
    ]
    called = {
        name for path in sources for name in re.findall(r"\b(\w+)\s*\(", path.read_text("utf-8")) if path.stem != name
    }
    return names & told | names - called


async def test_every_public_function_is_in_the_reference(room: Room) -> None:
    """sql.md names every function that people call, and none that is not there."""
    names = {row["proname"] for row in await room.pool.fetch(FUNCTIONS)}
    rows = re.findall(r"^(?:\| `|## )(\w+)\(", page("sql.md"), re.MULTILINE)
    assert set(rows) <= names
    missing = public_functions(names) - set(rows)
    assert not missing, f"sql.md lacks {sorted(missing)}"


async def test_every_table_is_in_the_reference(room: Room) -> None:
    """sql.md names every table and view of a room."""
    names = {row["relname"] for row in await room.pool.fetch(TABLES)}
    assert not {name for name in names if f"`{name}`" not in page("sql.md")}


# --- links ---------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The places of a page that a link can lead to, by GitHub's rule."""
    text = _FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([a-z-]+)"></a>', text)  # the words of the glossary
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(named)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """A relative link names a file or folder of the repository, and a heading that is there."""
    broken = []
    for found in _LINK.finditer(_FENCE.sub("", path.read_text("utf-8"))):
        target, _, anchor = unquote(found["target"]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (path.parent / target).resolve() if target else path
        is_there = place.exists() and (not anchor or anchor in anchors(place))
        broken += [] if is_there else [found["target"]]
    assert not broken
