"""The sizes and counts that CONTRIBUTING.md and the ADRs promise."""

import ast
import re

from tests.docs import count

LONGEST_FILE = 400
LONGEST_BODY = 40
BARE_EXCEPTION = re.compile(r"# noqa(?!: [A-Z0-9, ]+ - )|# type: ignore(?!\[[a-z, -]+\] {1,2}# )")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_files_and_functions_are_short() -> None:
    """A file has at most 400 lines and a function 40, without its signature and docstring."""
    long = []
    for path in count.SOURCE.rglob("*.py"):
        text, name = path.read_text("utf-8"), str(path.relative_to(count.SOURCE))
        long += [name] if len(text.splitlines()) > LONGEST_FILE else []
        functions = (each for each in ast.walk(ast.parse(text)) if isinstance(each, Function))
        long += [f"{name} {each.name}" for each in functions if body_lines(each) > LONGEST_BODY]
    assert long == []


def body_lines(function: Function) -> int:
    first = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
    return (function.end_lineno or 0) - first.lineno + 1


def test_records_are_declared_once() -> None:
    """At most 15 pairs of record types share 80 % of their fields."""
    assert len(count.record_pairs()) <= 15


def test_background_work_runs_in_the_one_loop() -> None:
    """No class repeats work by a loop of its own."""
    assert count.loop_classes() == []


def test_numbers_and_exceptions_have_their_reason_beside_them() -> None:
    """A module's number says why it is that number, `noqa` and `type: ignore` why the rule does not hold there."""
    bare = []
    for path in count.SOURCE.rglob("*.py"):
        if "client/api" in path.as_posix():
            continue  # generated
        text, name = path.read_text("utf-8"), str(path.relative_to(count.SOURCE))
        lines = text.splitlines()
        bare += [f"{name}:{node.lineno}" for node in bare_numbers(ast.parse(text).body, lines)]
        bare += [f"{name}:{number}" for number, line in enumerate(lines, start=1) if BARE_EXCEPTION.search(line)]
    assert bare == []


def bare_numbers(body: list[ast.stmt], lines: list[str]) -> list[ast.stmt]:
    """Numbers, sums of numbers and periods without a comment in their line; a docstring is for those above it."""
    found: list[ast.stmt] = []
    for node in body:
        above = node.lineno - 1
        while isinstance(node, ast.Expr) and found and found[-1].end_lineno == above:
            above = found.pop().lineno - 1
        is_bare = "  # " not in lines[node.lineno - 1] and not lines[node.lineno - 2].startswith("# ")
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value) and is_bare:
            found.append(node)
    return found


def is_number(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "timedelta" and bool(value.keywords)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in {int, float}
