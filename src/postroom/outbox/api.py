"""The outbox over HTTP: progress, pause, resume, reset, skip; topics; and rules that turn events into mails."""

from collections.abc import Collection
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from postroom.outbox import service, topics
from postroom.outbox.mails import service as mails
from postroom.outbox.mails.model import MailRule, NewRule
from postroom.outbox.model import (
    CONDITIONS,
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
from postroom.runtime.service_endpoint import serve

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


async def pause_publisher(call: Call) -> Answer:
    await service.pause(call.room.pool, _pair(call), actor=call.actor)
    return await _show_progress(call)


async def resume_publisher(call: Call) -> Answer:
    await service.resume(call.room.pool, _pair(call), actor=call.actor)
    return await _show_progress(call)


async def add_publisher(call: Call) -> Answer:
    await topics.add_publisher(call.room.pool, _pair(call), from_now=call.body.start == "now", actor=call.actor)
    return await _show_progress(call)


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


def _conditions(name: str, body: TopicFields) -> Topic:
    conditions: dict[str, Any] = {each: tuple(getattr(body, each)) for each in CONDITIONS}
    return Topic(name=name, **conditions)


async def _show_progress(call: Call) -> Answer:
    pair = _pair(call)
    lines = await service.list_progress(call.room.pool, topic=pair.topic)
    return Answer(next(answer(ProgressShape, line) for line in lines if line.publisher == pair.publisher))


def _done(_result: None) -> OutboxDone:
    return OutboxDone()


async def _templates(call: Call) -> Collection[str]:
    return await mails.list_template_names(call.room.pool)


def _pair(call: Call) -> Subscription:
    return Subscription(call.path["topic"], call.path["publisher"])


_endpoint = partial(Endpoint, scope=OPERATE, tag="outbox")
_read = partial(serve, scope=READ, tag="outbox")
_operate = partial(serve, scope=OPERATE, tag="outbox")
_PAIR = "/v1/outbox/{topic}/{publisher}"
ENDPOINTS = [
    _read(
        "GET", "/v1/outbox", service.list_progress,
        "List the progress of each publisher and the transaction that stalls it.",
        answers={200: page_of(ProgressShape)}, name="list_outbox",
    ),
    _read("GET", "/v1/outbox/topics", topics.list_topics, "List topics.", answers={200: Page[Topic]}),
    _endpoint(
        "POST", "/v1/outbox/topics", create_topic, "Create a topic.", body=NewTopic, answers={201: Topic},
        problems=(409,),
    ),
    _read("GET", "/v1/outbox/rules", mails.list_rules, "List mail rules.", answers={200: page_of(RuleShape)}),
    _operate(
        "POST", "/v1/outbox/rules", mails.add_rule, "Create a mail rule.", body=NewRule, answers={201: RuleShape},
        problems=(404,), name="create_rule", given={"templates": _templates},
    ),
    _operate(
        "DELETE", "/v1/outbox/rules/{rule_id:int}", mails.delete_rule, "Delete a rule.", answers={200: OutboxDone},
        shape=_done,
    ),
    _read("GET", "/v1/outbox/topics/{name}", topics.get_topic, "Show a topic.", answers={200: Topic}),
    _endpoint(
        "PUT", "/v1/outbox/topics/{name}", change_topic, "Create a topic, or replace its conditions.", body=TopicBody,
        answers={200: Topic},
    ),
    _operate(
        "DELETE", "/v1/outbox/topics/{name}", topics.delete_topic, "Delete a topic.", query=ForceQuery,
        answers={200: OutboxDone}, problems=(409,), shape=_done,
    ),
    _endpoint(
        "PUT", _PAIR, add_publisher, "Subscribe a publisher to a topic; an existing one keeps its position.",
        body=PublisherBody, answers={200: ProgressShape},
    ),
    _operate(
        "DELETE", _PAIR, topics.remove_publisher, "Unsubscribe a publisher from a topic.", query=ForceQuery,
        answers={200: OutboxDone}, problems=(409,), given={"pair": _pair}, shape=_done,
    ),
    _endpoint("POST", f"{_PAIR}/pause", pause_publisher, "Pause a publisher.", answers={200: ProgressShape}),
    _endpoint("POST", f"{_PAIR}/resume", resume_publisher, "Resume a publisher.", answers={200: ProgressShape}),
    _operate(
        "POST", f"{_PAIR}/reset", service.reset, "Continue after a position; reports whether that rewinds.",
        body=ResetBody, answers={200: ProgressReset}, name="reset_publisher", given={"pair": _pair},
    ),
    _operate(
        "POST", f"{_PAIR}/skip", service.skip, "Skip the next event; audited.", body=SkipBody, answers={200: Skipped},
        problems=(409,), name="skip_event", given={"pair": _pair},
    ),
]  # fmt: skip
