"""A client that openapi-python-client generates from our document, against a running server."""

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.http import open_browser
from tests.support.served import served

from postroom.db.room import Room
from postroom.delivery import service

CONFIG = Path(__file__).parents[2] / "docs" / "examples" / "openapi-python-client.yml"


def generate(url: str, folder: Path) -> str:
    """Generate the package `postroom_client` into a folder; what the generator said."""
    config = folder / "config.yml"
    config.write_text(CONFIG.read_text() + "post_hooks: []\n")  # no formatting, which needs a linter on the PATH
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--url", f"{url}/openapi.json"]
    options = ["--config", str(config), "--meta", "none", "--output-path", str(folder / "postroom_client")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


async def test_a_generated_client_sends_a_mail(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator has no warning; its client sends a mail, finds it, lists it, and reads an error."""
    browser = await open_browser(room)
    async with served(browser.app) as url:
        said = await asyncio.to_thread(generate, url, tmp_path)
        assert "warning" not in said.lower(), said
        monkeypatch.syspath_prepend(str(tmp_path))
        package = importlib.import_module("postroom_client")
        models = importlib.import_module("postroom_client.models")
        accept = importlib.import_module("postroom_client.api.deliveries.send_delivery")
        listed = importlib.import_module("postroom_client.api.deliveries.list_deliveries")
        find = importlib.import_module("postroom_client.api.deliveries.get_delivery")
        async with package.AuthenticatedClient(base_url=url, token=browser.key) as client:
            body = models.DeliveryBody(to=["ada@example.org"], subject="Hello", text="It works.")
            accepted = await accept.asyncio(client=client, body=body)
            assert isinstance(accepted, models.Accepted), accepted
            found = await find.asyncio(accepted.id, client=client)
            assert found.subject == "Hello"
            page = await listed.asyncio(client=client, status=models.DeliveryState.QUEUED)
            assert [(each.id, each.created_at) for each in page.items] == [(accepted.id, found.created_at)]
            refused = await accept.asyncio(client=client, body=models.DeliveryBody(to=["nobody"], subject="x"))
            assert isinstance(refused, models.Problem)
            assert refused.code == "bad_input"
    delivery = await service.get_delivery(room.pool, accepted.id)
    assert [each.address for each in delivery.recipients] == ["ada@example.org"]
