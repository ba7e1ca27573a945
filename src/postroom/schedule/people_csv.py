"""Parse people from CSV; each invalid line yields its number and the problem.

A person is exactly one line, because no field may contain a line break. Each line is parsed separately, so that an
unclosed quote invalidates its own line only.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from postroom.errors import BadInput
from postroom.runtime.spreadsheet import read_lines
from postroom.schedule.check import read_date
from postroom.schedule.model import Person

REQUIRED = ("first_name", "last_name", "date_of_birth", "timezone")
OPTIONAL = ("email", "webhook_url", "locale", "template")
_BROKEN = re.compile(r"[\0\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class PersonLine:
    """One line of the file: a person, or the problem."""

    number: int
    person: Person | None
    problem: str | None = None


def read_people(text: Iterable[str]) -> Iterator[PersonLine]:
    """The lines after the header; raises `BadInput` if the header is invalid."""
    rows = read_lines(text)
    _number, header, problem = next(rows, (1, [], ""))
    columns = _read_header(header, problem)
    for number, cells, problem in rows:
        try:
            yield PersonLine(number, None, problem) if problem else PersonLine(number, _person(columns, cells))
        except BadInput as error:
            yield PersonLine(number, None, "; ".join(f"{each.field}: {each.message}" for each in error.errors))
        except ValueError as error:
            yield PersonLine(number, None, str(error))


def _read_header(cells: list[str], problem: str) -> list[str]:
    if problem:
        raise BadInput.of("header", problem)
    columns = [name.strip().lower() for name in cells]
    with BadInput.naming("header"):
        for name in columns:
            _check_text(name)
    missing = [name for name in REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in (*REQUIRED, *OPTIONAL)]
    twice = sorted(name for name, number in Counter(columns).items() if number > 1)
    for names, wrong in ((missing, "lacks"), (unknown, "has unknown columns:"), (twice, "has more than once:")):
        if names:
            raise BadInput.of("header", f"{wrong} {', '.join(names)}")
    return columns


def _person(columns: list[str], values: list[str]) -> Person:
    if len(values) != len(columns):
        raise ValueError(f"has {len(values)} fields, but the header has {len(columns)}")
    fields = {name: value.strip() for name, value in zip(columns, values, strict=True)}
    for name, value in fields.items():
        with BadInput.naming(name):
            _check_text(value)
    return Person(
        first_name=fields["first_name"],
        last_name=fields["last_name"],
        date_of_birth=read_date(fields["date_of_birth"]),
        timezone=fields["timezone"],
        **{name: fields.get(name) or None for name in OPTIONAL},
    )


def _check_text(value: str) -> None:
    """Raise ValueError for a NUL character or a surrogate, which stands for a byte that is not UTF-8."""
    found = _BROKEN.search(value)
    if found is None:
        return
    if found[0] == "\0":
        raise ValueError("has a NUL character")
    raise ValueError(f"has the byte 0x{ord(found[0]) - 0xDC00:02X}, which is not valid UTF-8")
