"""Commands for templates: the catalog and previews."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.errors import BadInput
from postroom.mail.errors import TemplateNotFound
from postroom.runtime.terminal import AsJson, parse_variables, print_json, print_table, printable, say
from postroom.settings import read_settings

if TYPE_CHECKING:
    from postroom.mail.catalog import Catalog

templates = typer.Typer()


@templates.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """List the catalog: the built-in templates and those of POSTROOM_TEMPLATE_DIR."""
    catalog = _load()
    found = [(name, catalog.locales(name)) for name in catalog.names()]
    if as_json:
        items = [{"id": name, "locales": locales} for name, locales in found]
        print_json({"items": items, "next_cursor": None})
    else:
        print_table(("template", "locales"), found)


@templates.command()
def preview(
    template: Annotated[str, typer.Argument(help="Id of the template.")],
    *,
    locale: Annotated[str | None, typer.Option(help="Locale, such as fr or pt-BR.")] = None,
    var: Annotated[list[str] | None, typer.Option(help="Template variable, name=value; repeatable.")] = None,
    vars_json: Annotated[str | None, typer.Option(help="Variables as one JSON object.")] = None,
    html: Annotated[bool, typer.Option("--html", help="Print only the HTML part.")] = False,
    as_json: AsJson = False,
) -> None:
    """Render a template as it would be sent. Needs no database."""
    from postroom.mail.render import RenderError

    catalog = _load()
    if template not in catalog:
        raise TemplateNotFound(f"There is no template {template!r}; there are {', '.join(catalog.names())}.")
    rendered = catalog.render(template, locale=locale, variables=parse_variables(var or [], vars_json))
    if isinstance(rendered, RenderError):
        raise BadInput.of("variables", f"{rendered.part}: {rendered.message}")
    if as_json:
        print_json(rendered)
    elif html:
        say(rendered.html or "")
    else:
        say(printable(f"Subject: {rendered.subject}\n\n{rendered.text or ''}"))


def _load() -> "Catalog":
    from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog

    own = read_settings().template_dir
    return Catalog.load(BUILTIN_TEMPLATES, *([own] if own else []))
