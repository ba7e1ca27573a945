"""Facts about deliveries: readers get them from `all_steps`; no condition may name them.

A delivery takes no lock of the event store, so that sending a mail never waits for an append. A condition could not
rely on these facts: another transaction may commit one after the check.
"""

import re

from postroom.errors import BadInput, FieldError
from postroom.events.model import Append, Query, QueryItem

FACT_TYPES = frozenset(
    f"Delivery{step}"
    for step in ("Accepted", "Sent", "Deferred", "Failed", "DeadLettered", "Suppressed", "Cancelled", "Redriven")
)
PROBLEM = (
    "must not name facts about deliveries, which take no lock; "
    "append an event of your own when such a fact is published"
)

_TAG = re.compile(r"postroom\.delivery=[1-9][0-9]{0,17}", re.ASCII)


def is_delivery_tag(tag: str) -> bool:
    """True for the tag of one delivery."""
    return _TAG.fullmatch(tag) is not None


def check_conditions(append: Append) -> None:
    """Raise `BadInput` if the condition or the idempotency query names facts about deliveries."""
    condition = append.condition.query if append.condition else None
    for name, query in (("condition", condition), ("idempotency", append.idempotency)):
        if query is not None and (errors := _errors(name, query)):
            raise BadInput(errors)


def _errors(name: str, query: Query) -> list[FieldError]:
    return [FieldError(f"{name}[{n}]", PROBLEM) for n, item in enumerate(query.items) if _names_steps(item)]


def _names_steps(item: QueryItem) -> bool:
    """The same decision as can_match_steps in SQL, except that an item for everything names nothing."""
    if not item.types and not item.tags:
        return False
    is_fact = not item.types or not FACT_TYPES.isdisjoint(item.types)
    return is_fact and (not item.tags or (len(set(item.tags)) == 1 and is_delivery_tag(item.tags[0])))
