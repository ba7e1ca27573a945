"""Programs of the distribution: those that are installed, and packages unpacked into a cache folder.

Postfix, Exim and OpenSMTPD conflict as packages, and installing one starts a system service. An unpacked package does
neither, and an ordinary user can unpack it.
"""

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
FETCH_S = 300
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "postroom-world")


class NotFetchedError(Exception):
    """A package cannot be downloaded or unpacked here; the text is the reason."""


def program(name: str, package: str) -> Path:
    """The path of an installed program, or of that in the unpacked package; without either the test is skipped."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found:
        return Path(found)
    root = fetched(package)
    places = os.pathsep.join(str(root / folder) for folder in ("usr/bin", "usr/sbin", "bin", "sbin"))
    found = shutil.which(name, path=places)
    assert found is not None, f"package {package} has no program {name}"
    return Path(found)


def fetched(package: str, *, backport_on: str = "") -> Path:
    """The root of an unpacked package, with the packages it depends on that are not installed.

    A package that cannot be fetched skips the test; the reason names it. On the release `backport_on`, whose own
    package is broken, it is the one of its backports.
    """
    try:
        return unpacked(package, backport_on == _release().get("VERSION_CODENAME", "unknown"))
    except NotFetchedError as error:
        pytest.skip(f"NOT TESTED: package {package} is missing and was not fetched: {error}")


@cache
def unpacked(package: str, is_backport: bool = False) -> Path:  # noqa: FBT001, FBT002 - a part of the key
    """The same, with an error instead of a skip."""
    folder = _CACHE / _distribution()
    root = folder / (f"{package}-backport" if is_backport else package)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / ".lock"):
        if not root.is_dir():
            with TemporaryDirectory(prefix=".making-", dir=folder) as making:
                _unpack(package, Path(making), _backports(Path(making)) if is_backport else ())
                (Path(making) / "root").rename(root)
    return root


def libraries(root: Path) -> dict[str, str]:
    """The environment in which programs of an unpacked package find the libraries beside them."""
    folders = sorted({str(path.parent) for path in root.rglob("*.so*") if path.is_file()})
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders), "PATH": SYSTEM_PATH}


def _unpack(package: str, making: Path, backports: Sequence[str]) -> None:
    downloads, root = making / "downloads", making / "root"
    downloads.mkdir()
    root.mkdir()
    for name in sorted({package, *_missing(package)}):
        # Its own sandbox account cannot write into a private folder.
        options = ("-qq", "-o", "APT::Sandbox::User=root", *(backports if name == package else ()))
        _run("apt-get", "download", *options, name, directory=downloads)
    for archive in downloads.glob("*.deb"):
        _run("dpkg-deb", "--extract", archive, root, directory=downloads)


def _backports(making: Path) -> tuple[str, ...]:
    """The options of `apt-get` for the backports of this release, from the mirror that it is configured for."""
    codename = _release()["VERSION_CODENAME"]
    mirrors = _run("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", directory=making).splitlines()
    mirror = next((uri for name, uri in map(str.split, mirrors) if name == codename), None)
    if mirror is None:
        raise NotFetchedError(f"apt has no mirror of {codename}")
    state = making / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "sources.list").write_text(f"deb {mirror} {codename}-backports main\n")
    settings = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",
    }
    options = tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
    _run("apt-get", "update", "-qq", *options, directory=making)
    return options


def _missing(package: str) -> list[str]:
    """The packages that installing this one would install; a simulation needs no privileges."""
    options = ("--simulate", "--no-install-recommends", "-o", "Debug::NoLocking=1")
    lines = _run("apt-get", "install", *options, package, directory=Path("/")).splitlines()
    return [line.split()[1] for line in lines if line.startswith("Inst ")]


def _run(*command: str | Path, directory: Path) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "PATH": SYSTEM_PATH}
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=FETCH_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFetchedError(str(error)) from error
    if done.returncode:
        raise NotFetchedError(" ".join((done.stderr.strip() or done.stdout.strip()).split()))
    return done.stdout


def _release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _distribution() -> str:
    """Unpacked libraries fit the distribution they were made for."""
    release = _release()
    names = (release.get("ID", "unknown"), release.get("VERSION_ID", "0"), platform.machine())
    return "-".join(names)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
