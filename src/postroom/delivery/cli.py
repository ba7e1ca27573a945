"""Deliveries at the command line: send one, look at them, cancel, retry, resend."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.delivery.model import DeliveryFilter, Lane, State
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_moment,
    parse_pair,
    parse_variables,
    print_json,
    print_page,
    print_record,
    print_table,
    printable,
    say,
)
from postroom.settings import parse_duration

if TYPE_CHECKING:
    from postroom.db.room import Room
    from postroom.delivery.model import Accepted, DeliveryRequest
    from postroom.delivery.shapes import AttachmentBody, DeliveryBody, DeliveryShape

SOURCE = "cli"

deliveries = typer.Typer()

Ids = Annotated[list[int], typer.Argument(min=0, max=LARGEST_ID, help="Ids of deliveries.")]
Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="The id of a delivery.")]

_LISTED = ("id", "status", "lane", "attempt_count", "created_at", "next_attempt_at", "source", "recipients", "subject")
_RECORD = (
    "id", "status", "reason", "detail", "lane", "channel", "source", "idempotency_key", "template", "locale",
    "campaign_id", "attempt_count", "created_at", "next_attempt_at", "max_retries", "give_up_after", "expires_at",
    "finished_at", "resend_of", "tags", "subject",
)  # fmt: skip
_ATTEMPTED = (
    "attempt_no", "outcome", "transport", "stage", "code", "enhanced_code", "remote_host", "started_at",
    "next_attempt_at", "reply_text",
)  # fmt: skip


def send(  # noqa: PLR0913 - one parameter per option
    *,
    to: Annotated[list[str], typer.Option(help="Recipient, `a@example.org` or `Name <a@example.org>`; repeatable.")],
    cc: Annotated[list[str] | None, typer.Option(help="More recipients, in sight; repeatable.")] = None,
    bcc: Annotated[list[str] | None, typer.Option(help="More recipients, out of sight; repeatable.")] = None,
    reply_to: Annotated[list[str] | None, typer.Option(help="Where answers go; repeatable.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Default: POSTROOM_FROM.")] = None,
    subject: Annotated[str | None, typer.Option(help="The subject, with `--text` or `--html`.")] = None,
    text: Annotated[str | None, typer.Option(help="The text part; `-` reads standard input.")] = None,
    html: Annotated[str | None, typer.Option(help="The HTML part; `-` reads standard input.")] = None,
    template: Annotated[str | None, typer.Option(help="A template's id, instead of subject and parts.")] = None,
    var: Annotated[list[str] | None, typer.Option(help="A template's variable, name=value; repeatable.")] = None,
    vars_json: Annotated[str | None, typer.Option(help="Variables as one JSON object.")] = None,
    locale: Annotated[str | None, typer.Option(help="Such as fr or pt-BR.")] = None,
    lane: Annotated[Lane, typer.Option(help="`auth`, `transactional` (default) or `bulk`.")] = Lane.TRANSACTIONAL,
    tag: Annotated[list[str] | None, typer.Option(help="name=value; repeatable.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same mail is accepted once.")] = None,
    at: Annotated[str | None, typer.Option(help="Not before: 2030-01-31T09:00:00Z, or +10m.")] = None,
    max_retries: Annotated[int | None, typer.Option(help="Retries after the first attempt, 0 to 100.")] = None,
    give_up_after: Annotated[str | None, typer.Option(help="Age limit since the first attempt, such as 2h.")] = None,
    attach: Annotated[list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A file; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Accept one mail for delivery and print its id. Workers (`postroom work`, `postroom up`) deliver it."""
    from postroom.delivery.shapes import DeliveryBody

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
        send_at=parse_moment(at) if at else None,
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


def _send(body: "DeliveryBody", key: str | None, *, as_json: bool) -> None:
    from postroom.delivery.shapes import AcceptedShape, request_from

    request = request_from(body, source=SOURCE, idempotency_key=key, traceparent=None)
    accepted = in_room(lambda room: _accept(room, request))
    if as_json:
        print_json(AcceptedShape(accepted.id, accepted.state.value, accepted.replayed))
    else:
        say(str(accepted.id))


async def _accept(room: "Room", request: "DeliveryRequest") -> "Accepted":
    from postroom.delivery import service

    async with room.pool.acquire() as connection, connection.transaction():
        return await service.accept(connection, request, idempotency_ttl=room.settings.idempotency_ttl)


