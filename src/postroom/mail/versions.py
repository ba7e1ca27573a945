"""The versions of templates in use by this process: loaded from the database once, parsed, and rendered from memory.

A version never changes, so the cache never expires. It is bounded: a parsed version takes about 80 kB. The versions of
an open claim stay, see `ClaimCache`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import structlog

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery.model import ClaimId, Unrendered
from postroom.mail import store
from postroom.mail.catalog import ParsedTemplate
from postroom.mail.errors import TemplateInvalid
from postroom.mail.render import Rendered, RenderedMessage, RenderError
from postroom.mail.template_files import TemplateSource
from postroom.runtime.claim_cache import ClaimCache

_log = structlog.get_logger()

CACHED = 128  # more than the templates that most installations use at a time


class TemplateVersions:
    """Versions of templates, parsed. `load` before `render`: rendering itself reads nothing."""

    def __init__(self, pool: Pool, *, cached: int = CACHED) -> None:
        self._pool = pool
        self._versions: ClaimCache[ParsedTemplate | str] = ClaimCache(cached)

    async def load(
        self,
        version_ids: Iterable[int | None],
        *,
        connection: Connection | None = None,
    ) -> None:
        """Load and parse these versions, except the ones in memory, on this connection or one of the pool."""
        wanted = {version_id for version_id in version_ids if version_id is not None}
        ready = self._versions.take(wanted)
        if missing := wanted - ready.keys():
            found = await store.list_version_sources(connection or self._pool, version_ids=sorted(missing))
            ready |= {version_id: _parsed(version_id, found.get(version_id)) for version_id in missing}
        self._versions.add(ready)

    async def load_claim(
        self, claim_id: ClaimId, version_ids: Collection[int | None], open_claims: Collection[ClaimId]
    ) -> None:
        """Load the versions of a claim, and keep them and those of the other open claims."""
        self._versions.hold(claim_id, version_ids, open_claims)
        await self.load(version_ids)

    async def get(self, version_id: int) -> ParsedTemplate | None:
        """One version; None if it does not exist or cannot be parsed."""
        await self.load([version_id])
        found = self._versions.get(version_id)
        return found if isinstance(found, ParsedTemplate) else None

    def render_mail(self, mail: Unrendered) -> Rendered | RenderError:
        """Render a delivery whose version is loaded."""
        if mail.problem is not None:
            return RenderError(mail.template_id, "variables", mail.problem)
        return self.render(mail.template_id, mail.template_version_id, locale=mail.locale, variables=mail.variables)

    def render(
        self, template: str, version_id: int | None, *, locale: str | None, variables: Mapping[str, Any]
    ) -> Rendered | RenderError:
        """Render a loaded version. A failure of any kind is a `RenderError`, except a version that was not loaded."""
        if version_id is None:
            return RenderError(template, "catalog", "template_not_found: there was no such template at acceptance")
        found = self._versions.get(version_id)
        if found is None:  # not a failure of the mail: loading may have failed, and the next attempt may succeed
            raise LookupError(f"version {version_id} of the template {template!r} was not loaded")
        if isinstance(found, str):
            return RenderError(template, "catalog", found)
        try:
            rendered = found.render(locale=locale, variables=variables)
        except Exception as error:  # noqa: BLE001 - one mail must not stop the others of its batch
            _log.exception("rendering_crashed", template=template, version_id=version_id)
            return RenderError(template, "template", f"rendering raised {type(error).__name__}")
        return _without_nul(template, rendered)

    def render_bytes(
        self, version_id: int | None, *, locale: str | None, variables: Mapping[str, Any]
    ) -> RenderedMessage | None:
        """Render a loaded version as it is transmitted; None if `render` is needed, which also has the errors."""
        found = None if version_id is None else self._versions.get(version_id)
        return found.render_bytes(locale=locale, variables=variables) if isinstance(found, ParsedTemplate) else None


def _without_nul(template: str, rendered: Rendered | RenderError) -> Rendered | RenderError:
    if isinstance(rendered, Rendered) and (
        "\0" in rendered.subject or "\0" in (rendered.text or "") or "\0" in (rendered.html or "")
    ):
        return RenderError(template, "template", "the rendered content contains a NUL, which mail cannot contain")
    return rendered


def _parsed(version_id: int, source: TemplateSource | None) -> ParsedTemplate | str:
    """The version, or the reason why it cannot be rendered."""
    if source is None:
        return f"version_not_found: version {version_id} was deleted"
    try:
        return ParsedTemplate.parse(source)
    except TemplateInvalid as invalid:  # changed by plain SQL, or published by another version of Postroom
        return f"version_invalid: {invalid.message}"
    except Exception as error:  # noqa: BLE001 - one version must not stop the mail of the others
        _log.exception("template_unreadable", version_id=version_id)
        return f"version_invalid: parsing it raised {type(error).__name__}"
