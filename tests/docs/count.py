"""Count the figures that ADRs quote about the source: `./dev count`.

Each row of the table is one function below; add a function to `ROWS` to add a row. Everything is counted from the
syntax tree or from lines of text: nothing is imported and nothing is started.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from tests.schema.test_ownership import foreign_writes
from tests.support.language import odd_sentences

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "postroom"

MIN_FIELDS = 5
"""A record with fewer fields shares them by accident: an id, a name and a time are not a copy."""
SHARED = 0.8
GENERATED = "client/api/"
_SKIPPED = frozenset({"schema.sql", "language.py"})  # generated, and the list of the words themselves


class Record(NamedTuple):
    """A class with annotated fields."""

    module: str
    name: str
    fields: frozenset[str]


@cache
def modules() -> dict[str, ast.Module]:
    """Every Python file of the source that people write, parsed, by its path."""
    found = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
    return {name: ast.parse(path.read_text("utf-8")) for name, path in found.items() if not name.startswith(GENERATED)}


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


def generated_lines() -> int:
    """Those of them that `./dev docs` writes: the typed clients of the API."""
    return sum(len(path.read_bytes().splitlines()) for path in (SOURCE / GENERATED).rglob("*.py"))


def loop_classes() -> list[str]:
    """Classes that repeat work until they are stopped without `Loop`: `run` of a class with `stop` has a `while`.

    `delivery.Worker` has `run` and `stop` too, but each of its lanes and services is a `Loop`.
    """
    found = []
    for module, node in classes():
        methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
        repeats = "run" in methods and any(isinstance(each, ast.While) for each in ast.walk(methods["run"]))
        if repeats and "stop" in methods and module != "runtime/loop.py":
            found.append(f"{module} {node.name}")
    return found


def foreign_sql_writes() -> list[str]:
    """Writes of a statement or stored function to a table that another capability owns."""
    return [f"{write.file}:{write.line} writes {write.table}" for write in foreign_writes()]


def layers() -> list[str]:
    """The layers of the whole package that import-linter holds, without the order among the surfaces."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["name"] == "Imports go one way")


def dependencies() -> list[str]:
    """The packages that `pip install postroom` brings, without those they bring themselves."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return found


def _is_prose(path: Path) -> bool:
    return path.suffix in {".py", ".sql", ".md", ".html"} and path.name not in _SKIPPED


def odd_sentences_of(*folders: str) -> Callable[[], list[str]]:
    """Sentences that break the rules of plain English in CONTRIBUTING.md."""

    def count() -> list[str]:
        paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*") if _is_prose(path))
        return [f"{path.relative_to(ROOT)}: {sentence}" for path in paths for sentence in odd_sentences(path)]

    return count


ROWS: dict[str, Callable[[], list[str] | int]] = {
    "writes to another capability's table in SQL": foreign_sql_writes,
    "classes with a loop of their own": loop_classes,
    "pairs of record types that share ≥ 80 % of their fields": record_pairs,
    "class names defined in two modules": shared_class_names,
    "sentences against plain English in src": odd_sentences_of("src"),
    "sentences against plain English in tests": odd_sentences_of("tests"),
    "sentences against plain English in docs": odd_sentences_of("docs"),
    "import layers": layers,
    "packages of the core": dependencies,
    "Python lines in src": python_lines,
    "generated ones among them": generated_lines,
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
