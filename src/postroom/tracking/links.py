"""Tracked links in HTML: found once per template, replaced in each mail.

`plan` reads a template as its author wrote it, including template expressions, and puts a sentinel before each `href`
that may lead to the web. The sentinel is a control character before the attribute's name. No merge field can write
there: values are escaped and cannot contain a quotation mark. After rendering, `weave` splits the HTML at the sentinels
and replaces the rendered values. The space before a tracked `href` becomes a line break: with several signed URLs, a
line would exceed the 998 octets of SMTP, and the mail would need base64. Everything else is unchanged, byte for byte.

Not tracked are `mailto:`, `tel:`, anchors, empty values, values that are not http or https after rendering, and links
whose expression names `unsubscribe_url` or `preferences_url`. Links inside a merge field that is rendered without
escaping are not found. A tracked `href` without quotation marks gets them. Pure.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from html import escape, unescape
from html.entities import html5

from postroom.runtime.template_tags import replace_tags
from postroom.tracking.tokens import is_web_address

SENTINEL = "\x01"

_HIDDEN = "\x02"
"""Replaces a tag of the template language while the HTML around it is parsed."""

# Each pattern matches at the current position or finds the next character, so nothing is read twice. Possessive
# quantifiers are avoided: Python 3.11.2 matches them incorrectly.
_RAW_TEXT = re.compile(r"<(script|style|textarea|title)\b", re.IGNORECASE)
_OPENING_TAG = re.compile(r"<([a-z][^\s/>]*)", re.IGNORECASE)
_EQUALS_OR_END = re.compile(r"[=>]")
_QUOTE = re.compile(r"\s*([\"'])")
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")
_TAGS = frozenset(("a", "area", "v:roundrect"))  # the last is a button for Outlook
_NEVER = re.compile(r"\b(?:unsubscribe_url|preferences_url)\b")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|([A-Za-z][A-Za-z0-9]*;?)(?!=))")
_END = re.compile(r"</body\s*>", re.IGNORECASE)
_SPECIAL = re.compile("[&<>\"']").search  # a click URL rarely needs `escape`, which takes ten times as long
_STYLE = "width:1px;height:1px;border:0"


def plan(html_template: str) -> str:
    """The template with a sentinel before each `href` that may be tracked. Idempotent."""
    return _Plan(html_template).make()


def weave(rendered_html: str, *, click: Callable[[str], str], pixel: str | None) -> str:
    """Replace each marked link by its `click` URL, and add the pixel, if any, at the end of the body."""
    first, *pieces = rendered_html.split(SENTINEL)
    parts = [first]
    for piece in pieces:
        tracked = _tracked(piece, click)
        if tracked is None:
            parts.append(piece if _is_marked(piece) else SENTINEL + piece)
        elif parts[-1].endswith(" "):
            parts[-1] = parts[-1][:-1]
            parts += ("\n", tracked)
        else:
            parts.append(tracked)
    html = "".join(parts)
    if pixel is None:
        return html
    image = f'<img src="{escape(pixel)}" width="1" height="1" alt="" style="{_STYLE}">'
    end = _end_of_body(html)
    return html[:end] + image + html[end:]


class _Plan:
    """One pass over one template: template tags are hidden, HTML tags are parsed, template tags are restored."""

    def __init__(self, html_template: str) -> None:
        self._hidden: list[str] = []
        self._html = replace_tags(html_template.replace(SENTINEL, "").replace(_HIDDEN, ""), self._hide)

    def make(self) -> str:
        first, *rest = "".join(self._read()).split(_HIDDEN)
        return first + "".join(tag + part for tag, part in zip(self._hidden, rest, strict=True))

    def _hide(self, tag: str) -> str:
        self._hidden.append(tag)
        return _HIDDEN

    def _read(self) -> Iterator[str]:
        """The HTML in pieces, with a sentinel before each attribute that may be tracked."""
        at, hidden_before = 0, 0
        for start, end in _attributes_of_links(self._html):
            hidden_before += self._html.count(_HIDDEN, at, start)
            yield self._html[at:start]
            yield from self._read_attributes(self._html[start:end], hidden_before)
            hidden_before += self._html.count(_HIDDEN, start, end)
            at = end
        yield self._html[at:]

    def _read_attributes(self, attributes: str, hidden_before: int) -> Iterator[str]:
        at = 0
        for attribute in _ATTRIBUTE.finditer(attributes):
            name, value = attribute.groups()
            hidden_before += attributes.count(_HIDDEN, at, attribute.start())
            in_name = name.count(_HIDDEN)
            yield attributes[at : attribute.start()]
            atoms = self._hidden[hidden_before + in_name : hidden_before + attribute[0].count(_HIDDEN)]
            is_link = value is not None and name.replace(_HIDDEN, "").lower() == "href"
            yield _marked(name, value, atoms) or attribute[0] if is_link else attribute[0]
            hidden_before += in_name + len(atoms)
            at = attribute.end()
        yield attributes[at:]


def _attributes_of_links(html: str) -> Iterator[tuple[int, int]]:
    """The start and end of the attributes of each link element; an unclosed tag is the last."""
    at = 0
    while (at := html.find("<", at)) >= 0:
        if html.startswith("<!--", at):
            end = _end_of_comment(html, at)
        elif (raw := _RAW_TEXT.match(html, at)) is not None:
            end = _find_end(re.compile(f"</{raw[1]}", re.IGNORECASE), html, raw.end())
        elif (tag := _OPENING_TAG.match(html, at)) is not None:
            end = _end_of_attributes(html, tag.end())
            if end is not None and tag[1].lower() in _TAGS:
                yield tag.end(), end
        else:
            end = at + 1
        if end is None:
            return
        at = end


def _end_of_comment(html: str, start: int) -> int | None:
    """The position after the comment, or inside it where Outlook reads it: `<!--[if mso]>`."""
    if html[start + 4 : start + 7].lower() == "[if":
        return start + 4
    end = html.find("-->", start + 4)
    return end + 3 if end >= 0 else None


def _find_end(pattern: re.Pattern[str], html: str, at: int) -> int | None:
    found = pattern.search(html, at)
    return found.end() if found is not None else None


def _end_of_attributes(html: str, at: int) -> int | None:
    """The `>` that ends a tag, outside quoted values; a quotation mark counts only after `=`."""
    while (found := _EQUALS_OR_END.search(html, at)) is not None:
        if found[0] == ">":
            return found.start()
        at = found.end()
        if (quote := _QUOTE.match(html, at)) is not None:
            closing = html.find(quote[1], quote.end())
            at = closing + 1 if closing >= 0 else quote.end()
    return None


def _marked(name: str, value: str, atoms: Sequence[str]) -> str | None:
    """The attribute with its sentinel; None if it is not tracked."""
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    if not _may_be_tracked(inner, atoms):
        return None
    quote = quote or _quote_for(atoms)
    return f"{name[:-4]}{SENTINEL}{name[-4:]}={quote}{inner}{quote}"


def _quote_for(atoms: Sequence[str]) -> str:
    """The quotation mark for an unquoted value: single if an expression contains a double one."""
    return "'" if any('"' in atom for atom in atoms) else '"'


def _may_be_tracked(value: str, atoms: Sequence[str]) -> bool:
    if any(_NEVER.search(atom) for atom in atoms):
        return False
    start = value.strip()
    return start.startswith(_HIDDEN) or _read_value(start).lower().startswith("http")


def _is_marked(piece: str) -> bool:
    """True if `plan` put the sentinel before this piece."""
    return piece[:5].lower() == "href=" and piece[5:6] in ('"', "'")


def _tracked(piece: str, click: Callable[[str], str]) -> str | None:
    """The tracked attribute after a sentinel, and the rest; None if it is not a link to the web."""
    end = piece.find(piece[5:6], 6)
    if end < 0 or not _is_marked(piece):
        return None
    url = _target(piece[6:end])
    if url is None:
        return None
    tracked = click(url)
    return f"{piece[:6]}{escape(tracked) if _SPECIAL(tracked) else tracked}{piece[end:]}"


@lru_cache(maxsize=1024)  # most links of a letter are the same in every mail
def _target(value: str) -> str | None:
    """The URL in an attribute's value; None if it does not lead to the web."""
    url = _read_value(value).strip()
    return url if is_web_address(url) else None


def _read_value(value: str) -> str:
    """The attribute's value as a browser reads it."""
    if "&" not in value:
        return value
    if value.count("&") == value.count("&amp;"):
        return value.replace("&amp;", "&")
    return _REFERENCE.sub(_read_reference, value)


def _read_reference(reference: re.Match[str]) -> str:
    # `?a=1&copy=2` contains no copyright sign: in attributes, an entity without a semicolon is not decoded before `=`.
    name = reference[1]
    return unescape(reference[0]) if name is None or name in html5 else reference[0]


def _end_of_body(html: str) -> int:
    end = html.rfind("</body>")
    if end >= 0:
        return end
    ends = [found.start() for found in _END.finditer(html)]
    return ends[-1] if ends else len(html)
