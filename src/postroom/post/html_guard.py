"""The cost of parsing HTML, counted before anything is parsed.

Parsers of HTML follow the standard, whose rules compare a new element with every open one: 20,000 nested elements took
both of ours 3 s, 10,000 unclosed bold elements 22 s, and unclosed bold elements before paragraphs minutes. Counting is
linear and an estimate: an element that is never closed counts to the end, as it does for a parser, and so does `<b/>`.
Browsers flatten documents that are deeper than 512.
"""

import re

MOST_OPEN = 1_000  # twice the depth that browsers keep
MOST_WORDS = 3_000
"""Spaces in one tag: attributes are compared with each other."""

_TAG = re.compile(r"<(/?)([a-z][^\s/>]{0,30})([^<>]*)", re.IGNORECASE)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_CLOSED_BY_THE_NEXT = {"p", "li", "dt", "dd", "option", "tr", "td", "th", "tbody", "thead", "tfoot", "colgroup"}
_NOT_COUNTED = _VOID | _CLOSED_BY_THE_NEXT | {"html", "head", "body"}


def find_html_excess(html: str) -> str | None:
    """The reason why HTML is too complex to be parsed; None if it is not."""
    if html.count("<") <= MOST_OPEN and len(html) <= MOST_WORDS:
        return None
    opened: dict[str, int] = {}
    depth = 0
    for closing, written, rest in _TAG.findall(html):
        if len(rest) > MOST_WORDS and len(rest.split(None, MOST_WORDS)) > MOST_WORDS:
            return f"has a tag with more than {MOST_WORDS:,} attributes"
        name = written.lower()
        if name in _NOT_COUNTED:
            continue
        if not closing:
            opened[name] = opened.get(name, 0) + 1
            depth += 1
        elif opened.get(name):
            opened[name] -= 1
            depth -= 1
        if depth > MOST_OPEN:
            return f"has more than {MOST_OPEN:,} nested or unclosed elements"
    return None
