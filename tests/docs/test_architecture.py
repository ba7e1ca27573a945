"""The picture is the tree, the drawing is the state machine, and every capability has a manual page."""

import ast
import re
from pathlib import Path

import pytest

from postroom.db.room import Room
from postroom.delivery.model import TRANSITIONS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "postroom"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

FOUNDATIONS = frozenset({"runtime"})  # a layer without a life of its own: its modules carry their own manuals
SYNONYMS = frozenset({"ERRORS", "FAILS", "HOSTILE", "KNOWN BUGS", "OWNED", "READ BY", "USED BY", "USES", "WEAKNESS"})
"""Other words for the headings FAILURES, HOSTILE INPUTS, BUGS, OWNS, CALLED BY and CALLS."""

_NAME = re.compile(r"^NAME\s", re.MULTILINE)
_OWNS = re.compile(r"^OWNS\s.*?(?=^[A-Z]|^$|\Z)", re.MULTILINE | re.DOTALL)
FOLDERS = frozenset(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def picture() -> str:
    return ARCHITECTURE.split("```")[1]


def boxes() -> set[str]:
    """The folders named in the table under the picture, which says what each box promises."""
    rows = re.findall(r"^\| (`[a-z]+`(?:, `[a-z]+`)*) \|", ARCHITECTURE, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}


def test_every_box_is_a_folder_and_every_folder_a_box() -> None:
    """The table of boxes names exactly the folders of src/postroom."""
    assert boxes() == FOLDERS


@pytest.mark.parametrize("box", sorted(boxes()))
def test_every_box_is_in_the_picture(box: str) -> None:
    """Every box of the table is in the picture."""
    assert re.search(rf"\b{box}\b", picture())


@pytest.mark.parametrize("name", sorted(FOLDERS - FOUNDATIONS))
def test_every_capability_has_a_manual_page(name: str) -> None:
    """A folder's `__init__` opens with its name and sentence, NAME, and OWNS, CALLED BY or CALLS."""
    manual = ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text("utf-8"))) or ""
    assert manual.startswith(f"{name}: ")
    assert re.search(r"^NAME\s", manual, re.MULTILINE)
    assert re.search(r"^(OWNS|CALLED BY|CALLS)\s", manual, re.MULTILINE)


def manuals() -> dict[Path, str]:
    """The manual pages of all folders, those within capabilities too."""
    found = {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in SOURCE.rglob("__init__.py")}
    return {path: manual for path, manual in found.items() if _NAME.search(manual)}


@pytest.mark.parametrize("path", sorted(manuals()), ids=lambda path: str(path.parent.relative_to(SOURCE)))
def test_manuals_share_one_vocabulary(path: Path) -> None:
    """Manual pages use the common headings; only special sections have their own."""
    headings = re.findall(r"^([A-Z]+(?: [A-Z]+)?)(?:  +| (?=[^A-Z]))", manuals()[path], re.MULTILINE)
    assert not set(headings) & SYNONYMS


async def test_every_table_has_an_owner(room: Room) -> None:
    """Each table and view of a room stands under OWNS in the manual of a capability."""
    owned = "\n".join(found for manual in manuals().values() for found in _OWNS.findall(manual))
    names = await room.pool.fetch(
        """
        SELECT relname
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
        """
    )
    assert not [row["relname"] for row in names if not re.search(rf"\b{row['relname']}\b", owned)]


def test_the_drawing_is_the_state_machine() -> None:
    """Every arrow between two states is a transition of the model, and every transition is drawn."""
    drawing = re.findall(r"^\s+(\w+) --> (\w+)", ARCHITECTURE, re.MULTILINE)
    assert set(drawing) == {(before.value, after.value) for before, after in TRANSITIONS}
