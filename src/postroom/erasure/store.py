"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

import asyncpg
import msgspec

from postroom.db.queries import Connection, column, columns, load, model
from postroom.erasure.model import Erasure, ErasureRun
from postroom.runtime.record import read_row

QUERIES = load("postroom.erasure")


def _erasure(row: asyncpg.Record) -> Erasure:
    return read_row(Erasure, {**row, "counts": msgspec.json.decode(row["counts"])})


add_count = QUERIES["add_count"].exec
begin_erasure = QUERIES["begin_erasure"].one_as(lambda row: (read_row(ErasureRun, row), bool(row["is_new"])))
"""The erasure, and True if it is new."""
erase_accounts = QUERIES["erase_accounts"].one_as(column("touched", int))
erase_attempts = QUERIES["erase_attempts"].one_as(column("delivery_ids", list))
erase_audit = QUERIES["erase_audit"].one_as(column("touched", int))
erase_delivery_batch = QUERIES["erase_delivery_batch"].one_as(columns("last_id", "touched"))
"""The last delivery that was searched, None at the end, and the number of changed rows."""


async def erase_indexed(connection: Connection, *, address: str, pseudonym: str) -> tuple[list[int], dict[str, int]]:
    """The recipient's deliveries, and the number of changed rows per table."""
    row = dict(await QUERIES["erase_indexed"].one(connection, address=address, pseudonym=pseudonym))
    delivery_ids = list(row.pop("delivery_ids"))
    return delivery_ids, {"deliveries": len(delivery_ids), **row}


erase_pages = QUERIES["erase_pages"].one_as(column("touched", int))
erase_rows = QUERIES["erase_rows"].one_as(column("touched", int))
find_erasure = QUERIES["find_erasure"].maybe_as(_erasure)
find_work = QUERIES["find_work"].maybe_as(model(ErasureRun))
list_erasures = QUERIES["list_erasures"].many_as(_erasure)
list_running = QUERIES["list_running"].many_as(column("id", int))
list_searched_tables = QUERIES["list_searched_tables"].many_as(column("name", str))
lock_work = QUERIES["lock_work"].has
make_erasure_key = QUERIES["make_erasure_key"].exec
mark_database_erased = QUERIES["mark_database_erased"].exec
mark_done = QUERIES["mark_done"].exec
mark_file_erased = QUERIES["mark_file_erased"].exec
mark_waiting = QUERIES["mark_waiting"].exec
remember_deliveries = QUERIES["remember_deliveries"].exec
