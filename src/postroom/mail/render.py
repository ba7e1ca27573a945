"""Turn a parsed message and its variables into subject, text and HTML. Pure; nothing is read from disk.

Restrictions on templates:

- An unknown variable is an error, nested ones too, and so is printing a null: mail never says "Hello None".
- Only JSON values reach a template (`seal`): no methods, no Python objects, nothing it could change.
- HTML parts escape every variable, whatever they include; subject and text escape nothing.
- Fuel bounds the work of one part: an endless loop ends in a `RenderError`. The engine bounds `range`
  (100,000 items) and repetition (`"x" * n`, 100 million characters). Filters whose output is as long as a
  number says (`format`, `indent`, `batch`, `slice`) are taken away, so no variable can ask for unbounded
  memory. A template's author still can, by doubling a string many times. This module does not prevent that:
  template files come from the operator and are trusted like code. Letters of campaigns come from API callers:
  they are checked, shown and tried in a process with limits (`campaigns.trial`). Residual risk: a worker renders
  the letter of a started campaign in its own process, for speed. A letter that passed the trial with the first
  recipients can still use gigabytes for a later one (`{% if email == … %}`). Give `campaigns:write` only to
  callers that may stop a worker, or run the worker of the bulk lane in a container with a memory limit.
- A failure is a value. Its message names the part, the line and the expression in the words of the template's
  source; it never holds a variable's value.

Styles that could not be applied when the template was loaded are applied here, to the rendered HTML.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from minijinja import Environment, TemplateError

from postroom.mail.joined import JoinedPart, is_line, lines_of
from postroom.mail.markup import StylesInvalid, inline_styles
from postroom.mail.plaintext import plain_text
from postroom.post.text import with_line_feeds

FUEL = 500_000  # instructions of the template engine; ends an endless loop
MAX_SUBJECT = 998  # the longest line of RFC 5322
MAX_PART = 5_000_000  # as delivery.check.MAX_BODY_BYTES
MAX_DEPTH = 32  # as delivery.check.MAX_DEPTH
MAX_INTEGER = 2**127 - 1  # the engine has integers of 128 bits

_NEAR = 120  # characters of the template that an error quotes

_PLAIN = frozenset({str, bool, float})
_FLAT = _PLAIN | {type(None)}
_PROBE = "Zoë & <b> \"q\" 'a' /x/"
_UNBOUNDED_FILTERS = ("format", "indent", "batch", "slice", "pprint")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered message: text or html is present, and with html always text."""

    subject: str
    text: str | None
    html: str | None
    is_canonical: bool = field(default=False, compare=False)
    """Text and HTML are known to have the form that DKIM signs, and no line that starts with a dot."""


class RenderedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that was rendered as it is transmitted: see `ComposedMessage`. Its texts are canonical, as above."""

    subject: str
    text: bytes
    html: bytes | None


@dataclass(frozen=True, slots=True)
class RenderError:
    """The reason why a message could not be rendered. Safe to store and show: it contains no variable's value."""

    template: str
    part: str
    message: str

    @property
    def text(self) -> str:
        return f"{self.template}/{self.part}: {self.message}"


@dataclass(frozen=True, slots=True)
class TemplateParts:
    """One template in one locale: the names of its parts in the renderer."""

    template: str
    subject: str
    text: str | None
    html: str | None
    inline_late: bool = False


class _Failure(Exception):  # noqa: N818 - never leaves this module; it becomes a RenderError
    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part
        self.message = message


class _NullPrinted(Exception):  # noqa: N818 - as above
    pass


# --- variables -----------------------------------------------------------------------


