"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import load, model
from postroom.http.model import ApiKey, Operator
from postroom.runtime.record import read_row

QUERIES = load("postroom.http")


def _key(row: asyncpg.Record) -> tuple[ApiKey, bytes]:
    return (read_row(ApiKey, row), row["key_hash"])


change_key = QUERIES["change_key"].maybe_as(model(ApiKey))
change_operator_role = QUERIES["change_operator_role"].maybe_as(model(Operator))
delete_operator = QUERIES["delete_operator"].maybe_as(model(Operator))
disable_operator = QUERIES["disable_operator"].maybe_as(model(Operator))
enable_operator = QUERIES["enable_operator"].maybe_as(model(Operator))
find_key_by_id = QUERIES["find_key_by_id"].maybe_as(model(ApiKey))
find_key_by_name = QUERIES["find_key_by_name"].maybe_as(model(ApiKey))
find_keys = QUERIES["find_keys"].many_as(_key)
"""Keys, each with its stored hash, for a comparison in constant time."""
find_operator = QUERIES["find_operator"].maybe_as(model(Operator))
find_operator_by_email = QUERIES["find_operator_by_email"].maybe_as(model(Operator))
insert_key = QUERIES["insert_key"].one_as(model(ApiKey))
insert_operator = QUERIES["insert_operator"].maybe_as(model(Operator))
list_keys = QUERIES["list_keys"].many_as(model(ApiKey))
list_operators = QUERIES["list_operators"].many_as(model(Operator))
lock_keys = QUERIES["lock_keys"].exec
revoke_key = QUERIES["revoke_key"].maybe_as(model(ApiKey))
sign_in_operator = QUERIES["sign_in_operator"].maybe_as(model(Operator))
touch_key = QUERIES["touch_key"].exec
