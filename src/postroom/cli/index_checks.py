"""The doctor's check of index bloat: B-trees much larger than their entries need."""

from postroom.db.pool import Session, quote_identifier
from postroom.db.queries import load
from postroom.runtime.finding import Finding, ok, warn

LEAST_WASTE = 64 * 1024 * 1024
"""Bytes that a REINDEX must win to be worth it. A queue's indexes grow and shrink by this much every day."""

LEAST_SHARE = 0.5
"""Share of an index that must be waste. Random insertion alone leaves a B-tree about a third empty."""

_SHOWN = 3  # fits one line of doctor
_QUERIES = load("postroom.cli", "doctor.sql")


async def examine(session: Session, *, least_waste: int = LEAST_WASTE) -> Finding:
    """Compare the size of each index with an estimate from the planner's statistics; no extension is needed."""
    rows = await _QUERIES["list_bloated_indexes"].many(session, least_waste=least_waste, least_share=LEAST_SHARE)
    if not rows:
        return ok("indexes", "none is much larger than its entries need")
    named = [f"{row['name']} has {_size(row['bytes'])}, about {_size(row['waste'])} unused" for row in rows[:_SHOWN]]
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    name = f"{quote_identifier(rows[0]['room'])}.{quote_identifier(rows[0]['name'])}"
    return warn("indexes", "; ".join(named) + more, f"REINDEX INDEX CONCURRENTLY {name}")


def _size(amount: int) -> str:
    return f"{amount / 1024 / 1024:.0f} MB"
