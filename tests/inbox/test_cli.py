"""The inbox at the command line."""

from tests.cli.test_commands import SEND, settings
from tests.support.command_line import answer, postroom

__all__ = ["settings"]  # the fixture


def test_messages_are_found_waited_for_checked_and_deleted(settings: dict[str, str]) -> None:
    """`latest`, `wait` and `check` read a message, `delete` deletes it; a timeout and a missing relay exit 1."""
    postroom(*SEND, settings=settings)
    postroom("work", "--until-empty", settings=settings)
    found = answer(postroom("inbox", "latest", "--query", "to:ann subject:hello", "--json", settings=settings))
    message_id = str(found["id"])
    waited = postroom("inbox", "wait", "--to", "ANN@example.org", "--timeout", "5", settings=settings)
    assert "Subject: Hello" in waited.stdout
    assert "DMARC: fail" in postroom("inbox", "check", message_id, settings=settings).stdout
    report = answer(postroom("inbox", "check", message_id, "--json", settings=settings))
    assert set(report) == {"html", "links", "authentication", "warnings"}
    released = postroom("inbox", "release", message_id, "--to", "boss@example.com", settings=settings)
    assert (released.returncode, "POSTROOM_INBOX_RELEASE_RELAY" in released.stderr) == (1, True)
    assert postroom("inbox", "delete", message_id, settings=settings).stdout == "deleted\n"
    late = postroom("inbox", "wait", "--timeout", "0", settings=settings)
    assert (late.returncode, "before the timeout" in late.stderr) == (1, True)
