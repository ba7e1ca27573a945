"""A short run of the fuzzer with a fixed seed. It asserts no time: `./dev fuzz` measures delays."""

from collections.abc import Iterator
from random import Random

import pytest
from fuzz.arena import Arena, running_arena
from fuzz.mutate import at_home, hostile_value, mutate, mutate_value
from fuzz.run import run_target
from fuzz.tally import Case, Tally
from fuzz.targets import TARGETS
from fuzz.witness import percentile, readings_of

CASES = {"files": 3, "inbox": 8, "templates": 12, "uploads": 20}
MOST_MB = 400


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with running_arena(tmp_path_factory.mktemp("arena")) as started:
        yield started


@pytest.mark.parametrize("target", TARGETS)
async def test_hostile_input_is_refused_and_the_server_goes_on(arena: Arena, target: str) -> None:
    """No 5xx, no traceback in the log, the process alive, its memory bounded."""
    outcome = await run_target(arena, target, seed=7, seconds=600, most=CASES.get(target, 60))
    assert outcome.tally.failures == []
    assert outcome.tally.server_errors == 0
    assert arena.is_alive()
    assert arena.tracebacks() == 0, arena.log.read_text(errors="replace")[-4000:]
    assert outcome.peak_mb < MOST_MB


def test_a_case_is_a_function_of_its_seed() -> None:
    """The same seed gives the same bytes and values, so that a found case can be run again."""
    for number in range(50):
        first, again = Random(f"7:x:{number}"), Random(f"7:x:{number}")
        assert mutate(first, b"GET / HTTP/1.1\r\n\r\n") == mutate(again, b"GET / HTTP/1.1\r\n\r\n")
        value = hostile_value(first)
        assert repr(value) == repr(hostile_value(again))
        assert repr(mutate_value(first, {"a": [value]})) == repr(mutate_value(again, {"a": [value]}))


def test_values_name_no_host_but_loopback() -> None:
    """The fuzzer makes Postroom connect to no other machine."""
    given = {"smtp_host": "mx.example.org", "items": [{"webhook_url": "https://example.org/"}], "name": "x"}
    home = "https://127.0.0.1:9/"
    assert at_home(given) == {"smtp_host": "127.0.0.1", "items": [{"webhook_url": home}], "name": "x"}


def test_a_server_error_is_a_failure_and_percentiles_are_those_of_the_readings() -> None:
    """The arithmetic of the report."""
    tally = Tally("http")
    for status in (200, 400, 503, 0):
        Case("--seed 1 http#1", tally).http(status, "x")
    assert (tally.server_errors, tally.failures) == (1, ["--seed 1 http#1: 503 x"])
    assert tally.answers["closed"] == 1
    readings = readings_of(['["health", 1.0, 0.5, 0.0, 200]', '["mail", 2.0, 0.25, 0.1, 202]', '["cut'])
    assert [each.delay for each in readings] == [0.5, 0.25]
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
