"""The outbox at the command line: progress, pause, resume, reset, skip; topics and rules."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.outbox import service
from postroom.outbox import topics as topic_service
from postroom.outbox.mails import service as rule_service
from postroom.outbox.mails.model import MailRule
from postroom.outbox.model import ProgressLine, Subscription, Topic
from postroom.runtime.terminal import LARGEST_ID, AsJson, actor, in_room, print_json, print_page, print_table, say

outbox = typer.Typer()
topics = typer.Typer(no_args_is_help=True, help="Topics and their publishers.")
rules = typer.Typer(no_args_is_help=True, help="Rules that turn events into mails.")
outbox.add_typer(topics, name="topics")
outbox.add_typer(rules, name="rules")

_LISTED = (
    "topic", "publisher", "status", "last_position", "lag_events", "lag_seconds", "error_count", "failed_position",
    "leader_instance", "last_published_at", "stalled_by", "last_error",
)  # fmt: skip
_TOPIC = ("name", "publishers", "types", "required_keys", "any_keys", "exact_tags")
_RULE = ("id", "topic", "event_type", "template", "recipient_path", "locale_path", "lane")

TopicName = Annotated[str, typer.Argument(help="Name of a topic.")]
PublisherName = Annotated[str, typer.Argument(help="One of its publishers: webhook, redis, nats, log, intake, …")]
Position = Annotated[int, typer.Option(min=0, max=LARGEST_ID, help="Position of an event.")]


Types = Annotated[list[str] | None, typer.Option("--type", help="Event type to match; repeatable, any may match.")]
Keys = Annotated[list[str] | None, typer.Option(help="Required tag key; repeatable, all must be present.")]
AnyKeys = Annotated[list[str] | None, typer.Option(help="Tag key; repeatable, at least one must be present.")]
Tags = Annotated[list[str] | None, typer.Option(help="Required tag, key=value; repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Proceed even if endpoints, rules or a view use it.")]


class Start(StrEnum):
    """The start of new publishers."""

    NOW = "now"
    BEGINNING = "beginning"


Began = Annotated[Start, typer.Option(help="Start of new publishers: with new events, or the first event.")]


@outbox.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """List publishers with their position, lag, leader and the transaction that stalls them."""
    lines = in_room(lambda room: service.list_progress(room.pool))
    if as_json:
        from postroom.outbox.api import ProgressShape
        from postroom.runtime.record import answer

        print_json({"items": [answer(ProgressShape, line) for line in lines], "next_cursor": None})
    else:
        print_table(_LISTED, ([_cell(line, column) for column in _LISTED] for line in lines))


@outbox.command()
def pause(topic: TopicName, publisher: PublisherName) -> None:
    """Pause a publisher after its current batch."""
    in_room(lambda room: service.pause(room.pool, Subscription(topic, publisher), actor=actor()))
    say("paused")


@outbox.command()
def resume(topic: TopicName, publisher: PublisherName) -> None:
    """Resume a publisher and clear its errors."""
    in_room(lambda room: service.resume(room.pool, Subscription(topic, publisher), actor=actor()))
    say("resumed")


@outbox.command()
def reset(topic: TopicName, publisher: PublisherName, *, to: Position) -> None:
    """Continue after the event at a position; 0 is the beginning. Reports whether events will be published again."""
    pair = Subscription(topic, publisher)
    moved = in_room(lambda room: service.reset(room.pool, pair, position=to, actor=actor()))
    what = "events will be published again" if moved.rewinds else "nothing will be published twice"
    say(f"from {moved.from_position} to {moved.to_position}: {what}")


@outbox.command()
def skip(topic: TopicName, publisher: PublisherName, *, position: Position) -> None:
    """Skip the next event, which must be the one at this position."""
    pair = Subscription(topic, publisher)
    skipped = in_room(lambda room: service.skip(room.pool, pair, position=position, actor=actor()))
    say(f"skipped {skipped.type} at position {skipped.position}")


@topics.command("list")
def list_topics(*, as_json: AsJson = False) -> None:
    """List topics."""
    found = in_room(lambda room: topic_service.list_topics(room.pool))
    print_page(found, None, columns=_TOPIC, as_json=as_json)


@topics.command("create")
def create_topic(  # noqa: PLR0913 - one parameter per option
    name: TopicName,
    *,
    type_: Types = None,
    key: Keys = None,
    any_key: AnyKeys = None,
    tag: Tags = None,
    publisher: Annotated[list[str] | None, typer.Option(help="Publisher of the topic; repeatable.")] = None,
    start: Began = Start.NOW,
) -> None:
    """Create a topic. Without conditions it matches every event."""
    topic, names, from_now = _topic(name, type_, key, any_key, tag), publisher or [], start is Start.NOW
    made = in_room(
        lambda room: topic_service.create_topic(room.pool, topic, publishers=names, from_now=from_now, actor=actor())
    )
    say(f"created: {made.name} matches {made.about}")


@topics.command("change")
def change_topic(
    name: TopicName,
    *,
    type_: Types = None,
    key: Keys = None,
    any_key: AnyKeys = None,
    tag: Tags = None,
    everything: Annotated[bool, typer.Option("--everything", help="Remove all conditions: match every event.")] = False,
) -> None:
    """Replace the conditions of a topic for all its publishers; prints the old and the new ones."""
    topic = _topic(name, type_, key, any_key, tag)

    async def changed(room: Room) -> tuple[Topic, Topic]:
        before = await topic_service.get_topic(room.pool, name)
        return before, await topic_service.save_topic(room.pool, topic, everything=everything, actor=actor())

    before, after = in_room(changed)
    say(f"changed: {name} matched {before.about}, and now matches {after.about}")


@topics.command("delete")
def delete_topic(name: TopicName, *, force: Force = False) -> None:
    """Delete a topic, its rules, and the progress of its publishers."""
    in_room(lambda room: topic_service.delete_topic(room.pool, name, force=force, actor=actor()))
    say("deleted")


@topics.command("add-publisher")
def add_publisher(topic: TopicName, publisher: PublisherName, *, start: Began = Start.NOW) -> None:
    """Subscribe a publisher to a topic; the topic's conditions stay the same."""
    pair, from_now = Subscription(topic, publisher), start is Start.NOW
    is_new = in_room(lambda room: topic_service.add_publisher(room.pool, pair, from_now=from_now, actor=actor()))
    say("added" if is_new else "already subscribed; its position is unchanged")


