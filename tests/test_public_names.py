"""The front door: what `import postroom` offers."""

import subprocess
import sys

import pytest

import postroom


@pytest.mark.parametrize("name", postroom.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What the package promises can be imported, and explains itself."""
    assert getattr(postroom, name).__doc__


def test_there_is_nothing_else() -> None:
    """A name that was not promised is an error, not a surprise."""
    with pytest.raises(AttributeError, match="no attribute 'sned'"):
        _ = postroom.sned


def test_importing_costs_nothing() -> None:
    """`import postroom` alone loads no driver, no server and no client."""
    script = "import sys, postroom; print(sorted({'asyncpg', 'aiohttp', 'msgspec', 'starlette'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
