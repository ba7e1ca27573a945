"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from postroom.backup.model import TableCount
from postroom.db.queries import Connection, column, columns, load

QUERIES = load("postroom.backup")

adopt_restored_tokens = QUERIES["adopt_restored_tokens"].one_as(column("waiting", int))
count_objects = QUERIES["count_objects"].one_as(columns("objects"))
"""None if the schema does not exist."""
describe_room = QUERIES["describe_room"].one
end_restore = QUERIES["end_restore"].exec
export_snapshot = QUERIES["export_snapshot"].one_as(column("snapshot", str))
find_restore = QUERIES["find_restore"].maybe_as(column("sha256", str))
"""The checksum of the file a room is being restored from; None for no restore."""
find_folder = QUERIES["find_folder"].one_as(column("folder", str))
forget_functions = QUERIES["forget_functions"].exec
holds_data = QUERIES["holds_data"].one_as(column("holds_data", bool))


async def list_table_counts(connection: Connection) -> tuple[TableCount, ...]:
    return tuple(TableCount(**row) for row in await QUERIES["list_table_counts"].many(connection))


try_backup_lock = QUERIES["try_backup_lock"].one_as(column("is_locked", bool))
