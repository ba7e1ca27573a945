"""The template catalog: files found and parsed once at start, then only looked up.

    <template_id>/<locale>/subject   (or subject.txt)   required
                           text      (or text.txt)      derived from html if absent
                           html      (or html.html, or html.mjml / mjml)
    _layouts/…  _partials/…          shared files for {% extends "_layouts/base.html" %} and {% include … %}

A later directory replaces an earlier one's templates by id, and its shared files by path. Everything is
parsed when the catalog loads; the first error raises `TemplateInvalid` with file, line and reason.
Afterwards no file is read: templates can name only what was loaded, so no path leads anywhere else.

A locale is looked up from specific to general, then in English: `zh-Hant-TW → zh-Hant → zh → en`.
Filters are the engine's own (`default`, `upper`, `join`, `urlencode`, `tojson`, `items`, …); none are added.
MJML is compiled at load and keeps its own rules about styles (`<mj-style inline="inline">`).
"""

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
from postroom.mail.render import Rendered, Renderer, RenderError, TemplateParts
from postroom.runtime.template_tags import tag_spans

BUILTIN_TEMPLATES = Path(__file__).parent / "builtin_templates"
FALLBACK_LOCALE = "en"

_TEMPLATE_ID = re.compile(r"[a-z0-9][a-z0-9._-]*")
_LOCALE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_LONGEST_LOCALE = 35
_SHARED = ("_layouts", "_partials")
_PART_OF_FILE = {
    "subject": "subject",
    "subject.txt": "subject",
    "text": "text",
    "text.txt": "text",
    "html": "html",
    "html.html": "html",
    "html.mjml": "html",
    "mjml": "html",
}
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_FILTER = re.compile(r"\|\s*([A-Za-z_]\w*)")
_REFERENCE = re.compile(r"\{%[-+]?\s*(?:extends|include|import|from)\s+(?:'([^']*)'|\"([^\"]*)\")(?!.*ignore missing)")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a template as it was written."""

    label: str
    text: str
    mjml: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """Message parts outside the catalog, parsed once: a preview, or a campaign rendered for many recipients."""

    renderer: Renderer
    message: TemplateParts

    def render(self, variables: Mapping[str, Any], **watch: Callable[[str], None]) -> Rendered | RenderError:
        """The rendered parts; `on_part` as in `Renderer.render`."""
        return self.renderer.render(self.message, variables, **watch)


class Catalog:
    """Every template of this process, ready to render."""

    def __init__(self, shared: Mapping[str, Source]) -> None:
        self._shared = dict(shared)
        self._renderer = _renderer_with(shared)
        self._messages: dict[str, dict[str, TemplateParts]] = {}
        self._locales: dict[str, list[str]] = {}

    @classmethod
    def load(cls, *directories: Path) -> "Catalog":
        """Read and parse everything; raises `TemplateInvalid` naming file, line and reason."""
        shared: dict[str, Source] = {}
        templates: dict[str, Path] = {}
        for directory in directories:
            shared.update(_shared_files(directory))
            templates.update((folder.name, folder) for folder in _template_folders(directory))
        catalog = cls(shared)
        for template, folder in sorted(templates.items()):
            catalog._add_template(template, folder)
        return catalog

    def names(self) -> list[str]:
        return list(self._messages)

    def locales(self, template: str) -> list[str]:
        return list(self._locales.get(template, ()))

    def speaks(self, template: str, locale: str | None) -> bool:
        """True if the template has the locale or one of its fallbacks."""
        return not isinstance(self._find(template, locale), RenderError)

    def __contains__(self, template: object) -> bool:
        return template in self._messages

    def render(self, template: str, *, locale: str | None, variables: Mapping[str, Any]) -> Rendered | RenderError:
        """Render one message; a failure of any kind is a `RenderError`, never an exception."""
        message = self._find(template, locale)
        return message if isinstance(message, RenderError) else self._renderer.render(message, variables)

    def render_many(
        self, template: str, *, locale: str | None, many: Iterable[Mapping[str, Any]]
    ) -> list[Rendered | RenderError]:
        """Render one template for many sets of variables; results are in the same order."""
        message = self._find(template, locale)
        if isinstance(message, RenderError):
            return [message for _ in many]
        return self._renderer.render_many(message, many)

    def draft(self, *, subject: str, text: str | None = None, html: str | None = None) -> Draft | RenderError:
        """Parse parts given as strings; they can use the catalog's shared files."""
        renderer = _renderer_with(self._shared)
        given = {"subject": subject, "text": text, "html": html}
        sources = {part: Source(part, source) for part, source in given.items() if source is not None}
        try:
            return Draft(renderer, _add_message(renderer, "draft", sources, self._shared))
        except TemplateInvalid as invalid:
            return RenderError("draft", "source", invalid.message)

    def render_inline(
        self, *, subject: str, text: str | None, html: str | None, variables: Mapping[str, Any]
    ) -> Rendered | RenderError:
        draft = self.draft(subject=subject, text=text, html=html)
        return draft if isinstance(draft, RenderError) else draft.render(variables)

    def _find(self, template: str, locale: str | None) -> TemplateParts | RenderError:
        messages = self._messages.get(template)
        if messages is None:
            return RenderError(template, "catalog", "template_not_found: there is no such template")
        for candidate in locale_chain(locale):
            if candidate in messages:
                return messages[candidate]
        return RenderError(template, "catalog", "no_locale: neither the locale nor a fallback to it exists")

    def _add_template(self, template: str, folder: Path) -> None:
        messages: dict[str, TemplateParts] = {}
        names: list[str] = []
        for locale_folder in _folders(folder):
            locale = _normal_locale(locale_folder.name)
            if not _LOCALE.fullmatch(locale):
                raise TemplateInvalid(f"{locale_folder}: not a locale (such as fr, pt-BR, zh-Hant)")
            if locale in messages:
                raise TemplateInvalid(f"{locale_folder}: the locale {locale!r} exists twice")
            name = f"{template}/{locale}"
            sources = _parts_in(locale_folder)
            messages[locale] = _add_message(self._renderer, name, sources, self._shared)
            names.append(locale_folder.name.replace("_", "-"))
        if not messages:
            raise TemplateInvalid(f"{folder}: the template has no locale")
        self._messages[template], self._locales[template] = messages, names


