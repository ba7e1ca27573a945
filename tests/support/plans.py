"""Query plans of statements: their nodes, and a session that plans as a long-running process does."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from postroom.db.pool import Session, connect
from postroom.db.queries import Statement
from postroom.db.room import Room

Node = dict[str, Any]


@asynccontextmanager
async def planning_session(room: Room) -> AsyncIterator[Session]:
    """A session with generic plans, which a prepared statement gets after five executions."""
    connection = await connect(room.url, room.name)
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    yield connection
    await connection.close()


async def plan_of(connection: Session, statement: Statement, *, argument: str = "NULL") -> list[Node]:
    """The nodes of a statement's plan, with the same text for every argument."""
    await connection.execute(f"PREPARE hot AS {statement.sql}")
    arguments = ", ".join(argument for _ in statement.parameters)
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot({arguments})")
    await connection.execute("DEALLOCATE hot")
    return nodes(json.loads(text)[0]["Plan"])


async def measured_plan(connection: Session, statement: Statement, **values: Any) -> list[Node]:
    """The nodes of a statement that was run with these values, with the rows that each returned."""
    given = [values[parameter] for parameter in statement.parameters]
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", *given)
    return nodes(json.loads(text)[0]["Plan"])


def nodes(plan: Node) -> list[Node]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
