"""HTTP endpoints of templates: the templates of the room, their versions, and previews."""

from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.errors import BadInput
from postroom.mail import library
from postroom.mail.errors import TemplateInvalid
from postroom.mail.model import TemplateSummary, TemplateVersion, VersionFiles
from postroom.mail.publishing import publish_files
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape, answer
from postroom.runtime.service_endpoint import serve

READ = "templates:read"
WRITE = "templates:write"

Locale = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$")]
VersionId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class PreviewBody(Shape, frozen=True, kw_only=True):
    """Locale and variables of a preview, and the version; the current one by default."""

    locale: Locale | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    version_id: VersionId | None = None


class DiffQuery(Shape, frozen=True, kw_only=True):
    """The version to compare with; by default the one that was published before."""

    against: VersionId | None = None


class Preview(msgspec.Struct, frozen=True):
    """A rendered message."""

    subject: str
    text: str | None
    html: str | None


class VersionDiff(msgspec.Struct, frozen=True):
    """The difference between two versions in the unified format; empty if they are equal."""

    diff: str


class Published(msgspec.Struct, frozen=True):
    """The templates that changed, with their new versions."""

    templates: dict[str, int]


async def publish_templates(call: Call) -> Answer:
    try:
        return Answer(Published(await publish_files(call.room, actor=call.actor)))
    except TemplateInvalid as invalid:
        raise BadInput.of("template", invalid.message) from invalid


_endpoint = partial(Endpoint, tag="templates")
_read = partial(serve, scope=READ, tag="templates")
_ONE = "/v1/templates/{template_id}"
_OF = {"template": lambda call: call.path["template_id"]}

ENDPOINTS = [
    _read(
        "GET", "/v1/templates", library.list_templates, "List the templates and their current versions.",
        answers={200: Page[TemplateSummary]},
    ),
    _read(
        "GET", f"{_ONE}/versions", library.list_versions, "List the versions of a template, newest first.",
        query=PageQuery, answers={200: Page[TemplateVersion]}, given=_OF,
    ),
    _read(
        "GET", f"{_ONE}/versions/{{version_id:int}}", library.get_version,
        "Show a version with the text of its files.", answers={200: VersionFiles}, given=_OF,
    ),
    _read(
        "GET", f"{_ONE}/versions/{{version_id:int}}/diff", library.compare_versions,
        "Compare a version with another one, by default the one before.", query=DiffQuery,
        answers={200: VersionDiff}, shape=VersionDiff, given=_OF,
    ),
    _read(
        "POST", f"{_ONE}/preview", library.preview,
        "Render a template as it would be sent. Returns 400 if it cannot be rendered.", name="preview_template",
        body=PreviewBody, most_body=LARGE, answers={200: Preview}, problems=(404,), shape=partial(answer, Preview),
        given=_OF,
    ),
    _endpoint(
        "POST", "/v1/templates/publish", publish_templates,
        "Publish the template files of this process. Returns 400 if one is invalid; then nothing is published.",
        scope=WRITE, answers={200: Published},
    ),
]  # fmt: skip
