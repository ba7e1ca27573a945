"""A bounded cache of what the mail of claims is rendered from: versions of templates, letters of campaigns.

Mail of a claim is rendered one by one, for as long as its connections and its pace take, while later claims load more.
So an entry that an open claim needs is not evicted, and the cache is larger than its bound for so long.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class ClaimCache(Generic[T]):
    """Entries by id. The least recently used ones beyond `most` are evicted, except those that are held."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[int, T] = OrderedDict()
        self._held: dict[int, set[int | None]] = {}

    def get(self, key: int) -> T | None:
        return self._entries.get(key)

    def hold(self, claim_id: int, keys: Iterable[int | None], open_claims: Collection[int]) -> None:
        """Keep these entries, also those that are added later, as long as the claim is among the open ones."""
        self._held = {each: held for each, held in self._held.items() if each in open_claims}
        self._held.setdefault(claim_id, set()).update(keys)

    def take(self, keys: Collection[int]) -> dict[int, T]:
        """The entries that exist. `add` them again with those loaded meanwhile: another load may have evicted them."""
        return {key: self._entries[key] for key in keys if key in self._entries}

    def add(self, entries: Mapping[int, T]) -> None:
        """Add entries as the last used ones, and evict the first used ones beyond the bound."""
        for key, entry in entries.items():
            self._entries[key] = entry
            self._entries.move_to_end(key)
        surplus = len(self._entries) - max(self._most, len(entries))
        if surplus > 0:
            kept = entries.keys() | set().union(*self._held.values())
            for key in [key for key in self._entries if key not in kept][:surplus]:
                del self._entries[key]
