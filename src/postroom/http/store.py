"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import column, load, model
from postroom.http.model import ApiKey, OpenSession, Operator, TriedFactor
from postroom.runtime.record import read_row
from postroom.runtime.secrets import Sealed

QUERIES = load("postroom.http")


def _key(row: asyncpg.Record) -> tuple[ApiKey, bytes]:
    return (read_row(ApiKey, row), row["key_hash"])


def _sealed(row: asyncpg.Record) -> Sealed:
    return Sealed(row["totp_key_id"], row["totp_secret"])


def _tried(row: asyncpg.Record) -> TriedFactor:
    return TriedFactor(_sealed(row), row["totp_step"], tuple(row["recovery_hashes"]))


change_key = QUERIES["change_key"].maybe_as(model(ApiKey))
change_operator_role = QUERIES["change_operator_role"].maybe_as(model(Operator))
count_recovery_codes = QUERIES["count_recovery_codes"].one_as(column("left_over", int))
delete_operator = QUERIES["delete_operator"].maybe_as(model(Operator))
disable_operator = QUERIES["disable_operator"].maybe_as(model(Operator))
enable_operator = QUERIES["enable_operator"].maybe_as(model(Operator))
end_operator_sessions = QUERIES["end_operator_sessions"].maybe_as(model(Operator))
find_key_by_id = QUERIES["find_key_by_id"].maybe_as(model(ApiKey))
find_key_by_name = QUERIES["find_key_by_name"].maybe_as(model(ApiKey))
find_keys = QUERIES["find_keys"].many_as(_key)
"""Keys, each with its stored hash, for a comparison in constant time."""
find_operator = QUERIES["find_operator"].maybe_as(model(Operator))
find_operator_by_email = QUERIES["find_operator_by_email"].maybe_as(model(Operator))
find_session_method = QUERIES["find_session_method"].maybe_as(column("method", str))
has_identity = QUERIES["has_identity"].has
insert_key = QUERIES["insert_key"].one_as(model(ApiKey))
insert_operator = QUERIES["insert_operator"].maybe_as(model(Operator))
insert_session = QUERIES["insert_session"].one_as(column("is_new_place", bool))
"""True for the first session of an owner from a network, if there were sessions before."""
keep_identity = QUERIES["keep_identity"].has
list_keys = QUERIES["list_keys"].many_as(model(ApiKey))
list_operators = QUERIES["list_operators"].many_as(model(Operator))
list_second_factors = QUERIES["list_second_factors"].many_as(column("id", int))
list_sessions = QUERIES["list_sessions"].many_as(model(OpenSession))
lock_keys = QUERIES["lock_keys"].exec
lock_second_factor = QUERIES["lock_second_factor"].maybe_as(_sealed)
remove_second_factor = QUERIES["remove_second_factor"].maybe_as(model(Operator))
revoke_key = QUERIES["revoke_key"].maybe_as(model(ApiKey))
seal_second_factor = QUERIES["seal_second_factor"].exec
set_recovery_codes = QUERIES["set_recovery_codes"].has
set_second_factor = QUERIES["set_second_factor"].has
sign_in_operator = QUERIES["sign_in_operator"].maybe_as(model(Operator))
touch_key = QUERIES["touch_key"].exec
touch_session = QUERIES["touch_session"].exec
try_second_factor = QUERIES["try_second_factor"].maybe_as(_tried)
use_recovery_code = QUERIES["use_recovery_code"].has
use_totp_step = QUERIES["use_totp_step"].has
