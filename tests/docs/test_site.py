"""The documentation site builds without a warning, and loads nothing from the network."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
