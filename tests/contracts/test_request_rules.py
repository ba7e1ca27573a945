"""The rules of a request, as SQL `send` and Python apply them: both accept and reject the same values, field by field.

Cases with an expected answer are in `tests.support.requests`; here every field gets every awkward text, and the two
implementations must agree.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from tests.conftest import TestServer, cloned_database
from tests.support.requests import GOOD, NOTE, a_file, as_sql

from postroom.db.pool import Session
from postroom.delivery.check import RESERVED_SOURCES, check_source, problems
from postroom.delivery.model import DeliveryRequest
from postroom.post.address import parse_address

LENGTHS = (76, 77, 99, 100, 101, 127, 128, 200, 201, 250, 251, 255, 256, 920, 921, 998, 999)
SPACES = (" ", "\t", "\n", "\r", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\ufeff")
TEXTS = (
    *("x" * length for length in LENGTHS),
    *("é" * length for length in (76, 77, 100, 101, 255, 256, 998, 999)),
    *SPACES,
    *(f"a{space}" for space in SPACES),
    *(f"{space}a" for space in SPACES),
    *(f"a{space}b" for space in SPACES),
    *(
        "",
        "a",
        "A",
        "1",
        "é",
        "É",
        "\u017f",
        "\u212a",
        "İ",
        "ß",
        "\u0661",
        "🎉",
        "e\u0301",
        "\x01",
        "\x7f",
        "a\x7fb",
        "a\\b",
        'a"b',
    ),
    *("fr", "fr-FR", "fr_FR", "f", "abcdefghi", "fr-", "fr--x", "fr-a-b-c", "fr-a-b-c-d", "fr-abcdefghi", "éé"),
    *("a.b", "a_b", "-a", ".a", "a-", "a.", "A-b", "a/b", "../a", "a:b", "a;b", "a,b", "a@b", "a=b", "a?b", "a~b"),
    *("a/b; c=d", "a/b;c=d", "a/b;  c=d", "a/b; c", 'a/b; c="d e"', 'a/b; c="d;e"', 'a/b; c="d\\e"', 'a/b; c=""'),
    *(
        "A/B; C=D",
        "a/b;" + "c=d;" * 9 + "c=d",
        "a/b" + "; c=d" * 10,
        "a/b" + "; c=d" * 11,
        "a/b ",
        "a/b\n",
        "a//b",
        "a/é",
    ),
    *("<a@b>", "<a@b> <c@d>", "<a@@b>", "<a>", "<a@b", "<a b@c>", "<é@b>", "<a@b>\t<c@d>", "<" + "x" * 250 + "@b>"),
    *(
        "=",
        "==",
        "A===",
        "AA==",
        "AAA=",
        "AB==",
        "A=AA",
        "AAAA",
        "AAAA=",
        "AA==AAAA",
        "AAAAA",
        "A A=",
        "-_-_",
        "AAAA\n",
    ),
    *("From", "from", "X-From", "List-Id", "Content-X", "contenty", "ARC-A", "arc", "Resent", "Postroom-A", "Postroom"),
    *sorted(RESERVED_SOURCES),
    *("Accounts", "sql", "python", "outbox:app", "auth", "bulk", "Bulk", "transactional"),
)
"""Texts near the edge of one rule or another; every field gets all of them."""

FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "subject": lambda text: {"subject": text},
    "locale": lambda text: {"locale": text},
    "idempotency_key": lambda text: {"idempotency_key": text},
    "source": lambda text: {"source": text},
    "header name": lambda text: {"headers": {text: "x"}},
    "header value": lambda text: {"headers": {"X-A": text}},
    "structured header value": lambda text: {"headers": {"List-Id": text}},
    "Message-ID": lambda text: {"headers": {"Message-ID": text}},
    "References": lambda text: {"headers": {"References": text}},
    "filename": lambda text: {"attachments": [a_file(filename=text)]},
    "content_type": lambda text: {"attachments": [a_file(content_type=text)]},
    "content_id": lambda text: {"attachments": [a_file(content_id=text)]},
    "content": lambda text: {"attachments": [a_file(content=text)]},
    "tag name": lambda text: {"tags": {text: "x"}},
    "tag value": lambda text: {"tags": {"x": text}},
    "variable": lambda text: {**NOTE, "variables": {text: [text]}},
    "custom_data": lambda text: {"custom_data": {text: text}},
    "to": lambda text: {"to": [f"{text}@example.org"]},
    "domain": lambda text: {"to": [f"a@{text}.example.org"]},
    "top-level domain": lambda text: {"to": [f"a@example.{text}"]},
    "name": lambda text: {"to": [f"{text} <a@example.org>"]},
    "quoted name": lambda text: {"to": [f'"{text}" <a@example.org>']},
    "cc": lambda text: {"cc": [text]},
    "from": lambda text: {"sender": text},
}


MAILBOXES = frozenset({"to", "domain", "top-level domain", "cc", "from"})


@pytest.fixture(scope="module")
async def application(server: TestServer) -> AsyncIterator[Session]:
    """A connection of an application to a room of its own."""
    async with cloned_database(server) as url:
        connection = await asyncpg.connect(url, server_settings={"search_path": "public"})
        yield connection
        await connection.close()


def rejected_by_python(arguments: dict[str, Any]) -> str | None:
    """The first field that Python rejects."""
    fields = {**GOOD, **arguments}
    for name in ("to", "cc", "bcc", "reply_to"):
        try:
            fields[name] = tuple(parse_address(each) for each in fields.get(name, ()))
        except ValueError:
            return f"{name}[0]"
    try:
        sender = fields.pop("sender", None)
        fields["sender"] = None if sender is None else parse_address(sender)
    except ValueError:
        return "from"
    fields["attachments"] = tuple(fields.get("attachments", ()))
    if check_source(fields.get("source", "sql")) is not None:
        return "source"
    return next((field for field, _ in problems(DeliveryRequest(**fields))), None)


async def rejected_by_sql(connection: Session, arguments: dict[str, Any]) -> str | None:
    """The field that SQL rejects."""
    given = as_sql({**GOOD, **arguments})
    named = ", ".join(f"{name} => ${place}" for place, name in enumerate(given, start=1))
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SELECT postroom.send({named})", *given.values())
    except asyncpg.PostgresError as error:
        return error.column_name if error.sqlstate == "PR001" else repr(error)
    finally:
        await transaction.rollback()
    return None


def cases(field: str) -> Iterator[dict[str, Any]]:
    """SQL rejects an address that is not ASCII, because it has no tables of IDNA: Python alone judges those."""
    return (FIELDS[field](text) for text in TEXTS if text.isascii() or field not in MAILBOXES)


@pytest.mark.parametrize("field", FIELDS)
async def test_sql_and_python_reject_the_same_values(application: Session, field: str) -> None:
    """Each text is accepted by both, or rejected by both in the same field."""
    differences = [
        (arguments, python, sql)
        for arguments in cases(field)
        if (python := rejected_by_python(arguments)) != (sql := await rejected_by_sql(application, arguments))
    ]
    assert differences == []


async def test_sql_rejects_every_template_that_is_not_published(application: Session) -> None:
    """SQL looks an id up, so that it needs no rule for its form: only templates with a valid id are published."""
    accepted = [text for text in TEXTS if await rejected_by_sql(application, {**NOTE, "template": text}) != "template"]
    assert accepted == []
