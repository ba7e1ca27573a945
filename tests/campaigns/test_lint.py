"""Warnings about letters before the start."""

import pytest
from tests.support.campaigns import a_letter

from postroom.campaigns.lint import lint, merge_fields
from postroom.campaigns.model import CampaignContent
from postroom.mail.content_lint import CLIPPED_AT

GOOD = CampaignContent(
    subject="News for {{ first_name }}",
    html='<p>Hi <a href="https://example.org">example.org</a> <img src="a.png" alt="A"> '
    '<a href="{{ unsubscribe_url }}">Unsubscribe</a></p>',
    text="Hi. Unsubscribe: {{ unsubscribe_url }}",
)


def codes(letter: CampaignContent, **known: object) -> list[str]:
    return [remark.code for remark in lint(letter, **known)]  # type: ignore[arg-type]


def test_complete_letter_gets_no_warning() -> None:
    """A letter with all parts, and fields that every recipient has, gets no warning."""
    assert lint(GOOD, fields={"first_name": 10}, people=10) == []


@pytest.mark.parametrize(
    "change, code",
    [
        ({"text": None}, "no_text"),
        ({"html": "<p>Hi</p>"}, "no_unsubscribe_link"),
        ({"text": "Hi"}, "no_unsubscribe_link"),
        ({"subject": "x" * 79}, "subject_long"),
        ({"subject": "LAST CHANCE TODAY"}, "subject_shouts"),
        ({"subject": "{{ first_name }}"}, "subject_empty"),
        ({"html": (GOOD.html or "") + "<img src='b.png'>"}, "image_without_alt"),
        ({"html": (GOOD.html or "") + "<p>" + "x" * CLIPPED_AT + "</p>"}, "html_large"),
        ({"html": (GOOD.html or "") + "<a href='http://example.org'>x</a>"}, "link_insecure"),
        ({"html": (GOOD.html or "") + "<a href='https://evil.example'>www.bank.example</a>"}, "link_misleading"),
        ({"html": (GOOD.html or "") + "<a href='#'>x</a>"}, "link_empty"),
        ({"html": (GOOD.html or "") + "<form></form>"}, "active_content"),
    ],
)
def test_each_problem_gets_one_warning(change: dict[str, str | None], code: str) -> None:
    """Each problem causes exactly one warning."""
    from dataclasses import replace

    assert codes(replace(GOOD, **change)) == [code]  # type: ignore[arg-type]


def test_lint_counts_the_recipients_that_lack_a_field() -> None:
    """The warning says how many recipients lack a field; if all lack it, their mail will fail."""
    [remark] = lint(GOOD, fields={"city": 3}, people=3)
    assert (remark.code, remark.part) == ("field_missing", "subject")
    assert "no recipient has" in remark.message
    [remark] = lint(GOOD, fields={"first_name": 2}, people=3)
    assert "1 recipient of 3" in remark.message


def test_default_avoids_the_missing_field_warning() -> None:
    """A field with a default causes no warning."""
    letter = a_letter(subject="News for {{ first_name|default('you') }}", html=None, text="{{ unsubscribe_url }}")
    assert codes(letter, fields={}, people=3) == []


def test_field_that_only_gets_its_default_is_named() -> None:
    """With a default the letter renders, but a misspelt field greets everybody alike; the warning names a near one."""
    letter = a_letter(subject="News for {{ first_name|default('you') }}", html=None, text="{{ unsubscribe_url }}")
    [remark] = lint(letter, fields={"firstname": 3, "city": 3}, people=3)
    assert (remark.code, remark.part) == ("field_unknown", "subject")
    assert "3 recipients get the default; did you mean {{ firstname }}?" in remark.message
    [remark] = lint(letter, fields={"city": 3}, people=3)
    assert remark.message.endswith("the fields are city")


def test_fields_of_a_letter_cover_all_parts() -> None:
    """The fields are those of subject, HTML and text, without the built-in variables."""
    letter = CampaignContent(
        subject="{{ a }} {{ email }}", html="{% for x in list %}{{ x }}{% endfor %}", text="{{ b.c }}"
    )
    assert merge_fields(letter) == {"a", "list", "b"}
