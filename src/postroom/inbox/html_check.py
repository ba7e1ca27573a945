"""HTML and CSS of a message against the support of five common mail clients.

The table is our own selection. Its facts are those that Can I email (https://www.caniemail.com, data of the project
hteumeuleu/caniemail) publishes from tests of each client: the newest result of Gmail on the web, Outlook for Windows
(which renders with Word), Outlook.com, Apple Mail on macOS, and Yahoo Mail on the web. `slug` names the page there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from selectolax.lexbor import LexborHTMLParser

from postroom.post.html_guard import find_html_excess

CLIENTS = ("Gmail", "Outlook for Windows", "Outlook.com", "Apple Mail", "Yahoo Mail")
SOURCE = "https://www.caniemail.com/features/"


class Support(StrEnum):
    """The support of a feature by one mail client."""

    YES = "yes"
    PARTIAL = "partial"
    NO = "no"


_LETTERS = {"y": Support.YES, "a": Support.PARTIAL, "n": Support.NO}


@dataclass(frozen=True, slots=True)
class HtmlFeature:
    """One feature: its page at the source, how it is found, and a letter per client in the order of `CLIENTS`."""

    name: str
    slug: str
    support: str
    selector: str = ""  # elements
    css: str = ""  # a pattern of style sheets and style attributes


_START = r"(?:^|[;{\s])"

FEATURES = (
    HtmlFeature("display: flex", "css-display-flex", "ynyyy", css=r"display\s*:\s*(?:inline-)?flex"),
    HtmlFeature("display: grid", "css-display-grid", "nnyyn", css=r"display\s*:\s*(?:inline-)?grid"),
    HtmlFeature("gap", "css-gap", "anayn", css=rf"{_START}(?:column-|row-)?gap\s*:"),
    HtmlFeature("position", "css-position", "nnaaa", css=rf"{_START}position\s*:"),
    HtmlFeature("float", "css-float", "ynyyy", css=rf"{_START}float\s*:"),
    HtmlFeature("max-width", "css-max-width", "yayyy", css=rf"{_START}max-width\s*:"),
    HtmlFeature("border-radius", "css-border-radius", "ynyya", css=rf"{_START}border-radius\s*:"),
    HtmlFeature("box-shadow", "css-box-shadow", "nnyyn", css=rf"{_START}box-shadow\s*:"),
    HtmlFeature("background-image", "css-background-image", "ynyya", css=r"background(?:-image)?\s*:[^;}]{0,99}?url\("),
    HtmlFeature("linear-gradient()", "css-linear-gradient", "ynnyn", css=r"linear-gradient\("),
    HtmlFeature("opacity", "css-opacity", "ynyyn", css=rf"{_START}opacity\s*:"),
    HtmlFeature("object-fit", "css-object-fit", "ynyyn", css=rf"{_START}object-fit\s*:"),
    HtmlFeature("transform", "css-transform", "nnnyn", css=rf"{_START}transform\s*:"),
    HtmlFeature("animation", "css-animation", "nnnyn", css=rf"{_START}animation(?:-name)?\s*:"),
    HtmlFeature("custom properties", "css-variables", "nnnyn", css=r"(?<![\w-])--[\w-]+\s*:"),
    HtmlFeature("@font-face", "css-at-font-face", "nanyn", css=r"@font-face"),
    HtmlFeature("@media", "css-at-media", "anaya", css=r"@media"),
    HtmlFeature("prefers-color-scheme", "css-at-media-prefers-color-scheme", "nnyyn", css=r"prefers-color-scheme"),
    HtmlFeature("<style> in <body>", "html-style", "nnyyy", selector="body style"),
    HtmlFeature("<link rel=stylesheet>", "html-link", "nynyn", selector="link[rel=stylesheet]"),
    HtmlFeature("<svg>", "html-svg", "nnnan", selector="svg"),
    HtmlFeature("<video>", "html-video", "nnnyn", selector="video"),
    HtmlFeature("<form>", "html-form", "ynayy", selector="form"),
    HtmlFeature("<picture>", "html-picture", "nnnyn", selector="picture"),
    HtmlFeature("SVG image", "image-svg", "nnyyy", selector="img[src$='.svg']"),
    HtmlFeature("WebP image", "image-webp", "anyyy", selector="img[src$='.webp']"),
    HtmlFeature("image as data: URL", "image-base64", "anyyy", selector="img[src^='data:']"),
)

_PATTERNS = {feature.name: re.compile(feature.css, re.IGNORECASE) for feature in FEATURES if feature.css}
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HtmlFinding:
    """A feature that a message uses and some client does not fully support."""

    feature: str
    count: int
    source: str
    support: Mapping[str, Support]  # by client


def check_html(html: str) -> list[HtmlFinding]:
    """The features of a message that some client lacks, those of most clients first."""
    if find_html_excess(html) is not None:
        return []
    page = LexborHTMLParser(html)
    css = _COMMENT.sub("", "\n".join(_styles(page)))
    counted = ((feature, _count(feature, page, css)) for feature in FEATURES)
    found = [_finding(feature, count) for feature, count in counted if count]
    return sorted(found, key=lambda finding: -sum(each is Support.NO for each in finding.support.values()))


def _styles(page: LexborHTMLParser) -> list[str]:
    sheets = [node.text(deep=True) for node in page.css("style")]
    return sheets + [f"{{{node.attributes.get('style') or ''}}}" for node in page.css("[style]")]


def _count(feature: HtmlFeature, page: LexborHTMLParser, css: str) -> int:
    if feature.selector:
        return len(page.css(feature.selector))
    return sum(1 for _found in _PATTERNS[feature.name].finditer(css))


def _finding(feature: HtmlFeature, count: int) -> HtmlFinding:
    support = dict(zip(CLIENTS, (_LETTERS[letter] for letter in feature.support), strict=True))
    return HtmlFinding(feature.name, count, f"{SOURCE}{feature.slug}/", support)
