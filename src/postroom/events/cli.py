"""Events at the command line: append, read, follow, list executed commands; and the audit log."""

import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.events import (
    AppendCondition,
    Appended,
    Cursor,
    Event,
    EventStore,
    Query,
    QueryItem,
    Reading,
    SequencedEvent,
)
from postroom.events.audit import list_audit
from postroom.events.commands import list_commands
from postroom.events.service import index_event_tags
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Limit,
    actor,
    in_room,
    parse_moment,
    parse_pair,
    print_json,
    print_page,
    print_table,
    say,
    say_or_json,
    shown,
)
from postroom.runtime.terminal import Cursor as PageCursor

events = typer.Typer()
audit = typer.Typer()

_LISTED = ("position", "occurred_at", "type", "tags", "data")
_AUDITED = ("id", "at", "actor", "action", "subject", "before", "after")
_COMMANDS = ("id", "occurred_at", "type", "command_id", "data", "result")
_TAIL_BATCH = 200  # events per statement: bounds memory while an old store is printed
_POLL_S = 0.5  # an idle `tail` runs two statements a second

Types = Annotated[list[str] | None, typer.Option("--type", help="Event type to match; repeatable, any may match.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Tag to match, key=value; repeatable, all must match.")]
Since = Annotated[datetime | None, typer.Option(parser=parse_moment, metavar="TIME", help="From this time on.")]
Before = Annotated[datetime | None, typer.Option(parser=parse_moment, metavar="TIME", help="Before this time.")]


