"""Create, list and delete rules."""

from collections.abc import Collection

from msgspec.structs import asdict

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.mail.library import list_templates
from postroom.outbox.errors import RuleNotFound
from postroom.outbox.mails import store
from postroom.outbox.mails.model import MailRule, NewRule, check_rule
from postroom.outbox.mails.publisher import PUBLISHER
from postroom.outbox.model import Subscription
from postroom.outbox.topics import ensure_pair


async def add_rule(pool: Pool, rule: NewRule, *, templates: Collection[str] | None = None, actor: str) -> MailRule:
    """Send a mail for each event of this type in this topic from now on. Raises `TopicNotFound` and `BadInput`.

    If `templates` is given, a template outside it is rejected: every mail of the rule would fail to render.
    """
    check_rule(rule)
    if templates is not None and rule.template not in templates:
        raise BadInput.of("template", f"must be one of {', '.join(sorted(templates))}")
    columns = {name: value for name, value in asdict(rule).items() if name not in ("id", "created_at")}
    async with audited(pool, actor, "outbox.rule.add", after=columns) as (connection, note):
        await ensure_pair(connection, Subscription(rule.topic, PUBLISHER), from_now=True)
        made = await store.insert_rule(connection, **columns)
        if made is None:
            raise BadInput.of("template", "an equal rule already exists")
        note.subject = f"rule:{made.id}"
    return made


async def list_template_names(pool: Pool) -> list[str]:
    """The templates of the room."""
    return [template.id for template in await list_templates(pool)]


async def delete_rule(pool: Pool, rule_id: int, *, actor: str) -> None:
    async with audited(pool, actor, "outbox.rule.delete", f"rule:{rule_id}") as (connection, note):
        topic = RuleNotFound.unless(await store.delete_rule(connection, id=rule_id))
        note.before = {"topic": topic}


async def list_rules(pool: Pool, *, topic: str | None = None) -> list[MailRule]:
    return await store.list_rules(pool, topic=topic)
