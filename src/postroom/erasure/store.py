"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.erasure.model import Erasure, ErasureRun, ErasureState

QUERIES = load("postroom.erasure")

# ruff: noqa: A002 - `id` is the column's name


async def add_count(connection: Connection, *, id: int, name: str, amount: int) -> int:
    return await QUERIES["add_count"].exec(connection, id=id, name=name, amount=amount)


async def begin_erasure(connection: Connection, *, actor: str, address: str) -> tuple[ErasureRun, bool]:
    """The erasure, and True if it is new."""
    row = await QUERIES["begin_erasure"].one(connection, actor=actor, address=address)
    return _work(row), bool(row["is_new"])


async def erase_accounts(connection: Connection, *, address: str) -> int:
    return int((await QUERIES["erase_accounts"].one(connection, address=address))["touched"])


async def erase_attempts(connection: Connection, *, table_name: str, address: str, pseudonym: str) -> list[int]:
    row = await QUERIES["erase_attempts"].one(connection, table_name=table_name, address=address, pseudonym=pseudonym)
    return list(row["delivery_ids"])


async def erase_audit(connection: Connection, *, address: str, pseudonym: str) -> int:
    return int((await QUERIES["erase_audit"].one(connection, address=address, pseudonym=pseudonym))["touched"])


async def erase_delivery_batch(connection: Connection, **values: Any) -> tuple[int | None, int]:
    """The last delivery that was searched, None at the end, and the number of changed rows."""
    row = await QUERIES["erase_delivery_batch"].one(connection, **values)
    return row["last_id"], int(row["touched"])


async def erase_indexed(connection: Connection, *, address: str, pseudonym: str) -> tuple[list[int], dict[str, int]]:
    """The recipient's deliveries, and the number of changed rows per table."""
    row = dict(await QUERIES["erase_indexed"].one(connection, address=address, pseudonym=pseudonym))
    delivery_ids = list(row.pop("delivery_ids"))
    return delivery_ids, {"deliveries": len(delivery_ids), **row}


async def erase_pages(connection: Connection, **values: Any) -> int:
    return int((await QUERIES["erase_pages"].one(connection, **values))["touched"])


async def erase_rows(connection: Connection, **values: Any) -> int:
    return int((await QUERIES["erase_rows"].one(connection, **values))["touched"])


async def find_erasure(connection: Connection, *, id: int) -> Erasure | None:
    row = await QUERIES["find_erasure"].maybe(connection, id=id)
    return None if row is None else _erasure(row)


async def find_work(connection: Connection, *, id: int) -> ErasureRun | None:
    row = await QUERIES["find_work"].maybe(connection, id=id)
    return None if row is None else _work(row)


async def list_erasures(connection: Connection, *, before_id: int | None, page_limit: int) -> list[Erasure]:
    rows = await QUERIES["list_erasures"].many(connection, before_id=before_id, page_limit=page_limit)
    return [_erasure(row) for row in rows]


async def list_running(connection: Connection) -> list[int]:
    return [row["id"] for row in await QUERIES["list_running"].many(connection)]


async def list_searched_tables(connection: Connection, *, table_name: str) -> list[str]:
    rows = await QUERIES["list_searched_tables"].many(connection, table_name=table_name)
    return [row["name"] for row in rows]


async def lock_work(connection: Connection, *, id: int) -> bool:
    return await QUERIES["lock_work"].maybe(connection, id=id) is not None


async def make_erasure_key(connection: Connection) -> int:
    return await QUERIES["make_erasure_key"].exec(connection)


async def mark_database_erased(connection: Connection, *, id: int) -> int:
    return await QUERIES["mark_database_erased"].exec(connection, id=id)


async def mark_done(connection: Connection, *, id: int, last_file_id: int) -> int:
    return await QUERIES["mark_done"].exec(connection, id=id, last_file_id=last_file_id)


async def mark_file_erased(connection: Connection, *, id: int, before_file_id: int, last_file_id: int) -> int:
    return await QUERIES["mark_file_erased"].exec(
        connection, id=id, before_file_id=before_file_id, last_file_id=last_file_id
    )


async def mark_waiting(connection: Connection, *, id: int, waits_for: Sequence[str]) -> int:
    return await QUERIES["mark_waiting"].exec(connection, id=id, waits_for=list(waits_for))


async def remember_deliveries(connection: Connection, *, id: int, delivery_ids: Sequence[int]) -> int:
    return await QUERIES["remember_deliveries"].exec(connection, id=id, delivery_ids=list(delivery_ids))


def _erasure(row: asyncpg.Record) -> Erasure:
    counts = msgspec.json.decode(row["counts"], type=dict[str, int])
    known = {"state": ErasureState(row["state"]), "counts": counts, "waits_for": tuple(row["waits_for"])}
    return Erasure(**{**row, **known})


def _work(row: asyncpg.Record) -> ErasureRun:
    return ErasureRun(
        id=row["id"],
        state=ErasureState(row["state"]),
        address=row["address"],
        pseudonym=row["pseudonym"],
        delivery_ids=tuple(row["delivery_ids"]),
        last_file_id=row["last_file_id"],
    )
