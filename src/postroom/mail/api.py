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
from postroom.runtime.record import Shape

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


async def list_templates(call: Call) -> Answer:
    return Answer(Page(await library.list_templates(call.room.pool), None))


async def list_versions(call: Call) -> Answer:
    query: PageQuery = call.query
    template: str = call.path["template_id"]
    found, more = await library.list_versions(call.room.pool, template, cursor=query.cursor, limit=query.limit)
    return Answer(Page(found, more))


async def get_version(call: Call) -> Answer:
    return Answer(await library.get_version(call.room.pool, call.path["template_id"], call.path["version_id"]))


async def compare_versions(call: Call) -> Answer:
    template, version_id = call.path["template_id"], call.path["version_id"]
    diff = await library.compare_versions(call.room.pool, template, version_id, against=call.query.against)
    return Answer(VersionDiff(diff))


async def preview_template(call: Call) -> Answer:
    body: PreviewBody = call.body
    rendered = await library.preview(
        call.room.pool,
        call.path["template_id"],
        version_id=body.version_id,
        locale=body.locale,
        variables=body.variables,
    )
    return Answer(Preview(rendered.subject, rendered.text, rendered.html))


async def publish_templates(call: Call) -> Answer:
    try:
        return Answer(Published(await publish_files(call.room, actor=call.actor)))
    except TemplateInvalid as invalid:
        raise BadInput.of("template", invalid.message) from invalid


_read = partial(Endpoint, method="GET", scope=READ, tag="templates")
_ONE = "/v1/templates/{template_id}"

ENDPOINTS = [
    _read(
        path="/v1/templates",
        handler=list_templates,
        summary="List the templates and their current versions.",
        answers={200: Page[TemplateSummary]},
    ),
    _read(
        path=f"{_ONE}/versions",
        handler=list_versions,
        summary="List the versions of a template, newest first.",
        query=PageQuery,
        answers={200: Page[TemplateVersion]},
    ),
    _read(
        path=f"{_ONE}/versions/{{version_id:int}}",
        handler=get_version,
        summary="Show a version with the text of its files.",
        answers={200: VersionFiles},
    ),
    _read(
        path=f"{_ONE}/versions/{{version_id:int}}/diff",
        handler=compare_versions,
        summary="Compare a version with another one, by default the one before.",
        query=DiffQuery,
        answers={200: VersionDiff},
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/preview",
        handler=preview_template,
        summary="Render a template as it would be sent. Returns 400 if it cannot be rendered.",
        scope=READ,
        tag="templates",
        body=PreviewBody,
        most_body=LARGE,
        answers={200: Preview},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/templates/publish",
        handler=publish_templates,
        summary="Publish the template files of this process. Returns 400 if one is invalid; then nothing is published.",
        scope=WRITE,
        tag="templates",
        answers={200: Published},
    ),
]
