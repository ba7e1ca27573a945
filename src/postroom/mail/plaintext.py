"""The text part of a message, derived from its HTML.

`plain_text(html)` is deterministic and never wraps lines: paragraphs and headings are separated by empty lines,
lists get dashes or numbers, a link becomes `text (address)`, a table is written row by row, an image becomes its alt
text, and invisible content (styles, scripts, hidden preview text) is left out.
"""

import re
from collections.abc import Callable

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from postroom.post.html_guard import find_html_excess

_UNSEEN = frozenset(
    {
        "head",
        "title",
        "style",
        "script",
        "template",
        "noscript",
        "svg",
        "object",
        "select",
        "textarea",
        "-comment",
    }
)
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "dl", "figure", "address"})
_LINES = frozenset(
    {"div", "section", "article", "header", "footer", "main", "nav", "aside", "center", "form", "fieldset"}
    | {"caption", "figcaption", "dt", "dd", "li", "tr", "td", "th", "tbody", "thead", "tfoot", "body", "html"}
)
# Senders pad hidden preview text with these zero-width characters.
_PADDING = dict.fromkeys(map(ord, "\u200b\u00ad\ufeff\u034f"))
# Reading the attributes of every element is half of the work, and most mails hide nothing.
_HIDING = re.compile(r"display\s*:\s*none")
_TAG = re.compile(r"<[^>]*>?")
# Limit against stack overflow: deeper text is taken without structure.
_MAX_DEPTH = 100


def plain_text(html: str) -> str:
    """The readable text of an HTML document or fragment, without a trailing newline."""
    if find_html_excess(html) is not None:
        return " ".join(_TAG.sub(" ", html).split())
    body = LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS).body
    if body is None:
        return ""
    lowered = html.lower()
    page = _PlainPage(depth=0, hiding="hidden" in lowered or _HIDING.search(lowered) is not None)
    page.children_of(body)
    return page.finish()


