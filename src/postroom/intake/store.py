"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import column, load, model
from postroom.intake.model import MalformedCommand, MalformedGroup, MalformedSummary
from postroom.runtime.record import read_row

QUERIES = load("postroom.intake")


def _command(row: asyncpg.Record) -> MalformedCommand:
    return MalformedCommand(read_row(MalformedSummary, row), row["raw"])


count_malformed_commands = QUERIES["count_malformed_commands"].one_as(column("waiting", int))
delete_old_malformed_commands = QUERIES["delete_old_malformed_commands"].exec
dismiss_malformed_commands = QUERIES["dismiss_malformed_commands"].many_as(column("id", int))
"""Return the ids of newly dismissed commands."""
find_malformed_command = QUERIES["find_malformed_command"].maybe_as(_command)
group_malformed_commands = QUERIES["group_malformed_commands"].many_as(lambda row: MalformedGroup(**row))
list_malformed_commands = QUERIES["list_malformed_commands"].search_as(model(MalformedSummary))
lock_malformed_command = QUERIES["lock_malformed_command"].maybe_as(_command)
mark_malformed_notified = QUERIES["mark_malformed_notified"].one_as(column("notified", int))
mark_resubmitted = QUERIES["mark_resubmitted"].exec
record_malformed_commands = QUERIES["record_malformed_commands"].many_as(column("reason", str))
"""Return the reasons of newly recorded commands."""
