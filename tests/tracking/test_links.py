"""Tracked links in HTML: selection and unchanged rest."""

import re

import minijinja
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.tracking.links import SENTINEL, plan, weave


def render(template: str, **values: object) -> str:
    return minijinja.Environment(templates={"mail.html": template}).render_template("mail.html", **values)


def tracked(template: str, **values: object) -> list[str]:
    """The targets that are tracked after planning and rendering."""
    found: list[str] = []

    def click(url: str) -> str:
        found.append(url)
        return "https://t/"

    weave(render(plan(template), **values), click=click, pixel=None)
    return found


@pytest.mark.parametrize(
    "template, target",
    [
        ('<a href="https://a.example/">x</a>', "https://a.example/"),
        ("<a href='http://a.example/'>x</a>", "http://a.example/"),
        ("<a href=https://a.example/x>x</a>", "https://a.example/x"),
        ('<A CLASS=b HREF = "HTTPS://a.example/">x</A>', "HTTPS://a.example/"),
        ("<a\n\thref\n=\n'https://a.example/'\n>x</a>", "https://a.example/"),
        ('<a href=" https://a.example/ ">x</a>', "https://a.example/"),
        ('<area shape=rect href="https://a.example/">', "https://a.example/"),
        ('<a href="https://a.example/?a=1&amp;b=2">x</a>', "https://a.example/?a=1&b=2"),
        ('<a href="https://a.example/?a=1&b=2&copy=3">x</a>', "https://a.example/?a=1&b=2&copy=3"),
        ('<a href="https://a.example/?a=1&copy;&#38;&#x26;">x</a>', "https://a.example/?a=1\u00a9&&"),
        ('<a href="https:&#47;&#47;a.example/">x</a>', "https://a.example/"),
        ('<a title="a>b" href="https://a.example/">x</a>', "https://a.example/"),
        ("<a title=it's href=\"https://a.example/\">it's</a>", "https://a.example/"),
        ('<a href="{{ link }}">x</a>', 'https://m.example/?a=1&b="2"\''),
        ("<a href={{ link }}>x</a>", 'https://m.example/?a=1&b="2"\''),
        ('<a href="https://a.example/{{ name }}">x</a>', "https://a.example/<Ada & co>"),
        ('<a href="https://a.example/{{ "x>" ~ \'"\' }}">x</a>', 'https://a.example/x>"'),
        ('<a href="{% if name %}https://a.example/{% else %}#{% endif %}">x</a>', "https://a.example/"),
        ('<a {% if name %}href="https://a.example/"{% endif %}>x</a>', "https://a.example/"),
        ('<!--[if mso]><v:roundrect href="https://a.example/"></v:roundrect><![endif]-->', "https://a.example/"),
        ('{# <a href="https://no.example"> #}<a href="https://a.example/">x</a>', "https://a.example/"),
    ],
)
def test_web_links_are_tracked(template: str, target: str) -> None:
    """The tracked target is the link as a browser reads it, whatever the author's syntax."""
    assert tracked(template, link='https://m.example/?a=1&b="2"\'', name="<Ada & co>") == [target]


@pytest.mark.parametrize(
    "template",
    [
        '<a href="mailto:ada@example.org">x</a>',
        '<a href="tel:+491234">x</a>',
        '<a href="sms:+491234">x</a>',
        '<a href="#top">x</a>',
        '<a href="">x</a>',
        "<a href>x</a>",
        "<a name=here>x</a>",
        '<a href="/relative">x</a>',
        '<a href="//host/path">x</a>',
        '<a href="javascript:alert(1)">x</a>',
        '<a href="{{ unsubscribe_url }}">x</a>',
        "<a href='{{ unsubscribe_url | trim }}'>x</a>",
        '<a href="{{ preferences_url }}">x</a>',
        '<a href="{{ mailto }}">x</a>',
        '<a href="{{ missing }}">x</a>',
        '<a data-href="https://a.example/">x</a>',
        '<link href="https://a.example/style.css">',
        '<img src="https://a.example/x.png" alt="<a href=\'https://a.example\'>">',
        '<!-- <a href="https://a.example/">x</a> -->',
        '<style>a[href="https://a.example/"] { color: red }</style>',
        "<title><a href='https://a.example/'></title>",
        "https://a.example/",
        '<abbr href="https://a.example/">x</abbr>',
    ],
)
def test_other_content_is_unchanged(template: str) -> None:
    """Everything that is not a web link stays the same, byte for byte."""
    values = {"unsubscribe_url": "https://mail.example.com/unsubscribe/x", "mailto": "mailto:a@b"}
    assert tracked(template, **values) == []
    assert weave(render(plan(template), **values), click=str, pixel=None) == render(template, **values)


