"""Count the figures that ADRs quote about the source: `./dev count`.

Each row of the table is one function below; add a function to `ROWS` to add a row. Everything is counted from the
syntax tree or from lines of text: nothing is imported and nothing is started.
"""

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "postroom"

MIN_FIELDS = 5
"""A record with fewer fields shares them by accident: an id, a name and a time are not a copy."""
SHARED = 0.8


class Record(NamedTuple):
    """A class with annotated fields."""

    module: str
    name: str
    fields: frozenset[str]


@cache
def modules() -> dict[str, ast.Module]:
    """Every Python file of the source, parsed, by its path."""
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The public classes at the top of each module."""
    for module, tree in modules().items():
        yield from ((module, node) for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")


def records() -> list[Record]:
    """The classes with at least `MIN_FIELDS` fields of their own."""
    found = []
    for module, node in classes():
        declared = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
        names = frozenset(target.id for target in declared if isinstance(target, ast.Name))
        if len(names) >= MIN_FIELDS:
            found.append(Record(module, node.name, names))
    return found


def is_copy(one: Record, other: Record) -> bool:
    shared = len(one.fields & other.fields)
    return shared >= MIN_FIELDS and shared >= SHARED * min(len(one.fields), len(other.fields))


def record_pairs() -> list[str]:
    """Two record types that share at least 80 % of the smaller one's fields, and at least `MIN_FIELDS`."""
    return [
        f"{one.module} {one.name} ~ {other.module} {other.name}: {len(one.fields & other.fields)} fields"
        for one, other in combinations(records(), 2)
        if is_copy(one, other)
    ]


def shared_class_names() -> list[str]:
    """Class names that two modules define."""
    names = Counter(name for name, _module in {(node.name, module) for module, node in classes()})
    return sorted(name for name, count in names.items() if count > 1)


def python_lines() -> int:
    """Lines of Python in src, blank ones and comments included."""
    return sum(len(path.read_bytes().splitlines()) for path in SOURCE.rglob("*.py"))


ROWS: dict[str, Callable[[], list[str] | int]] = {
    "pairs of record types that share ≥ 80 % of their fields": record_pairs,
    "class names defined in two modules": shared_class_names,
    "Python lines in src": python_lines,
}


def main(arguments: list[str]) -> None:
    """Print the table; with `--list`, the findings behind each row too."""
    for title, count in ROWS.items():
        found = count()
        sys.stdout.write(f"{found if isinstance(found, int) else len(found):>7,}  {title}\n")
        if "--list" in arguments and isinstance(found, list):
            sys.stdout.writelines(f"         {line}\n" for line in found)


if __name__ == "__main__":
    main(sys.argv[1:])
