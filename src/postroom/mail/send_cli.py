"""`postroom send`: one mail from the command line, its template checked before it is accepted."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import Accepted, Lane
from postroom.delivery.shapes import AcceptedShape, AttachmentBody, DeliveryBody, request_from
from postroom.errors import BadInput
from postroom.mail.template_check import TemplateCheck
from postroom.runtime.setting import parse_duration
from postroom.runtime.terminal import AsJson, in_room, parse_moment, parse_pair, parse_variables, print_json, say

SOURCE = "cli"


def send(  # noqa: PLR0913 - one parameter per option
    *,
    to: Annotated[list[str], typer.Option(help="Recipient, `a@example.org` or `Name <a@example.org>`; repeatable.")],
    cc: Annotated[list[str] | None, typer.Option(help="Cc recipient; repeatable.")] = None,
    bcc: Annotated[list[str] | None, typer.Option(help="Bcc recipient; repeatable.")] = None,
    reply_to: Annotated[list[str] | None, typer.Option(help="Reply-To address; repeatable.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Default: POSTROOM_FROM.")] = None,
    subject: Annotated[str | None, typer.Option(help="Subject, with `--text` or `--html`.")] = None,
    text: Annotated[str | None, typer.Option(help="Text part; `-` reads standard input.")] = None,
    html: Annotated[str | None, typer.Option(help="HTML part; `-` reads standard input.")] = None,
    template: Annotated[str | None, typer.Option(help="Id of a template, instead of subject and parts.")] = None,
    var: Annotated[list[str] | None, typer.Option(help="Template variable, name=value; repeatable.")] = None,
    vars_json: Annotated[str | None, typer.Option(help="Variables as one JSON object.")] = None,
    locale: Annotated[str | None, typer.Option(help="Locale, such as fr or pt-BR.")] = None,
    lane: Annotated[Lane, typer.Option(help="`auth`, `transactional` (default) or `bulk`.")] = Lane.TRANSACTIONAL,
    tag: Annotated[list[str] | None, typer.Option(help="name=value; repeatable.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same mail is accepted once.")] = None,
    at: Annotated[str | None, typer.Option(help="Earliest time: 2030-01-31T09:00:00Z, or +10m.")] = None,
    max_retries: Annotated[int | None, typer.Option(help="Retries after the first attempt, 0 to 100.")] = None,
    give_up_after: Annotated[str | None, typer.Option(help="Age limit since the first attempt, such as 2h.")] = None,
    attach: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="File to attach; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Accept one mail for delivery and print its id. Workers (`postroom work`, `postroom up`) deliver it."""
    people: dict[str, Any] = {"to": to, "cc": cc or [], "bcc": bcc or [], "reply_to": reply_to or [], "sender": sender}
    body = DeliveryBody(
        **people,
        subject=subject,
        text=_content(text),
        html=_content(html),
        template=template,
        variables=parse_variables(var or [], vars_json),
        locale=locale,
        lane=lane,
        tags=dict(parse_pair(pair) for pair in tag or []),
        send_at=parse_moment(at, "--at") if at else None,
        max_retries=max_retries,
        give_up_after=None if give_up_after is None else _seconds(give_up_after),
        attachments=[_attachment(path) for path in attach or []],
    )
    _send(body, key, as_json=as_json)


def _seconds(duration: str) -> int:
    try:
        return round(parse_duration(duration).total_seconds())
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter("--give-up-after must be a duration such as 90s, 15m, 2h or 3d") from error


def _send(body: DeliveryBody, key: str | None, *, as_json: bool) -> None:
    request = request_from(body, source=SOURCE, idempotency_key=key, traceparent=None)
    accepted = in_room(lambda room: _accept(room, request))
    if as_json:
        print_json(AcceptedShape(accepted.id, accepted.state.value, accepted.replayed))
    else:
        say(str(accepted.id))


async def _accept(room: Room, request: CheckedRequest) -> Accepted:
    if request.template is not None:
        [errors] = await TemplateCheck(room.pool)([request])
        if errors:
            raise BadInput(errors)
    async with room.pool.acquire() as connection, connection.transaction():
        return await service.accept(connection, request, idempotency_ttl=room.settings.idempotency_ttl)


def _attachment(path: Path) -> AttachmentBody:
    import base64
    import mimetypes

    content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    content = base64.b64encode(path.read_bytes()).decode()
    return AttachmentBody(filename=path.name, content_type=content_type, content=content)


def _content(value: str | None) -> str | None:
    return sys.stdin.read() if value == "-" else value
