"""HTTP endpoints of templates: the catalog and previews."""

from typing import Annotated, Any

import msgspec

from postroom.errors import BadInput
from postroom.mail.catalog import Catalog
from postroom.mail.errors import TemplateNotFound
from postroom.mail.render import RenderError
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.record import Shape

READ = "templates:read"

Locale = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$")]


class PreviewBody(Shape, frozen=True, kw_only=True):
    """Locale and variables of a preview."""

    locale: Locale | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class TemplateShape(msgspec.Struct, frozen=True):
    """One template and its locales."""

    id: str
    locales: list[str]


class TemplatePage(msgspec.Struct, frozen=True):
    """The whole catalog, on one page."""

    items: list[TemplateShape]
    next_cursor: None = None


class Preview(msgspec.Struct, frozen=True):
    """A rendered message."""

    subject: str
    text: str | None
    html: str | None


def endpoints(catalog: Catalog | None) -> list[Endpoint]:
    """The endpoints of this catalog; without one the list is empty."""

    async def list_templates(_call: Call) -> Answer:
        names = catalog.names() if catalog is not None else []
        return Answer(TemplatePage([TemplateShape(name, _locales(catalog, name)) for name in names]))

    async def preview_template(call: Call) -> Answer:
        template: str = call.path["template_id"]
        if catalog is None or template not in catalog:
            raise TemplateNotFound
        rendered = catalog.render(template, locale=call.body.locale, variables=call.body.variables)
        if isinstance(rendered, RenderError):
            raise BadInput.of("variables", f"{rendered.part}: {rendered.message}")
        return Answer(Preview(rendered.subject, rendered.text, rendered.html))

    return [
        Endpoint(
            method="GET",
            path="/v1/templates",
            handler=list_templates,
            summary="List the templates of the catalog.",
            scope=READ,
            tag="templates",
            answers={200: TemplatePage},
        ),
        Endpoint(
            method="POST",
            path="/v1/templates/{template_id}/preview",
            handler=preview_template,
            summary="Render a template as it would be sent. Returns 400 if it cannot be rendered.",
            scope=READ,
            tag="templates",
            body=PreviewBody,
            most_body=LARGE,
            answers={200: Preview},
            problems=(404,),
        ),
    ]


def _locales(catalog: Catalog | None, template: str) -> list[str]:
    return catalog.locales(template) if catalog is not None else []
