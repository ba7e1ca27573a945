"""Templates, parsed: ready to render, with their locales and samples.

A `ParsedTemplate` is one version of a template with a renderer of its own, from files or from the database. The
`Catalog` has the templates of the files of this process, all parsed at once: the first error raises `TemplateInvalid`
with file, line and reason. Rendering reads no file: templates can name only what was loaded, so no path leads out.

A locale is looked up from specific to general, then in English: `zh-Hant-TW → zh-Hant → zh → en`.
Filters are the engine's own (`default`, `upper`, `join`, `urlencode`, `tojson`, `items`, …); none are added.
MJML is compiled at load and keeps its own rules about styles (`<mj-style inline="inline">`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minijinja import TemplateError

from postroom.mail.errors import TemplateInvalid
from postroom.mail.markup import (
    MjmlInvalid,
    StylesInvalid,
    compile_mjml,
    draws_on_others,
    has_styles,
    inline_at_load,
)
from postroom.mail.render import Rendered, RenderedMessage, Renderer, RenderError, TemplateParts
from postroom.mail.template_files import SourceFile, TemplateSource, normal_locale, read_sources
from postroom.runtime.template_tags import tag_spans

BUILTIN_TEMPLATES = Path(__file__).parent / "builtin_templates"
FALLBACK_LOCALE = "en"

_LONGEST_LOCALE = 35  # BCP 47 recommends room for 35 characters
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_FILTER = re.compile(r"\|\s*([A-Za-z_]\w*)")
_REFERENCE = re.compile(r"\{%[-+]?\s*(?:extends|include|import|from)\s+(?:'([^']*)'|\"([^\"]*)\")(?!.*ignore missing)")


@dataclass(frozen=True, slots=True)
class Draft:
    """Message parts outside the catalog, parsed once: a preview, or a campaign rendered for many recipients."""

    renderer: Renderer
    message: TemplateParts

    def render(self, variables: Mapping[str, Any], **watch: Callable[[str], None]) -> Rendered | RenderError:
        """The rendered parts; `on_part` as in `Renderer.render`."""
        return self.renderer.render(self.message, variables, **watch)


@dataclass(frozen=True, slots=True)
class ParsedTemplate:
    """One version of a template, parsed."""

    source: TemplateSource
    renderer: Renderer
    messages: Mapping[str, TemplateParts]  # by locale, in lower case
    locales: tuple[str, ...]

    @classmethod
    def parse(cls, source: TemplateSource) -> "ParsedTemplate":
        """Parse all locales; raises `TemplateInvalid` naming file, line and reason."""
        shared = source.shared
        renderer = _renderer_with(shared)
        messages: dict[str, TemplateParts] = {}
        for folder, parts in source.messages.items():
            locale = normal_locale(folder)
            messages[locale] = _add_message(renderer, f"{source.template}/{locale}", parts, shared)
        return cls(source, renderer, messages, tuple(folder.replace("_", "-") for folder in source.messages))

    def render(self, *, locale: str | None, variables: Mapping[str, Any]) -> Rendered | RenderError:
        """Render one message; a failure of any kind is a `RenderError`, never an exception."""
        message = self.find(locale)
        return message if isinstance(message, RenderError) else self.renderer.render(message, variables)

    def render_bytes(self, *, locale: str | None, variables: Mapping[str, Any]) -> RenderedMessage | None:
        """The same message as it is transmitted; None if `render` is needed."""
        message = self.find(locale)
        return None if isinstance(message, RenderError) else self.renderer.render_bytes(message, variables)

    def find(self, locale: str | None) -> TemplateParts | RenderError:
        """The parts for a locale, or for the nearest one that the template has."""
        if locale is not None and (exact := self.messages.get(locale)) is not None:  # nearly always
            return exact
        for candidate in locale_chain(locale):
            if candidate in self.messages:
                return self.messages[candidate]
        template = self.source.template
        return RenderError(template, "catalog", "no_locale: neither the locale nor a fallback to it exists")

    def samples(self) -> dict[str, dict[str, Any]]:
        """The variables of each sample, by its name; `TemplateInvalid` if a file is not a JSON object."""
        return {
            path.partition("/")[2].removesuffix(".json"): _sample(file) for path, file in self.source.samples.items()
        }

    def check_samples(self) -> int:
        """Render every sample in every locale; raises `TemplateInvalid` at the first failure. Returns their number."""
        samples = self.samples()
        for name, variables in samples.items():
            for locale in self.locales:
                rendered = self.render(locale=locale, variables=variables)
                if isinstance(rendered, RenderError):
                    problem = f"{rendered.part}: {rendered.message}"
                    raise TemplateInvalid(f"{self.source.template}: the sample {name!r} fails in {locale}: {problem}")
        return len(samples) * len(self.locales)


def _sample(file: SourceFile) -> dict[str, Any]:
    try:
        variables = json.loads(file.text)
    except (ValueError, RecursionError) as error:
        raise TemplateInvalid(f"{file.label}: not JSON ({error})") from error
    if not isinstance(variables, dict):
        raise TemplateInvalid(f"{file.label}: a sample must be a JSON object with the variables")
    return variables


class Catalog:
    """The templates of the files of this process."""

    def __init__(self, shared: Mapping[str, SourceFile], sources: Iterable[TemplateSource] = ()) -> None:
        _renderer_with(shared)  # shared files that no template uses are parsed too
        self._shared = dict(shared)
        self.templates = {source.template: ParsedTemplate.parse(source) for source in sources}

    @classmethod
    def load(cls, *directories: Path) -> "Catalog":
        """Read and parse everything; raises `TemplateInvalid` naming file, line and reason."""
        return cls(*read_sources(*directories))

    def names(self) -> list[str]:
        return list(self.templates)

    def locales(self, template: str) -> list[str]:
        return list(self.templates[template].locales) if template in self.templates else []

    def speaks(self, template: str, locale: str | None) -> bool:
        """True if the template has the locale or one of its fallbacks."""
        return template in self.templates and not isinstance(self.templates[template].find(locale), RenderError)

    def __contains__(self, template: object) -> bool:
        return template in self.templates

    def render(self, template: str, *, locale: str | None, variables: Mapping[str, Any]) -> Rendered | RenderError:
        """Render one message; a failure of any kind is a `RenderError`, never an exception."""
        found = self.templates.get(template)
        if found is None:
            return RenderError(template, "catalog", "template_not_found: there is no such template")
        return found.render(locale=locale, variables=variables)

    def draft(self, *, subject: str, text: str | None = None, html: str | None = None) -> Draft | RenderError:
        """Parse parts given as strings; they can use the catalog's shared files."""
        renderer = _renderer_with(self._shared)
        given = {"subject": subject, "text": text, "html": html}
        sources = {part: SourceFile(part, source) for part, source in given.items() if source is not None}
        try:
            return Draft(renderer, _add_message(renderer, "draft", sources, self._shared))
        except TemplateInvalid as invalid:
            return RenderError("draft", "source", invalid.message)


