"""One word per thing: a class name means one class."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "postroom"


def test_no_class_name_is_defined_in_two_modules() -> None:
    """A reader who searches for a class finds one definition."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
