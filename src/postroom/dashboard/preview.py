"""Safe previews of untrusted HTML: sanitised, and shown as a separate sandboxed document.

Three independent barriers: the sanitiser keeps only harmless elements, attributes, properties and style rules; the
document's policy forbids scripts, forms and the network, so that no tracking pixel is loaded; and the frame is a
sandbox without any permission. The document has its own URL: a `srcdoc` inherits the page's policy, which
blocks inline styles.
"""

import re
from collections.abc import Iterable, Mapping

import nh3

from postroom.dashboard.stylesheet import PROPERTIES, clean_declarations, clean_styles, styles_of
from postroom.inbox.aside import aside
from postroom.inbox.reader import AttachedFile
from postroom.post.html_guard import find_html_excess
from postroom.post.mime import Attachment
from postroom.runtime.endpoint import Answer

LONGEST = 1_000_000
"""Characters of HTML that are shown."""

WIDTHS = ("desktop", "tablet", "phone")
"""Classes of the frame."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox"
)

_TAGS = (nh3.ALLOWED_TAGS | {"font", "tfoot", "address", "main", "section", "big"}) - {"area", "map"}
_LOOKS = {"style", "align", "valign", "bgcolor", "width", "height", "dir", "lang", "title", "class", "id"}
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
_PICTURE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
_LINK = re.compile(r"(?:https?|mailto|tel):", re.IGNORECASE)
PICTURE_TYPES = frozenset({"image/png", "image/gif", "image/jpeg", "image/webp"})

_BODY = re.compile(r"<(/?)body(?=[\s>])", re.IGNORECASE)

_DOCUMENT = """<!doctype html>
<html lang="und"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Preview</title>
<style>html {{ color-scheme: {scheme}; }} body {{ margin: 1rem; background: {paper}; color: {ink};
font: 1rem/1.5 sans-serif; overflow-wrap: anywhere; }} img {{ max-width: 100%; }}
a {{ pointer-events: none; }}</style><style>{styles}</style></head>
<body>{body}</body></html>
"""
_LIGHT = {"scheme": "light", "paper": "#fff", "ink": "#111"}
_DARK = {"scheme": "dark", "paper": "#121212", "ink": "#eee"}


def picture(content_type: str, content: str) -> str | None:
    """An attached picture as an address that needs no network; None for what is no picture."""
    kind = content_type.partition(";")[0].lower()
    return f"data:{kind};base64,{content}" if kind in PICTURE_TYPES else None


def clean(html: str, pictures: Mapping[str, str]) -> str:
    """Harmless HTML. `pictures` are shown where the message points to them by content id."""

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if tag == "img" and attribute == "src":
            if value[:4].lower() == "cid:":
                return pictures.get(value[4:])
            return value if _PICTURE.fullmatch(value) else None
        if attribute == "style":
            return clean_declarations(value)
        return None if attribute == "href" and not _LINK.match(value) else value

    return nh3.clean(
        html[:LONGEST],
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=keep,
        clean_content_tags={"script", "style", "title"},
        url_schemes={"http", "https", "mailto", "tel", "cid", "data"},
        url_relative="deny",
        filter_style_properties=PROPERTIES,
    )


HEADERS = {"content-security-policy": POLICY, "x-frame-options": "SAMEORIGIN"}
"""Headers of a document in a sandboxed frame."""


async def preview(html: str, *, attached: Iterable[AttachedFile | Attachment] = (), dark: bool = False) -> Answer:
    """The answer for the sandboxed frame, as in a light or a dark mail client."""
    inside = {each.content_id: picture(each.content_type, each.content) for each in attached if each.content_id}
    pictures = {name: found for name, found in inside.items() if found}
    document = await aside(len(html), preview_document, html, pictures=pictures, dark=dark)
    return Answer(document.encode("utf-8", "replace"), 200, "text/html; charset=utf-8", HEADERS)


def preview_document(html: str, *, pictures: Mapping[str, str] | None = None, dark: bool = False) -> str:
    """The cleaned HTML as a document of its own."""
    if (excess := find_html_excess(html[:LONGEST])) is not None:
        return _DOCUMENT.format(styles="", body=f"<p>The HTML is not shown: it {excess}.</p>", **_LIGHT)
    styles = clean_styles(styles_of(html[:LONGEST]), dark=dark)
    # A fragment has no body element, and its colours are part of the mail.
    body = clean(_BODY.sub(r"<\1div", html[:LONGEST]), pictures or {})
    return _DOCUMENT.format(styles=styles, body=body, **(_DARK if dark else _LIGHT))
