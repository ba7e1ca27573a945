"""Warnings about the content of a mail: mistakes that readers and mail clients notice. Pure; no warning blocks a mail.

The rules concern readers: a subject that fits, alt texts, links that lead where they say. No rule is about evading
spam filters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

LONG_SUBJECT = 78  # the recommended line length of RFC 5322
CLIPPED_AT = 102 * 1024  # Gmail clips larger messages

_SHOUTED_LETTERS = 8  # shorter words in capitals are mostly abbreviations
_DOMAIN = re.compile(r"(?:https?://)?((?:[a-z0-9-]+\.)+[a-z]{2,24})(?:[/:?#].*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LetterWarning:
    """One warning: a stable code, the part of the letter, and the message."""

    code: str
    part: str
    message: str
    failing: int = 0  # mails that cannot be rendered, and fail


def lint_subject(words: str) -> Iterator[LetterWarning]:
    """Warnings about a subject that is not empty."""
    if len(words) > LONG_SUBJECT:
        yield LetterWarning(
            "subject_long",
            "subject",
            f"is longer than {LONG_SUBJECT} characters; most mail clients truncate it in lists",
        )
    letters = [character for character in words if character.isalpha()]
    if len(letters) >= _SHOUTED_LETTERS and all(character.isupper() for character in letters):
        yield LetterWarning("subject_shouts", "subject", "is all in capitals")


def lint_size(html: str) -> Iterator[LetterWarning]:
    if len(html.encode("utf-8", "replace")) > CLIPPED_AT:
        message = f"is larger than {CLIPPED_AT // 1024} KB; Gmail clips it there, with the unsubscribe link"
        yield LetterWarning("html_large", "html", message)


def lint_html(html: str) -> Iterator[LetterWarning]:
    """Warnings about images, active content and links of HTML without template tags."""
    page = LexborHTMLParser(html)
    without_alt = sum("alt" not in image.attributes for image in page.css("img"))
    if without_alt:
        message = f"has {count_of(without_alt, 'image')} without alt text; readers who block images see nothing"
        yield LetterWarning("image_without_alt", "html", message)
    if page.css("script, form, iframe, object, embed"):
        yield LetterWarning("active_content", "html", "has scripts, forms or frames; mail clients remove them")
    for link in page.css("a[href]"):
        yield from _lint_link(link)


def _lint_link(link: LexborNode) -> Iterator[LetterWarning]:
    href = (link.attributes.get("href") or "").strip()
    if href.lower().startswith("http://"):
        yield LetterWarning("link_insecure", "html", f"links to {href[:100]} without https")
    if href in ("", "#"):
        yield LetterWarning("link_empty", "html", f"has a link without a destination: {link.text(strip=True)[:60]!r}")
    shown, leads = _DOMAIN.fullmatch(link.text(strip=True)), host_of(href)
    if shown is not None and leads and not _same_domain(shown[1].lower(), leads):
        yield LetterWarning("link_misleading", "html", f"shows {shown[1]} and leads to {leads}")


def host_of(href: str) -> str:
    """The host of a URL in lower case; empty without one."""
    try:
        return (urlsplit(href).hostname or "").lower()
    except ValueError:
        return ""


def _same_domain(shown: str, leads: str) -> bool:
    shown, leads = shown.removeprefix("www."), leads.removeprefix("www.")
    return shown == leads or leads.endswith(f".{shown}") or shown.endswith(f".{leads}")


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
