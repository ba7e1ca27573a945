"""Safe previews of untrusted HTML: sanitised, and shown as a separate sandboxed document.

Three independent barriers: the sanitiser keeps only harmless elements, attributes and properties; the document's policy
forbids scripts, forms and the network, so that no tracking pixel is loaded; and the frame is a sandbox without any
permission. The document has its own URL: a `srcdoc` inherits the page's policy, which blocks inline styles.
"""

import re
from collections.abc import Mapping

import nh3

from postroom.runtime.endpoint import Answer

LONGEST = 1_000_000
"""Characters of HTML that are shown."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox"
)

_TAGS = (nh3.ALLOWED_TAGS | {"font", "tfoot", "address", "main", "section", "big"}) - {"area", "map"}
_LOOKS = {"style", "align", "valign", "bgcolor", "width", "height", "dir", "lang", "title"}
_ATTRIBUTES = {
    "*": _LOOKS,
    "a": {"href"},
    "img": {"src", "alt", "border"},
    "font": {"color", "face", "size"},
    "table": {"border", "cellpadding", "cellspacing"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "col": {"span"},
    "ol": {"start", "type"},
}
_SIDES = ("", "-top", "-right", "-bottom", "-left")
_PROPERTIES = {
    *(f"{name}{side}" for name in ("margin", "padding", "border") for side in _SIDES),
    *(f"{name}-{side}" for name in ("max", "min") for side in ("width", "height")),
    *(f"border-{name}" for name in ("collapse", "color", "radius", "spacing", "style", "width")),
    *(f"font-{name}" for name in ("family", "size", "style", "weight", "variant")),
    *(f"text-{name}" for name in ("align", "decoration", "indent", "transform")),
    *("background", "background-color", "color", "direction", "display", "float", "font", "height", "letter-spacing"),
    *("line-height", "list-style", "list-style-type", "overflow-wrap", "table-layout", "vertical-align"),
    *("white-space", "width", "word-break"),
}
_PICTURE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
_FETCHING = re.compile(r"url|image|src|import|[\\@]|/\*", re.IGNORECASE)
"""Declarations that could load something, or hide it behind an escape or a comment."""
_LINK = re.compile(r"(?:https?|mailto|tel):", re.IGNORECASE)
_PICTURE_TYPES = frozenset({"image/png", "image/gif", "image/jpeg", "image/webp"})

_DOCUMENT = """<!doctype html>
<html lang="und"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Preview</title>
<style>html {{ color-scheme: light; background: #fff; }} body {{ margin: 1rem; color: #111; font: 1rem/1.5 sans-serif;
overflow-wrap: anywhere; }} img {{ max-width: 100%; }} a {{ pointer-events: none; }}</style></head>
<body>{body}</body></html>
"""


def picture(content_type: str, content: str) -> str | None:
    """An attached picture as an address that needs no network; None for what is no picture."""
    kind = content_type.partition(";")[0].lower()
    return f"data:{kind};base64,{content}" if kind in _PICTURE_TYPES else None


def clean(html: str, pictures: Mapping[str, str]) -> str:
    """Harmless HTML. `pictures` are shown where the message points to them by content id."""

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if tag == "img" and attribute == "src":
            if value[:4].lower() == "cid:":
                return pictures.get(value[4:])
            return value if _PICTURE.fullmatch(value) else None
        if attribute == "style":
            return ";".join(each for each in value.split(";") if _FETCHING.search(each) is None)
        return None if attribute == "href" and not _LINK.match(value) else value

    return nh3.clean(
        html[:LONGEST],
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=keep,
        clean_content_tags={"script", "style", "title"},
        url_schemes={"http", "https", "mailto", "tel", "cid", "data"},
        url_relative="deny",
        filter_style_properties=_PROPERTIES,
    )


def preview(html: str, *, pictures: Mapping[str, str] | None = None) -> Answer:
    """The document for the sandboxed frame."""
    headers = {"content-security-policy": POLICY, "x-frame-options": "SAMEORIGIN"}
    document = _DOCUMENT.format(body=clean(html, pictures or {}))
    return Answer(document.encode("utf-8", "replace"), 200, "text/html; charset=utf-8", headers)
