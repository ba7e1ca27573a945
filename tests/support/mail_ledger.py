"""The ledger of a chaos run: acknowledged, recorded and received mail beside each other."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.chaos import Entry

_ENDS = ("sent", "failed", "dead_letter", "cancelled", "suppressed")


@dataclass
class MailLedger:
    """The result of a run. `problems` are violations; a run without them has passed."""

    acknowledged: Mapping[str, set[int]]  # delivery ids by idempotency key
    entries: list[Entry]
    copies: Counter[Any]  # by `Entry.key`
    differences: list[str]  # between tables
    settled: frozenset[int] = frozenset()  # an operator has said that these were sent
    exit_codes: list[int] = field(default_factory=list)

    @property
    def lost(self) -> list[str]:
        """Acknowledged and not recorded, or recorded as sent and not received."""
        recorded = {entry.id for entry in self.entries}
        unknown = sorted(key for key, found in self.acknowledged.items() if not found <= recorded)
        unsent = [
            entry
            for entry in self.entries
            if entry.must_have_arrived and not self.copies[entry.key] and entry.id not in self.settled
        ]
        return [
            *(f"{key} was acknowledged and is not recorded" for key in unknown),
            *(f"{entry} was not received" for entry in unsent),
        ]

    @property
    def silent(self) -> list[str]:
        """Received more often than the ledger says."""
        return [
            f"{entry} was received {self.copies[entry.key]} times"
            for entry in self.entries
            if self.copies[entry.key] > entry.sent + entry.ambiguous
        ]

    def problems(self) -> list[str]:
        return [*self.lost, *self.silent, *self._keys(), *self._unfinished(), *self.differences, *self._exits()]

    def lines(self) -> Iterator[str]:
        """The ledger for people."""
        states = Counter(entry.state for entry in self.entries)
        often = sum(1 for number in self.copies.values() if number > 1)
        yield f"deliveries: {len(self.acknowledged)} acknowledged, {len(self.entries)} recorded: {_counts(states)}"
        yield f"received: {len(self.copies)}, {often} of them more than once"
        yield f"ambiguous attempts: {sum(entry.ambiguous for entry in self.entries)}"
        yield f"lost: {len(self.lost)}; silent duplicates: {len(self.silent)}; differences: {len(self.differences)}"

    def _keys(self) -> Iterator[str]:
        for key, found in self.acknowledged.items():
            if len(found) > 1:
                yield f"{key} was acknowledged with the ids {sorted(found)}"
        for delivery in self.copies.keys() - {entry.key for entry in self.entries}:
            yield f"delivery {delivery} was received and is not recorded"

    def _unfinished(self) -> Iterator[str]:
        for entry in self.entries:
            if entry.state not in _ENDS:
                yield f"{entry} has not ended"

    def _exits(self) -> Iterator[str]:
        for code in self.exit_codes:
            if code:
                yield f"a worker ended with {code} after SIGTERM"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
