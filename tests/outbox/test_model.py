"""The pure parts: topics, assignment of pairs, waiting times."""

from datetime import timedelta

import pytest

from postroom.errors import BadInput
from postroom.events.model import Place
from postroom.outbox.model import (
    LINGER,
    LINGERS,
    BatchSize,
    NextEvents,
    PollInterval,
    PublisherStatus,
    ScanSize,
    Subscription,
    Topic,
    assign,
    check_topic,
)
from postroom.outbox.publisher import find_path

SECOND = timedelta(seconds=1)


def look(*, horizon: int = 10, newest: int = 10, has_unsettled: bool = False) -> NextEvents:
    place = Place(1, 1)
    return NextEvents(
        status=PublisherStatus.ACTIVE,
        leader_instance="tests",
        place=place,
        end=place,
        scanned=0,
        has_unsettled=has_unsettled,
        horizon=horizon,
        newest=newest,
    )


@pytest.mark.parametrize(
    "field,value",
    [
        ("name", "No Spaces"),
        ("name", "topics"),
        ("name", "rules"),
        ("types", ("",)),
        ("required_keys", ("a=b",)),
        ("any_keys", ("",)),
        ("exact_tags", ("a",)),
    ],
)
def test_a_topic_that_no_event_can_match_is_refused(field: str, value: object) -> None:
    """The error names the field."""
    with pytest.raises(BadInput, match=field):
        check_topic(Topic(**{"name": "good", field: value}))  # type: ignore[arg-type]


def test_assignment_is_deterministic() -> None:
    """The assignment does not depend on the order of pairs or instances."""
    pairs = [Subscription(f"topic{number}", "log") for number in range(10)]
    instances = {11: ["log"], 22: ["log"], 33: ["log"]}
    shared = assign(pairs, instances)
    assert shared == assign(pairs[::-1], dict(reversed(instances.items())))
    loads = [list(shared.values()).count(pid) for pid in instances]
    assert (sum(loads), max(loads) - min(loads)) == (10, 1)


def test_a_pair_goes_to_an_instance_with_its_publisher() -> None:
    """A pair goes to an instance with its publisher, loads stay balanced; without one it stays unassigned."""
    pairs = [
        Subscription("a", "redis"),
        Subscription("b", "redis"),
        Subscription("a", "log"),
        Subscription("b", "log"),
        Subscription("a", "nats"),
    ]
    shared = assign(pairs, {1: ["log"], 2: ["log", "redis"]})
    assert shared == {pairs[0]: 2, pairs[1]: 2, pairs[2]: 1, pairs[3]: 1}


def test_most_pairs_stay_when_an_instance_leaves() -> None:
    """When an instance leaves, other pairs move only to keep the balance."""
    pairs = [Subscription(f"topic{number:02}", "log") for number in range(30)]
    before = assign(pairs, {1: ["log"], 2: ["log"], 3: ["log"]})
    after = assign(pairs, {1: ["log"], 2: ["log"]})
    stayed = sum(after[pair] == before[pair] for pair in pairs)
    assert stayed >= 10


def test_a_failed_batch_is_retried_one_by_one() -> None:
    """After a failed batch, batches have one event until as many as failed are published; then they are full again."""
    size = BatchSize(100)
    size.failed(3)
    assert size.now == 1
    for _ in range(3):
        size.succeeded(1)
    assert size.now == 100


def test_scan_grows_where_few_events_match() -> None:
    """The scan size grows where few events match and shrinks where many do."""
    scan = ScanSize()
    scan.saw(100, 0)
    scan.saw(400, 1)
    assert scan.now(100) == 1600
    scan.saw(1600, 1600)
    assert scan.now(100) == 400
    for _ in range(20):
        scan.saw(100, 0)
    assert scan.now(100) == 10_000


def test_idle_leader_polls_at_growing_intervals() -> None:
    """Ten short polls, one more after falling asleep, then intervals of one, two, four seconds, up to a minute."""
    rest = PollInterval()
    assert [rest.found_nothing(look()) for _ in range(LINGERS)] == [LINGER] * LINGERS
    assert (rest.found_nothing(look()), rest.is_asleep) == (timedelta(), True)
    pauses = [rest.found_nothing(look()).total_seconds() for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    rest.worked()
    assert rest.found_nothing(look()) == LINGER


def test_poll_interval_stays_short_while_an_older_transaction_is_open() -> None:
    """While an older transaction is open, which may commit without a notification, the interval stays one second."""
    rest = PollInterval()
    for _ in range(LINGERS + 1):
        rest.found_nothing(look())
    assert [rest.found_nothing(look(horizon=8, newest=12)) for _ in range(3)] == [SECOND] * 3
    assert [rest.found_nothing(look(horizon=12, newest=20)) for _ in range(2)] == [SECOND * 2, SECOND * 4]


def test_held_back_events_are_polled_while_asleep() -> None:
    """Held-back events are polled while asleep, because their notification has been sent already."""
    rest = PollInterval()
    for _ in range(LINGERS + 8):
        rest.found_nothing(look())
    assert rest.is_asleep
    pauses = [rest.found_nothing(look(has_unsettled=True)) for _ in range(20)]
    assert (pauses[0], max(pauses)) == (LINGER, timedelta(milliseconds=250))


def test_leader_stays_awake_while_events_are_held_back() -> None:
    """While events are held back an awake leader does not fall asleep."""
    rest = PollInterval()
    pauses = [rest.found_nothing(look(has_unsettled=True)) for _ in range(20)]
    assert (pauses[0], pauses[-1], rest.is_asleep) == (LINGER, timedelta(milliseconds=250), False)


@pytest.mark.parametrize("path,found", [("a.b", 1), ("a", {"b": 1}), ("a.c", None), ("x.y", None), ("a.b.c", None)])
def test_path_returns_a_nested_value(path: str, found: object) -> None:
    """A path returns the nested value, or None."""
    assert find_path({"a": {"b": 1}}, path) == found
