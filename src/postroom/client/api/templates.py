"""The endpoints of templates, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing


class TemplateSummary(Struct, frozen=True, kw_only=True):
    """A template and the version that new mail is accepted with."""

    id: str
    locales: list[str]
    version_id: int
    content_hash: str
    changed_at: datetime


class TemplateVersion(Struct, frozen=True, kw_only=True):
    """One published version; `replaced_at` is null for the current one."""

    id: int
    template: str
    content_hash: str
    published_at: datetime
    published_by: str
    replaced_at: datetime | None


class VersionFiles(Struct, frozen=True, kw_only=True):
    """A version and the text of its files by path: its parts, the shared files that it uses, its samples."""

    version: TemplateVersion
    files: dict[str, str]


class VersionDiff(Struct, frozen=True, kw_only=True):
    """The difference between two versions in the unified format; empty if they are equal."""

    diff: str


class Preview(Struct, frozen=True, kw_only=True):
    """A rendered message."""

    subject: str
    text: str | None
    html: str | None


class Published(Struct, frozen=True, kw_only=True):
    """The templates that changed, with their new versions."""

    templates: dict[str, int]


class TemplatesApi(Resource[Kind]):
    """The endpoints of templates."""

    @listing("/v1/templates")
    def list(self) -> ResultPage[TemplateSummary]:
        """List the templates and their current versions."""

    @listing("/v1/templates/{template_id}/versions")
    def list_versions(
        self, template_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> ResultPage[TemplateVersion]:
        """List the versions of a template, newest first."""

    @call("GET", "/v1/templates/{template_id}/versions/{version_id}")
    def get_version(self, template_id: str, version_id: int) -> VersionFiles:
        """Show a version with the text of its files."""

    @call("GET", "/v1/templates/{template_id}/versions/{version_id}/diff")
    def compare_versions(self, template_id: str, version_id: int, *, against: int | None = None) -> VersionDiff:
        """Compare a version with another one, by default the one before."""

    @call("POST", "/v1/templates/{template_id}/preview", body=True)
    def preview(
        self,
        template_id: str,
        *,
        locale: str | None = None,
        variables: Mapping[str, Any] = ...,
        version_id: int | None = None,
    ) -> Preview:
        """Render a template as it would be sent. Returns 400 if it cannot be rendered."""

    @call("POST", "/v1/templates/publish")
    def publish(self) -> Published:
        """Publish the template files of this process. Returns 400 if one is invalid; then nothing is published."""
