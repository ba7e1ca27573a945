"""Plain text derived from HTML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.plaintext import plain_text

CASES = {
    "paragraphs": ("<p>One\n  two</p><p>Three</p>", "One two\n\nThree"),
    "headings": ("<h1>Title</h1><p>Body</p><h2>More</h2>End", "Title\n\nBody\n\nMore\n\nEnd"),
    "divisions": ("<div>a</div><div>b<div>c</div></div>", "a\nb\nc"),
    "inline markup": ("<p>a <b>bold</b> and <i>it</i>alic</p>", "a bold and italic"),
    "line breaks": ("<p>a<br>b<br><br>c</p>", "a\nb\n\nc"),
    "list": ("<p>x</p><ul><li>one</li><li><b>two</b></li></ul><p>y</p>", "x\n\n- one\n- two\n\ny"),
    "numbers": ("<ol start=3><li>c</li><li>d</li></ol>", "3. c\n4. d"),
    "nested list": (
        "<ul><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ul>",
        "- a\n  - b\n  - c\n- d",
    ),
    "list in a list without an item": ("<ul><li>a</li><ul><li>b</li></ul></ul>", "- a\n  - b"),
    "link": (
        '<p>See <a href="https://x.org/a?b=1&amp;c=2">the page</a>.</p>',
        "See the page (https://x.org/a?b=1&c=2).",
    ),
    "link that is its address": ('<a href="https://x.org/">https://x.org</a>', "https://x.org"),
    "link without its scheme": ('<a href="https://x.org/">x.org</a>', "x.org"),
    "mail link": (
        '<a href="mailto:a@x.org">Write</a>, <a href="mailto:a@x.org">a@x.org</a>',
        "Write (a@x.org), a@x.org",
    ),
    "link to itself": ('<a href="#top">top</a> <a>nowhere</a>', "top nowhere"),
    "link around an image": (
        '<a href="https://x.org"><img src="l.png" alt="Logo"></a>',
        "Logo (https://x.org)",
    ),
    "link without text": ('<a href="https://x.org"><img src="l.png"></a>', "https://x.org"),
    "link around blocks": ('<a href="https://x.org"><div>a</div><div>b</div></a>', "a\nb (https://x.org)"),
    "image": ('<p>a<img src="x" alt="a cat">b<img src="y" alt=""></p>', "a a cat b"),
    "table": (
        "<table><tr><th>Item</th><th>Price</th></tr><tr><td>Tea</td><td>3 €</td></tr></table>",
        "Item | Price\nTea | 3 €",
    ),
    "layout table": ("<table><tr><td><p>a</p><p>b</p></td><td>c</td></tr></table>", "a\n\nb\nc"),
    "empty cells": ("<table><tr><td></td><td>a</td><td> </td></tr><tr><td></td></tr></table>", "a"),
    "unseen": ("<title>t</title><style>p{}</style><script>x</script><!-- c --><p>a</p>", "a"),
    "hidden": ('<div style="display: NONE">pre</div><p hidden>x</p><p style="color:red">a</p>', "a"),
    "entities": ("<p>&lt;b&gt; &amp; caf&eacute;&nbsp;&hellip; &#128512;</p>", "<b> & café … 😀"),
    "padding": ("<p>a&#8203;&#65279;&shy;b</p>", "ab"),
    "quote": ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
    "rule": ("a<hr>b", "a\n\n---\n\nb"),
    "preformatted": ("<pre>a\n  b  \n\nc</pre>", "a\n  b\n\nc"),
    "definition list": ("<dl><dt>a</dt><dd>b</dd></dl>", "a\nb"),
    "right to left": ("<p dir=rtl>می‌خواهم</p>", "می‌خواهم"),
    "empty": ("", ""),
    "no body": ("<!doctype html><html><head></head></html>", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_derived_text_reads_like_this(name: str) -> None:
    """Each kind of markup has one readable form."""
    html, expected = CASES[name]
    assert plain_text(html) == expected


@pytest.mark.parametrize(
    "markup", ["<div><b>", "<ul><li>", "<ol>", "<blockquote>", "<table><tr><td>", "<a href=x><div>"]
)
def test_a_very_deep_tree_still_gives_its_text(markup: str) -> None:
    """Depth is bounded, the words are not lost."""
    assert "needle" in plain_text(markup * 3_000 + "needle")


MARKUP = ["<p>", "</p>", "<ul>", "<li>", "</ul>", "<table>", "<tr>", "<td>", "</table>", "<a href=u>", "</a>", "<br>"]


@given(st.lists(st.sampled_from([*MARKUP, "<hr>", "<blockquote>", "<div hidden>", "</div>", " ", "word", "&lt;"])))
def test_any_markup_gives_tidy_text(pieces: list[str]) -> None:
    """However the elements are nested, lines have no trailing space and gaps are one line."""
    text = plain_text("".join(pieces))
    assert "\n\n\n" not in text
    assert all(line == line.rstrip() for line in text.split("\n"))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_gives_text(html: str) -> None:
    """Any HTML gives a deterministic text without outer blank lines."""
    text = plain_text(html)
    assert text == plain_text(html)
    assert text == text.strip("\n")
    assert "\n\n\n" not in text or "<pre" in html.lower()
