"""The outbox over HTTP: progress, pause, resume, reset, skip; topics; and rules that turn events into mails."""

from typing import Annotated, Literal

import msgspec

from postroom.outbox import service, topics
from postroom.outbox.mails import service as mails
from postroom.outbox.mails.model import MailRule, NewRule
from postroom.outbox.model import (
    MOST_CONDITIONS,
    NAME,
    PUBLISHER,
    ProgressLine,
    ProgressReset,
    Skipped,
    Subscription,
    Topic,
)
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, page_of
from postroom.runtime.record import Shape, Text, answer, response

READ = "outbox:read"
OPERATE = "outbox:operate"

_NAME = Annotated[str, msgspec.Meta(pattern=NAME)]
_PUBLISHER = Annotated[str, msgspec.Meta(pattern=PUBLISHER)]
_TEXTS = Annotated[list[Text], msgspec.Meta(max_length=MOST_CONDITIONS)]
_START = Literal["now", "beginning"]
_POSITION = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


RuleShape = response(MailRule, "RuleShape")
ProgressShape = response(ProgressLine, "ProgressShape", hide=("updated_at",))


class TopicFields(Shape, frozen=True, kw_only=True):
    """The conditions of a topic: all must hold; an empty one matches every event. New publishers begin at `start`."""

    types: _TEXTS = msgspec.field(default_factory=list)
    required_keys: _TEXTS = msgspec.field(default_factory=list)
    any_keys: _TEXTS = msgspec.field(default_factory=list)
    exact_tags: _TEXTS = msgspec.field(default_factory=list)
    publishers: Annotated[list[_PUBLISHER], msgspec.Meta(max_length=20)] = msgspec.field(default_factory=list)
    start: _START = "now"


class NewTopic(TopicFields, frozen=True, kw_only=True):
    """A topic to create."""

    name: _NAME


class TopicBody(TopicFields, frozen=True, kw_only=True):
    """The new conditions of a topic. `everything` must be true to remove the last condition."""

    everything: bool = False


class PublisherBody(Shape, frozen=True, kw_only=True):
    """The start of a publisher that is new to the topic."""

    start: _START = "now"


class ForceQuery(Shape, frozen=True, kw_only=True):
    """`force`: proceed even if webhook endpoints, rules or a view use the topic."""

    force: bool = False


class ResetBody(Shape, frozen=True, kw_only=True):
    """Continue after the event at this position; 0 is the beginning."""

    position: _POSITION


class SkipBody(Shape, frozen=True, kw_only=True):
    """Position of the event to skip; it must be the publisher's next one."""

    position: _POSITION


class OutboxDone(msgspec.Struct, frozen=True):
    """The request was carried out."""

    done: bool = True


async def list_outbox(call: Call) -> Answer:
    lines = await service.list_progress(call.room.pool)
    return Answer(Page([answer(ProgressShape, line) for line in lines], None))


async def pause_publisher(call: Call) -> Answer:
    await service.pause(call.room.pool, _pair(call), actor=call.actor)
    return await _told(call)


async def resume_publisher(call: Call) -> Answer:
    await service.resume(call.room.pool, _pair(call), actor=call.actor)
    return await _told(call)


async def reset_publisher(call: Call) -> Answer:
    position = call.body.position
    return Answer(await service.reset(call.room.pool, _pair(call), position=position, actor=call.actor))


async def skip_event(call: Call) -> Answer:
    position = call.body.position
    return Answer(await service.skip(call.room.pool, _pair(call), position=position, actor=call.actor))


async def add_publisher(call: Call) -> Answer:
    await topics.add_publisher(call.room.pool, _pair(call), from_now=call.body.start == "now", actor=call.actor)
    return await _told(call)


async def remove_publisher(call: Call) -> Answer:
    await topics.remove_publisher(call.room.pool, _pair(call), force=call.query.force, actor=call.actor)
    return Answer(OutboxDone())


async def list_topics(call: Call) -> Answer:
    return Answer(Page(await topics.list_topics(call.room.pool), None))


async def get_topic(call: Call) -> Answer:
    return Answer(await topics.get_topic(call.room.pool, call.path["name"]))


async def create_topic(call: Call) -> Answer:
    body: NewTopic = call.body
    made = await topics.create_topic(
        call.room.pool,
        _conditions(body.name, body),
        publishers=body.publishers,
        from_now=body.start == "now",
        actor=call.actor,
    )
    return Answer(made, 201)


