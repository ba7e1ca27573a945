"""Style sheets of untrusted HTML: kept as far as they are harmless.

A rule stays if each of its declarations has a known property and loads nothing. `@media` rules stay; a condition on
the colour scheme is decided here, so that a mail can be shown as in a dark client whatever the viewer's own scheme is.
All other at-rules (`@import`, `@font-face`) are dropped.
"""

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser

from postroom.post.html_guard import find_html_excess

LONGEST = 200_000
"""Characters of style sheets that are read."""

_DEEPEST = 3  # @media within @media; deeper ones are hostile
_SIDES = ("", "-top", "-right", "-bottom", "-left")
PROPERTIES = {
    *(f"{name}{side}" for name in ("margin", "padding", "border") for side in _SIDES),
    *(f"{name}-{side}" for name in ("max", "min") for side in ("width", "height")),
    *(f"border-{name}" for name in ("collapse", "color", "radius", "spacing", "style", "width")),
    *(f"font-{name}" for name in ("family", "size", "style", "weight", "variant")),
    *(f"text-{name}" for name in ("align", "decoration", "indent", "transform")),
    *("background", "background-color", "box-sizing", "color", "direction", "display", "float", "clear", "font"),
    *("height", "letter-spacing", "line-height", "list-style", "list-style-type", "opacity", "overflow"),
    *("overflow-wrap", "table-layout", "vertical-align", "white-space", "width", "word-break"),
}
FETCHING = re.compile(r"url|image|src|import(?!ant)|[\\@<]|/\*", re.IGNORECASE)
"""Declarations that could load something, or hide it behind an escape or a comment."""

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_END = re.compile(r"[{};]")
_BRACE = re.compile(r"[{}]")
_COLOR = re.compile(r"#?\w{1,30}")
_SELECTOR = re.compile(r"""[\w\s.,:#*>+~()\[\]="'|^$%-]{1,1000}""")
_MEDIA = re.compile(r"@media\s+([\w\s():,.-]{1,500})", re.IGNORECASE)
_SCHEME = re.compile(r"\(\s*prefers-color-scheme\s*:\s*(dark|light)\s*\)", re.IGNORECASE)
_ALWAYS, _NEVER = "(min-width: 0px)", "(max-width: 0px)"


def styles_of(html: str) -> str:
    """The style sheets inside a document, joined, and the background that its body element asks for."""
    if find_html_excess(html) is not None:
        return ""
    page = LexborHTMLParser(html)
    paper = page.body.attributes.get("bgcolor") if page.body is not None else None
    found = [f"body {{ background-color: {paper} }}"] if paper and _COLOR.fullmatch(paper) else []
    return "\n".join([*found, *(node.text(deep=True) for node in page.css("style"))])[:LONGEST]


def has_dark_styles(html: str) -> bool:
    """True if the document has rules of its own for dark mail clients."""
    return any(found[1].lower() == "dark" for found in _SCHEME.finditer(styles_of(html)))


def clean_styles(css: str, *, dark: bool) -> str:
    """The harmless rules of a style sheet, for a light or a dark mail client."""
    return "\n".join(_rules(_COMMENT.sub("", css[:LONGEST]), dark=dark, depth=0))


def clean_declarations(text: str) -> str:
    """The harmless declarations of a rule."""
    return "; ".join(each.strip() for each in text.split(";") if _is_harmless(each))


def _is_harmless(declaration: str) -> bool:
    name = declaration.partition(":")[0].strip().lower()
    return name in PROPERTIES and FETCHING.search(declaration) is None


def _rules(css: str, *, dark: bool, depth: int) -> Iterator[str]:
    """Each rule as `prelude { block }`; a statement without a block is dropped."""
    start = 0
    while (end := _END.search(css, start)) is not None:
        if end[0] != "{":
            start = end.end()
            continue
        close = _closing(css, end.end())
        rule = _rule(css[start : end.start()].strip(), css[end.end() : close], dark=dark, depth=depth)
        if rule:
            yield rule
        start = close + 1


def _rule(prelude: str, block: str, *, dark: bool, depth: int) -> str:
    if (media := _MEDIA.fullmatch(prelude)) is not None and depth < _DEEPEST:
        inner = "\n".join(_rules(block, dark=dark, depth=depth + 1))
        return f"@media {_decided(media[1], dark=dark)} {{ {inner} }}" if inner else ""
    declarations = clean_declarations(block) if _SELECTOR.fullmatch(prelude) and "{" not in block else ""
    return f"{prelude} {{ {declarations} }}" if declarations else ""


def _decided(condition: str, *, dark: bool) -> str:
    return _SCHEME.sub(lambda found: _ALWAYS if (found[1].lower() == "dark") is dark else _NEVER, condition)


def _closing(css: str, start: int) -> int:
    """The position of the brace that closes a block, or the end."""
    depth = 1
    for brace in _BRACE.finditer(css, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(css)