def locale_chain(locale: str | None) -> Iterator[str]:
    """The locales to try, most specific first, in lower case with dashes."""
    wanted = normal_locale(locale or "")[:_LONGEST_LOCALE]
    while wanted:
        yield wanted
        wanted = wanted.rpartition("-")[0]
    yield FALLBACK_LOCALE


# --- parsing -------------------------------------------------------------------------


def _renderer_with(shared: Mapping[str, SourceFile]) -> Renderer:
    renderer = Renderer()
    for name, source in shared.items():
        _check_names(renderer, source, shared)
        for html in (True, False):
            _add(renderer, name, source, html=html)
    return renderer


def _add_message(
    renderer: Renderer, name: str, sources: Mapping[str, SourceFile], shared: Mapping[str, SourceFile]
) -> TemplateParts:
    for part, source in sources.items():
        _add(renderer, f"{name}/{part}", source, html=part == "html")
        _check_names(renderer, source, shared)
    html = sources.get("html")
    return TemplateParts(
        template=name.partition("/")[0],
        subject=f"{name}/subject",
        text=f"{name}/text" if "text" in sources else None,
        html=f"{name}/html" if html else None,
        inline_late=html is not None and _prepare_html(renderer, f"{name}/html", html),
    )


def _prepare_html(renderer: Renderer, name: str, source: SourceFile) -> bool:
    """Compile MJML, apply styles; true if the styles can only be applied after each rendering."""
    if source.is_mjml:
        _add(renderer, name, source, html=True, compiled=_compiled(source))
        return False
    if has_styles(source.text):
        inlined = _styled(source)
        if inlined is not None:
            _add(renderer, name, source, html=True, compiled=inlined)
        return inlined is None
    return draws_on_others(source.text)


def _add(renderer: Renderer, name: str, source: SourceFile, *, html: bool, compiled: str | None = None) -> None:
    try:
        renderer.add(name, source.text if compiled is None else compiled, html=html, written=source.text)
    except TemplateError as error:
        reason = error.detail or error.message
        raise TemplateInvalid(f"{source.label}, line {error.line or 1}: {reason}") from error


def _check_names(renderer: Renderer, source: SourceFile, shared: Mapping[str, SourceFile]) -> None:
    """Check filters and file names at load: the engine reports unknown ones only while rendering."""
    for start, end in tag_spans(source.text):
        wrong = _unknown_name(renderer, source.text[start:end], shared)
        if wrong is not None:
            line = 1 + source.text.count("\n", 0, start)
            raise TemplateInvalid(f"{source.label}, line {line}: {wrong}")


def _unknown_name(renderer: Renderer, tag: str, shared: Mapping[str, SourceFile]) -> str | None:
    if tag.startswith("{#"):
        return None
    for name in set(_FILTER.findall(_STRING.sub("''", tag))):
        if not renderer.knows_filter(name):
            return f"unknown filter {name!r}"
    reference = _REFERENCE.match(tag)
    wanted = reference and (reference[1] or reference[2])
    return f"there is no {wanted!r} in the catalog" if wanted and wanted not in shared else None


def _styled(source: SourceFile) -> str | None:
    try:
        return inline_at_load(source.text)
    except StylesInvalid as invalid:
        raise TemplateInvalid(f"{source.label}: the styles cannot be applied ({invalid})") from invalid


def _compiled(source: SourceFile) -> str:
    try:
        return compile_mjml(source.text)
    except MjmlInvalid as invalid:
        place = source.label if invalid.line is None else f"{source.label}, line {invalid.line}"
        raise TemplateInvalid(f"{place}: MJML: {invalid}") from invalid