class _PlainPage:
    """Lines written so far, and the line being written."""

    def __init__(self, *, depth: int, hiding: bool) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._depth = depth
        self._hiding = hiding

    def children_of(self, node: LexborNode) -> None:
        self._depth += 1
        child = node.child
        while child is not None:
            self._visit(child)
            child = child.next
        self._depth -= 1

    def finish(self) -> str:
        self._end_line()
        return "\n".join(self._lines).strip("\n")

    def _visit(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag == "-text":
            self._line.append(node.text_content or "")
        elif tag in _UNSEEN or (self._hiding and _is_hidden(node)):
            return
        elif self._depth >= _MAX_DEPTH:
            self._line.append(node.text(separator=" "))
        else:
            _WRITERS.get(tag, _PlainPage.children_of)(self, node)

    def _end_line(self) -> None:
        if not self._line:
            return
        text = "".join(self._line)
        self._line.clear()
        if not text.isascii():
            text = text.translate(_PADDING)
        text = " ".join(text.split())
        if text:
            self._lines.append(text)

    def _own_lines(self, node: LexborNode) -> None:
        self._end_line()
        self.children_of(node)
        self._end_line()

    def _own_paragraph(self, node: LexborNode) -> None:
        self._gap()
        self.children_of(node)
        self._gap()

    def _paragraph(self, write: Callable[[], None]) -> None:
        self._gap()
        write()
        self._gap()

    def _gap(self) -> None:
        self._end_line()
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def _inner(self, node: LexborNode) -> str:
        page = _PlainPage(depth=self._depth, hiding=self._hiding)
        page.children_of(node)
        return page.finish()

    def _break(self, _node: LexborNode) -> None:
        # Many mails separate their paragraphs by an empty line between two breaks.
        if "".join(self._line).strip():
            self._end_line()
        elif self._lines and self._lines[-1]:
            self._lines.append("")

    def _rule(self, _node: LexborNode) -> None:
        self._paragraph(lambda: self._lines.append("---"))

    def _image(self, node: LexborNode) -> None:
        self._line.append(f" {node.attributes.get('alt') or ''} ")

    def _link(self, node: LexborNode) -> None:
        text, address = self._inner(node), (node.attributes.get("href") or "").strip()
        bare = address.removeprefix("mailto:").removeprefix("tel:")
        if not text:
            self._line.append(bare)
        elif not address or address.startswith("#") or _same_address(text, bare):
            self._embed(text)
        else:
            self._embed(f"{text} ({bare})")

    def _embed(self, text: str) -> None:
        *whole, last = text.split("\n")
        for line in whole:
            self._line.append(line)
            self._end_line()
        self._line.append(last)

    def _list(self, node: LexborNode) -> None:
        outermost = not _inside_item(node)
        self._gap() if outermost else self._end_line()
        number, child = _first_number(node), node.child
        while child is not None:
            if child.tag == "li" and not _is_hidden(child):
                mark = f"{number}. " if node.tag == "ol" else "- "
                self._indented(self._inner(child), first=mark, rest=" " * len(mark))
                number += 1
            elif child.tag in {"ul", "ol"}:
                self._indented(self._inner_list(child), first="  ", rest="  ")
            child = child.next
        self._gap() if outermost else self._end_line()

    def _inner_list(self, node: LexborNode) -> str:
        page = _PlainPage(depth=self._depth + 1, hiding=self._hiding)
        page._visit(node)
        return page.finish()

    def _quote(self, node: LexborNode) -> None:
        self._paragraph(lambda: self._indented(self._inner(node), first="> ", rest="> "))

    def _indented(self, text: str, *, first: str, rest: str) -> None:
        if not text:
            return
        self._end_line()
        lines = text.split("\n")
        self._lines.append(first + lines[0])
        self._lines.extend((rest + line).rstrip() for line in lines[1:])

    def _row(self, node: LexborNode) -> None:
        self._end_line()
        cells: list[str] = []
        child = node.child
        while child is not None:
            if child.tag in {"td", "th"} and not _is_hidden(child):
                cells.append(self._inner(child))
            child = child.next
        filled = [cell for cell in cells if cell]
        # Cells with paragraphs are layout, not data: write them one below the other instead of as a row.
        tall = any("\n" in cell for cell in filled)
        self._lines.extend(filled if tall else [" | ".join(filled)] if filled else [])

    def _preformatted(self, node: LexborNode) -> None:
        text = node.text().strip("\n")
        self._paragraph(lambda: self._lines.extend(line.rstrip() for line in text.split("\n")))


# The table belongs to the class; it stands below because it names the methods.
_WRITERS: dict[str, Callable[[_PlainPage, LexborNode], None]] = {
    **dict.fromkeys(_PARAGRAPHS, _PlainPage._own_paragraph),  # noqa: SLF001 - see above
    **dict.fromkeys(_LINES, _PlainPage._own_lines),  # noqa: SLF001 - see above
    "a": _PlainPage._link,  # noqa: SLF001 - see above
    "blockquote": _PlainPage._quote,  # noqa: SLF001 - see above
    "br": _PlainPage._break,  # noqa: SLF001 - see above
    "hr": _PlainPage._rule,  # noqa: SLF001 - see above
    "img": _PlainPage._image,  # noqa: SLF001 - see above
    "ol": _PlainPage._list,  # noqa: SLF001 - see above
    "pre": _PlainPage._preformatted,  # noqa: SLF001 - see above
    "tr": _PlainPage._row,  # noqa: SLF001 - see above
    "ul": _PlainPage._list,  # noqa: SLF001 - see above
}


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    if not attributes:
        return False
    style = attributes.get("style") or ""
    return "hidden" in attributes or "display:none" in "".join(style.lower().split())


def _inside_item(node: LexborNode) -> bool:
    parent = node.parent
    return parent is not None and parent.tag in {"li", "ul", "ol"}


def _first_number(node: LexborNode) -> int:
    start = node.attributes.get("start") or "1"
    return int(start) if start.isascii() and start.isdigit() and len(start) < len("1000000") else 1


def _same_address(text: str, address: str) -> bool:
    bare = address.removeprefix("https://").removeprefix("http://").rstrip("/")
    return text.rstrip("/") in {address.rstrip("/"), bare}
