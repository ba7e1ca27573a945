"""The pytest plugin, as another project uses it: the documented example, in a process of its own."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = "postroom.inbox.pytest_plugin"

WHERE = """
import psycopg
import postroom.sync

def test_where(postroom_inbox):
    with psycopg.connect(postroom_inbox.database_url) as connection:
        postroom.sync.send(connection, to="ada@example.org", subject="Hello", text="Hi.")
    assert postroom_inbox.wait_for("ada@example.org")["subject"] == "Hello"
"""
REFUSED = """
import pytest

@pytest.fixture(scope="session")
def postroom_settings():
    return {"POSTROOM_DATABASE_URL": "postgresql://shop@127.0.0.1:1/shop"}

def test_refused(postroom_inbox):
    pass
"""


def plugin_environment() -> dict[str, str]:
    """Load the plugin by name where the environment is older than its entry point."""
    return {} if entry_points(group="pytest11", name="postroom_inbox") else {"PYTEST_PLUGINS": MODULE}


def test_documented_example_passes(tmp_path: Path) -> None:
    """A room is started, used by HTTP and SMTP, emptied between tests and stopped."""
    ran = _pytest(tmp_path, ROOT / "docs" / "examples" / "test_inbox.py")
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert list(tmp_path.glob("postroom-*")) == []


def test_templates_of_the_application_are_used(tmp_path: Path) -> None:
    """The documented override of `postroom_settings` names a folder of the project in which pytest runs."""
    folder = tmp_path / "mail" / "templates" / "order-shipped" / "en"
    folder.mkdir(parents=True)
    (folder / "subject").write_text("Order {{ number }} is on its way")
    (folder / "text").write_text("Thank you.")
    ran = _pytest(tmp_path, ROOT / "docs" / "examples" / "test_templates.py")
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_a_database_of_the_shell_is_never_used(tmp_path: Path) -> None:
    """With a developer's own database in the environment, SQL reaches the database that the inbox shows."""
    test = tmp_path / "test_where.py"
    test.write_text(WHERE)
    ran = _pytest(tmp_path, test, POSTROOM_DATABASE_URL="postgresql://shop@127.0.0.1:1/shop")
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_a_database_in_the_settings_of_the_plugin_is_refused(tmp_path: Path) -> None:
    """The inbox of the room is emptied before each test, so no other room is accepted."""
    test = tmp_path / "test_refused.py"
    test.write_text(REFUSED)
    ran = _pytest(tmp_path, test)
    assert ran.returncode == 1
    assert "postroom_settings sets POSTROOM_DATABASE_URL" in ran.stdout


def _pytest(directory: Path, test: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={directory}"]
    command = [sys.executable, "-m", "pytest", *options, str(test)]
    environment = {**os.environ, **plugin_environment(), "TMPDIR": str(directory), **variables}
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)


def test_plugin_is_declared() -> None:
    """Installing Postroom is enough for pytest to find the plugin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"postroom_inbox": MODULE}