@topics.command("remove-publisher")
def remove_publisher(topic: TopicName, publisher: PublisherName, *, force: Force = False) -> None:
    """Unsubscribe a publisher from a topic."""
    pair = Subscription(topic, publisher)
    in_room(lambda room: topic_service.remove_publisher(room.pool, pair, force=force, actor=actor()))
    say("removed")


@rules.command("list")
def list_rules(*, as_json: AsJson = False) -> None:
    """List the rules that turn events into mails."""
    found = in_room(lambda room: rule_service.list_rules(room.pool))
    print_page(found, None, columns=_RULE, as_json=as_json)


@rules.command("add")
def add_rule(
    topic: TopicName,
    *,
    event_type: Annotated[str, typer.Option("--type", help="Event type that the rule matches.")],
    template: Annotated[str, typer.Option(help="Template of the mails.")],
    recipient: Annotated[str, typer.Option(help="Path of the address in the event's data, such as customer.email.")],
    locale: Annotated[str | None, typer.Option(help="Path of the locale in the event's data.")] = None,
    lane: Annotated[Lane, typer.Option(help="`auth`, `transactional` (default) or `bulk`.")] = Lane.TRANSACTIONAL,
) -> None:
    """Send a mail for each event of a type from now on; prints the rule's id."""
    rule = MailRule(
        topic=topic, event_type=event_type, template=template, recipient_path=recipient, locale_path=locale, lane=lane
    )

    async def added(room: Room) -> MailRule:
        templates = await rule_service.list_template_names(room.pool)
        return await rule_service.add_rule(room.pool, rule, templates=templates, actor=actor())

    say(str(in_room(added).id))


@rules.command("delete")
def delete_rule(rule_id: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of a rule.")]) -> None:
    """Delete a rule."""
    in_room(lambda room: rule_service.delete_rule(room.pool, rule_id, actor=actor()))
    say("deleted")


def _topic(
    name: str, types: list[str] | None, keys: list[str] | None, any_keys: list[str] | None, tags: list[str] | None
) -> Topic:
    return Topic(
        name=name,
        types=tuple(types or ()),
        required_keys=tuple(keys or ()),
        any_keys=tuple(any_keys or ()),
        exact_tags=tuple(tags or ()),
    )


def _cell(line: ProgressLine, column: str) -> Any:
    if column == "stalled_by":
        return None if line.stall is None else str(line.stall)
    if column == "lag_events":
        return f"{line.lag_events}+" if line.lag_is_more else line.lag_events
    return round(line.lag_seconds, 1) if column == "lag_seconds" else getattr(line, column)
