"""Check and render letters of API callers in child processes with limits: see `postroom.runtime.bounded`.

A letter is a program: a few repetitions of `{% set b = a ~ a ~ a ~ a %}` allocate gigabytes, and the engine has no
limit. Check, lint, preview, test mail and the trial before a start therefore run in a child process. A letter that
needs more than 512 MB or 2 s of CPU is rejected as `BadInput`, which names the part. Each process keeps two children
warm, so that a normal letter does not wait for one to start.

The trial does not protect workers completely: see `postroom.mail.render`.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from postroom.campaigns.lint import lint, merge_fields
from postroom.campaigns.model import CampaignContent
from postroom.campaigns.template import ready
from postroom.errors import BadInput
from postroom.mail.content_lint import LetterWarning
from postroom.mail.render import Rendered, RenderError
from postroom.runtime.bounded import Children, Exceeded, Limits, note

LIMITS = Limits(memory_bytes=512 * 1024 * 1024, cpu_s=2)
TOO_MUCH = f"uses more than {LIMITS.memory_bytes >> 20} MB of memory or {LIMITS.cpu_s} s of CPU time; simplify it"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_children = Children(processes=2, limits=LIMITS)
atexit.register(_children.close)


async def check_letter(letter: CampaignContent) -> None:
    """Parse the letter; `BadInput` names the problem."""
    await _call(try_for, letter, b"[]", tracked=False)


async def render_letter(
    letter: CampaignContent, variables: Mapping[str, Any], *, has_placeholders: bool = False
) -> Rendered:
    """Render the letter with these variables; `BadInput` names what cannot be rendered.

    With `has_placeholders`, a merge field without a value shows its name.
    """
    return await _call(render_for, letter, _as_json(variables), has_placeholders=has_placeholders)


async def lint_letter(letter: CampaignContent, *, fields: Mapping[str, int] | None, people: int) -> list[LetterWarning]:
    """The warnings of `lint`."""
    return await _call(lint_for, letter, fields, people)


async def try_letter(letter: CampaignContent, people: Sequence[Mapping[str, Any]]) -> None:
    """Render the letter for these recipients as a worker would; a missing field of a recipient is not an error."""
    await _call(try_for, letter, _as_json(people), tracked=letter.is_tracked)


async def _call(
    function: Callable[Concatenate[CampaignContent, Arguments], Result],
    letter: CampaignContent,
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    try:
        return await _children.call(None, function, letter, *arguments, **named)
    except Exceeded as exceeded:
        derived = exceeded.note == "text" and letter.text is None
        raise BadInput.of("html" if derived else exceeded.note or "html", TOO_MUCH) from None


def _as_json(variables: Any) -> bytes:
    """Encode as JSON, because integers of variables may exceed 64 bits."""
    try:
        return msgspec.json.encode(variables)
    except (TypeError, ValueError):  # an unpaired surrogate, or an object that is not a JSON value
        raise BadInput.of("variables", "must be JSON values") from None


# ── in the child; running out of memory ends the process ─────────────────────────────────────────────────────────


def lint_for(letter: CampaignContent, fields: Mapping[str, int] | None, people: int) -> list[LetterWarning]:
    _note_larger(letter)
    return lint(letter, fields=fields, people=people)


def try_for(letter: CampaignContent, people: bytes, *, tracked: bool) -> None:
    _note_larger(letter)
    parsed = ready(letter, tracked=tracked)
    for variables in msgspec.json.decode(people):
        parsed.render(variables, on_part=note)


def render_for(letter: CampaignContent, variables: bytes, *, has_placeholders: bool) -> Rendered:
    _note_larger(letter)
    placeholders = {name: f"[{name}]" for name in merge_fields(letter) | {"email"}} if has_placeholders else {}
    rendered = ready(letter).render({**placeholders, **msgspec.json.decode(variables)}, on_part=note)
    if isinstance(rendered, RenderError):
        raise BadInput.of(rendered.part, rendered.message)
    return rendered


def _note_larger(letter: CampaignContent) -> None:
    note("text" if len(letter.text or "") > len(letter.html or "") else "html")
