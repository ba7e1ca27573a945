"""Topics of the outbox, their publishers, and the rules that turn events into mails."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.outbox import OPERATE, READ, pair_page, tabs
from postroom.dashboard.page import PageRequest, actions, form_pages, listing, page
from postroom.delivery.model import Lane
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

_SUBSCRIBE = PageAction("Add a publisher", "/outbox/topics/{name}/publishers", OPERATE, is_link=True)
_DELETE = PageAction(
    "Delete", "/outbox/topics/{name}/delete", OPERATE, topics.delete_topic, "The topic is deleted.",
    to="/outbox/topics",
    question="Its mail rules and the positions of its publishers are deleted too. Refused while an endpoint uses it.",
)  # fmt: skip
_DELETE_RULE = PageAction(
    "Delete", "/outbox/rules/{rule_id:int}/delete", OPERATE, mails.delete_rule, "The rule is deleted.",
    to="/outbox/rules",
    question="Later events cause no mail by this rule. Mail that is accepted already is sent.",
)  # fmt: skip

_STARTS = ("now", "beginning")
_EVERYTHING = "everything"


_CONDITIONS = (
    FormField("types", "Types", "lines", hint="One per line. Empty: events of every type"),
    FormField("exact_tags", "Tags that an event must have", "lines", hint="region=north"),
    FormField("required_keys", "Keys of tags that it must have", "lines", hint="order"),
    FormField("any_keys", "Keys of which it must have one", "lines", hint="order"),
)
"""The conditions of a topic; all must hold, and an empty one holds for every event."""

_NEW = (
    FormField("name", "Name", is_required=True, hint="Lower-case letters, digits, dots, dashes"),
    *_CONDITIONS,
    FormField("publishers", "Publishers", hint="webhook, log, intake, redis, nats or your own; with spaces between"),
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
        actions=[PageAction("New topic", "/outbox/topics/new", OPERATE, is_link=True, is_main=True)],
    )


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "New topic",
        _NEW,
        button="Create the topic",
        lead="Without conditions it contains every event.",
        back="/outbox/topics",
    )


async def create_page(request: PageRequest) -> Answer:
    made = await topics.create_topic(
        request.pool,
        _conditions(request.form.get("name", "").strip(), request.form),
        publishers=request.form.get("publishers", "").split(),
        from_now=request.form.get("start") != "beginning",
        actor=request.actor,
    )
    return request.done(topic_page(made.name), "The topic is created.")


def _conditions(name: str, given: Mapping[str, str]) -> Topic:
    conditions: dict[str, Any] = {
        each.name: tuple(line.strip() for line in given.get(each.name, "").splitlines() if line.strip())
        for each in _CONDITIONS
    }
    return Topic(name=name, **conditions)


async def show_page(request: PageRequest) -> Answer:
    topic = await topics.get_topic(request.pool, request.id("name"))
    return request.form_page(
        f"Topic {topic.name}",
        (
            *(replace(each, value="\n".join(getattr(topic, each.name))) for each in _CONDITIONS),
            FormField(_EVERYTHING, "Remove all conditions: the topic contains every event", "check"),
        ),
        button="Save the conditions",
        lead=f"It contains {topic.about}. A change applies to all its publishers at once.",
        back="/outbox/topics",
        actions=[_SUBSCRIBE.at(topic.name), _DELETE.at(topic.name)],
    )


async def save_page(request: PageRequest) -> Answer:
    topic = await topics.get_topic(request.pool, request.id("name"))
    wanted = _conditions(topic.name, request.form)
    await topics.save_topic(request.pool, wanted, everything=_EVERYTHING in request.form, actor=request.actor)
    return request.done(topic_page(topic.name), "The conditions are saved.")


async def ask_publisher_page(request: PageRequest) -> Answer:
    name = request.id("name")
    return request.form_page(
        f"Add a publisher to {name}",
        (
            FormField("publisher", "Publisher", is_required=True, hint="webhook, log, intake, redis, nats or your own"),
            FormField("start", "It begins with", options=_STARTS, value="now"),
        ),
        button="Subscribe it",
        lead="From the beginning, it publishes all events of the topic that exist.",
        back=topic_page(name),
    )


async def add_publisher_page(request: PageRequest) -> Answer:
    pair = Subscription(request.id("name"), request.form.get("publisher", "").strip())
    is_from_now = request.form.get("start") != "beginning"
    is_new = await topics.add_publisher(request.pool, pair, from_now=is_from_now, actor=request.actor)
    done = "The publisher is subscribed." if is_new else "It was subscribed already; its position is unchanged."
    return request.done(pair_page(pair), done)


# ── rules ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def new_rule_page(request: PageRequest) -> Answer:
    known = [topic.name for topic in await topics.list_topics(request.pool)]
    templates = sorted(await mails.list_template_names(request.pool))
    fields = [
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
        button="Create the rule",
        lead="Each event of this type in this topic causes a mail, from now on. The event's data are its variables.",
        back="/outbox/rules",
    )


async def create_rule_page(request: PageRequest) -> Answer:
    names = ("topic", "event_type", "template", "recipient_path", "locale_path", "lane")
    rule = request.read(NewRule, {name: request.form.get(name, "").strip() for name in names})
    templates = await mails.list_template_names(request.pool)
    await mails.add_rule(request.pool, rule, templates=templates, actor=request.actor)
    return request.done("/outbox/rules", "The rule is created.")


PAGES = (
    page("/outbox/topics", list_page, scope=READ),
    *form_pages("/outbox/topics/new", new_page, create_page, scope=OPERATE),
    *form_pages("/outbox/topics/{name}", show_page, save_page, scope=OPERATE),
    *form_pages("/outbox/topics/{name}/publishers", ask_publisher_page, add_publisher_page, scope=OPERATE),
    listing(
        "/outbox/rules",
        "Mail rules",
        _RULE,
        mails.list_rules,
        scope=READ,
        lead="The publisher intake sends a mail for each event that matches a rule.",
        empty="There is no rule.",
        tabs=tabs("/outbox/rules"),
        actions=[PageAction("New rule", "/outbox/rules/new", OPERATE, is_link=True, is_main=True)],
        row_actions=lambda rule: [_DELETE_RULE.at(rule.id)],
    ),
    *form_pages("/outbox/rules/new", new_rule_page, create_rule_page, scope=OPERATE),
    *actions(_DELETE, _DELETE_RULE),
)
