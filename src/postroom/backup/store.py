"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping, Sequence
from typing import Any

from postroom.backup.model import TableCount
from postroom.db.queries import Connection, load

QUERIES = load("postroom.backup")


async def adopt_restored_tokens(connection: Connection) -> int:
    return int((await QUERIES["adopt_restored_tokens"].one(connection))["waiting"])


async def count_objects(connection: Connection, *, name: str) -> int | None:
    """None if the schema does not exist."""
    found: int | None = (await QUERIES["count_objects"].one(connection, name=name))["objects"]
    return found


async def describe_room(connection: Connection) -> Mapping[str, Any]:
    return dict(await QUERIES["describe_room"].one(connection))


async def end_restore(connection: Connection) -> int:
    return await QUERIES["end_restore"].exec(connection)


async def export_snapshot(connection: Connection) -> str:
    return str((await QUERIES["export_snapshot"].one(connection))["snapshot"])


async def find_restore(connection: Connection, *, name: str) -> str | None:
    """The checksum of the file a room is being restored from; None for no restore."""
    row = await QUERIES["find_restore"].maybe(connection, name=name)
    return None if row is None else str(row["sha256"])


async def find_folder(connection: Connection) -> str:
    return str((await QUERIES["find_folder"].one(connection))["folder"])


async def forget_functions(connection: Connection) -> int:
    return await QUERIES["forget_functions"].exec(connection)


async def holds_data(connection: Connection, *, name: str, written_by_migrations: Sequence[str]) -> bool:
    row = await QUERIES["holds_data"].one(connection, name=name, written_by_migrations=written_by_migrations)
    return bool(row["holds_data"])


async def list_table_counts(connection: Connection) -> tuple[TableCount, ...]:
    return tuple(TableCount(**row) for row in await QUERIES["list_table_counts"].many(connection))


async def try_backup_lock(connection: Connection) -> bool:
    return bool((await QUERIES["try_backup_lock"].one(connection))["is_locked"])