class Record(dict[str, Any]):
    """A JSON object that shows templates its keys and nothing else.

    The engine falls back from keys to attributes and would expose `clear` or `pop` of a plain dict. It treats an
    object as a mapping only if it has `items`, so that one name exists, and is null.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattribute__(name)
        if name == "items":
            return None
        raise AttributeError(name)


def seal(value: Any, path: str = "variables", depth: int = 0) -> Any:
    """A read-only copy of a JSON value for templates; raises for any other value."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # a subclass could claim to be safe HTML; a plain string cannot
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return int(value)
    if isinstance(value, float):
        return float(value)
    if depth >= MAX_DEPTH:
        raise _Failure("variables", f"the variables are nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return Record((str(key), seal(item, f"{path}.{key}", depth + 1)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(seal(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value))
    raise _Failure("variables", f"{path[:_NEAR]} is not a JSON value ({type(value).__name__})")


def _null_paths(value: Any, path: str = "") -> Iterable[str]:
    if value is None:
        yield path
    elif isinstance(value, Record):
        for key in value:
            yield from _null_paths(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, tuple):
        for at, item in enumerate(value):
            yield from _null_paths(item, f"{path}[{at}]")


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise _NullPrinted
    return NotImplemented


def _ignore(_part: str) -> None:
    pass


# --- rendering -----------------------------------------------------------------------


class Renderer:
    """Two engines: one escapes HTML, one escapes nothing. It has only the added parts and reads no file."""

    def __init__(self) -> None:
        self._html = _environment(escape=True)
        self._text = _environment(escape=False)
        self._sources: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._joined: dict[str, JoinedPart] = {}
        self._canonical: set[str] = set()

    def add(self, name: str, source: str, *, html: bool, written: str | None = None) -> None:
        """Parse a part; raises the engine's `TemplateError` with its line if it is invalid.

        `written` is the author's source, if styles or MJML changed it since: errors refer to its lines.
        """
        (self._html if html else self._text).add_template(name, source)
        self._sources[name] = source
        self._written[name] = source if written is None else written
        self._add_joined(name, JoinedPart.parse(source, html=html))

    def knows_filter(self, name: str) -> bool:
        try:
            self._text.eval_expr(f"''|{name}")
        except TemplateError as error:
            return error.kind != "UnknownFilter"
        return True

    def render(
        self, message: TemplateParts, variables: Mapping[str, Any], *, on_part: Callable[[str], None] = _ignore
    ) -> Rendered | RenderError:
        """The rendered parts; `on_part` is called with the name of each before the engine renders it."""
        try:
            joined = self._join(message, variables)
            if joined is not None:
                return joined
            values = seal(variables)
            on_part("subject")
            subject = _subject(self._part("subject", message.subject, values))
            on_part("text")
            text = None if message.text is None else self._part("text", message.text, values)
            on_part("html")
            html = None if message.html is None else self._part("html", message.html, values)
            if html is not None and message.inline_late:
                html = _inline_rendered(html)
        except _Failure as failure:
            return RenderError(message.template, failure.part, failure.message)
        if text is None and html is not None:
            text = with_line_feeds(plain_text(html))
        return Rendered(subject, text, html)

    def render_bytes(self, message: TemplateParts, variables: Mapping[str, Any]) -> RenderedMessage | None:
        """The same message as bytes; None if `render` is needed: for the engine, another encoding, or an error."""
        subject, text = self._joined.get(message.subject), self._joined.get(message.text or "")
        if subject is None or text is None or message.inline_late:
            return None
        if not _FLAT.issuperset(map(type, variables.values())):
            return None
        lines = lines_of(variables)
        title, plain, html = subject.render(lines), text.encode(lines), None
        if message.html is not None:
            part = self._joined.get(message.html)
            html = None if part is None else part.encode(lines)
            if html is None or len(html) > MAX_PART:
                return None
        if title is None or plain is None or len(plain) > MAX_PART or len(title) > MAX_SUBJECT or not is_line(title):
            return None
        return RenderedMessage(title, plain, html)

    def _add_joined(self, name: str, part: JoinedPart | None) -> None:
        """Keep the part, if the engine renders the same from values with every character that it escapes."""
        self._joined.pop(name, None)
        self._canonical.discard(name)
        if part is None:
            return
        values = dict.fromkeys(part.names, _PROBE)
        try:
            expected = self._part("html" if part.html else "text", name, Record(values))
        except _Failure:
            return
        if part.render(values) == expected:
            self._joined[name] = part
            self._canonical.update([name] if part.is_canonical else [])

    def _join(self, message: TemplateParts, variables: Mapping[str, Any]) -> Rendered | None:
        """The message without the engine; None if a part or a value needs it."""
        if message.inline_late or message.text is None or not _FLAT.issuperset(map(type, variables.values())):
            return None
        lines = lines_of(variables)
        subject, text = self._joined_part(message.subject, lines), self._joined_part(message.text, lines)
        html = None if message.html is None else self._joined_part(message.html, lines)
        if subject is None or text is None or (html is None and message.html is not None):
            return None
        is_canonical = message.text in self._canonical and (message.html is None or message.html in self._canonical)
        return Rendered(_subject(subject), text, html, is_canonical)

    def _joined_part(self, name: str, lines: Mapping[str, str]) -> str | None:
        part = self._joined.get(name)
        rendered = None if part is None else part.render(lines)
        return None if rendered is None or len(rendered) > MAX_PART else rendered

    def _part(self, part: str, name: str, values: Record) -> str:
        environment = self._html if part == "html" else self._text
        try:
            rendered = environment.render_template(name, **values)
        except TemplateError as error:
            raise _Failure(part, self._explain(error)) from None
        except _NullPrinted:
            nulls = ", ".join(path[:_NEAR] for path in sorted(_null_paths(values))[:10]) or "an expression"
            raise _Failure(part, f"a null was printed, give it a default (null here: {nulls})") from None
        except Exception as error:  # noqa: BLE001 - any exception of the engine's binding is a failed rendering
            raise _Failure(part, f"the template cannot use a value like this ({type(error).__name__})") from None
        rendered = with_line_feeds(rendered)  # readers and the message have the same lines
        if part == "html":
            # The engine escapes slashes too. No parser needs that, and it makes URLs in sources harder to read.
            rendered = rendered.replace("&#x2f;", "/")
        if len(rendered) > MAX_PART:
            raise _Failure(part, f"the rendered part is longer than {MAX_PART} characters")
        return rendered

    def _explain(self, error: TemplateError) -> str:
        # `detail` may quote values ("unable to calculate 5
        # 0"), so only our texts and the source are used.
        reason = _REASONS.get(error.kind, "cannot be rendered")
        name, line, where = error.name or "", error.line or 0, error.range
        inner = _caused_in(str(error), self._sources) if error.kind == "BadInclude" else None
        if inner is not None:
            return f"line {line}: the included {inner[0]!r} failed in its line {inner[1]}: {inner[2]}"
        expression = _expression(self._sources.get(name, ""), where) if where else ""
        line = _line_of(expression, self._sources.get(name, ""), self._written.get(name, "")) or line
        return f"line {line}: {reason}{f': {expression}' if expression else ''}"


_REASONS = {
    "UndefinedError": "unknown variable",
    "UnknownFilter": "unknown filter",
    "UnknownTest": "unknown test",
    "UnknownFunction": "unknown function",
    "UnknownMethod": "values have no such method",
    "InvalidOperation": "the operation does not fit its values",
    "OutOfFuel": "the template does too much work (endless loop?)",
    "TemplateNotFound": "there is no such file in the catalog",
    "BadInclude": "an included file failed",
}


def _environment(*, escape: bool) -> Environment:
    mode = "html" if escape else False
    environment = Environment(
        debug=False,
        fuel=FUEL,
        undefined_behavior="strict",
        pycompat=False,
        auto_escape_callback=lambda _name: mode,
        finalizer=_refuse_null,
    )
    for name in _UNBOUNDED_FILTERS:
        environment.remove_filter(name)
    environment.remove_global("debug")  # prints every variable
    return environment


def _subject(rendered: str) -> str:
    subject = rendered if is_line(rendered) else " ".join(rendered.split())
    if not subject:
        raise _Failure("subject", "the subject is empty")
    if len(subject) > MAX_SUBJECT:
        raise _Failure("subject", f"the subject is longer than {MAX_SUBJECT} characters")
    return subject


def _expression(source: str, where: tuple[int, int]) -> str:
    """The expression of an error, extended to the left: the engine marks `.b` of `a.b`, `f` of `a|f`."""
    raw = source.encode()
    before, marked = (
        raw[: where[0]].decode(errors="replace"),
        raw[where[0] : where[1]].decode(errors="replace"),
    )
    start = re.search(r"(?:[\w.\[\]'\"]+\s*\|\s*)*[\w.\[\]'\"]*$", before[-_NEAR:])
    return " ".join(f"{start.group() if start else ''}{marked}".split())[:_NEAR]


def _line_of(expression: str, source: str, written: str) -> int | None:
    """The line of an expression in the author's source; None if the engine's line is right."""
    if not expression or source == written or expression not in written:
        return None
    return 1 + written.count("\n", 0, written.index(expression))


def _caused_in(description: str, sources: Mapping[str, str]) -> tuple[str, int, str] | None:
    """The location of the error inside the included files: file, line and the source of that line."""
    for name, line in reversed(re.findall(r"\(in ([^\s():]+):(\d+)\)", description)):
        lines = sources.get(name, "").splitlines()
        if 0 < int(line) <= len(lines):
            return name, int(line), lines[int(line) - 1].strip()[:_NEAR]
    return None


def _inline_rendered(html: str) -> str:
    try:
        return with_line_feeds(inline_styles(html))  # it resolves &#13;
    except StylesInvalid:
        raise _Failure("html", "the styles cannot be applied to the rendered HTML") from None
