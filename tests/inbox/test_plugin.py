"""The pytest plugin, as another project uses it: the documented example, in a process of its own."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = "postroom.inbox.pytest_plugin"


def plugin_environment() -> dict[str, str]:
    """Load the plugin by name where the environment is older than its entry point."""
    return {} if entry_points(group="pytest11", name="postroom_inbox") else {"PYTEST_PLUGINS": MODULE}


def test_documented_example_passes(tmp_path: Path) -> None:
    """A room is started, used by HTTP and SMTP, emptied between tests and stopped."""
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, str(ROOT / "docs" / "examples" / "test_inbox.py")]
    environment = {**os.environ, **plugin_environment(), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert list(tmp_path.glob("postroom-*")) == []


def test_plugin_is_declared() -> None:
    """Installing Postroom is enough for pytest to find the plugin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"postroom_inbox": MODULE}
