"""Hooks of mkdocs: the navigation is made of the folders, so that a new page needs no second entry.

How-to pages come in the order of the table in index.md, decisions by number, all others by name. The change log is in
the root of the repository and becomes a page of the site. The front page begins with README's introduction, picture and
first snippets. Programs read `llms.txt`, the list of all pages, and `postroom.md`, the pages without decisions as one
file.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_README = re.compile(
    r"\A# Postroom\n\n(?P<lead>.*?)\n\n(?P<intro>.*?)(?=<!--).*?(?P<picture>!\[[^\n]*overview.png\))", re.DOTALL
)
_SNIPPETS = re.compile(r"^## Send\n.*?(?=^\*\*From SQL)(?P<snippets>.*?)^\*\*By SMTP", re.DOTALL | re.MULTILINE)
_BEGIN = "## Begin"
_BUNDLED = (".", "how-to", "reference", "explanation")
"""Folders of `postroom.md`, in this order; decisions are for those who change Postroom."""
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


def on_page_markdown(markdown: str, page: Any, config: Any, **_rest: Any) -> str:
    """Links to the change log lead to its page; the front page begins as README does."""
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"{up}../CHANGELOG.md", f"{up}{_CHANGES}")
    return _front(Path(config.docs_dir), markdown) if page.file.src_uri == "index.md" else markdown


def on_page_content(html: str, **_rest: Any) -> str:
    """Code and tables scroll by themselves on a narrow screen, also by keyboard; an empty cell is no header."""
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<th></th>", "<td></td>")
    return html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")


def on_post_template(output_content: str, **_rest: Any) -> str:
    """The page for unknown addresses is a template of the theme."""
    return on_post_page(output_content).replace('<div id="main-content"', '<div role="main" id="main-content"')


def on_post_page(output: str, **_rest: Any) -> str:
    """Let screen readers find the navigation bar of the theme."""
    return output.replace('<div class="navbar fixed-top', '<div role="banner" class="navbar fixed-top')


def on_post_build(config: Any) -> None:
    """Write the files for programs that read the documentation."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    order = _LINK.findall((docs / "index.md").read_text("utf-8"))
    pages = [page for folder in _BUNDLED for group in _pages(docs, folder, order) for page in group.items()]
    texts = [f"<!-- {name} -->\n{(docs / name).read_text('utf-8').rstrip()}\n" for _title, name in pages]
    (site / "postroom.md").write_text("\n".join(texts), "utf-8")
    lead = _part(docs, _README, "lead").strip("*")
    lines = [f"- [{title}]({name.removesuffix('.md')}.html): {_first_sentence(docs / name)}" for title, name in pages]
    text = "\n".join(
        [
            "# Postroom",
            "",
            f"> {lead}",
            "",
            "- [All pages as one Markdown file](postroom.md)",
            "",
            "## Pages",
            "",
            *lines,
        ]
    )
    (site / "llms.txt").write_text(text + "\n", "utf-8")


def _front(docs: Path, markdown: str) -> str:
    title, _, rest = markdown.partition(_BEGIN)
    parts = [_part(docs, _README, name) for name in ("lead", "intro", "picture")]
    snippets = _part(docs, _SNIPPETS, "snippets")
    top = "\n\n".join([title.splitlines()[0], *parts, "## Send", snippets]).replace("](docs/", "](")
    return f"{top}\n\n{_BEGIN}{rest}"


def _part(docs: Path, pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search((docs.parent / "README.md").read_text("utf-8"))
    assert found is not None, f"README.md has no {name}"
    return found[name].strip()


def _first_sentence(page: Path) -> str:
    """The first sentence below the title, without links."""
    paragraphs = page.read_text("utf-8").split("\n\n")
    prose = next((text for text in paragraphs[1:] if text[:1].isalpha()), "")
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split())).partition(". ")[0].rstrip(".:") + "."


def _pages(docs: Path, folder: str, order: list[str] | None = None) -> list[dict[str, str]]:
    found = sorted(page.relative_to(docs).as_posix() for page in (docs / folder).glob("*.md"))
    rank = {name: number for number, name in enumerate(order or [])}
    return [_page(docs, name) for name in sorted(found, key=lambda name: rank.get(name, len(rank)))]


def _page(docs: Path, name: str) -> dict[str, str]:
    first = (docs / name).read_text("utf-8").splitlines()[0]
    return {first.lstrip("# ").replace("`", ""): name}