@events.command()
def append(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the event, such as WalletOpened.")],
    *,
    data: Annotated[str, typer.Option(help="Data of the event, in JSON; `-` reads standard input.")] = "{}",
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the event, key=value; repeatable.")] = None,
    after: Annotated[
        str | None, typer.Option(help="Append only if no event with the same tags was appended since this cursor.")
    ] = None,
    once: Annotated[
        list[str] | None, typer.Option(help="Append only if no event has this tag, key=value; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Append one event and print its position."""
    event = Event(type_, _json(data), tuple(_tags(tag)))
    unless = Query(tuple(QueryItem(tags=(one,)) for one in _tags(once))) if once else None
    appended = in_room(lambda room: _append(room, event, _condition(event.tags, after), unless))
    cursor = None if appended.cursor is None else str(appended.cursor)
    say_or_json(str(appended.position), {"position": appended.position, "cursor": cursor}, as_json=as_json)


@events.command()
def commands(
    *,
    transaction: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_ID, help="Only commands of the transaction with this id.")
    ] = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
    as_json: AsJson = False,
) -> None:
    """List executed commands with their results, newest first."""
    found, more = in_room(lambda room: list_commands(room.pool, transaction_id=transaction, cursor=cursor, limit=limit))
    print_page(found, more, columns=_COMMANDS, as_json=as_json)


@events.command("index-tags")
def index_tags() -> None:
    """Create the index for `tags @> …` in your own SQL. Appends continue meanwhile."""
    made = in_room(lambda room: index_event_tags(room.pool, actor=actor()))
    say("created" if made else "already exists")


@events.command()
def read(  # noqa: PLR0913 - one parameter per option
    *,
    type_: Types = None,
    tag: Tags = None,
    after: Annotated[str | None, typer.Option(help="Continue after the cursor of an earlier read.")] = None,
    limit: Limit = 50,
    backwards: Annotated[
        bool,
        typer.Option(
            "--backwards", help="Newest first; a page of several conditions may be empty although more follow."
        ),
    ] = False,
    before: Annotated[
        str | None,
        typer.Option(help="With --backwards: continue with older events, by the `before` of an earlier page."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read events in order."""
    if before is not None and not backwards:
        raise typer.BadParameter("--before needs --backwards")
    query = _query(type_, tag)
    if backwards:
        found, older = in_room(lambda room: _read_backwards(room, query, after=after, limit=limit, before=before))
    else:
        found, older = in_room(lambda room: _read(room, query, after=after, limit=limit)), None
    if as_json:
        print_json({"items": found.events, "cursor": str(found.cursor), **({"before": older} if backwards else {})})
        return
    print_table(_LISTED, ([getattr(event, column) for column in _LISTED] for event in found.events))
    if older is not None:
        say(f"more: --before {older}")
    elif found.cursor.page is not None:
        say(f"more: --after {found.cursor}")


@events.command()
def tail(
    *,
    type_: Types = None,
    tag: Tags = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this number of events.")] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the first event.")] = False,
    after: Annotated[str | None, typer.Option(help="Begin after the cursor of an earlier read.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print events as they are committed, one line each, until Ctrl-C. No event is skipped."""
    query = _query(type_, tag)
    if from_start and after is not None:
        raise typer.BadParameter("--from-start and --after cannot be used together")
    in_room(lambda room: _tail(room, query, count=count, start="" if from_start else after, as_json=as_json))


async def _append(room: Room, event: Event, condition: AppendCondition | None, unless: Query | None) -> Appended:
    return await EventStore(room.pool).append(event, condition, idempotency=unless)


async def _read(room: Room, query: Query, *, after: str | None, limit: int) -> Reading:
    return await EventStore(room.pool).read(query, after=Cursor.parse(after) if after else None, limit=limit)


async def _read_backwards(
    room: Room, query: Query, *, after: str | None, limit: int, before: str | None
) -> tuple[Reading, str | None]:
    """The page, and the `before` of the next one if more events follow."""
    cursor = Cursor.parse(after) if after else None
    return await EventStore(room.pool).latest(query, after=cursor, limit=limit, cursor=before)


async def _tail(room: Room, query: Query, *, count: int | None, start: str | None, as_json: bool) -> None:
    """`start` is a cursor; empty for the first event, None for the next new one."""
    import asyncio

    store = EventStore(room.pool)
    cursor = (await store.head()).cursor if start is None else Cursor.parse(start) if start else None
    seen = 0
    while count is None or seen < count:
        found, cursor = await store.follow(query, after=cursor, limit=_TAIL_BATCH)
        for event in found[: None if count is None else count - seen]:
            _print_line(event, as_json=as_json)
        seen += len(found)
        if not found:
            await asyncio.sleep(_POLL_S)


def _print_line(event: SequencedEvent, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        say(msgspec.json.encode(event).decode())
    else:
        data = msgspec.json.encode(event.data).decode()
        say(f"{event.position}  {shown(event.occurred_at)}  {shown(event.type)}  {shown(event.tags)}  {shown(data)}")


def _condition(tags: tuple[str, ...], after: str | None) -> AppendCondition | None:
    if after is None:
        return None
    if not tags:
        raise typer.BadParameter("--after needs at least one --tag")
    return AppendCondition(Query.of(tags=tags), Cursor.parse(after))


def _query(types: list[str] | None, tags: list[str] | None) -> Query:
    return Query.of(*(types or []), tags=_tags(tags))


def _tags(pairs: list[str] | None) -> list[str]:
    return ["=".join(parse_pair(pair)) for pair in pairs or []]


def _json(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(sys.stdin.read() if text == "-" else text)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"--data is not JSON: {error}") from error


# ── the audit log ────────────────────────────────────────────────────────────────────────────────────────────────────


@audit.callback()
def audit_options() -> None:
    """Manual actions: who did what, and when."""


@audit.command("list")
def list_entries(  # noqa: PLR0913 - one option per filter
    *,
    actor: Annotated[str | None, typer.Option(help="Only actions of this actor, such as cli:ada or key:7:ci.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as delivery.cancel, or this group, such as delivery.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Only actions on this object, such as delivery:42.")] = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 50,
    cursor: PageCursor = None,
    as_json: AsJson = False,
) -> None:
    """List manual actions, newest first: who did what to which object, and the values before and after."""
    chosen: dict[str, Any] = {"actor": actor, "action": action, "subject": subject, "cursor": cursor, "limit": limit}
    found = in_room(lambda room: list_audit(room.pool, **chosen, recorded_from=since, recorded_before=before))
    print_page(*found, columns=_AUDITED, as_json=as_json)
