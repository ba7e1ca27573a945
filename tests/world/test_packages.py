"""Packages of the distribution are unpacked by any user; a missing one is named."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.world import packages

NEEDS_APT = pytest.mark.skipif(shutil.which("apt-get") is None, reason="NOT TESTED: this system has no apt-get")


@pytest.fixture
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(packages, "_CACHE", tmp_path / "cache")
    packages.unpacked.cache_clear()
    yield
    packages.unpacked.cache_clear()


@NEEDS_APT
@pytest.mark.world
@pytest.mark.usefixtures("_empty_cache")
def test_an_unpacked_program_runs_with_its_libraries() -> None:
    """The package is complete, and a second call finds it in the cache."""
    root = packages.fetched("postfix")
    command, environment = [str(root / "usr/sbin/postconf"), "-d", "mail_version"], packages.libraries(root)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mail_version = ")
    packages.unpacked.cache_clear()
    assert packages.fetched("postfix") == root


@NEEDS_APT
@pytest.mark.usefixtures("_empty_cache")
def test_a_package_that_does_not_exist_skips_the_test_by_its_name(tmp_path: Path) -> None:
    """The reason is what apt-get printed, and nothing half-made stays in the cache."""
    with pytest.raises(pytest.skip.Exception, match=r"NOT TESTED: package no-such-server .*Unable to locate"):
        packages.fetched("no-such-server")
    left = [path.name for path in (tmp_path / "cache").rglob("*")]
    assert sorted(left) == sorted([".lock", packages._distribution()])
