"""Templates of mail: the list, the versions of one, and a version with its changes, previews and files."""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from postroom.dashboard.listing import ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, listing, page
from postroom.dashboard.preview import WIDTHS, preview
from postroom.mail import library
from postroom.mail.model import TemplateSummary, TemplateVersion, VersionFiles
from postroom.mail.render import Rendered
from postroom.runtime.endpoint import Answer, ProtocolError

READ = "templates:read"

_SHORT = 12  # characters of a hash: enough to tell versions apart


def _path(template: str, version_id: int) -> str:
    return f"/templates/{quote(template)}/versions/{version_id}"


_TEMPLATES = columns(
    TemplateSummary,
    "id",
    "locales",
    "version_id",
    "content_hash",
    "changed_at",
    id={"label": "Template", "link": lambda template: f"/templates/{quote(template.id)}"},
    content_hash={"value": lambda template: template.content_hash[:_SHORT], "form": "code", "is_minor": True},
    version_id={
        "label": "Current version",
        "form": "code",
        "link": lambda template: _path(template.id, template.version_id),
    },
    changed_at={"label": "Current since"},
)
_VERSIONS = (
    ListColumn("id", "Version", "code", link=lambda version: _path(version.template, version.id)),
    ListColumn("state", "Status", "state", value=lambda version: "replaced" if version.replaced_at else "current"),
    *columns(
        TemplateVersion,
        "content_hash",
        "published_at",
        "published_by",
        "replaced_at",
        content_hash={"value": lambda version: version.content_hash[:_SHORT], "form": "code", "is_minor": True},
    ),
)


async def versions_page(request: PageRequest) -> Answer:
    template: str = request.call.path["template_id"]
    found = await library.list_versions(request.pool, template, cursor=request.asked("cursor"))
    current = [version for version in found[0] if version.replaced_at is None]
    offered = [PageAction("Preview", _path(template, each.id), READ, is_link=True, is_main=True) for each in current]
    return request.listing(f"Versions of {template}", _VERSIONS, found, lead="Newest first.", actions=offered)


async def version_page(request: PageRequest) -> Answer:
    """The changes of the version, its samples as they would be sent, and its files."""
    found = await _version(request)
    version = found.version
    return request.page(
        "template_version.html",
        version=version,
        width=request.choice("width", WIDTHS),
        widths=WIDTHS,
        is_dark=request.asked("dark") is not None,
        is_first=await library.is_first_version(request.pool, version.template, version.id),
        files=sorted(found.files.items()),
        diff=await library.compare_versions(request.pool, version.template, version.id),
        samples=[_shown(version, *each) for each in library.render_samples(found)],
    )


async def preview_page(request: PageRequest) -> Answer:
    """The HTML of one sample, harmless, for the frame on the version's page."""
    wanted = (request.asked("sample"), request.asked("locale"))
    for name, locale, rendered in library.render_samples(await _version(request)):
        if (name, locale) == wanted and rendered.html is not None:
            return await preview(rendered.html, dark=request.asked("dark") is not None)
    raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no HTML to show.")


async def _version(request: PageRequest) -> VersionFiles:
    path = request.call.path
    return await library.get_version(request.pool, path["template_id"], path["version_id"])


def _shown(version: TemplateVersion, name: str, locale: str, rendered: Rendered) -> dict[str, Any]:
    query = urlencode({"sample": name, "locale": locale})
    return {
        "name": name,
        "locale": locale,
        "rendered": rendered,
        "preview": f"{_path(version.template, version.id)}/preview?{query}" if rendered.html is not None else None,
    }


PAGES = (
    listing(
        "/templates",
        "Templates",
        _TEMPLATES,
        library.list_templates,
        scope=READ,
        lead="Mail is accepted with the current version of its template, and keeps it.",
    ),
    page("/templates/{template_id}", versions_page, scope=READ),
    page("/templates/{template_id}/versions/{version_id:int}", version_page, scope=READ),
    page("/templates/{template_id}/versions/{version_id:int}/preview", preview_page, scope=READ),
)
