r"""Tracked links in HTML: found once per template, woven into each mail.

`plan` reads a template as its author wrote it, template expressions and all, and puts a sentinel before each `href`
that may lead to the web. The sentinel is a control character before the attribute's name, where no merge field can put
anything: their values are escaped, so none of them can write a quotation mark. After rendering, `weave` cuts the HTML
at the sentinels and looks at the values that came out. Everything else leaves as it came, byte for byte.

Left alone are `mailto:`, `tel:`, anchors, empty values, whatever is not http or https once rendered, and links whose
expression names `unsubscribe_url` or `preferences_url`. Links inside a merge field that is rendered without escaping
are not seen. A tracked `href` without quotation marks gets them. Pure.
"""

import re
from collections.abc import Callable, Sequence
from html import escape, unescape
from html.entities import html5

from postroom.tracking.tokens import is_web_address

SENTINEL = "\x01"

_HIDDEN = "\x02"
"""Stands for an expression, a statement or a comment of the template language while the HTML around it is read."""

# Expressions and attributes are short: without bounds, text that opens many and closes none would be read many times.
_STRING = r"\"(?:\\.|[^\"\\])*+\"|'(?:\\.|[^'\\])*+'"
_ATOM = re.compile(
    rf"\{{\{{(?:{_STRING}|(?!\}}\}})[^\"']){{0,2000}}+\}}\}}"
    rf"|\{{%(?:{_STRING}|(?!%\}})[^\"']){{0,2000}}+%\}}"
    r"|\{\#.*?\#\}",
    re.DOTALL,
)
_QUOTED = r"\"[^\"]{0,20000}+\"|'[^']{0,20000}+'"
_PIECE = re.compile(
    rf"""
      <!--(?!\[if\b).*?(?:-->|\Z)                     # but Outlook reads what <!--[if mso]> hides
    | <(?P<raw>script|style|textarea|title)\b.*?(?:</(?P=raw)|\Z)
    | <(?P<tag>[a-z][^\s/>]*+)(?P<attributes>(?:=\s*+(?:{_QUOTED})|[^>=]++|=){{0,500}}+)>
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    rf"""
      (?P<name>[^\s"'<>/=]++)
      (?: \s*+=\s*+ (?P<value> {_QUOTED} | [^\s"'>]++ ) )?+
    """,
    re.DOTALL | re.VERBOSE,
)
_TAGS = frozenset(("a", "area", "v:roundrect"))  # the last is a button to Outlook
_NEVER = re.compile(r"\b(?:unsubscribe_url|preferences_url)\b")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|([A-Za-z][A-Za-z0-9]*;?)(?!=))")
_END = re.compile(r"</body\s*>", re.IGNORECASE)
_STYLE = "width:1px;height:1px;border:0"


def plan(html_template: str) -> str:
    """The template with a sentinel before each `href` that may be tracked. Planning twice changes nothing."""
    return _Plan(html_template).make()


def weave(rendered_html: str, *, click: Callable[[str], str], pixel: str | None) -> str:
    """Replace each marked link by `click` of it, and put the pixel, if there is one, at the end of the body."""
    first, *pieces = rendered_html.split(SENTINEL)
    html = "".join([first, *(_weave_piece(piece, click) for piece in pieces)]) if pieces else first
    if pixel is None:
        return html
    image = f'<img src="{escape(pixel)}" width="1" height="1" alt="" style="{_STYLE}">'
    end = _end_of_body(html)
    return html[:end] + image + html[end:]


class _Plan:
    """One reading of one template: expressions are hidden, tags are read, expressions are put back."""

    def __init__(self, html_template: str) -> None:
        self._hidden: list[str] = []
        self._shown = 0  # how many of the hidden have gone by
        clean = html_template.replace(SENTINEL, "").replace(_HIDDEN, "")
        self._html = _ATOM.sub(self._hide, clean)

    def make(self) -> str:
        planned = _PIECE.sub(self._read_piece, self._html)
        hidden = iter(self._hidden)
        first, *rest = planned.split(_HIDDEN)
        return first + "".join(next(hidden) + part for part in rest)

    def _hide(self, atom: re.Match[str]) -> str:
        self._hidden.append(atom[0])
        return _HIDDEN

    def _read_piece(self, piece: re.Match[str]) -> str:
        tag = piece["tag"]
        if tag is None or tag.lower() not in _TAGS:
            return piece[0]
        # Where in the list of the hidden ones this tag's begin.
        self._shown = self._html.count(_HIDDEN, 0, piece.start("attributes"))
        return f"<{tag}{_ATTRIBUTE.sub(self._read_attribute, piece['attributes'])}>"

    def _read_attribute(self, attribute: re.Match[str]) -> str:
        name, value = attribute["name"], attribute["value"]
        if value is None or name.replace(_HIDDEN, "").lower() != "href":
            return attribute[0]
        before = self._shown + attribute.string.count(_HIDDEN, 0, attribute.start("value"))
        quote = value[0] if value[0] in "\"'" else ""
        inner = value[1:-1] if quote else value
        atoms = self._hidden[before : before + inner.count(_HIDDEN)]
        if not _may_be_tracked(inner, atoms):
            return attribute[0]
        quote = quote or _quote_for(atoms)
        return f"{name[:-4]}{SENTINEL}{name[-4:]}={quote}{inner}{quote}"


def _quote_for(atoms: Sequence[str]) -> str:
    """A value that stood without quotation marks has none outside its expressions."""
    return "'" if any('"' in atom for atom in atoms) else '"'


def _may_be_tracked(value: str, atoms: Sequence[str]) -> bool:
    if any(_NEVER.search(atom) for atom in atoms):
        return False
    start = value.strip()
    return start.startswith(_HIDDEN) or _read_value(start).lower().startswith("http")


def _weave_piece(piece: str, click: Callable[[str], str]) -> str:
    """What followed a sentinel: a tracked attribute and the rest, or, if somebody else wrote it, nothing of ours."""
    quote = piece[5:6]
    if piece[:5].lower() != "href=" or quote not in ('"', "'"):
        return SENTINEL + piece
    end = piece.find(quote, 6)
    url = _read_value(piece[6:end]).strip()
    if end < 0 or not is_web_address(url):
        return piece
    return piece[:6] + escape(click(url)) + piece[end:]


def _read_value(value: str) -> str:
    """The attribute's value as a browser reads it."""
    if "&" not in value:
        return value
    if value.count("&") == value.count("&amp;"):
        return value.replace("&amp;", "&")
    return _REFERENCE.sub(_read_reference, value)


def _read_reference(reference: re.Match[str]) -> str:
    # `?a=1&copy=2` holds no sign of copyright: in attributes a name without a semicolon may not be followed by `=`.
    name = reference[1]
    return unescape(reference[0]) if name is None or name in html5 else reference[0]


def _end_of_body(html: str) -> int:
    end = html.rfind("</body>")
    if end >= 0:
        return end
    ends = [found.start() for found in _END.finditer(html)]
    return ends[-1] if ends else len(html)
