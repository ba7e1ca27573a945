"""Services of templates: the templates of a room, their versions, the difference between two, and previews."""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.mail import store
from postroom.mail.catalog import BUILTIN_TEMPLATES, ParsedTemplate
from postroom.mail.errors import TemplateNotFound
from postroom.mail.markup import compile_mjml
from postroom.mail.model import TemplateSummary, TemplateVersion, VersionFiles
from postroom.mail.render import Rendered, RenderError
from postroom.mail.template_files import TemplateSource
from postroom.runtime.page import Found, read_page


async def list_templates(pool: Pool) -> list[TemplateSummary]:
    return await store.list_templates(pool)


async def list_own_templates(pool: Pool) -> list[TemplateSummary]:
    """The templates that the application added; those that come with Postroom are for mail to one person."""
    return [each for each in await list_templates(pool) if each.id not in _builtin_names()]


@cache
def _builtin_names() -> frozenset[str]:
    return frozenset(folder.name for folder in BUILTIN_TEMPLATES.iterdir())


async def list_versions(
    pool: Pool, template: str, *, cursor: str | None = None, limit: int = 50
) -> Found[TemplateVersion]:
    """A page of versions, newest first, and the cursor of the next page. Raises `TemplateNotFound`."""
    found, more = await read_page(store.list_versions, pool, cursor, limit, template=template)
    if not found and cursor is None:
        raise TemplateNotFound.of(template)
    return found, more


async def get_version(pool: Pool, template: str, version_id: int | None = None) -> VersionFiles:
    """One version with its files, the current one by default. Raises `TemplateNotFound`."""
    found = await store.find_version(pool, template=template, version_id=version_id)
    if found is None:
        raise TemplateNotFound.of(template, version_id)
    return found


async def compare_versions(pool: Pool, template: str, version_id: int, *, against: int | None = None) -> str:
    """The difference from another version, by default the one before, in the unified format."""
    new = await get_version(pool, template, version_id)
    earlier = against or await store.find_version_before(pool, template=template, version_id=version_id)
    old = {} if earlier is None else (await get_version(pool, template, earlier)).files
    return "".join(_compare(old, new.files))


async def is_first_version(pool: Pool, template: str, version_id: int) -> bool:
    return await store.find_version_before(pool, template=template, version_id=version_id) is None


async def preview(
    pool: Pool, template: str, *, version_id: int | None = None, locale: str | None, variables: Mapping[str, Any]
) -> Rendered:
    """Render a version as it would be sent. `BadInput` says why it cannot be rendered."""
    found = await get_version(pool, template, version_id)
    source = TemplateSource.stored(template, found.files, version_id=found.version.id)
    rendered = ParsedTemplate.parse(source).render(locale=locale, variables=variables)
    if isinstance(rendered, RenderError):
        raise BadInput.of("variables", f"{rendered.part}: {rendered.message}")
    return rendered


async def copy_parts(pool: Pool, template: str, *, locale: str) -> dict[str, str]:
    """The subject, text and HTML of a template's current version, for content that stands alone.

    MJML is compiled. `BadInput` names the shared files that the template uses: a copy could not use them.
    """
    found = await get_version(pool, template)
    source = TemplateSource.stored(template, found.files, version_id=found.version.id)
    parts = source.messages.get(locale)
    if parts is None:
        raise BadInput.of("locale", f"must be a locale of the template {template}: {', '.join(source.messages)}")
    if source.shared:
        shared = ", ".join(sorted(source.shared))
        raise BadInput.of("template", f"{template} uses shared files, which a copy cannot: {shared}")
    copied = {part: compile_mjml(file.text) if file.is_mjml else file.text for part, file in parts.items()}
    return {**copied, "subject": copied["subject"].strip()}


def render_samples(found: VersionFiles) -> Iterator[tuple[str, str, Rendered]]:
    """Every sample of a version in every locale: its name, the locale, and the content."""
    source = TemplateSource.stored(found.version.template, found.files, version_id=found.version.id)
    template = ParsedTemplate.parse(source)
    for name, variables in template.samples().items():
        for locale in template.locales:
            rendered = template.render(locale=locale, variables=variables)
            if isinstance(rendered, Rendered):  # publishing has proven it, with this version of Postroom or another
                yield name, locale, rendered


def _compare(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted({*old, *new}):
        before, after = (files.get(path, "").splitlines(keepends=True) for files in (old, new))
        for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"):
            yield line if line.endswith("\n") else f"{line}\n"
