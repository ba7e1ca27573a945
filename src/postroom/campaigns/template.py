"""A campaign's letter, parsed once and rendered per recipient. Pure.

The engine and its rules belong to mail: unknown variables are errors, HTML escapes every field, subject and text escape
nothing, and a subject cannot inject a header. A letter cannot include files of the catalog: those may change while a
campaign runs, and all recipients must get the same letter.

A missing text part is derived from the HTML template once, with its template tags in place. If that is not possible
(statements in attributes, or between the rows of a table), it is derived from each rendered mail, which is slower and
gives the same text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from postroom.campaigns.model import CampaignContent
from postroom.errors import BadInput
from postroom.mail.catalog import Catalog, Draft
from postroom.mail.plaintext import plain_text
from postroom.mail.render import Rendered, RenderError
from postroom.runtime.template_tags import replace_tags
from postroom.tracking.links import SENTINEL, plan

_MARK = re.compile(r"prt(\d+)x")
_TAG_OPENINGS = ("{{", "{%", "{#")
_GAP = re.compile(r"\n{3,}")
_NOTHING_SHARED = Catalog({})
_UNUSED = "-"

LONGEST_PART = 1_000_000
"""Maximum characters of one part. Mail clients clip at a tenth of that; a longer part only costs CPU."""


@dataclass(frozen=True, slots=True)
class PreparedTemplate:
    """A parsed letter, ready to render."""

    letter: CampaignContent
    draft: Draft
    derives_text: bool
    """True if the text part must be derived from each rendered mail."""

    def render(self, variables: Mapping[str, Any], **watch: Callable[[str], None]) -> Rendered | RenderError:
        """The rendered letter; `on_part` as in `Renderer.render`."""
        rendered = self.draft.render(variables, **watch)
        if isinstance(rendered, RenderError) and rendered.part == "text" and self.letter.text is None:
            written = _without_text(self.letter)
            failed = written if isinstance(written, RenderError) else written.render(variables, **watch)
            return failed if isinstance(failed, RenderError) else replace(rendered, part="html")
        if isinstance(rendered, RenderError) or rendered.html is None or self.letter.text is not None:
            return rendered
        derived = plain_text(rendered.html.replace(SENTINEL, "")) if self.derives_text else _closed(rendered.text or "")
        if derived is rendered.text:
            return rendered
        return Rendered(rendered.subject, derived, rendered.html)


def _closed(text: str) -> str:
    """Remove the blank lines that template statements on their own lines leave."""
    return _GAP.sub("\n\n", text).strip() if "\n\n\n" in text else text


def _without_text(letter: CampaignContent) -> Draft | RenderError:
    """The letter without the text that is derived from its HTML: its errors name the lines that the author wrote."""
    return _NOTHING_SHARED.draft(subject=letter.subject, text=_UNUSED, html=letter.html)


def ready(letter: CampaignContent, *, tracked: bool = False) -> PreparedTemplate:
    """Parse a letter; with `tracked`, mark its links for tracking. `BadInput` names the part and the problem."""
    for part, body in (("html", letter.html), ("text", letter.text)):
        if body is not None and len(body) > LONGEST_PART:
            raise BadInput.of(part, f"is longer than {LONGEST_PART:,} characters; shorten it")
    derived = text_template(letter.html) if letter.text is None and letter.html is not None else None
    derives_text = letter.text is None and derived is None
    text = letter.text if letter.text is not None else derived
    html = plan(letter.html) if tracked and letter.html is not None else letter.html
    draft = _NOTHING_SHARED.draft(subject=letter.subject, text=_UNUSED if derives_text else text, html=html)
    if isinstance(draft, RenderError):
        written = draft if derived is None else _without_text(letter)
        draft = written if isinstance(written, RenderError) else draft
        part = draft.message.partition(",")[0]
        is_given = part == "subject" or (part == "text" and letter.text is not None)
        raise BadInput.of(part if is_given else "html", draft.message)
    return PreparedTemplate(letter, draft, derives_text)


def text_template(html: str) -> str | None:
    """The text template derived from an HTML template; None if the template tags cannot keep their positions."""
    tags: list[str] = []

    def mark(tag: str) -> str:
        if tag.startswith("{#"):
            return ""
        tags.append(tag)
        return f"prt{len(tags) - 1}x"

    if _MARK.search(html):
        return None
    text = plain_text(replace_tags(html, mark))
    if any(opening in text for opening in _TAG_OPENINGS):  # HTML entities that stand for literal text
        return None
    kept = [int(number) for number in _MARK.findall(text)]
    statements = [number for number, tag in enumerate(tags) if tag.startswith("{%")]
    if statements and (kept != sorted(kept) or not set(statements) <= set(kept)):
        return None
    return _MARK.sub(lambda found: tags[int(found[1])], text)
