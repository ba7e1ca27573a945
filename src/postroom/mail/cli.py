"""Commands for templates: the room's templates and versions, and the files of this computer."""

from typing import Annotated, Any

import typer

from postroom.errors import BadInput
from postroom.mail import library
from postroom.mail.errors import TemplateNotFound
from postroom.mail.publishing import load_catalog, publish_files
from postroom.mail.render import Rendered, RenderError
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_variables,
    print_json,
    print_page,
    print_table,
    printable,
    say,
)
from postroom.settings import read_settings

templates = typer.Typer()

Id = Annotated[str, typer.Argument(help="Id of the template.")]
Version = Annotated[
    int | None, typer.Option("--version", min=0, max=LARGEST_ID, help="Id of a version; default: the current one.")
]
VersionId = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of a version.")]

_VERSIONS = ("id", "content_hash", "published_at", "published_by", "replaced_at")


@templates.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """List the templates of the room and their current versions."""
    found = in_room(lambda room: library.list_templates(room.pool))
    if as_json:
        print_json({"items": found, "next_cursor": None})
        return
    columns = ("template", "locales", "version", "hash", "current since")
    rows = ((each.id, each.locales, each.version_id, each.content_hash[:12], each.changed_at) for each in found)
    print_table(columns, rows)


@templates.command()
def versions(template: Id, *, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List the versions of a template, newest first."""
    found, more = in_room(lambda room: library.list_versions(room.pool, template, cursor=cursor, limit=limit))
    print_page(found, more, columns=_VERSIONS, as_json=as_json)


@templates.command()
def show(template: Id, *, version: Version = None, as_json: AsJson = False) -> None:
    """Show the files of a version."""
    found = in_room(lambda room: library.get_version(room.pool, template, version))
    if as_json:
        print_json(found)
        return
    for path, text in sorted(found.files.items()):
        say(printable(f"==> {path} <==\n{text}"))


@templates.command()
def diff(
    template: Id,
    version: VersionId,
    against: Annotated[
        int | None, typer.Argument(min=0, max=LARGEST_ID, help="Another version; default: the one before.")
    ] = None,
) -> None:
    """Print what a version changed, in the unified format."""
    changed = in_room(lambda room: library.compare_versions(room.pool, template, version, against=against))
    say(printable(changed.rstrip("\n")) if changed else "The versions are equal.")


@templates.command()
def publish(*, as_json: AsJson = False) -> None:
    """Publish the template files of this computer: mail that is accepted from now on uses them.

    Every sample is rendered first; if one fails, nothing is published.
    """
    changed = in_room(lambda room: publish_files(room, actor=actor()))
    if as_json:
        print_json({"templates": changed})
    elif changed:
        for template, version_id in changed.items():
            say(f"Published version {version_id} of {template}.")
    else:
        say("The room has these templates already.")


@templates.command()
def check() -> None:
    """Parse the template files of this computer and render their samples. Needs no database."""
    catalog = load_catalog(read_settings())
    rendered = sum(template.check_samples() for template in catalog.templates.values())
    say(f"{len(catalog.names())} templates parse; {rendered} samples render.")


@templates.command()
def preview(  # noqa: PLR0913 - one parameter per option
    template: Id,
    *,
    version: Version = None,
    locale: Annotated[str | None, typer.Option(help="Locale, such as fr or pt-BR.")] = None,
    var: Annotated[list[str] | None, typer.Option(help="Template variable, name=value; repeatable.")] = None,
    vars_json: Annotated[str | None, typer.Option(help="Variables as one JSON object.")] = None,
    html: Annotated[bool, typer.Option("--html", help="Print only the HTML part.")] = False,
    as_json: AsJson = False,
) -> None:
    """Render a template as it would be sent, from the files of this computer or from a version of the room."""
    variables = parse_variables(var or [], vars_json)
    if version is None:
        rendered = _render_files(template, locale, variables)
    else:
        rendered = in_room(
            lambda room: library.preview(room.pool, template, version_id=version, locale=locale, variables=variables)
        )
    if as_json:
        print_json(rendered)
    elif html:
        say(rendered.html or "")
    else:
        say(printable(f"Subject: {rendered.subject}\n\n{rendered.text or ''}"))


def _render_files(template: str, locale: str | None, variables: dict[str, Any]) -> Rendered:
    catalog = load_catalog(read_settings())
    if template not in catalog:
        raise TemplateNotFound(f"There is no template {template!r}; there are {', '.join(catalog.names())}.")
    rendered = catalog.render(template, locale=locale, variables=variables)
    if isinstance(rendered, RenderError):
        raise BadInput.of("variables", f"{rendered.part}: {rendered.message}")
    return rendered
