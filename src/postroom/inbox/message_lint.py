"""Mistakes of a whole message that receivers notice: missing headers, a missing text part, lines that are too long.

Each rule names the document it comes from. The rules find mistakes; none of them is about evading spam filters.
"""

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser

from postroom.inbox.reader import ReadMessage
from postroom.mail.content_lint import LetterWarning, lint_html, lint_size, lint_subject
from postroom.post.html_guard import find_html_excess

LONGEST_LINE = 998  # RFC 5322, section 2.1.1
FEW_LETTERS = 50  # less than a sentence

_ONCE = ("from", "to", "cc", "subject", "date", "message-id", "reply-to")  # RFC 5322, section 3.6
# Bounded: an unlimited repetition is searched to the end from each beginning.
_LEFTOVER = re.compile(r"\{\{[^{}]{0,200}\}\}|\{%[^%]{0,200}%\}|\$\{\w{1,100}\}|\bundefined\b")


def lint_message(raw: bytes, read: ReadMessage) -> list[LetterWarning]:
    """All warnings about a message, those about headers first."""
    return [
        *_headers(read),
        *lint_subject(read.first("subject").strip()),
        *_leftovers(read),
        *_lines(raw),
        *_parts(read),
        *(_html(read.html) if read.html is not None else ()),
    ]


def _headers(read: ReadMessage) -> Iterator[LetterWarning]:
    names = [name.lower() for name, _value in read.headers]
    for name in ("From", "Date"):
        if name.lower() not in names:
            yield LetterWarning("header_missing", "headers", f"{name} is missing; RFC 5322, section 3.6 requires it")
    if "message-id" not in names:
        yield LetterWarning("header_missing", "headers", "Message-ID is missing; RFC 5322, section 3.6.4 asks for it")
    for name in _ONCE:
        if names.count(name) > 1:
            yield LetterWarning("header_repeated", "headers", f"{name.title()} stands twice; RFC 5322 allows it once")
    if not read.first("subject").strip():
        yield LetterWarning("subject_empty", "subject", "is empty")
    yield from _list_headers(read, names)


def _list_headers(read: ReadMessage, names: list[str]) -> Iterator[LetterWarning]:
    if "list-unsubscribe" in names and "list-unsubscribe-post" not in names:
        message = "List-Unsubscribe-Post is missing; one-click unsubscription needs it (RFC 8058)"
        yield LetterWarning("one_click_missing", "headers", message)
    if read.first("precedence").lower() == "bulk" and "list-unsubscribe" not in names:
        yield LetterWarning("unsubscribe_missing", "headers", "List-Unsubscribe is missing from bulk mail (RFC 2369)")


def _leftovers(read: ReadMessage) -> Iterator[LetterWarning]:
    for part, text in (("subject", read.first("subject")), ("text", read.text), ("html", read.html)):
        if text and (found := _LEFTOVER.search(text)) is not None:
            message = f"contains {found[0][:60]!r}, which a template did not replace"
            yield LetterWarning("placeholder", part, message)


def _lines(raw: bytes) -> Iterator[LetterWarning]:
    longest = max((len(line) for line in raw.split(b"\n")), default=0)
    if longest > LONGEST_LINE + 1:
        message = f"has a line of {longest} octets; RFC 5322, section 2.1.1 allows {LONGEST_LINE}"
        yield LetterWarning("line_long", "message", message)


def _parts(read: ReadMessage) -> Iterator[LetterWarning]:
    if read.text is None and read.html is None:
        yield LetterWarning("body_missing", "message", "has neither a text part nor an HTML part")
    elif read.text is None:
        yield LetterWarning("no_text", "text", "is missing; some readers and screen readers show only the text part")
    elif not read.text.strip():
        yield LetterWarning("text_empty", "text", "is empty")


def _html(html: str) -> Iterator[LetterWarning]:
    yield from lint_size(html)
    if (excess := find_html_excess(html)) is not None:
        yield LetterWarning("too_complex", "html", f"{excess}; it was not checked, and clients may not show it")
        return
    yield from lint_html(html)
    page = LexborHTMLParser(html)
    words = page.body.text(deep=True, strip=True) if page.body is not None else ""
    if page.css("img") and len(words) < FEW_LETTERS:
        message = "has images and nearly no text; readers who block images see nothing"
        yield LetterWarning("images_only", "html", message)
