"""Hooks of mkdocs: the navigation is made of the folders, so that a new page needs no second entry.

How-to pages come in the order of the table in index.md, decisions by number, all others by name. The change log is in
the root of the repository and becomes a page of the site.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_LINK = re.compile(r"\]\((how-to/[\w-]+\.md)\)")
_CHANGES = "changelog.md"
_TOP = ("architecture.md", "security.md", "performance.md")


def on_config(config: Any) -> Any:
    docs = Path(config.docs_dir)
    order = _LINK.findall((docs / "index.md").read_text("utf-8"))
    config.nav += [
        {"How to": [*_pages(docs, "how-to", order), {"Troubleshooting": "troubleshooting.md"}]},
        {"Reference": [*_pages(docs, "reference"), _page(docs, "glossary.md"), {"Changes": _CHANGES}]},
        {"Explanation": [*(_page(docs, name) for name in _TOP), *_pages(docs, "explanation")]},
        {"Decisions": _pages(docs, "adr")},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    text = (Path(config.docs_dir).parent / "CHANGELOG.md").read_text("utf-8")
    files.append(File.generated(config, _CHANGES, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, **_rest: Any) -> str:
    """Links to the change log lead to its page."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"{up}../CHANGELOG.md", f"{up}{_CHANGES}")


def _pages(docs: Path, folder: str, order: list[str] | None = None) -> list[dict[str, str]]:
    found = sorted(f"{folder}/{page.name}" for page in (docs / folder).glob("*.md"))
    rank = {name: number for number, name in enumerate(order or [])}
    return [_page(docs, name) for name in sorted(found, key=lambda name: rank.get(name, len(rank)))]


def _page(docs: Path, name: str) -> dict[str, str]:
    first = (docs / name).read_text("utf-8").splitlines()[0]
    return {first.lstrip("# ").replace("`", ""): name}
