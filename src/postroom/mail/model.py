"""Records of templates and their versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """A template and the version that new mail is accepted with."""

    id: str
    locales: list[str]
    version_id: int
    content_hash: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """One published version; `replaced_at` is null for the current one."""

    id: int
    template: str
    content_hash: str
    published_at: datetime
    published_by: str
    replaced_at: datetime | None


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version and the text of its files by path: its parts, the shared files that it uses, its samples."""

    version: TemplateVersion
    files: Mapping[str, str]