def locale_chain(locale: str | None) -> Iterator[str]:
    """The locales to try, most specific first, in lower case with dashes."""
    wanted = _normal_locale(locale or "")[:_LONGEST_LOCALE]
    while wanted:
        yield wanted
        wanted = wanted.rpartition("-")[0]
    yield FALLBACK_LOCALE


def _normal_locale(locale: str) -> str:
    return locale.replace("_", "-").lower()


# --- reading -------------------------------------------------------------------------


def _folders(directory: Path) -> list[Path]:
    # Names with a leading dot belong to version control, desktops and Kubernetes; skip them.
    return sorted(entry for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _template_folders(directory: Path) -> Iterator[Path]:
    for folder in _folders(directory):
        if folder.name in _SHARED:
            continue
        if not _TEMPLATE_ID.fullmatch(folder.name):
            raise TemplateInvalid(f"{folder}: not a template id (lower case, digits, '.', '_' and '-')")
        yield folder


def _shared_files(directory: Path) -> dict[str, Source]:
    if not directory.is_dir():
        raise TemplateInvalid(f"{directory}: there is no such template directory")
    files = (file for name in _SHARED for file in sorted((directory / name).rglob("*")) if file.is_file())
    visible = (file for file in files if not file.name.startswith("."))
    return {file.relative_to(directory).as_posix(): Source(str(file), _read(file)) for file in visible}


def _parts_in(folder: Path) -> dict[str, Source]:
    parts: dict[str, Source] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or file.name.endswith("~"):
            continue
        part = _PART_OF_FILE.get(file.name)
        if part is None:
            raise TemplateInvalid(f"{file}: not a part of a message (subject, text, html or mjml)")
        if part in parts:
            raise TemplateInvalid(f"{file}: the part {part!r} exists twice")
        parts[part] = Source(str(file), _read(file), mjml=file.name.endswith("mjml"))
    if "subject" not in parts:
        raise TemplateInvalid(f"{folder}: the template has no subject")
    if "text" not in parts and "html" not in parts:
        raise TemplateInvalid(f"{folder}: the template has neither text nor html")
    return parts


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TemplateInvalid(f"{file}: not UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise TemplateInvalid(f"{file}: cannot be read ({error.strerror})") from error


# --- parsing -------------------------------------------------------------------------


def _renderer_with(shared: Mapping[str, Source]) -> Renderer:
    renderer = Renderer()
    for name, source in shared.items():
        _check_names(renderer, source, shared)
        for html in (True, False):
            _add(renderer, name, source, html=html)
    return renderer


def _add_message(
    renderer: Renderer, name: str, sources: Mapping[str, Source], shared: Mapping[str, Source]
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


def _prepare_html(renderer: Renderer, name: str, source: Source) -> bool:
    """Compile MJML, apply styles; true if the styles can only be applied after each rendering."""
    if source.mjml:
        _add(renderer, name, source, html=True, compiled=_compiled(source))
        return False
    if has_styles(source.text):
        inlined = _styled(source)
        if inlined is not None:
            _add(renderer, name, source, html=True, compiled=inlined)
        return inlined is None
    return draws_on_others(source.text)


def _add(renderer: Renderer, name: str, source: Source, *, html: bool, compiled: str | None = None) -> None:
    try:
        renderer.add(name, source.text if compiled is None else compiled, html=html, written=source.text)
    except TemplateError as error:
        reason = error.detail or error.message
        raise TemplateInvalid(f"{source.label}, line {error.line or 1}: {reason}") from error


def _check_names(renderer: Renderer, source: Source, shared: Mapping[str, Source]) -> None:
    """Check filters and file names at load: the engine reports unknown ones only while rendering."""
    for start, end in tag_spans(source.text):
        wrong = _unknown_name(renderer, source.text[start:end], shared)
        if wrong is not None:
            line = 1 + source.text.count("\n", 0, start)
            raise TemplateInvalid(f"{source.label}, line {line}: {wrong}")


def _unknown_name(renderer: Renderer, tag: str, shared: Mapping[str, Source]) -> str | None:
    if tag.startswith("{#"):
        return None
    for name in set(_FILTER.findall(_STRING.sub("''", tag))):
        if not renderer.knows_filter(name):
            return f"unknown filter {name!r}"
    reference = _REFERENCE.match(tag)
    wanted = reference and (reference[1] or reference[2])
    return f"there is no {wanted!r} in the catalog" if wanted and wanted not in shared else None


def _styled(source: Source) -> str | None:
    try:
        return inline_at_load(source.text)
    except StylesInvalid as invalid:
        raise TemplateInvalid(f"{source.label}: the styles cannot be applied ({invalid})") from invalid


def _compiled(source: Source) -> str:
    try:
        return compile_mjml(source.text)
    except MjmlInvalid as invalid:
        place = source.label if invalid.line is None else f"{source.label}, line {invalid.line}"
        raise TemplateInvalid(f"{place}: MJML: {invalid}") from invalid
