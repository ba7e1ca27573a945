"""Warnings about a letter before its campaign starts. Pure; a warning never blocks a start.

The checks concern readers and mail clients: an unsubscribe link, a text part, alt texts, links that lead where they
say, merge fields that every recipient has. No check is about evading spam filters.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from minijinja import Environment, TemplateError

from postroom.campaigns.model import CampaignContent
from postroom.campaigns.recipients_file import OURS
from postroom.campaigns.template import PreparedTemplate, ready, text_template
from postroom.errors import BadInput
from postroom.mail.content_lint import LetterWarning, count_of, lint_html, lint_size, lint_subject
from postroom.mail.render import RenderError
from postroom.runtime.template_tags import find_tags, replace_tags

MOST_FIELDS = 200
"""Maximum number of merge fields that are checked; each costs two renderings."""

_UNSUBSCRIBE = re.compile(r"\b(?:unsubscribe_url|preferences_url)\b")
_OWN = frozenset({*OURS, "email"})


def lint(letter: CampaignContent, *, fields: Mapping[str, int] | None = None, people: int = 0) -> list[LetterWarning]:
    """All warnings about a letter. `fields` has the number of recipients with a value, by merge field."""
    return [
        *_subject(letter.subject),
        *_way_out(letter),
        *_parts(letter),
        *(_html(letter.html) if letter.html is not None else ()),
        *_merge_fields(letter, fields, people),
    ]


def _subject(subject: str) -> Iterator[LetterWarning]:
    words = replace_tags(subject, lambda _tag: "").strip()
    if not words:
        yield LetterWarning(
            "subject_empty", "subject", "contains only merge fields; recipients without them get an empty subject"
        )
    yield from lint_subject(words)


def _way_out(letter: CampaignContent) -> Iterator[LetterWarning]:
    for part, body in (("html", letter.html), ("text", letter.text)):
        if body is not None and not any(_UNSUBSCRIBE.search(tag) for tag in find_tags(body) if tag.startswith("{{")):
            message = "has no unsubscribe link; add {{ unsubscribe_url }} where readers look for it"
            yield LetterWarning("no_unsubscribe_link", part, message)


def _parts(letter: CampaignContent) -> Iterator[LetterWarning]:
    if letter.html is not None and letter.text is None:
        is_quick = text_template(letter.html) is not None
        how = "from the campaign's HTML" if is_quick else "from the HTML of every single mail, which slows down sending"
        yield LetterWarning("no_text", "text", f"is missing; Postroom derives the text part {how}")
    if letter.html is not None:
        yield from lint_size(letter.html)


def _html(html: str) -> Iterator[LetterWarning]:
    return lint_html(replace_tags(html, lambda tag: "x" if tag.startswith("{{") else ""))


def _merge_fields(letter: CampaignContent, fields: Mapping[str, int] | None, people: int) -> Iterator[LetterWarning]:
    """Warnings about fields that some recipients lack and have no default, or that no recipient has."""
    if fields is None:
        return
    named = sorted(merge_fields(letter))[:MOST_FIELDS]
    try:
        parsed = ready(letter)
    except BadInput:  # reported when the letter is stored
        return
    for name in named:
        lacking = people - fields.get(name, 0)
        if lacking == people > 0 and fields and not _needs(parsed, name, named):
            yield LetterWarning("field_unknown", _part_of(letter, name), _unknown(name, fields, people))
        elif lacking > 0 and _needs(parsed, name, named):
            who = "no recipient has" if lacking == people else f"{count_of(lacking, 'recipient')} of {people} lack"
            unknown = " and their mail will fail" if name not in fields else ""
            message = f"{who} a value for {{{{ {name} }}}}{unknown}; give it a default"
            failing = lacking if name not in fields else 0
            yield LetterWarning("field_missing", _part_of(letter, name), message, failing)


def _unknown(name: str, fields: Mapping[str, int], people: int) -> str:
    near = get_close_matches(name.lower(), [field.lower() for field in fields], n=1)
    meant = next((field for field in fields if near and field.lower() == near[0]), None)
    hint = f"did you mean {{{{ {meant} }}}}?" if meant else f"the fields are {', '.join(sorted(fields)[:10])}"
    return f"no recipient has a value for {{{{ {name} }}}}, {count_of(people, 'recipient')} get the default; {hint}"


def merge_fields(letter: CampaignContent) -> set[str]:
    """The merge fields that a letter uses."""
    environment, found = Environment(), set[str]()
    for body in (letter.subject, letter.html, letter.text):
        if body is not None:
            try:
                found |= environment.undeclared_variables_in_str(body)
            except TemplateError:  # reported when the letter is stored
                continue
    return found - _OWN


def _needs(parsed: PreparedTemplate, name: str, named: list[str]) -> bool:
    """True if the letter renders with this field and fails without it."""
    everything = dict.fromkeys([*named, *_OWN], "x")
    without = {key: value for key, value in everything.items() if key != name}
    return isinstance(parsed.render(without), RenderError) and not isinstance(parsed.render(everything), RenderError)


def _part_of(letter: CampaignContent, name: str) -> str:
    word = re.compile(rf"\b{re.escape(name)}\b")
    parts = (("subject", letter.subject), ("html", letter.html), ("text", letter.text))
    return next((part for part, body in parts if body is not None and word.search(body)), "html")
