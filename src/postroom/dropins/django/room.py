"""The room in the site's own database: created by a migration, looked for by a check."""

from typing import Any

from postroom.blocking import run_blocking
from postroom.db.drivers import blocking_connection
from postroom.db.errors import RoomMissing
from postroom.db.install import room_script
from postroom.db.migrate import check_exists
from postroom.dropins.django.options import database_alias, room_name


def find_missing(connection: Any) -> RoomMissing | None:
    """The error that names the missing room; None if the database has it."""
    try:
        run_blocking(check_exists(blocking_connection(connection), room_name()))
    except RoomMissing as error:
        return error
    return None


def make_room(_apps: Any, schema_editor: Any) -> None:
    """Create the room where the site keeps it, unless it is there; `postroom migrate` may have made it before."""
    connection = schema_editor.connection
    if connection.alias != database_alias() or connection.vendor != "postgresql":
        return
    if find_missing(connection) is not None:
        with connection.cursor() as cursor:
            cursor.execute(room_script(room_name()))
