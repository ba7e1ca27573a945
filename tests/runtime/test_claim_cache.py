"""The cache of what claims need: bounded, except for what open claims hold."""

from postroom.runtime.claim_cache import ClaimCache


def test_the_least_recently_used_entries_are_evicted() -> None:
    """An entry that is taken and added again counts as used."""
    cache = ClaimCache[str](2)
    cache.add({1: "a"})
    cache.add({2: "b"})
    cache.add(cache.take([1, 9]))
    cache.add({3: "c"})
    assert [cache.get(key) for key in (1, 2, 3)] == ["a", None, "c"]


def test_one_load_may_be_larger_than_the_bound() -> None:
    """Its entries stay until the next one."""
    cache = ClaimCache[str](1)
    cache.add({1: "a", 2: "b"})
    assert cache.take([1, 2]) == {1: "a", 2: "b"}
    cache.add({3: "c"})
    assert cache.take([1, 2, 3]) == {3: "c"}


def test_held_entries_stay_while_a_claim_that_needs_them_is_open() -> None:
    """A claim may hold an entry before it is loaded; one that has ended is found when the next one holds."""
    cache = ClaimCache[str](1)
    cache.hold(7, [1], [7])
    cache.hold(8, [1, 2], [7, 8])
    for key in (1, 2, 3):
        cache.add({key: str(key)})
    assert cache.take([1, 2, 3]) == {1: "1", 2: "2", 3: "3"}
    cache.hold(9, [3], [7, 9])
    cache.add({3: "3"})
    assert cache.take([1, 2, 3]) == {1: "1", 3: "3"}
    cache.hold(10, [3], [9, 10])
    cache.add({3: "3"})
    assert cache.take([1, 2, 3]) == {3: "3"}
