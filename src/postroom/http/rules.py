"""Rules of requests that the JSON schemas do not express; the OpenAPI document lists them per operation.

Some depend on another field, on a stored record or on a grammar without a usable pattern, such as that of addresses.
`tests/http/test_openapi_schemathesis.py` compares the list with the refusals of requests that the schemas allow.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from postroom.http.schemas import REF

EVERYWHERE = (
    "Whole numbers have no fraction: `1.0` is refused. Text contains no NUL and no lone surrogate. Times lie"
    " between the years 1970 and 9998 at most. An operation lists the rules of its fields that its schema does not"
    " express, in its description and as `x-rules`. The stored content of a campaign is checked again when it is"
    " previewed, tested or started."
)
"""Rules of all operations."""

_ADDRESS = "an e-mail address such as `ada@example.org`; `Ada <ada@example.org>` where a name may be given"
_TIME = "a time such as `2030-01-31T09:00:00Z`"
_ZONE = "a name of the IANA time zone database such as `Europe/London`, or `UTC`"
_OBJECT = "a JSON object of at most 32 levels, with numbers within 64 bits"
_URL = "an `http` or `https` URL"
_LINE = "one line, not all blank"
_KEY = "the key of a tag, without an equals sign"
_PATH = "a path such as `customer.email`"
_CONTENT = "required without a template, and not allowed beside one; valid template syntax in a campaign"
_TYPE = "belongs to the type of the account: required for one, not allowed for the others"

RULES: Mapping[str, str] = {
    "after": "a cursor from an earlier answer",
    "any_keys": _KEY,
    "at": _TIME,
    "bcc": _ADDRESS,
    "by": "`hour` or `day`, not both, and at most one dimension",
    "campaign_id": "`campaign_id`, `email` or `url` is required where all three filter",
    "cc": _ADDRESS,
    "content": "base64",
    "content_id": "printable ASCII without spaces",
    "content_type": "a media type such as `image/png` or `text/calendar; method=REQUEST`",
    "cursor": "the cursor of a page of this list",
    "custom_data": _OBJECT,
    "date_of_birth": "in the past",
    "domain": "the name of a domain",
    "email": _ADDRESS,
    "exact_tags": "`key=value`",
    "expires_at": "of a delivery, in the future",
    "filename": "1 to 255 characters without control characters",
    "first_name": _LINE,
    "from": f"{_ADDRESS}, or a time before `to`",
    "from_domains": "names of domains",
    "gmail_credentials": _TYPE,
    "gmail_subject_email": f"{_ADDRESS}; {_TYPE}",
    "headers": "names and values of a mail header (RFC 5322), none that Postroom writes itself",
    "html": _CONTENT,
    "kind": "one of the kinds of an occasion: `ANNIVERSARY`, `RECURRING`, `REMINDER`",
    "last_name": _LINE,
    "local_time": "a time of day such as `09:00`",
    "locale": "a locale such as `fr` or `fr-FR`",
    "locale_path": _PATH,
    "login": "printable characters",
    "max_connections": "`max_connections`, `messages_per_second` or both",
    "name": "one line, not all blank; unique among records of its kind; lower-case for a topic",
    "publisher": "lower-case letters, digits, dots, colons and dashes; at most 100",
    "query": "a query of events as JSON; not beside `type` or `tag`",
    "recipient_path": _PATH,
    "reply_to": _ADDRESS,
    "required_keys": _KEY,
    "scopes": "scopes that you have; a key with limits only sends and reads",
    "secret": "either `secret`, or `email`, `code` and `action`",
    "ses_region": f"a region such as `eu-west-1`; {_TYPE}",
    "smtp_host": f"a host name or an address; {_TYPE}",
    "smtp_password": _TYPE,
    "smtp_port": f"1 to 65535; {_TYPE}",
    "start_at": _TIME,
    "subject": f"one line of 1 to 998 characters; {_CONTENT}",
    "tag": "`name=value`; some filters of statistics cannot be combined",
    "tags": _OBJECT,
    "template": "the id of a template that exists; some filters of statistics cannot be combined",
    "text": _CONTENT,
    "time_zone": _ZONE,
    "timezone": _ZONE,
    "to": f"{_ADDRESS}, or a time after `from`",
    "type": "1 to 64 characters where it is the type of an event",
    "types": "1 to 64 characters each",
    "url": _URL,
    "variables": f"{_OBJECT}, with every variable that the template requires",
    "webhook_url": _URL,
}
"""The rule of a field besides its schema, by its name."""


JUDGED_WITH = {"daily_quota": "scopes"}
"""Fields that are judged together with another one of the stored record, which the refusal names."""


def rules_of(schemas: list[Any], parameters: list[dict[str, Any]], components: Mapping[str, Any]) -> dict[str, str]:
    """The rules of an operation's fields: its parameters, and the properties of its body at any depth."""
    names = {each["name"] for each in parameters}
    seen: set[str] = set()
    for schema in schemas:
        names.update(_properties(schema, components, seen))
    names.update(other for name, other in JUDGED_WITH.items() if name in names)
    return {name: RULES[name] for name in sorted(names & RULES.keys())}


def describe_rules(rules: Mapping[str, str]) -> str:
    """The rules as a list in Markdown."""
    return "\n".join(("Rules beyond the schema:\n", *(f"- `{name}`: {rule}" for name, rule in rules.items())))


def _properties(schema: Any, components: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _properties(each, components, seen)
    elif isinstance(schema, dict):
        yield from schema.get("properties", ())
        reference = str(schema.get("$ref", "")).removeprefix(REF)
        if reference and reference not in seen:
            seen.add(reference)
            yield from _properties(components[reference], components, seen)
        yield from _properties(list(schema.values()), components, seen)
