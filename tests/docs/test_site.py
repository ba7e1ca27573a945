"""The documentation site builds without a warning, and loads nothing from the network."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser
from tests.support.dashboard import open_page
from tests.support.npm import install

ROOT = Path(__file__).parents[2]
_LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="([^"]*)"')
_STYLED = re.compile(r"(?:url\(|@import )[\"']?(https?:|//)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def pages_of(site: Path) -> list[Path]:
    """Every page but the decisions."""
    return [page for page in sorted(site.rglob("*.html")) if page.parent.name != "adr"]


def test_every_page_is_in_the_site_and_its_search(site: Path) -> None:
    """No page is forgotten, the change log and the decisions included."""
    docs = ROOT / "docs"
    expected = {page.relative_to(docs).with_suffix(".html").as_posix() for page in docs.rglob("*.md")}
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert expected | {"changelog.html"} <= found
    navigation = (site / "index.html").read_text("utf-8")
    assert [page for page in sorted(expected - {"index.html"}) if f'href="{page}"' not in navigation] == []


def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    """Scripts, styles, fonts and pictures are part of the site."""
    for page in site.rglob("*.html"):
        outside = [url for url in _LOADED.findall(page.read_text("utf-8")) if url.startswith(("http:", "https:", "//"))]
        assert outside == [], page.name
    assert [sheet.name for sheet in site.rglob("*.css") if _STYLED.search(sheet.read_text("utf-8"))] == []


async def test_every_page_is_accessible_and_fits(
    site: Path, chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """axe-core finds nothing on a phone in dark colours; no page is wider than its screen."""
    install(tmp_path, ["axe-core@4"], tested="the accessibility of the documentation", capsys=capsys)
    axe = (tmp_path / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    pages = pages_of(site)
    found: list[str] = []

    async def look(page: Path, width: int) -> None:
        await tab.goto(page.as_uri())
        await tab.evaluate(axe)
        violations = await tab.evaluate("async () => (await axe.run()).violations.map((each) => each.id)")
        found.extend(f"{page.name} {width} {violation}" for violation in violations)
        if (wide := await tab.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{page.name} is {wide} wide")

    async with open_page(chromium, viewport={"width": 390, "height": 800}, color_scheme="dark") as tab:
        for page in (*pages, site / "adr" / "0001-one-folder-per-box-of-the-picture.html"):
            await look(page, 390)
    async with open_page(chromium, viewport={"width": 1280, "height": 800}, color_scheme="light") as tab:
        await look(site / "index.html", 1280)
    assert len(pages) > 40
    assert found == []


def test_front_page_begins_as_the_readme_does(site: Path) -> None:
    """The sentence, the picture, and the first three ways to send."""
    front = (site / "index.html").read_text("utf-8")
    for part in (
        "Every message an application owes its people",
        "images/overview.png",
        "From SQL",
        "From Python",
        "curl",
    ):
        assert part in front, part


def test_programs_get_a_list_and_a_bundle_of_the_pages(site: Path) -> None:
    """`llms.txt` names every page but the decisions with a sentence; the bundle has their text."""
    listed = re.findall(r"^- \[.+\]\((.+\.html)\): .+\.$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    pages = [page.relative_to(site).as_posix() for page in pages_of(site)]
    assert sorted(set(pages) - set(listed)) == ["404.html", "changelog.html"]
    bundle = (site / "postroom.md").read_text("utf-8")
    assert all(f"<!-- {name.removesuffix('.html')}.md -->" in bundle for name in listed)
    assert list(site.rglob("__pycache__")) == []


def test_pictures_are_few_small_and_shown() -> None:
    """The repository keeps every version of a picture: at most six, at most 150 KB each, none unused."""
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    assert len(pictures) <= 6
    assert [picture.name for picture in pictures if picture.stat().st_size > 150 * 1024] == []
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    assert [picture.name for picture in pictures if f"images/{picture.name})" not in pages] == []


def test_local_links_of_the_readme_exist() -> None:
    """The build of the site checks the links of all other pages."""
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []
