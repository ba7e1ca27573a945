"""Verification of signatures: the command that prints the secret, and the code of the manual page."""

import base64
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.webhook_server import a_post
from typer.testing import CliRunner

from postroom.errors import ConfigurationError
from postroom.outbox.webhooks.cli import webhooks
from postroom.settings import read_settings
from postroom.transports.webhook.signing import webhook_secrets

PAGE = Path(__file__).parents[2] / "docs/how-to/verify-webhooks.md"
OLD, NEW = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
KEY = "ab" * 32


def printed(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: str) -> list[str]:
    """The output of `postroom webhooks secret` with only these settings."""
    for name in ("POSTROOM_WEBHOOK_SECRET", "POSTROOM_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(folder))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(webhooks, ["secret"])
    if result.exception is not None:
        raise result.exception
    return result.stdout.split()


def test_the_secret_is_printed_to_its_owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command prints the set or derived secrets, or the reason for their absence."""
    assert printed(monkeypatch, tmp_path, POSTROOM_WEBHOOK_SECRET=f"{NEW},{OLD}") == [NEW, OLD]
    derived = printed(monkeypatch, tmp_path, POSTROOM_SECRET_KEY=KEY)
    assert derived == list(webhook_secrets(read_settings({"POSTROOM_SECRET_KEY": KEY})))
    with pytest.raises(ConfigurationError, match="POSTROOM_WEBHOOK_SECRET"):
        printed(monkeypatch, tmp_path)
    (tmp_path / "secret-key").write_text(KEY)
    assert printed(monkeypatch, tmp_path) == derived


def is_genuine() -> Any:
    """The function on the page, as a reader would copy it."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names["is_genuine"]


def test_the_page_s_code_tells_ours_from_others() -> None:
    """Either secret verifies; another body, secret, id or time does not."""
    check = is_genuine()
    _, content = a_post("https://x.example/", NEW, OLD, now=datetime.now(UTC))
    headers, body = dict(content.headers), content.body
    assert check(headers, body, OLD)
    assert check(headers, body, NEW)
    assert not check(headers, body + b" ", NEW)
    assert not check(headers, body, "whsec_" + base64.b64encode(bytes(32)).decode())
    assert not check({**headers, "webhook-id": "msg_other"}, body, NEW)
    assert not check({**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}, body, NEW)
    assert not check({**headers, "webhook-signature": "v1,"}, body, NEW)


def test_old_signature_is_rejected() -> None:
    """A valid signature of an hour ago is rejected as a replay."""
    hour_ago = datetime.fromtimestamp(time.time() - 3600, UTC)
    _, content = a_post("https://x.example/", NEW, now=hour_ago)
    assert not is_genuine()(content.headers, content.body, NEW)