@deliveries.command("list")
def list_(  # noqa: PLR0913 - one parameter per option
    *,
    status: Annotated[
        State | None,
        typer.Option(help="A state: queued, rendered, sending, sent, failed, dead_letter, cancelled or suppressed."),
    ] = None,
    recipient: Annotated[str | None, typer.Option(help="An address, in any case.")] = None,
    template: Annotated[str | None, typer.Option(help="A template's id.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Who sent it: a key's name, `cli`, `sql`, `python` or your own.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(help="A campaign's id, or the name that the custom data give as `campaign`.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Accepted at or after this time.")] = None,
    before: Annotated[str | None, typer.Option(help="Accepted before this time.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    from postroom.delivery import service
    from postroom.delivery.shapes import summary_shape

    chosen = DeliveryFilter(
        state=status,
        recipient=recipient,
        template_id=template,
        source=source,
        **_campaign(campaign),
        created_from=parse_moment(since) if since else None,
        created_before=parse_moment(before) if before else None,
    )
    found, more = in_room(lambda room: service.list_deliveries(room.pool, chosen, cursor=cursor, limit=limit))
    print_page([summary_shape(delivery) for delivery in found], more, columns=_LISTED, as_json=as_json)


def _campaign(asked: str | None) -> dict[str, Any]:
    if asked is None:
        return {}
    is_id = asked.isascii() and asked.isdecimal() and int(asked) <= LARGEST_ID
    return {"campaign_id": int(asked)} if is_id else {"custom_data": {"campaign": asked}}


@deliveries.command()
def show(
    delivery_id: Id,
    *,
    body: Annotated[bool, typer.Option("--body", help="Also print the text part.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one delivery and what became of each recipient."""
    from postroom.delivery import service
    from postroom.delivery.shapes import delivery_shape

    delivery = delivery_shape(in_room(lambda room: service.get_delivery(room.pool, delivery_id)))
    if as_json:
        print_json(delivery)
    else:
        _print_delivery(delivery, body=body)


def _print_delivery(delivery: "DeliveryShape", *, body: bool) -> None:
    print_record(delivery, columns=_RECORD)
    say("")
    columns = ("kind", "address", "name", "outcome", "code", "enhanced_code", "detail")
    print_table(columns, ([getattr(recipient, column) for column in columns] for recipient in delivery.recipients))
    if body and delivery.text:
        say("\n" + printable(delivery.text))


@deliveries.command()
def attempts(delivery_id: Id, *, as_json: AsJson = False) -> None:
    """List the attempts of one delivery: what was said, by whom, and when the next one is due."""
    from postroom.delivery import service

    found = in_room(lambda room: service.list_attempts(room.pool, delivery_id))
    print_page(found, None, columns=_ATTEMPTED, as_json=as_json)


@deliveries.command()
def cancel(delivery_ids: Ids) -> None:
    """End deliveries that still wait."""
    from postroom.delivery import service

    async def command(room: "Room") -> None:
        for delivery_id in delivery_ids:
            await service.cancel(room.pool, delivery_id, actor=actor())
            say(f"{delivery_id} cancelled")

    in_room(command)


@deliveries.command()
def retry(delivery_ids: Ids) -> None:
    """Try now instead of later; a dead letter is brought back first."""
    from postroom.delivery import service

    async def command(room: "Room") -> None:
        for delivery_id in delivery_ids:
            await service.retry(room.pool, delivery_id, actor=actor())
            say(f"{delivery_id} will be tried now")

    in_room(command)


@deliveries.command()
def resend(delivery_id: Id, *, as_json: AsJson = False) -> None:
    """Send the same again as a new delivery, and print its id."""
    from postroom.delivery import service

    clone = in_room(lambda room: service.resend(room.pool, delivery_id, actor=actor()))
    if as_json:
        print_json({"id": clone, "resend_of": delivery_id})
    else:
        say(str(clone))


def _attachment(path: Path) -> "AttachmentBody":
    import base64
    import mimetypes

    from postroom.delivery.shapes import AttachmentBody

    content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    content = base64.b64encode(path.read_bytes()).decode()
    return AttachmentBody(filename=path.name, content_type=content_type, content=content)


def _content(value: str | None) -> str | None:
    return sys.stdin.read() if value == "-" else value
