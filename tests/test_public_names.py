"""The front door: what `import postroom` offers."""

import sqlite3
import subprocess
import sys

import pytest

import postroom
from postroom import errors


@pytest.mark.parametrize("name", postroom.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Every public name can be imported and has a docstring."""
    assert getattr(postroom, name).__doc__


def test_public_names_are_listed_before_they_are_imported() -> None:
    """A REPL and a notebook complete every public name."""
    script = "import postroom; print(set(postroom.__all__) <= set(dir(postroom)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_errors_are_the_ones_that_are_raised() -> None:
    """`except postroom.BadInput` catches what `postroom.send` raises."""
    assert postroom.BadInput is errors.BadInput
    assert postroom.IdempotencyConflict is errors.IdempotencyConflict


async def test_sending_on_a_connection_of_another_driver_says_what_is_needed() -> None:
    """A connection of an unknown driver raises a TypeError that names it and the SQL function."""
    with sqlite3.connect(":memory:") as connection, pytest.raises(TypeError) as refused:
        await postroom.send(connection, to="ada@example.org", subject="a", text="b")
    assert "sqlite3.Connection is not a connection that Postroom can use" in str(refused.value)
    assert "SELECT postroom.send(…)" in str(refused.value)


def test_there_is_nothing_else() -> None:
    """A name that was not promised is an error, not a surprise."""
    with pytest.raises(AttributeError, match="no attribute 'sned'"):
        _ = postroom.sned


def test_importing_costs_nothing() -> None:
    """`import postroom` alone loads no driver, no server and no client."""
    script = "import sys, postroom; print(sorted({'asyncpg', 'aiohttp', 'msgspec', 'starlette'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
