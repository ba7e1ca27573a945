"""The sizes and counts that CONTRIBUTING.md and the ADRs promise."""

import ast

from tests.docs import count

LONGEST_FILE = 400
LONGEST_BODY = 40

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
