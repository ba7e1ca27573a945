"""Topics of the outbox, their publishers, and the rules that turn events into mails."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.outbox import OPERATE, READ, pair_page, tabs
from postroom.dashboard.page import PageRequest, form, page
from postroom.delivery.model import Lane
from postroom.errors import PostroomError
from postroom.outbox import topics
from postroom.outbox.mails import service as mails
from postroom.outbox.mails.model import MailRule, NewRule
from postroom.outbox.model import Subscription, Topic
from postroom.runtime.endpoint import Answer


def topic_page(name: str) -> str:
    return f"/outbox/topics/{quote(name, safe='')}"


_TOPIC = (
    ListColumn("about", "Contains"),
    ListColumn(
        "publishers",
        "Publishers",
        "tags",
        value=lambda topic: [(each, pair_page(Subscription(topic.name, each))) for each in topic.publishers],
    ),
    *columns(Topic, "created_at", created_at={"form": "when", "is_minor": True}),
)

_RULE = columns(
    MailRule, "event_type", "template", "recipient_path", "locale_path", "lane", "topic", "created_at",
    template={"link": lambda rule: f"/templates/{quote(rule.template, safe='')}"},
    lane={"form": "words"}, created_at={"form": "when", "is_minor": True},
)  # fmt: skip

_STARTS = ("now", "beginning")
_EVERYTHING = "everything"


def _condition_fields(topic: Topic | None = None) -> tuple[FormField, ...]:
    """The conditions of a topic; all must hold, and an empty one holds for every event."""

    def lines(texts: Sequence[str]) -> str:
        return "\n".join(texts)

    given = topic or Topic(name="")
    return (
        FormField("types", "Types", "lines", lines(given.types), hint="One per line. Empty: events of every type"),
        FormField("exact_tags", "Tags that an event must have", "lines", lines(given.exact_tags), hint="region=north"),
        FormField("required_keys", "Keys of tags that it must have", "lines", lines(given.required_keys), hint="order"),
        FormField("any_keys", "Keys of which it must have one", "lines", lines(given.any_keys), hint="order"),
    )


def _new_fields() -> tuple[FormField, ...]:
    return (
        FormField("name", "Name", is_required=True, hint="Lower-case letters, digits, dots, dashes"),
        *_condition_fields(),
        FormField(
            "publishers", "Publishers", hint="webhook, log, intake, redis, nats or your own; with spaces between"
        ),
        FormField("start", "Publishers begin with", options=_STARTS, value="now"),
    )


async def list_page(request: PageRequest) -> Answer:
    can_open = request.may(OPERATE)  # its page is the form that changes it
    name = ListColumn("name", "Topic", link=lambda topic: topic_page(topic.name) if can_open else None)
    return request.listing(
        "Topics",
        (name, *_TOPIC),
        (await topics.list_topics(request.pool), None),
        lead="A topic selects events by conditions; publishers that are subscribed to it publish them.",
        empty="There is no topic.",
        tabs=tabs("/outbox/topics"),
        actions=[PageAction(label="New topic", path="/outbox/topics/new", scope=OPERATE, is_link=True, is_main=True)],
    )


async def new_page(request: PageRequest) -> Answer:
    return _new_form(request)


def _new_form(request: PageRequest, problem: str | None = None) -> Answer:
    return request.form_page(
        "New topic",
        _new_fields(),
        to="/outbox/topics/new",
        button="Create the topic",
        lead="Without conditions it contains every event.",
        back="/outbox/topics",
        problem=problem,
    )


async def create_page(request: PageRequest) -> Answer:
    try:
        made = await topics.create_topic(
            request.pool,
            _conditions(request.form.get("name", "").strip(), request.form),
            publishers=request.form.get("publishers", "").split(),
            from_now=request.form.get("start") != "beginning",
            actor=request.actor,
        )
    except PostroomError as error:
        return _new_form(request, error.message)
    return request.done(topic_page(made.name), "The topic is created.")


def _conditions(name: str, given: Mapping[str, str]) -> Topic:
    def lines(field: str) -> tuple[str, ...]:
        return tuple(line.strip() for line in given.get(field, "").splitlines() if line.strip())

    return Topic(
        name=name,
        types=lines("types"),
        required_keys=lines("required_keys"),
        any_keys=lines("any_keys"),
        exact_tags=lines("exact_tags"),
    )


async def show_page(request: PageRequest) -> Answer:
    topic = await topics.get_topic(request.pool, _name(request))
    return await _show(request, topic)


async def _show(request: PageRequest, topic: Topic, problem: str | None = None) -> Answer:
    return request.form_page(
        f"Topic {topic.name}",
        (
            *_condition_fields(topic),
            FormField(_EVERYTHING, "Remove all conditions: the topic contains every event", "check"),
        ),
        to=topic_page(topic.name),
        button="Save the conditions",
        lead=f"It contains {topic.about}. A change applies to all its publishers at once.",
        back="/outbox/topics",
        problem=problem,
        actions=_topic_actions(topic),
    )


def _topic_actions(topic: Topic) -> list[PageAction]:
    path = topic_page(topic.name)
    question = "Its mail rules and the positions of its publishers are deleted too. Refused while an endpoint uses it."
    return [
        PageAction(label="Add a publisher", path=f"{path}/publishers", scope=OPERATE, is_link=True),
        PageAction(label="Delete", path=f"{path}/delete", scope=OPERATE, question=question),
    ]


def _name(request: PageRequest) -> str:
    name: str = request.call.path["name"]
    return name


async def save_page(request: PageRequest) -> Answer:
    topic = await topics.get_topic(request.pool, _name(request))
    wanted = _conditions(topic.name, request.form)
    try:
        await topics.save_topic(request.pool, wanted, everything=_EVERYTHING in request.form, actor=request.actor)
    except PostroomError as error:
        return await _show(request, topic, error.message)
    return request.done(topic_page(topic.name), "The conditions are saved.")


async def delete_page(request: PageRequest) -> Answer:
    await topics.delete_topic(request.pool, _name(request), actor=request.actor)
    return request.done("/outbox/topics", "The topic is deleted.")


async def ask_publisher_page(request: PageRequest) -> Answer:
    return _publisher_form(request)


def _publisher_form(request: PageRequest, problem: str | None = None) -> Answer:
    name = _name(request)
    return request.form_page(
        f"Add a publisher to {name}",
        (
            FormField("publisher", "Publisher", is_required=True, hint="webhook, log, intake, redis, nats or your own"),
            FormField("start", "It begins with", options=_STARTS, value="now"),
        ),
        to=f"{topic_page(name)}/publishers",
        button="Subscribe it",
        lead="From the beginning, it publishes all events of the topic that exist.",
        back=topic_page(name),
        problem=problem,
    )


async def add_publisher_page(request: PageRequest) -> Answer:
    pair = Subscription(_name(request), request.form.get("publisher", "").strip())
    is_from_now = request.form.get("start") != "beginning"
    try:
        is_new = await topics.add_publisher(request.pool, pair, from_now=is_from_now, actor=request.actor)
    except PostroomError as error:
        return _publisher_form(request, error.message)
    done = "The publisher is subscribed." if is_new else "It was subscribed already; its position is unchanged."
    return request.done(pair_page(pair), done)


async def remove_publisher_page(request: PageRequest) -> Answer:
    pair = Subscription(request.call.path["topic"], request.call.path["publisher"])
    await topics.remove_publisher(request.pool, pair, actor=request.actor)
    return request.done("/outbox", f"{pair.publisher} is no longer subscribed to {pair.topic}.")


# ── rules ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def rules_page(request: PageRequest) -> Answer:
    return request.listing(
        "Mail rules",
        _RULE,
        (await mails.list_rules(request.pool), None),
        lead="The publisher intake sends a mail for each event that matches a rule.",
        empty="There is no rule.",
        tabs=tabs("/outbox/rules"),
        actions=[PageAction(label="New rule", path="/outbox/rules/new", scope=OPERATE, is_link=True, is_main=True)],
        row_actions=_rule_actions,
    )


def _rule_actions(rule: MailRule) -> list[PageAction]:
    question = "Later events cause no mail by this rule. Mail that is accepted already is sent."
    return [PageAction(label="Delete", path=f"/outbox/rules/{rule.id}/delete", scope=OPERATE, question=question)]


async def new_rule_page(request: PageRequest) -> Answer:
    return await _rule_form(request)


async def _rule_form(request: PageRequest, problem: str | None = None) -> Answer:
    known = [topic.name for topic in await topics.list_topics(request.pool)]
    templates = sorted(await mails.list_template_names(request.pool))
    fields: list[Any] = [
        FormField("topic", "Topic", options=known),
        FormField("event_type", "Type of the event", is_required=True),
        FormField("template", "Template", options=templates),
        FormField("recipient_path", "Path of the address in the event's data", is_required=True, hint="customer.email"),
        FormField("locale_path", "Path of the locale", hint="Empty: the default locale"),
        FormField("lane", "Lane", options=options_of(Lane), value=Lane.TRANSACTIONAL.value),
    ]
    return request.form_page(
        "New mail rule",
        fields,
        to="/outbox/rules/new",
        button="Create the rule",
        lead="Each event of this type in this topic causes a mail, from now on. The event's data are its variables.",
        back="/outbox/rules",
        problem=problem,
    )


async def create_rule_page(request: PageRequest) -> Answer:
    names = ("topic", "event_type", "template", "recipient_path", "locale_path", "lane")
    given = {name: request.form[name].strip() for name in names if request.form.get(name, "").strip()}
    try:
        rule = msgspec.convert(given, NewRule)
        templates = await mails.list_template_names(request.pool)
        await mails.add_rule(request.pool, rule, templates=templates, actor=request.actor)
    except (PostroomError, msgspec.ValidationError) as error:
        return await _rule_form(request, str(error))
    return request.done("/outbox/rules", "The rule is created.")


async def delete_rule_page(request: PageRequest) -> Answer:
    await mails.delete_rule(request.pool, request.id("rule_id"), actor=request.actor)
    return request.done("/outbox/rules", "The rule is deleted.")


PAGES = (
    page("/outbox/topics", list_page, scope=READ),
    page("/outbox/topics/new", new_page, scope=OPERATE),
    form("/outbox/topics/new", create_page, scope=OPERATE),
    page("/outbox/topics/{name}", show_page, scope=OPERATE),
    form("/outbox/topics/{name}", save_page, scope=OPERATE),
    form("/outbox/topics/{name}/delete", delete_page, scope=OPERATE),
    page("/outbox/topics/{name}/publishers", ask_publisher_page, scope=OPERATE),
    form("/outbox/topics/{name}/publishers", add_publisher_page, scope=OPERATE),
    form("/outbox/{topic}/{publisher}/remove", remove_publisher_page, scope=OPERATE),
    page("/outbox/rules", rules_page, scope=READ),
    page("/outbox/rules/new", new_rule_page, scope=OPERATE),
    form("/outbox/rules/new", create_rule_page, scope=OPERATE),
    form("/outbox/rules/{rule_id:int}/delete", delete_rule_page, scope=OPERATE),
)
