"""Events at the command line."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
import structlog
from typer.testing import CliRunner, Result

from postroom.db.pool import open_pool
from postroom.events import Command, Event, EventSession, EventStore
from postroom.events.cli import events
from postroom.events.errors import AppendConditionFailed, DuplicateAppend

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command in the test's room."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    def command(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(events, arguments, input=stdin)

    yield command
    structlog.reset_defaults()  # a command logs to its own standard error, which is closed by now


def items(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.output)["items"]
    return found


def test_append_and_read(run: Run) -> None:
    """The position is printed; reading filters by type and tag, newest first with --backwards."""
    assert run("append", "Opened", "--tag", "wallet=1", "--data", '{"a": 1}').output == "1\n"
    assert run("append", "Closed", "--tag", "wallet=1", "--data", "-", stdin="[2]").output == "2\n"
    assert [item["data"] for item in items(run("read", "--tag", "wallet=1", "--json"))] == [{"a": 1}, [2]]
    assert [item["position"] for item in items(run("read", "--type", "Closed", "--json"))] == [2]
    assert [item["position"] for item in items(run("read", "--backwards", "--json"))] == [2, 1]
    page = run("read", "--limit", "1").output
    assert "Opened" in page
    assert '{"a": 1}' in page
    assert "Closed" in run("read", "--after", page.rpartition("--after ")[2].strip()).output


def test_backwards_continues_with_older_events(run: Run) -> None:
    """Pages continue to the last one, which has no `before`; forwards there is no `before`."""
    for number in range(5):
        run("append", "Moved", "--data", str(number))
    seen: list[object] = []
    more: list[str] = []
    while True:
        page = run("read", "--backwards", "--limit", "2", "--json", *more)
        seen += [item["position"] for item in items(page)]
        if (before := json.loads(page.output)["before"]) is None:
            break
        more = ["--before", before]
    assert seen == [5, 4, 3, 2, 1]
    assert "--before " in run("read", "--backwards", "--limit", "2").output
    assert "before" not in json.loads(run("read", "--json").output)


def test_commands_are_listed(run: Run, database_url: str) -> None:
    """The listing shows request, id and result."""

    async def fill() -> None:
        async with await open_pool(database_url, "postroom", size=1) as pool:
            for number in range(3):
                await EventStore(pool).execute(Command("Deposit", f"deposit-{number}", {"n": number}), handle)

    async def handle(session: EventSession) -> int:
        return (await session.append(Event.of("Deposited", wallet=1))).transaction_id

    asyncio.run(fill())
    newest, older = items(run("commands", "--limit", "2", "--json"))
    assert (newest["command_id"], newest["data"], older["command_id"]) == ("deposit-2", {"n": 2}, "deposit-1")
    assert items(run("commands", "--transaction", str(newest["result"]), "--json")) == [newest]
    page = run("commands", "--limit", "2").output
    assert "deposit-2" in page
    assert "deposit-0" in run("commands", "--cursor", page.rpartition("--cursor ")[2].strip()).output


def test_conditions(run: Run) -> None:
    """--after appends only if nothing was appended since the cursor, --once only if no event has the tag."""
    cursor = json.loads(run("read", "--tag", "wallet=1", "--json").output)["cursor"]
    assert run("append", "Opened", "--tag", "wallet=1", "--after", cursor).exit_code == 0
    assert isinstance(run("append", "Opened", "--tag", "wallet=1", "--after", cursor).exception, AppendConditionFailed)
    assert run("append", "Paid", "--tag", "bill=7", "--once", "bill=7").exit_code == 0
    assert isinstance(run("append", "Paid", "--tag", "bill=7", "--once", "bill=7").exception, DuplicateAppend)
    for order in (("bill=7", "bill=8"), ("bill=8", "bill=7")):  # one existing tag is enough to reject
        again = run("append", "Paid", "--once", order[0], "--once", order[1])
        assert isinstance(again.exception, DuplicateAppend)
    assert run("append", "Paid", "--once", "bill=8", "--once", "bill=9").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("append", "A", "--data", "{"),
        ("append", "A", "--tag", "x"),
        ("append", "A", "--after", "1:1:///"),
        ("read", "--tag", "x"),
        ("read", "--before", "x"),
    ],
)
def test_wrong_usage_ends_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    """Nothing is stored."""
    assert run(*arguments).exit_code == 2


def test_tail_prints_each_event_once(run: Run, database_url: str) -> None:
    """Tail prints events from the start, in order, up to the requested count."""

    async def fill() -> None:
        pool = await open_pool(database_url, "postroom", size=1)
        for number in range(3):
            await EventStore(pool).append(Event.of("Moved", {"n": number}))
        await pool.close()

    asyncio.run(fill())
    result = run("tail", "--from-start", "--count", "3", "--json")
    assert [json.loads(line)["data"]["n"] for line in result.output.splitlines()] == [0, 1, 2]
    assert "Moved" in run("tail", "--from-start", "--count", "1").output


def test_tail_begins_after_a_cursor(run: Run) -> None:
    """Tail accepts a cursor, but not together with --from-start."""
    for number in range(3):
        run("append", "Moved", "--data", str(number))
    page = run("read", "--limit", "1").output
    after = page.rpartition("--after ")[2].strip()
    result = run("tail", "--after", after, "--count", "2", "--json")
    assert [json.loads(line)["data"] for line in result.output.splitlines()] == [1, 2]
    assert run("tail", "--after", after, "--from-start").exit_code == 2


def test_commands_are_found_by_transaction(run: Run) -> None:
    """`commands --transaction` finds the command of an event."""
    run("append", "Opened")
    (item,) = items(run("read", "--json"))
    assert isinstance(item["transaction_id"], int)
    assert items(run("commands", "--transaction", str(item["transaction_id"]), "--json")) == []
