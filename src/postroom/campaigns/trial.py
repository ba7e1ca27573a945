"""Letters of API callers, checked and rendered in processes with limits: see `postroom.runtime.bounded`.

A letter is a program: `{% set b = a ~ a ~ a ~ a %}` a few times over asks for gigabytes, which the engine does not
bound. Checking, linting, previewing, test mails and the trial before a start happen in a child process. A letter that
needs more than 512 MB or 2 s of CPU is refused as `BadInput`, which names the part. Two children per process stay
warm, so that a normal letter does not wait for one to start.

The trial does not protect workers completely: see `postroom.mail.render`.
"""

import atexit
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from postroom.campaigns.lint import Warning_, lint
from postroom.campaigns.model import Letter
from postroom.campaigns.template import ready
from postroom.errors import BadInput, FieldError
from postroom.mail.render import Rendered, RenderError
from postroom.runtime.bounded import Children, Exceeded, Limits, Note, serve

LIMITS = Limits(memory_bytes=512 * 1024 * 1024, cpu_s=2)
TIMEOUT_S = 15.0
PROCESSES = 2
TOO_MUCH = f"uses more than {LIMITS.memory_bytes >> 20} MB of memory or {LIMITS.cpu_s} s of CPU time; simplify it"

_children = Children((sys.executable, "-m", "postroom.campaigns.trial"), processes=PROCESSES, timeout_s=TIMEOUT_S)
atexit.register(_children.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    do: Literal["check", "render", "lint", "try"]
    letter: Letter
    people: list[Mapping[str, Any]] = field(default_factory=list)  # variables; one set to render, several to try
    fields: Mapping[str, int] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    errors: list[FieldError] = field(default_factory=list)
    rendered: Rendered | None = None
    warnings: list[Warning_] = field(default_factory=list)


async def check_letter(letter: Letter) -> None:
    """Parse the letter; `BadInput` names what is wrong with it."""
    await _ask(_Task(do="check", letter=letter))


async def render_letter(letter: Letter, variables: Mapping[str, Any]) -> Rendered:
    """The letter with these variables; `BadInput` says what cannot be rendered."""
    rendered = (await _ask(_Task(do="render", letter=letter, people=[variables]))).rendered
    assert rendered is not None
    return rendered


async def lint_letter(letter: Letter, *, fields: Mapping[str, int] | None, people: int) -> list[Warning_]:
    """The warnings of `lint`."""
    return (await _ask(_Task(do="lint", letter=letter, fields=fields, count=people))).warnings


async def try_letter(letter: Letter, people: Sequence[Mapping[str, Any]]) -> None:
    """Render the letter for these people as a worker would. A person without a needed field is no error here."""
    await _ask(_Task(do="try", letter=letter, people=list(people)))


async def _ask(task: _Task) -> _Done:
    try:
        answer = await _children.ask(_encode_task(task))
    except Exceeded as exceeded:
        derived = exceeded.note == "text" and task.letter.text is None
        raise BadInput.of("html" if derived else exceeded.note or "html", TOO_MUCH) from None
    done = msgspec.json.decode(answer, type=_Done)
    if done.errors:
        raise BadInput(done.errors)
    return done


def _encode_task(task: _Task) -> bytes:
    try:
        return msgspec.json.encode(task)
    except (TypeError, ValueError):  # half a character, or an object that is no JSON value
        raise BadInput.of("variables", "must be JSON values") from None


# ── the child ─────────────────────────────────────────────────────────────────────────────────────────────────────


def handle(raw: bytes, note: Note) -> bytes:
    """Do one task. Errors of the letter are part of the answer; a lack of memory ends the process."""
    task = msgspec.json.decode(raw, type=_Task)
    try:
        done = _do(task, note)
    except BadInput as refused:
        done = _Done(errors=list(refused.errors))
    return msgspec.json.encode(done)


def _do(task: _Task, note: Note) -> _Done:
    letter = task.letter
    note("text" if len(letter.text or "") > len(letter.html or "") else "html")
    if task.do == "lint":
        return _Done(warnings=lint(letter, fields=task.fields, people=task.count))
    parsed = ready(letter, tracked=task.do == "try" and letter.is_tracked)
    answers = [parsed.render(variables, on_part=note) for variables in task.people]
    if task.do != "render":
        return _Done()
    [rendered] = answers
    if isinstance(rendered, RenderError):
        raise BadInput.of(rendered.part, rendered.message)
    return _Done(rendered=rendered)


if __name__ == "__main__":
    serve(handle, LIMITS)