def test_tracked_link_is_escaped() -> None:
    """The tracked URL replaces the value and cannot leave the attribute."""
    html = weave(
        plan('<p><a class="b" href="https://a.example/" id=c>x</a></p>'),
        click=lambda _: "https://t/?a&\"'<",
        pixel=None,
    )
    assert html == '<p><a class="b"\nhref="https://t/?a&amp;&quot;&#x27;&lt;" id=c>x</a></p>'


def test_tracked_links_keep_lines_short() -> None:
    """A line with many links stays below the limit of SMTP (998 octets), so that the mail does not need base64."""
    template = "<p>" + '<a href="https://a.example/">x</a> ' * 20 + "</p>"
    html = weave(plan(template), click=lambda _: "https://t/" + "x" * 200, pixel=None)
    assert max(map(len, html.splitlines())) < 300
    assert html.replace("\n", " ").count('<a href="https://t/') == 20


def test_merge_field_cannot_create_a_tracked_link() -> None:
    """A value that contains the sentinel does not become a tracked link."""
    evil = f'{SENTINEL}href="https://evil.example/" x="'
    template = '<p title="{{ name }}">{{ name }}</p>'
    rendered = render(plan(template), name=evil)
    assert weave(rendered, click=lambda _: "TRACKED", pixel=None) == rendered


def test_plan_is_idempotent() -> None:
    """Planning a planned template changes nothing, so a campaign may be saved again."""
    once = plan("<a href=\"https://a.example/\">x</a><a href='{{ link }}'>y</a>")
    assert plan(once) == once
    assert once.count(SENTINEL) == 2


@pytest.mark.parametrize(
    "html, place",
    [
        ("<body>x</body></html>", "<body>x|</body></html>"),
        ("<BODY>x</BODY >", "<BODY>x|</BODY >"),
        ("<p>x</p>", "<p>x</p>|"),
        ("<body>&lt;/body&gt; </body> x</body>", "<body>&lt;/body&gt; </body> x|</body>"),
        ("", "|"),
    ],
)
def test_pixel_is_at_the_end_of_the_body(html: str, place: str) -> None:
    """The pixel is before the last closing body tag, or at the end, with an escaped URL."""
    woven = weave(html, click=str, pixel="https://t/?a=1&b=2")
    image = re.search(r"<img [^>]*>", woven)
    assert image is not None
    assert 'src="https://t/?a=1&amp;b=2"' in image[0]
    assert 'alt=""' in image[0]
    assert woven.replace(image[0], "|") == place


FRAGMENTS = """
<a href="https://x.example/?a=1&amp;b">|<a href='https://x.example/{{ a }}'>|</a>|<a href="{{ a }}">|<a href="#y">|<b>
{{ a }}|{% if a %}|{% endif %}|<!-- <a href='http://x'> -->|<a title="|>|"|'|<area href=http://x.example>|<|=|{{|{%|<a
<style>|</style>|</body>|href=|<a {{ a }}href="http://x">|{{ "}}" }}|}}|/>|<a href='http://x" | title="x'>
"""
pieces = st.one_of(
    st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), max_size=10),
    st.sampled_from(FRAGMENTS.replace("\n", "|").split("|")),
)


def unquoted(text: str) -> str:
    return re.sub(r"\s|[\"']", "", text)


@given(template=st.lists(pieces, max_size=30).map("".join))
def test_text_outside_links_never_changes(template: str) -> None:
    """For any template, text outside links is kept in its order."""
    planned = plan(template)
    assert unquoted(planned.replace(SENTINEL, "")) == unquoted(template)
    if SENTINEL not in planned:
        assert planned == template
    woven = weave(planned, click=lambda _: "\x03", pixel=None)
    position = 0
    for part in woven.split("\x03"):
        position = unquoted(template).index(unquoted(part), position) + len(unquoted(part))


def test_hostile_template_is_planned_in_linear_time() -> None:
    """Unclosed tags, quotation marks and expressions do not cause quadratic time."""
    for piece in ("<a ", '<a "', "<a href='", "{{ ", '<a href="{{ "', "<!--", "<style>", "<a x='\">"):
        assert plan(piece * 2000) is not None
