"""Logs: structured, without personal data and secrets."""

import io
import json

import pytest
import structlog

from postroom.runtime.log import configure_logging


def written(level: str, method: str, **fields: object) -> dict[str, object] | None:
    """The log line of one call at this level, if any."""
    out = io.StringIO()
    configure_logging(level, "json", stream=out)
    getattr(structlog.get_logger(), method)("attempt_deferred", **fields)
    return json.loads(out.getvalue()) if out.getvalue() else None


def test_an_event_is_one_line_of_json() -> None:
    """A log line is a name, a level, a time in UTC and fields."""
    line = written("info", "info", delivery_id=7)
    assert line is not None
    assert (line["event"], line["level"], line["delivery_id"]) == ("attempt_deferred", "info", 7)
    assert str(line["timestamp"]).endswith("Z")


def test_log_line_is_one_write() -> None:
    """Several processes write to one stream: two writes per line would interleave."""
    pieces: list[str] = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return super().write(text)

    configure_logging("info", "json", stream=Out())
    structlog.get_logger().info("attempt_deferred")
    [whole] = pieces
    assert whole.endswith("}\n")


@pytest.mark.parametrize("key", ["email", "recipient", "to_address", "subject", "html_body"])
def test_personal_data_is_logged_only_at_debug(key: str) -> None:
    """Addresses and content appear at debug level only."""
    hidden, shown = written("debug", "info", **{key: "ada"}), written("debug", "debug", **{key: "ada"})
    assert hidden is not None
    assert shown is not None
    assert (hidden[key], shown[key]) == ("[hidden]", "ada")


@pytest.mark.parametrize("key", ["password", "smtp_password", "token", "Authorization", "api_key", "client_secret"])
def test_secrets_are_hidden_at_every_level(key: str) -> None:
    """A careless call cannot leak a secret."""
    line = written("debug", "debug", **{key: "hush"})
    assert line is not None
    assert line[key] == "[hidden]"


def test_levels_filter() -> None:
    """Lower levels are not written."""
    assert written("warning", "info") is None


def test_text_style_is_not_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The text style is not JSON."""
    out = io.StringIO()
    configure_logging("info", "text", stream=out)
    structlog.get_logger().info("worker_started", lanes=3)
    assert "worker_started" in out.getvalue()
    assert not out.getvalue().startswith("{")