async def change_topic(call: Call) -> Answer:
    body: TopicBody = call.body
    saved = await topics.save_topic(
        call.room.pool,
        _conditions(call.path["name"], body),
        publishers=body.publishers,
        from_now=body.start == "now",
        everything=body.everything,
        actor=call.actor,
    )
    return Answer(saved)


async def delete_topic(call: Call) -> Answer:
    await topics.delete_topic(call.room.pool, call.path["name"], force=call.query.force, actor=call.actor)
    return Answer(OutboxDone())


async def list_rules(call: Call) -> Answer:
    return Answer(Page([answer(RuleShape, rule) for rule in await mails.list_rules(call.room.pool)], None))


async def create_rule(call: Call) -> Answer:
    templates = await mails.list_template_names(call.room.pool)
    rule = await mails.add_rule(call.room.pool, call.body, templates=templates, actor=call.actor)
    return Answer(answer(RuleShape, rule), 201)


async def delete_rule(call: Call) -> Answer:
    await mails.delete_rule(call.room.pool, call.path["rule_id"], actor=call.actor)
    return Answer(OutboxDone())


def _conditions(name: str, body: TopicFields) -> Topic:
    return Topic(
        name=name,
        types=tuple(body.types),
        required_keys=tuple(body.required_keys),
        any_keys=tuple(body.any_keys),
        exact_tags=tuple(body.exact_tags),
    )


async def _told(call: Call) -> Answer:
    pair = _pair(call)
    lines = await service.list_progress(call.room.pool, topic=pair.topic)
    return Answer(next(answer(ProgressShape, line) for line in lines if line.publisher == pair.publisher))


def _pair(call: Call) -> Subscription:
    return Subscription(call.path["topic"], call.path["publisher"])


def _endpoint(method: str, path: str, handler: object, summary: str, **more: object) -> Endpoint:
    scope = READ if method == "GET" else OPERATE
    return Endpoint(method=method, path=path, handler=handler, summary=summary, scope=scope, tag="outbox", **more)  # type: ignore[arg-type]


_PAIR = "/v1/outbox/{topic}/{publisher}"
ENDPOINTS = [
    _endpoint(
        "GET", "/v1/outbox", list_outbox, "List the progress of each publisher and the transaction that stalls it.",
        answers={200: page_of(ProgressShape)},
    ),
    _endpoint("GET", "/v1/outbox/topics", list_topics, "List topics.", answers={200: Page[Topic]}),
    _endpoint(
        "POST", "/v1/outbox/topics", create_topic, "Create a topic.", body=NewTopic, answers={201: Topic},
        problems=(409,),
    ),
    _endpoint("GET", "/v1/outbox/rules", list_rules, "List mail rules.", answers={200: page_of(RuleShape)}),
    _endpoint(
        "POST", "/v1/outbox/rules", create_rule, "Create a mail rule.", body=NewRule, answers={201: RuleShape},
        problems=(404,),
    ),
    _endpoint("DELETE", "/v1/outbox/rules/{rule_id:int}", delete_rule, "Delete a rule.", answers={200: OutboxDone}),
    _endpoint("GET", "/v1/outbox/topics/{name}", get_topic, "Show a topic.", answers={200: Topic}),
    _endpoint(
        "PUT", "/v1/outbox/topics/{name}", change_topic, "Create a topic, or replace its conditions.", body=TopicBody,
        answers={200: Topic},
    ),
    _endpoint(
        "DELETE", "/v1/outbox/topics/{name}", delete_topic, "Delete a topic.", query=ForceQuery,
        answers={200: OutboxDone}, problems=(409,),
    ),
    _endpoint(
        "PUT", _PAIR, add_publisher, "Subscribe a publisher to a topic; an existing one keeps its position.",
        body=PublisherBody, answers={200: ProgressShape},
    ),
    _endpoint(
        "DELETE", _PAIR, remove_publisher, "Unsubscribe a publisher from a topic.", query=ForceQuery,
        answers={200: OutboxDone}, problems=(409,),
    ),
    _endpoint("POST", f"{_PAIR}/pause", pause_publisher, "Pause a publisher.", answers={200: ProgressShape}),
    _endpoint("POST", f"{_PAIR}/resume", resume_publisher, "Resume a publisher.", answers={200: ProgressShape}),
    _endpoint(
        "POST", f"{_PAIR}/reset", reset_publisher, "Continue after a position; reports whether that rewinds.",
        body=ResetBody, answers={200: ProgressReset},
    ),
    _endpoint(
        "POST", f"{_PAIR}/skip", skip_event, "Skip the next event; audited.", body=SkipBody, answers={200: Skipped},
        problems=(409,),
    ),
]  # fmt: skip
