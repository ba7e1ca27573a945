"""Commands for deliveries: list, show, cancel, retry, resend."""

from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.check import parse_tag
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.model import Delivery, DeliverySummary, Lane
from postroom.delivery.shapes import delivery_shape, summary_shape
from postroom.runtime.page import Found
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_moment,
    print_json,
    print_page,
    print_record,
    print_table,
    printable,
    say,
)

deliveries = typer.Typer()

Ids = Annotated[list[int], typer.Argument(min=0, max=LARGEST_ID, help="Ids of deliveries.")]
Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of the delivery.")]

_LISTED = (
    "id", "status", "waits_for", "lane", "attempt_count", "created_at", "next_attempt_at", "source", "recipients",
    "subject",
)  # fmt: skip
_RECORD = (
    "id", "status", "waits_for", "reason", "detail", "lane", "channel", "source", "idempotency_key", "template",
    "template_version", "locale", "campaign_id", "attempt_count", "created_at", "next_attempt_at", "max_retries",
    "give_up_after", "expires_at", "finished_at", "resend_of", "tags", "subject",
)  # fmt: skip
_ATTEMPTED = (
    "attempt_no", "outcome", "transport", "stage", "code", "enhanced_code", "remote_host", "started_at",
    "next_attempt_at", "reply_text",
)  # fmt: skip


@deliveries.command("list")
def list_(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    *,
    status: Annotated[
        StateFilter | None,
        typer.Option(
            help="State: waiting (queued or rendered), sending, sent, failed, dead_letter, cancelled or suppressed."
        ),
    ] = None,
    lane: Annotated[Lane | None, typer.Option(help="Lane: auth, transactional or bulk.")] = None,
    recipient: Annotated[str | None, typer.Option(help="Address, case-insensitive.")] = None,
    contains: Annotated[str | None, typer.Option(help="Part of a recipient's address, case-insensitive.")] = None,
    domain: Annotated[str | None, typer.Option(help="Domain of a recipient.")] = None,
    template: Annotated[str | None, typer.Option(help="Id of a template.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Source: a key's name, `cli`, `sql`, `python` or your own.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Id of a campaign, or the `campaign` in the custom data.")
    ] = None,
    sender: Annotated[int | None, typer.Option(min=0, max=LARGEST_ID, help="Id of a sender account.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag as name=value.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key.")] = None,
    message_id: Annotated[str | None, typer.Option(help="Message-ID, with or without angle brackets.")] = None,
    since: Annotated[str | None, typer.Option(help="Accepted at or after this time.")] = None,
    before: Annotated[str | None, typer.Option(help="Accepted before this time.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    chosen = DeliveryFilter(
        state=status,
        lane=lane,
        recipient=recipient,
        recipient_contains=contains,
        recipient_domain=domain,
        template_id=template,
        source=source,
        idempotency_key=key,
        message_id=message_id,
        sender_account_id=sender,
        tags=parse_tag(tag),
        **_campaign(campaign),
        created_from=parse_moment(since, "--since") if since else None,
        created_before=parse_moment(before, "--before") if before else None,
    )

    async def read(room: Room) -> Found[DeliverySummary]:
        found, more = await service.list_deliveries(room.pool, chosen, cursor=cursor, limit=limit)
        while not found and more is not None:  # the search examined its share of deliveries: it is not at its end
            found, more = await service.list_deliveries(room.pool, chosen, cursor=more, limit=limit)
        return await context.obj(room).fill_subjects(found), more

    found, more = in_room(read)
    print_page([summary_shape(delivery) for delivery in found], more, columns=_LISTED, as_json=as_json)


def _campaign(asked: str | None) -> dict[str, Any]:
    if asked is None:
        return {}
    is_id = asked.isascii() and asked.isdecimal() and int(asked) <= LARGEST_ID
    return {"campaign_id": int(asked)} if is_id else {"custom_data": {"campaign": asked}}


@deliveries.command()
def show(
    context: typer.Context,
    delivery_id: Id,
    *,
    body: Annotated[bool, typer.Option("--body", help="Also print the text part.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one delivery and the outcome of each recipient."""

    async def read(room: Room) -> Delivery:
        filled: Delivery = await context.obj(room).fill(await service.get_delivery(room.pool, delivery_id))
        return filled

    delivery = delivery_shape(in_room(read))
    if as_json:
        print_json(delivery)
    else:
        _print_delivery(delivery, body=body)


def _print_delivery(delivery: Any, *, body: bool) -> None:
    print_record(delivery, columns=_RECORD)
    say("")
    columns = ("kind", "address", "name", "outcome", "code", "enhanced_code", "detail")
    print_table(columns, ([getattr(recipient, column) for column in columns] for recipient in delivery.recipients))
    if body and delivery.text:
        say("\n" + printable(delivery.text))


@deliveries.command()
def attempts(delivery_id: Id, *, as_json: AsJson = False) -> None:
    """List the attempts of one delivery: the reply, the server, and the time of the next attempt."""
    found = in_room(lambda room: service.list_attempts(room.pool, delivery_id))
    print_page(found, None, columns=_ATTEMPTED, as_json=as_json)


@deliveries.command()
def cancel(delivery_ids: Ids) -> None:
    """Cancel waiting deliveries."""

    async def command(room: Room) -> None:
        for delivery_id in delivery_ids:
            await service.cancel(room.pool, delivery_id, actor=actor())
            say(f"{delivery_id} cancelled")

    in_room(command)


@deliveries.command()
def retry(delivery_ids: Ids) -> None:
    """Retry now; a dead letter returns to the queue first."""

    async def command(room: Room) -> None:
        for delivery_id in delivery_ids:
            await service.retry(room.pool, delivery_id, actor=actor())
            say(f"{delivery_id} will be tried now")

    in_room(command)


@deliveries.command()
def resend(delivery_id: Id, *, as_json: AsJson = False) -> None:
    """Send the same content again as a new delivery, and print its id."""
    clone = in_room(lambda room: service.resend(room.pool, delivery_id, actor=actor()))
    if as_json:
        print_json({"id": clone, "resend_of": delivery_id})
    else:
        say(str(clone))
