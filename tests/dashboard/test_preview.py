"""Sanitising of untrusted HTML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.dashboard.preview import LONGEST, POLICY, clean, picture, preview, preview_document
from postroom.dashboard.stylesheet import clean_styles, has_dark_styles

PIXEL = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="


@pytest.mark.parametrize(
    "hostile,trace",
    [
        ("<script>alert(1)</script>", "alert"),
        ("<img src=x onerror=alert(1)>", "onerror"),
        ("<svg><script>alert(1)</script></svg>", "script"),
        ("<svg onload=alert(1)>", "svg"),
        ('<a href="javascript:alert(1)">x</a>', "javascript"),
        ('<a href="java\tscript:alert(1)">x</a>', "script"),
        ('<a href="data:text/html,<script>alert(1)</script>">x</a>', "data:"),
        ('<a href="cid:x">x</a>', "cid:"),
        ("<iframe src=https://evil.example></iframe>", "iframe"),
        ("<object data=https://evil.example></object>", "object"),
        ("<form action=https://evil.example><input name=password></form>", "input"),
        ('<meta http-equiv="refresh" content="0;url=https://evil.example">', "refresh"),
        ("<base href=https://evil.example/>", "base"),
        ("<link rel=stylesheet href=https://evil.example/x.css>", "link"),
        ("<style>@import 'https://evil.example'; body { display: none }</style>", "evil"),
        ('<p style="position: fixed; top: 0">x</p>', "fixed"),
        ('<p style="po\\73 ition: fixed">x</p>', "fixed"),
        ('<p style="-moz-binding: url(https://evil.example/x.xml)">x</p>', "binding"),
        ('<p style="background: url(https://evil.example/x.gif)">x</p>', "evil"),
        ('<p style="background: u\\72l(https://evil.example/x.gif)">x</p>', "evil"),
        ("<p style=\"background: image-set('https://evil.example/x.gif' 1x)\">x</p>", "evil"),
        ('<p style="list-style: URL (//evil.example/x.gif)">x</p>', "evil"),
        ('<img src="https://evil.example/pixel.gif">', "evil"),
        ('<img src="/sign-out">', "sign-out"),
        ('<img src="data:image/svg+xml;base64,PHN2Zz4=">', "svg"),
        ("<!-- comment -->", "comment"),
    ],
)
def test_nothing_dangerous_remains(hostile: str, trace: str) -> None:
    """Scripts, handlers, frames, forms, foreign addresses and ways out of the box are gone."""
    assert trace not in clean(f"{hostile}<p>kept</p>", {})
    assert "<p>kept</p>" in clean(f"{hostile}<p>kept</p>", {})


def test_looks_remain() -> None:
    """Inline styles, tables and links of a mail stay as they were."""
    shown = clean('<td bgcolor="#eee" style="color: red"><a href="https://example.org">x</a></td>', {})
    assert "color:red" in clean('<p style="color: red">x</p>', {}).replace(" ", "")
    mixed = '<p style="background: url(x); color: red; background: #eee">x</p>'
    assert clean(mixed, {}).replace(" ", "") == '<pstyle="color:red;background:#eee">x</p>'
    assert 'href="https://example.org"' in shown


def test_the_title_of_the_document_is_no_text() -> None:
    """The text of the title element is not shown in the body."""
    assert (
        clean("<html><head><title>Welcome</title></head><body><p>Hello</p></body></html>", {}).strip() == "<p>Hello</p>"
    )


def test_pictures_inside_the_message_are_shown() -> None:
    """A picture by content id takes its place; an unknown one leaves nothing behind."""
    inside = picture("image/GIF", PIXEL)
    assert inside is not None
    assert inside in clean('<img src="cid:logo">', {"logo": inside}).replace("&amp;", "&")
    assert "src" not in clean('<img src="cid:other">', {"logo": inside})
    assert picture("image/svg+xml", PIXEL) is None


async def test_the_document_allows_itself_nothing() -> None:
    """Even opened by itself, the preview is sandboxed and may load nothing; a huge one is cut."""
    response = await preview("x" * (LONGEST + 10) + "{braces}")
    assert response.headers["content-security-policy"] == POLICY
    assert "sandbox" in POLICY
    assert "script-src" not in POLICY
    assert len(response.value) < LONGEST + 2000
    assert b"{braces}" in (await preview("{braces}")).value


@pytest.mark.parametrize(
    "css, kept",
    [
        (".a { color: red }", ".a { color: red }"),
        ("td.a > b, #x:hover { color: red; position: fixed }", "td.a > b, #x:hover { color: red }"),
        (
            "@media (max-width: 600px) { .a { width: 100% !important } }",
            "@media (max-width: 600px) { .a { width: 100% !important } }",
        ),
        ("/* x */ .a { color: red } .b { color: blue", ".a { color: red }\n.b { color: blue }"),
        ("@import 'https://evil.example/x.css'; .a { color: red }", ".a { color: red }"),
        ("@import url(https://evil.example/x.css)", ""),
        ("@font-face { font-family: x; src: url(https://evil.example) }", ""),
        (".a { background: url(https://evil.example/x.gif) }", ""),
        (".a { background: u\\72l(https://evil.example/x.gif) }", ""),
        (".a { background: image-set('https://evil.example/x.gif' 1x) }", ""),
        (".a { color: red } </style><script>alert(1)</script>", ".a { color: red }"),
        (".a</style><img src=x> { color: red }", ""),
        (".a { color: red</style><b> }", ""),
        ("@media </style> { .a { color: red } }", ""),
        ("@supports (display: grid) { .a { color: red } }", ""),
        ("@media screen { " * 5 + ".a { color: red }" + "}" * 5, ""),
        ("}}}} .a { color: red }", ".a { color: red }"),
    ],
)
def test_harmless_rules_of_style_sheets_remain(css: str, kept: str) -> None:
    """Known properties and media queries stay; everything that loads, escapes or leaves the sheet is dropped."""
    assert clean_styles(css, dark=False) == kept


async def test_colour_scheme_of_the_mail_client_is_chosen() -> None:
    """Rules for dark clients apply in the dark preview only, whatever the viewer's browser prefers."""
    html = "<style>@media (prefers-color-scheme: dark) { p { color: white } }</style><body bgcolor=red><p class=x>x</p>"
    light, dark = [(await preview(html, dark=dark)).value.decode() for dark in (False, True)]
    assert "@media (max-width: 0px) { p { color: white } }" in light
    assert "@media (min-width: 0px) { p { color: white } }" in dark
    assert ("color-scheme: light" in light, "color-scheme: dark" in dark) == (True, True)
    assert "body { background-color: red }" in light
    assert '<p class="x">' in light
    assert has_dark_styles(html)
    assert not has_dark_styles("<style>@media (prefers-color-scheme: light) { p { color: black } }</style>")


@given(st.text(alphabet="a{}@;:/*\\<\"'() url,import\n", max_size=80))
def test_cleaned_styles_cannot_load_or_leave_the_sheet(css: str) -> None:
    """No rule that remains, with any braces and quotes, can load anything or end the style element."""
    kept = clean_styles(css, dark=False)
    assert not {"<", "\\", "@import", "url("} & {trace for trace in ("<", "\\", "@import", "url(") if trace in kept}
    assert kept.count("{") == kept.count("}")


async def test_html_too_complex_to_parse_is_named() -> None:
    """Ten thousand unclosed elements would occupy a parser for minutes; the reader gets the reason instead."""
    document = preview_document("".join(f"<b a={n}><p>" for n in range(10_000)))
    assert "The HTML is not shown: it has more than 1,000 nested or unclosed elements." in document
