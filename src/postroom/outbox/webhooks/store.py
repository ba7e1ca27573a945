"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import column, load
from postroom.outbox.webhooks.model import WebhookEndpoint
from postroom.runtime.record import read_row
from postroom.runtime.secrets import Sealed

QUERIES = load("postroom.outbox.webhooks")


def _sealed(row: asyncpg.Record) -> dict[str, Sealed]:
    sealed = {"secret": Sealed(row["secret_key_id"], row["secret"])}
    if row["previous_secret"] is not None:
        sealed["previous"] = Sealed(row["previous_key_id"], row["previous_secret"])
    return sealed


def _endpoint(row: asyncpg.Record) -> WebhookEndpoint:
    return read_row(WebhookEndpoint, {**row, **_sealed(row)})


change_endpoint = QUERIES["change_endpoint"].maybe_as(_endpoint)
delete_endpoint = QUERIES["delete_endpoint"].maybe_as(column("url", str))
find_endpoint = QUERIES["find_endpoint"].maybe_as(_endpoint)
insert_endpoint = QUERIES["insert_endpoint"].one_as(_endpoint)
list_endpoints = QUERIES["list_endpoints"].many_as(_endpoint)
list_signing = QUERIES["list_signing"].many_as(_endpoint)
list_topic_endpoints = QUERIES["list_topic_endpoints"].many_as(_endpoint)
list_sealed = QUERIES["list_sealed"].many_as(column("id", int))
lock_secrets = QUERIES["lock_secrets"].maybe_as(_sealed)
replace_secrets = QUERIES["replace_secrets"].exec
reserve_id = QUERIES["reserve_id"].one_as(column("id", int))
rotate_secret = QUERIES["rotate_secret"].maybe_as(_endpoint)
set_endpoint_status = QUERIES["set_endpoint_status"].has
