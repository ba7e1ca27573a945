"""The declarations of the client are those that `./dev docs` writes from the table of endpoints."""

import os

from tests.docs.client_source import FOLDER, reference_rows, source
from tests.docs.reference import with_table
from tests.docs.test_reference import check, page


def test_the_declarations_are_generated() -> None:
    """`postroom/client/api` has a module per tag and nothing else."""
    expected = {f"{name}.py": text for name, text in source().items()}
    if os.environ.get("POSTROOM_WRITE_DOCS"):
        for path in FOLDER.glob("*.py"):
            path.unlink()
        for name, text in expected.items():
            (FOLDER / name).write_text(text, "utf-8")
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.py")}
    assert found == expected, "src/postroom/client/api differs from the table of endpoints: run ./dev docs"


def test_the_client_page_lists_every_method() -> None:
    """client.md has a row per method."""
    header = "| method | endpoint | result |"
    check("client.md", with_table(page("client.md"), header, reference_rows()))
