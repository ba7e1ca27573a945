"""Packages of the npm registry for tests, where Node.js and the registry can be had."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ERR_SOCKET_TIMEOUT")


def install(folder: Path, packages: list[str], *, tested: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Install packages into a folder; skip the test where that is not possible."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        _skip("npm or node is not installed", tested, capsys)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"]
    command = [str(npm), "install", *options, "--fetch-timeout=20000", *packages]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if any(reason in done.stderr for reason in OFFLINE):
        _skip("the npm registry cannot be reached", tested, capsys)
    assert done.returncode == 0, done.stderr


def _skip(reason: str, tested: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Skip, and print it in the middle of the run: a skipped test is easily overlooked."""
    with capsys.disabled():
        sys.stdout.write(f"\n!!! NO NODE: {reason}; {tested} is NOT tested !!!\n")
    pytest.skip(reason)
